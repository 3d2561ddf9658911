"""Cities by what people call them, from the GeoNames data beside this file; LICENCE.md there tells whose it is."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("cities.tsv.xz")
_RIVAL = 50
_RIVALS_SHARE = 10


class City(NamedTuple):
    """A city, or a state of the USA; `people` are thousands."""

    people: int
    country: str
    zone: str
    name: str
    code: str
    """Of the state: of a city in the USA, or of the state itself; else empty."""
    is_state: bool


def cities_called(key: str) -> list[City]:
    """Return the cities with the folded name `key`, or the state with the code `key` such as =WA, the largest first."""
    text, wanted = _text(), f"\t{key}\t"
    found = []
    at = text.find(wanted)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        people, region, zone, name, *_ = text[start:end].split("\t")
        found.append(City(int(people), region[:2], zone, name, region[3:], region[2:3] == "/"))
        at = text.find(wanted, end)
    return found


def is_rival(people: int, of: int) -> bool:
    """Return whether somebody may mean a place with so many thousands of people by the name of one that has `of`.

    Nobody means London in Ontario, which has a twentieth of London's, nor Geneva in Illinois, a town.
    """
    return people >= _RIVAL and people * _RIVALS_SHARE >= of


def main_names(initial: str) -> list[str]:
    """Return the folded main names that begin with `initial`."""
    return [key for line in _text().splitlines() if (key := line.split("\t", 5)[4]).startswith(initial)]


@cache
def _text() -> str:
    # Searched as it is: an index of it would take longer to make than most servers live to use it.
    return lzma.decompress(FILE.read_bytes()).decode()
