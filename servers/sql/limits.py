"""What one question may cost, and the one error all of this raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from voice_bridge.errors import VoiceBridgeError

_N = TypeVar("_N", int, float)


class QueryError(VoiceBridgeError):
    """A question that cannot be answered; the message tells a model or the owner what to change."""


@dataclass(frozen=True)
class Limits:
    """The most that one call may return or take."""

    rows: int = 500
    size: int = 1_000_000
    """Bytes of the answer's JSON."""
    seconds: float = 5.0

    @property
    def too_slow(self) -> str:
        """The sentence for a query that ran into its deadline."""
        return f"The query took longer than {self.seconds:g} s and was stopped: add WHERE or LIMIT, or simplify it."

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Limits:
        """Return the limits with DATABASE_MAX_ROWS, DATABASE_MAX_BYTES and DATABASE_TIMEOUT (seconds) applied.

        Raises QueryError naming the variable that is no positive number.
        """
        return cls(
            rows=_positive(environment, "DATABASE_MAX_ROWS", int, cls.rows),
            size=_positive(environment, "DATABASE_MAX_BYTES", int, cls.size),
            seconds=_positive(environment, "DATABASE_TIMEOUT", float, cls.seconds),
        )


def _positive(environment: Mapping[str, str], name: str, number: Callable[[str], _N], default: _N) -> _N:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = number(text)
    except ValueError:
        value = number("0")
    if not 0 < value < 1e12:
        raise QueryError(f"{name} is {text!r}: set it to a positive number, or remove it for the default of {default}.")
    return value
