"""Everything this package raises on purpose.

::

    VoiceBridgeError            a sentence for a person: the thing, the cause, the remedy
    ├── UsageError              the command line or the environment is wrong; exit status 2
    │   └── ConfigError         the settings file is wrong: file, line and column where known
    ├── ServerError             an MCP server could not be started, or ended
    ├── CallError               a tool call that the router or a server answered with a JSON-RPC error
    ├── ModelError              the agent's model did not answer (voice_bridge.agent.errors; TooLong, Refused below it)
    └── StoreError              the agent's conversations could not be kept (voice_bridge.agent.errors)

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
