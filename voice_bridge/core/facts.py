"""What happened, told once. The log, the status and the demonstration are readers of these; nobody infers. Pure data.

A fact carries no time: the board notes when it was told. Durations are seconds, `ms` milliseconds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Outcome = Literal["ok", "tool_error", "error", "timed_out", "server_died", "cancelled", "client_gone"]
Level = Literal["debug", "info", "warning", "error"]


class ServerState(NamedTuple):
    """A server changed its state. `took` is the time from its start until it was ready."""

    server: str
    key: str
    state: str
    reason: str = ""
    next_try_in: float | None = None
    took: float | None = None
    tools: int = 0
    pid: int | None = None
    remote: bool = False


class EndpointState(NamedTuple):
    """An endpoint changed its state. `lived` is how long the connection that ended had been open, if it ever was."""

    endpoint: str
    state: str
    reason: str = ""
    next_try_in: float | None = None
    lived: float | None = None
    code: int | None = None


class CallStarted(NamedTuple):
    """A client's request went to a server."""

    call: int
    endpoint: str
    server: str
    method: str
    tool: str
    bytes_in: int


class CallEnded(NamedTuple):
    """A client's request that went to a server is over; `error` never holds a result's text."""

    call: int
    endpoint: str
    server: str
    method: str
    tool: str
    outcome: Outcome
    ms: float
    bytes_in: int
    bytes_out: int = 0
    shortened: bool = False
    error: str = ""


class ListsChanged(NamedTuple):
    """What a server offers has changed."""

    server: str
    kinds: tuple[str, ...]


class ServerSaid(NamedTuple):
    """A server wrote a line to its stderr."""

    server: str
    text: str


class Noise(NamedTuple):
    """Somebody sent what is no message or what nobody waits for; `held` counts what was left out before it."""

    subject: str
    text: str
    held: int = 0


class Remark(NamedTuple):
    """A sentence about a server, an endpoint or the bridge itself that belongs to no other kind."""

    subject: str
    text: str
    level: Level = "info"


class SettingsApplied(NamedTuple):
    """New settings are in use; `problems` are sentences on entries that cannot be."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changed: bool = True


class SettingsRefused(NamedTuple):
    """A changed file cannot be used: the settings in use stay."""

    reason: str


class TaskFailed(NamedTuple):
    """A part of the bridge broke and is started again."""

    task: str
    reason: str
    next_try_in: float


class Fault(NamedTuple):
    """A fault in the bridge itself cost one message; `trace` is for the report."""

    subject: str
    trace: str


Fact = (
    ServerState | EndpointState | CallStarted | CallEnded | ListsChanged | ServerSaid | Noise | Remark
    | SettingsApplied | SettingsRefused | TaskFailed | Fault
)  # fmt: skip
