"""How long to wait before the next try, and when to give up for now. Pure: ends in, events and delays out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from voice_bridge.backoff import Backoff
from voice_bridge.core.lifecycle import Event

QUICK_DEATHS_UNTIL_FAILED: Final = 5
PASSING_TRY_WITHIN: Final = 30.0
REJECTED_PAUSE: Final = 60.0
REPLACED_PAUSE: Final = 60.0
REPLACEMENTS_UNTIL_WARNING: Final = 3
# Three times the pause: two bridges that take turns a minute apart still count as a quarrel, a cloud that closes idle
# connections every few minutes does not.
REPLACED_WINDOW: Final = 180.0

Kind = Literal["rejected", "transient", "replaced", "too_large", "renewed"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a connection ended, for a person, and how patient the next try must be. `retry_after` is seconds."""

    kind: Kind
    text: str
    code: int | None = None
    retry_after: float | None = None


@dataclass(slots=True)
class ServerRetry:
    """A server's tries."""

    backoff: Backoff
    remote: bool
    quick_deaths: int = 0

    def begin_anew(self, *, remote: bool) -> None:
        """Other settings: what went wrong under the old ones does not count."""
        self.remote, self.quick_deaths = remote, 0
        self.backoff = Backoff(self.backoff.minimum, self.backoff.maximum, self.backoff.stable_after)

    def after_death(self, ready_for: float | None) -> tuple[Event, float]:
        """For a server that was ready for so many seconds; None when it never was."""
        stable = ready_for is not None and ready_for >= self.backoff.stable_after
        self.quick_deaths = 1 if stable else self.quick_deaths + 1
        if self.quick_deaths > QUICK_DEATHS_UNTIL_FAILED:
            # A machine elsewhere may be back any minute; a program that keeps dying here needs a person.
            return Event.GAVE_UP, self.backoff.after_failure() if self.remote else self.backoff.maximum
        if stable and ready_for is not None:
            return Event.DIED, self.backoff.after_session(ready_for)
        return Event.DIED, self.backoff.after_failure()

    def after_failed_start(self, *, passing: bool) -> tuple[Event, float]:
        """For a process that could not be started: at once a lasting trouble, unless its cause passes by itself."""
        if passing:
            return Event.DIED, min(self.backoff.after_failure(), PASSING_TRY_WITHIN)
        self.quick_deaths = QUICK_DEATHS_UNTIL_FAILED
        return Event.GAVE_UP, self.backoff.after_failure() if self.remote else self.backoff.maximum


@dataclass(slots=True)
class EndpointRetry:
    """An endpoint's tries."""

    backoff: Backoff
    rejections: int = 0
    _replaced: deque[float] = field(default_factory=lambda: deque(maxlen=REPLACEMENTS_UNTIL_WARNING))

    def after(self, verdict: Verdict, lived: float | None, *, answered: bool, now: float) -> tuple[Event, float]:
        """For a connection that lived so many seconds; None when it never came about. `answered`: it was of use."""
        if verdict.kind == "renewed":
            stable = (lived or 0.0) >= self.backoff.stable_after
            # Tools that change all the time must not become a storm.
            return Event.LOST, 0.0 if stable else self.backoff.after_session(lived or 0.0)
        if verdict.kind == "rejected":
            pause = min(self.backoff.maximum, REJECTED_PAUSE * 2.0 ** min(self.rejections, 16))
            self.rejections += 1
            return Event.REFUSED, max(pause, verdict.retry_after or 0.0)
        delay = self.backoff.after_session(lived or 0.0) if answered else self.backoff.after_failure()
        self.rejections = 0 if answered else self.rejections
        if verdict.kind == "replaced":
            self._replaced.append(now)
            delay = max(delay, REPLACED_PAUSE if self.quarrels(now) else 0.0)
        delay = max(delay, verdict.retry_after or 0.0)
        return (Event.DISPLACED if verdict.kind == "replaced" else Event.LOST), delay

    def quarrels(self, now: float) -> bool:
        """Whether connections were replaced several times of late: somebody else uses the token."""
        return len(self._replaced) == REPLACEMENTS_UNTIL_WARNING and now - self._replaced[0] < REPLACED_WINDOW
