"""How long to wait before the next try. Pure: no clock and no sleep, `random` is passed in."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from dataclasses import dataclass, field

JITTER = 0.2
LARGEST_EXPONENT = 40


@dataclass(slots=True)
class Backoff:
    """Delays in seconds: `minimum`, doubled each time up to `maximum`, each ±20 %.

    Only a session that lived `stable_after` seconds starts the sequence anew. A session that was completed but died
    sooner earns a short first redial, then delays that grow to `stable_after`: a cloud that restarts is met again at
    once, one that shakes hands and hangs up is not hammered.
    """

    minimum: float = 1.0
    maximum: float = 600.0
    stable_after: float = 30.0
    random: Callable[[], float] = field(default=_random.random, repr=False)
    failures: int = 0
    brief_sessions: int = 0

    def pace(self, minimum: float, maximum: float, stable_after: float) -> None:
        """Other limits from now on; what was counted stays."""
        self.minimum, self.maximum, self.stable_after = minimum, maximum, stable_after

    def after_failure(self) -> float:
        """The wait after a try that never became a session."""
        delay = self._grown(self.failures, self.maximum)
        self.failures += 1
        return delay

    def after_session(self, lived: float) -> float:
        """The wait after a completed session that lived so many seconds."""
        self.failures = 0
        if lived >= self.stable_after:
            self.brief_sessions = 0
        delay = self._grown(self.brief_sessions, max(self.minimum, min(self.stable_after, self.maximum)))
        self.brief_sessions += 1
        return delay

    def _grown(self, doublings: int, ceiling: float) -> float:
        delay = min(ceiling, self.minimum * 2.0 ** min(doublings, LARGEST_EXPONENT))
        return delay * (1 - JITTER + 2 * JITTER * self.random())
