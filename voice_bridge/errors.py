"""Everything that this repository raises on purpose: each class, the module it lives in, and what it means.

::

    VoiceBridgeError         voice_bridge.errors                  a sentence for a person: cause and remedy; status 1
    ├── UsageError           voice_bridge.errors                  the command line or the environment is wrong; status 2
    │   ├── ConfigError      voice_bridge.errors                  the settings file is wrong: line and column if known
    │   └── EndpointTaken    voice_bridge.errors                  another bridge on this machine serves the endpoint
    ├── ServerError          voice_bridge.errors                  an MCP server could not be started, or ended
    ├── CallError            voice_bridge.errors                  a call was answered with a JSON-RPC error
    ├── ModelError           voice_bridge.agent.errors            the agent's model gave no reply
    │   ├── TooLong          voice_bridge.agent.errors            the request does not fit the model's context
    │   └── Refused          voice_bridge.agent.errors            the API found fault with a part that can be left out
    ├── StoreError           voice_bridge.agent.errors            the conversations cannot be read or written
    ├── DemoFailed           voice_bridge.cli.demo                the demonstration came to nothing
    ├── CalculationError     servers.arithmetic.numbers           an expression has no value; a ValueError too
    ├── DocumentsError       servers.docsearch.errors             documents cannot be searched, listed or filled
    ├── QueryError           servers.sql.limits                   a question to the database cannot be answered
    └── ZoneError            servers.zones.resolve                a time zone or a time cannot be understood

    Exception
    ├── SessionError         voice_bridge.simulator.messages      the simulated cloud's session went wrong
    │   ├── NoAnswer         voice_bridge.simulator.messages      the bridge did not answer in time
    │   ├── Disconnected     voice_bridge.simulator.messages      the bridge hung up
    │   └── BadAnswer        voice_bridge.simulator.messages      the bridge answered something the cloud cannot use
    ├── CommandError         voice_bridge.simulator.commands      a line typed to the simulator cannot be understood
    ├── BridgeEnded          voice_bridge.simulator.process       the demonstration's bridge ended too soon
    ├── Interrupted          voice_bridge.agent.interrupts        a person pressed Ctrl-C during the work
    ├── LineCleared          voice_bridge.agent.prompt            a person pressed Ctrl-C on a line half typed
    ├── BrokenOff            voice_bridge.agent.failures          the model's answer ended in the middle
    └── _DuplicateKey        voice_bridge.config.source           a settings file names a key twice

    ValueError
    ├── BadMessage           voice_bridge.protocol.jsonrpc        the bytes are no JSON-RPC message
    ├── Unnamed              voice_bridge.core.handlers.naming    params name nothing, or more than one thing
    ├── UnsetVariable        voice_bridge.config.expand           ${VAR} names a variable that is not set
    └── UnusableSchema       voice_bridge.agent.schemas           the model's API would refuse a tool's schema

No message of these errors contains a token, a key or a header's value.
"""

from __future__ import annotations


class VoiceBridgeError(Exception):
    """The base of every error that is meant for a person's eyes."""


class UsageError(VoiceBridgeError):
    """The command line or the environment asks for something impossible."""


class ConfigError(UsageError):
    """The settings file cannot be used."""


class EndpointTaken(UsageError):
    """Another bridge on this machine serves the endpoint; `holder` is its process id as text, or "unknown"."""

    def __init__(self, name: str, holder: str) -> None:
        served = f"endpoint {name!r} is already served by another bridge on this machine"
        super().__init__(f"{served} (process {holder}); stop that one first")
        self.holder = holder


class ServerError(VoiceBridgeError):
    """An MCP server could not be started, or ended.

    `passing` says that the cause may go away by itself (a mount that is missing yet, too many open files), so that
    another try is worth while without a person's help.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class CallError(VoiceBridgeError):
    """A call was answered with a JSON-RPC error (JSON-RPC 2.0 §5.1).

    `code` is the JSON-RPC code; the message is the answerer's own text.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
