"""What happens at the cloud, as it is told to whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass

from websockets.datastructures import Headers

from voice_bridge.simulator.messages import Dropped, Frame
from voice_bridge.simulator.session import CloudSession


@dataclass(frozen=True, slots=True)
class Attempt:
    """One handshake that was tried. `at` is `time.monotonic()` at its answer; the path comes without its query."""

    at: float
    path: str
    headers: Headers
    status: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A bridge has connected."""

    session: CloudSession


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is through and the tools are known."""

    session: CloudSession


@dataclass(frozen=True, slots=True)
class Failed:
    """The handshake did not go as it should; the sentence says how."""

    session: CloudSession
    why: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection has ended."""

    session: CloudSession
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A handshake was turned down."""

    attempt: Attempt
    why: str


@dataclass(frozen=True, slots=True)
class Framed:
    """A frame went over the wire."""

    session: CloudSession
    frame: Frame


@dataclass(frozen=True, slots=True)
class Ignored:
    """The bridge sent something this cloud does not use."""

    session: CloudSession
    dropped: Dropped


Event = Opened | Ready | Failed | Closed | Rejected | Framed | Ignored
