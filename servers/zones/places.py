"""Which zones a city, a country or an abbreviation means, from CLDR (babel) and the tz database's own tables.

Cities and countries are CLDR's names in five languages; what part of a country a zone covers and which zone covers
most of it is told by the comments of the tz database's zone.tab. What no table tells is in spoken.py.
"""

from __future__ import annotations

import importlib.resources
import re
import unicodedata
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

LANGUAGES = ("en", "ja", "zh", "zh_Hant", "ko")
_CONTINENTS = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
_COMPASS = ("Australia/North", "Australia/South", "Australia/West")
_MOST_OF_IT = re.compile(r"^most of|\(mainland\)|\(peninsula\)")


def folded(name: str) -> str:
    """Return `name` without what people write differently: case, accents, spaces, punctuation, a closing "time"."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    # Latin accents go, but not the marks that make バリ out of ハリ.
    plain = "".join(sign for sign in plain if sign.isalnum() or sign in "\u3099\u309a")
    plain = unicodedata.normalize("NFC", plain)
    return re.sub(r"(?<=..)(?:standard)?time$|(?<=.)(?:(?:标准|標準)?(?:时间|時間)|標準時|표준시|시간)$", "", plain)


@cache
def cities() -> dict[str, tuple[str, ...]]:
    """Return zones by the folded name of their city, in every language."""
    from babel import Locale
    from babel.core import get_global

    names: dict[str, set[str]] = defaultdict(set)
    known = available_timezones()
    for zone in get_global("zone_territories"):
        if zone in known and zone.startswith(_CONTINENTS):
            names[folded(zone.rpartition("/")[2])].add(zone)
    for alias, zone in get_global("zone_aliases").items():
        if zone in known and alias.startswith(_CONTINENTS) and alias not in _COMPASS:
            names[folded(alias.rpartition("/")[2])].add(zone)
    for language in LANGUAGES:
        for zone, texts in Locale.parse(language).time_zones.items():
            if zone in known and "city" in texts:
                names[folded(texts["city"])].add(zone)
    for country in _table().values():
        for zone, comment in country:
            if named := re.fullmatch(r"(\w+) Time", comment):
                names.setdefault(folded(named[1]), {zone})
    return {name: tuple(sorted(zones)) for name, zones in names.items()}


@cache
def countries() -> dict[str, str]:
    """Return ISO 3166 codes by the folded name of the country, in every language, and by code."""
    from babel import Locale
    from babel.core import get_global

    names: dict[str, str] = {}
    zones = get_global("territory_zones")
    for code, targets in get_global("territory_aliases").items():
        # Of the others with two letters the states are no more, and a number is rather an offset gone wrong.
        if len(targets) == 1 and targets[0] in zones and (code == "UK" or (len(code) > 2 and code.isalpha())):
            names[folded(code)] = targets[0]
    for code in zones:
        names[folded(code)] = code
    for language in LANGUAGES:
        for code, name in Locale.parse(language).territories.items():
            if code in zones:
                names[folded(name)] = code
    return names


@cache
def metazones() -> dict[str, str]:
    """Return the zone that an official name such as "Eastern Standard Time" or "한국 표준시" stands for."""
    from babel import Locale
    from babel.core import get_global

    members: dict[str, list[str]] = defaultdict(list)
    for zone, metazone in get_global("meta_zones").items():
        members[metazone].append(zone)
    names: dict[str, str] = {}
    windows = get_global("windows_zone_mapping")
    english = Locale.parse("en").meta_zones
    for language in LANGUAGES:
        for metazone, texts in Locale.parse(language).meta_zones.items():
            if metazone not in members or "long" not in texts:
                continue
            # A metazone may hold places without summer time; Windows knows which one the name itself means.
            official = english.get(metazone, texts)["long"].get("standard", "")
            zone = windows.get(official) or _usual(members[metazone])
            for form in ("generic", "standard"):
                if form in texts["long"]:
                    names.setdefault(folded(texts["long"][form]), zone)
    return names


def zones_of_country(code: str) -> list[str]:
    """Return one zone for each clock in use in the country; a zone that covers most of it comes alone."""
    from babel import Locale
    from babel.core import get_global

    known = available_timezones()
    rows = _table().get(code) or [(zone, "") for zone in sorted(get_global("territory_zones")[code])]
    rows = [row for row in rows if row[0] in known]
    english = Locale.parse("en").territories.get(code, "").replace(" ", "_")
    clocks: dict[tuple[timedelta, ...], list[str]] = defaultdict(list)
    for zone, comment in rows:
        # CLDR's "China" or "New_Zealand" metazone is what the whole country goes by.
        if _MOST_OF_IT.search(comment) or get_global("meta_zones").get(zone) == english:
            return [zone]
        clocks[clock(zone)].append(zone)
    return [_usual(zones) for zones in clocks.values()]


def country_name(code: str) -> str:
    """Return the English name of the country with an ISO 3166 code."""
    from babel import Locale

    return str(Locale.parse("en").territories.get(code, code))


def country_of(zone: str) -> str:
    """Return the ISO 3166 code of the country that the zone is in; empty when it is in none."""
    from babel.core import get_global

    return str(get_global("zone_territories").get(zone, ""))


def zones_abbreviated(abbreviation: str) -> dict[timedelta, str]:
    """Return one zone for each offset that is called so at some time of this year, such as three for CST."""
    return {
        offset: _usual(zones) for offset, zones in _abbreviations(datetime.now(UTC).year).get(abbreviation, {}).items()
    }


@cache
def _abbreviations(year: int) -> dict[str, dict[timedelta, list[str]]]:
    from babel.core import get_global

    known = available_timezones()
    found: dict[str, dict[timedelta, list[str]]] = defaultdict(lambda: defaultdict(list))
    for zone in sorted(get_global("zone_territories")):
        if zone not in known:
            continue
        local = (moment.astimezone(ZoneInfo(zone)) for moment in _half_years(year))
        for name, offset in {(moment.tzname() or "", moment.utcoffset() or timedelta()) for moment in local}:
            found[name][offset].append(zone)
    return found


def _usual(zones: list[str]) -> str:
    """Return the best known of zones with one clock: zonenow.tab names the most populous place of each.

    One with summer time comes first: it is what people have in mind who say EST or AEST.
    """
    return min(zones, key=lambda zone: (zone not in _zones_now(), len(set(clock(zone))) == 1))


def described(zone: str) -> str:
    """Return the zone with its offset now and the part of the country it covers."""
    offset = datetime.now(ZoneInfo(zone)).strftime("%z")
    comments = {row: comment for rows in _table().values() for row, comment in rows}
    comment = f", {comments[zone]}" if comments.get(zone) else ""
    return f"{zone} (UTC{offset[:3]}:{offset[3:5]}{comment})"


@cache
def _table() -> dict[str, list[tuple[str, str]]]:
    """Return zones and their comments by country, in zone.tab's order; empty when there is no such file."""
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in _file("zone.tab").splitlines():
        if line and not line.startswith("#"):
            code, _, zone, *comment = line.split("\t")
            rows[code].append((zone, comment[0] if comment else ""))
    return dict(rows)


@cache
def _zones_now() -> frozenset[str]:
    """Return the zones of zonenow.tab."""
    rows = (line.split("\t") for line in _file("zonenow.tab").splitlines() if line and not line.startswith("#"))
    return frozenset(row[2] for row in rows)


def _file(name: str) -> str:
    """Return one of the tz database's tables, from the tzdata package or the system; empty when neither has it."""
    try:
        return importlib.resources.files("tzdata").joinpath("zoneinfo", name).read_text(encoding="utf-8")
    except (ImportError, OSError):
        pass
    for folder in TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def _half_years(year: int) -> tuple[datetime, datetime]:
    return datetime(year, 1, 15, tzinfo=UTC), datetime(year, 7, 15, tzinfo=UTC)


def clock(zone: str) -> tuple[timedelta, ...]:
    """Return the zone's offsets in the two halves of this year; zones that share them show one clock.

    Empty for a zone that this machine's time zone data is too old to have.
    """
    year = datetime.now(UTC).year
    try:
        tz = ZoneInfo(zone)
    except ZoneInfoNotFoundError:
        return ()
    return tuple(moment.astimezone(tz).utcoffset() or timedelta() for moment in _half_years(year))
