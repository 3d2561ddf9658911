"""Which URIs a server's template can expand to (RFC 6570), however the template is made.

A regular expression would try every way to share a URI among the variables. Here all ways go forward together: a whole
number holds one bit for each place in the URI that the template, as far as it was read, can lead to. So the time is
the template's length times a few passes over the URI, 64 places at a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


class _Gap(NamedTuple):
    """A variable part: what its text begins with unless there is none, and whether it ends before a slash."""

    lead: bytes
    within_segment: bool


# RFC 6570 §3.2.2 to §3.2.9, loosely: only what is bound to be there, or bound not to be.
_SIMPLE: Final = _Gap(b"", True)
_GAPS: Final = {
    "+": _Gap(b"", False), "#": _Gap(b"#", False), ".": _Gap(b".", True), "/": _Gap(b"/", False),
    ";": _Gap(b";", True), "?": _Gap(b"?", False), "&": _Gap(b"&", False),
}  # fmt: skip


def first_fit(templates: Iterable[str], uri: str) -> str | None:
    """The first of the templates that can expand to the URI."""
    places = _Places(_encoded(uri))
    return next((template for template in templates if places.fit(_parts(template))), None)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[bytes | _Gap, ...]:
    """The template's literal and variable parts; braces without a partner are literal."""
    split = _EXPRESSION.split(template)  # literal, variable, literal, … literal
    return tuple(_GAPS.get(part[:1], _SIMPLE) if number % 2 else _encoded(part) for number, part in enumerate(split))


class _Places:
    """The places before, between and after the bytes of a URI, as sets: bit n is the place after n bytes."""

    def __init__(self, uri: bytes) -> None:
        self._uri = uri
        self._every = (1 << len(uri)) - 1
        self._before: dict[int, int] = {}

    def fit(self, parts: tuple[bytes | _Gap, ...]) -> bool:
        """Whether the parts, one after the other, make the whole URI."""
        if isinstance(parts[0], bytes) and not self._uri.startswith(parts[0]):
            return False
        reached = 1
        for part in parts:
            reached = self._after_text(reached, part) if isinstance(part, bytes) else self._after_gap(reached, part)
            if not reached:
                return False
        return bool(reached >> len(self._uri))

    def _after_text(self, reached: int, text: bytes) -> int:
        for byte in text:
            reached = (reached & self._places_before(byte)) << 1
            if not reached:
                break
        return reached

    def _after_gap(self, reached: int, gap: _Gap) -> int:
        begun = self._after_text(reached, gap.lead)
        free = self._every & ~self._places_before(ord("/")) if gap.within_segment else self._every
        # Adding a bit to a run of ones carries to the run's end: all places from there on differ from the run.
        return reached | begun | (((begun & free) + free) ^ free)

    def _places_before(self, byte: int) -> int:
        if byte not in self._before:
            table = bytes(ord("1") if each == byte else ord("0") for each in range(256))
            self._before[byte] = int(self._uri[::-1].translate(table) or b"0", 2)
        return self._before[byte]
