"""The life of a server and of an endpoint: one table each of which state follows on which event.

A server::

    stopped ──wanted──▶ starting ──answered──▶ ready
                           ▲  │died               │died
                        due│  ▼                   ▼
                         backoff ◀────────────────┘        gave_up leads to failed instead, which is tried more slowly

An endpoint::

    stopped ──wanted──▶ waiting ──granted──▶ dialling ──opened──▶ connected ──answered──▶ ready
                     (for servers or          ▲   │lost               │lost                 │lost
                      ownership)           due│   ▼                   ▼                     ▼
                                            backoff ◀─────────────────┴─────────────────────┘
                                          (refused leads to rejected, displaced to replaced)

`unwanted` leads to stopped from everywhere, and `renewed` (other settings, or a server that has to be told more) to a
new beginning: starting, or waiting. What has to be opened waits until nothing of the earlier life runs any more: two
processes of one server, or two sockets of one token, do not get on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a server or an endpoint is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    FAILED = "failed"
    WAITING = "waiting"
    DIALLING = "dialling"
    CONNECTED = "connected"
    REJECTED = "rejected"
    REPLACED = "replaced"


class Event(StrEnum):
    """What can happen to it."""

    WANTED = "wanted"  # the settings, or somebody's call, ask for it
    UNWANTED = "unwanted"
    GRANTED = "granted"  # the endpoint may be dialled
    OPENED = "opened"  # its socket is up
    ANSWERED = "answered"  # a server told its lists; a client asked and was answered
    DIED = "died"
    GAVE_UP = "gave up"  # it died too often, or for a reason that does not pass by itself
    LOST = "lost"
    REFUSED = "refused"  # the cloud does not want the token
    DISPLACED = "displaced"  # somebody else took the token's place
    RENEWED = "renewed"  # it is to begin anew
    DUE = "due"  # the wait is over, or somebody asked to try at once
    GONE = "gone"  # nothing of it runs any more


class Act(StrEnum):
    """What a transition asks of the runtime."""

    NONE = "none"
    OPEN = "open"
    CLOSE = "close"
    REOPEN = "reopen"  # close what runs; open when it is gone


Table = Mapping[tuple[State, Event], tuple[State, Act]]
_S, _E = State, Event

SERVER: Final[Table] = {
    (_S.STOPPED, _E.WANTED): (_S.STARTING, Act.OPEN),
    (_S.STARTING, _E.ANSWERED): (_S.READY, Act.NONE),
    (_S.STARTING, _E.DIED): (_S.BACKOFF, Act.CLOSE),
    (_S.STARTING, _E.GAVE_UP): (_S.FAILED, Act.CLOSE),
    (_S.READY, _E.DIED): (_S.BACKOFF, Act.CLOSE),
    (_S.READY, _E.GAVE_UP): (_S.FAILED, Act.CLOSE),
    (_S.BACKOFF, _E.DUE): (_S.STARTING, Act.OPEN),
    (_S.FAILED, _E.DUE): (_S.STARTING, Act.OPEN),
    **{(state, _E.RENEWED): (_S.STARTING, Act.REOPEN) for state in (_S.STARTING, _S.READY, _S.BACKOFF, _S.FAILED)},
    **{(state, _E.UNWANTED): (_S.STOPPED, Act.CLOSE) for state in (_S.STARTING, _S.READY, _S.BACKOFF, _S.FAILED)},
}

_UP: Final = (_S.DIALLING, _S.CONNECTED, _S.READY)
_AWAY: Final = (_S.BACKOFF, _S.REJECTED, _S.REPLACED)

ENDPOINT: Final[Table] = {
    (_S.STOPPED, _E.WANTED): (_S.WAITING, Act.NONE),
    (_S.WAITING, _E.GRANTED): (_S.DIALLING, Act.OPEN),
    (_S.DIALLING, _E.OPENED): (_S.CONNECTED, Act.NONE),
    (_S.CONNECTED, _E.ANSWERED): (_S.READY, Act.NONE),
    **{(state, _E.LOST): (_S.BACKOFF, Act.NONE) for state in _UP},
    **{(state, _E.REFUSED): (_S.REJECTED, Act.NONE) for state in _UP},
    **{(state, _E.DISPLACED): (_S.REPLACED, Act.NONE) for state in _UP},
    **{(state, _E.DUE): (_S.DIALLING, Act.OPEN) for state in _AWAY},
    **{(state, _E.RENEWED): (_S.WAITING, Act.CLOSE) for state in (_S.WAITING, *_UP, *_AWAY)},
    **{(state, _E.UNWANTED): (_S.STOPPED, Act.CLOSE) for state in (_S.WAITING, *_UP, *_AWAY)},
}


@dataclass(slots=True)
class Life:
    """Where one server or endpoint is. Times are the caller's monotonic clock.

    `running` says that a process or a socket of it exists or is still being ended; the runtime reports its end.
    """

    table: Table
    state: State = State.STOPPED
    since: float = 0.0
    reason: str = ""
    next_try: float | None = None
    running: bool = False
    closing: bool = False
    _to_open: bool = False

    def take(self, event: Event, now: float, reason: str = "", next_try: float | None = None) -> Act | None:
        """What is to be done now; None for an event that means nothing in this state. `reason` is why it came so."""
        if event is Event.GONE:
            self.running = self.closing = False
            return Act.OPEN if self._open() else None
        row = self.table.get((self.state, event))
        if row is None:
            return None
        (self.state, act), self.since = row, now
        self.reason, self.next_try = reason, next_try
        self._to_open = act in (Act.OPEN, Act.REOPEN)
        if act in (Act.CLOSE, Act.REOPEN) and self.running and not self.closing:
            self.closing = True
            return Act.CLOSE
        return Act.OPEN if self._open() else Act.NONE

    def _open(self) -> bool:
        if not self._to_open or self.running:
            return False
        self._to_open, self.running = False, True
        return True
