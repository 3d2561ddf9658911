"""A limit for lines that somebody else makes us write. Pure: the time is passed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Quota:
    """Lets so many lines through in each window of seconds and counts the rest."""

    lines: int = 20
    window: float = 10.0
    _began: float = float("-inf")
    _passed: int = 0
    _held: int = 0

    def admit(self, now: float) -> tuple[bool, int]:
        """Whether a line may pass, and how many were held back since the last line that did."""
        if now - self._began >= self.window:
            self._began, self._passed = now, 0
        if self._passed >= self.lines:
            self._held += 1
            return False, 0
        self._passed += 1
        held, self._held = self._held, 0
        return True, held
