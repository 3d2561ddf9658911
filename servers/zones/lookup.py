"""Which zone a name means that is no IANA name and no offset, and what is told when it could be another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from servers.zones import gazetteer
from servers.zones.gazetteer import City, is_rival
from servers.zones.places import (
    cities,
    clock,
    countries,
    country_name,
    country_of,
    described,
    folded,
    metazones,
    zones_abbreviated,
    zones_of_country,
)
from servers.zones.resolve import Zone, ZoneError
from servers.zones.spoken import ABBREVIATED, said

_WORTH_TELLING = 1_000
"""Thousands of people a city or state must have to be told of when a country has its name, such as Georgia."""


def abbreviated(name: str) -> Zone | None:
    """Return the zone of an abbreviation such as EDT; None when nobody's clock is called so.

    Raises ZoneError with the candidates when several offsets are called so.
    """
    # In small letters longer ones are words: west, eat.
    if not re.fullmatch(r"[A-Z]{3,5}|[a-z]{3}", name) or not (found := zones_abbreviated(name.upper())):
        return None
    zone = _only(name, list(found.values()))
    if (better := ABBREVIATED.get(name.upper())) and (known := _known(better)):
        zone = known
    return Zone(zone.name, zone.tz, abbreviation=name.upper(), stated=next(iter(found)))


def find(name: str) -> Zone:
    """Return the zone of a city, a country, an official name such as Eastern Time or whatever else people call one.

    Raises ZoneError as `resolve` does.
    """
    found = _found(name)
    if found is None and "," in name:
        found = _in_region(*name.rsplit(",", 1))
    if found is None:
        raise ZoneError(_unknown(name))
    return found


def _found(name: str) -> Zone | None:
    key = folded(name)
    if people_say := said(key):
        return _only(name, [people_say.zone], people_say.note)
    called = _called(name, key)
    if code := countries().get(key):
        return _country(name, code, called)
    if called:
        return _largest(name, called)
    official = metazones().get(key)
    return _only(name, [official]) if official else None


def _called(name: str, key: str) -> list[City]:
    """Return the places that are called so, the one that is meant first."""
    called = gazetteer.cities_called(f"={name}") if re.fullmatch("[A-Z]{2}", name) else gazetteer.cities_called(key)
    zones = cities().get(key, ())
    # GeoNames has the names of all languages: Cancun is Changchun in one. They count where it is nobody's own name.
    own = [city for city in called if _is_own(city, key)]
    if own or zones:
        called = own
    clocks = {clock(city.zone) for city in called}
    called += [_city_of(zone) for zone in zones if clock(zone) not in clocks]
    return sorted(called, key=lambda city: -city.people)


def _city_of(zone: str) -> City:
    """Return the city that an IANA name is made of, which is one of nobody when it is too small to be known."""
    name = zone.rpartition("/")[2].replace("_", " ")
    known = (city for city in gazetteer.cities_called(folded(name)) if city.zone == zone)
    return next(known, City(0, country_of(zone), zone, name, "", False))


def _is_own(city: City, key: str) -> bool:
    main = folded(city.name)
    return not key.isascii() or city.is_state or key in main or difflib.SequenceMatcher(None, key, main).ratio() > 0.85


def _largest(name: str, called: Sequence[City]) -> Zone:
    first, *rest = called
    known = cities().get(folded(name), ())
    others = [city for city in rest if is_rival(city.people, first.people) or city.zone in known]
    if not (told := _told(others, [first])):
        return _only(name, [first.zone])
    return _only(name, [first.zone], f"{name} is taken as {_label(first)}; {told}.")


def _country(name: str, code: str, called: Iterable[City]) -> Zone:
    zones = zones_of_country(code)
    known = cities().get(folded(name), ())
    others = [city for city in called if city.people >= _WORTH_TELLING or city.is_state or city.zone in known]
    if len(zones) > 1:
        return _only(name, zones, _told(others, []))
    told = _told(others, [City(0, code, zones[0], "", "", False)])
    return _only(name, zones, f"{name} is taken as the country {country_name(code)}; {told}." if told else "")


def _told(others: Iterable[City], taken: Sequence[City]) -> str:
    """Return where else it may be, one place for each clock that is not one of `taken`; empty when nowhere."""
    clocks = {clock(city.zone) for city in taken}
    states = {city.code for city in taken if city.is_state}
    told = []
    for city in others:
        if clock(city.zone) not in clocks:
            clocks.add(clock(city.zone))
            told.append(f"for {'its other part' if city.code in states else _label(city)}, send {city.zone}")
        if city.is_state:
            states.add(city.code)
    return "; ".join(told[:3])


def _label(city: City) -> str:
    if city.is_state:
        return f"the state of {city.name}"
    return ", ".join(filter(None, (city.name, city.code, country_name(city.country))))


def _in_region(city: str, region: str) -> Zone | None:
    """Return the zone of "Portland, Maine", "Paris, France"; None when there is no such place in the region."""
    key, country, states = folded(city), _country_called(region.strip()), _states_called(region.strip())

    def is_there(code: str, state: str = "") -> bool:
        return code == country or (code == "US" and state in states)

    here = [each for each in gazetteer.cities_called(key) if not each.is_state and is_there(each.country, each.code)]
    if here:
        return _largest(city.strip(), here)
    nickname = said(key)
    if nickname and (country_of(nickname.zone) == country or (states and country_of(nickname.zone) == "US")):
        return _only(city.strip(), [nickname.zone], nickname.note)
    return None


def _country_called(region: str) -> str:
    people_say = said(folded(region))
    return countries().get(folded(region)) or (country_of(people_say.zone) if people_say else "")


def _states_called(region: str) -> set[str]:
    called = [*gazetteer.cities_called(f"={region.upper()}"), *gazetteer.cities_called(folded(region))]
    return {state.code for state in called if state.is_state}


def _only(name: str, zones: Sequence[str], note: str = "") -> Zone:
    if len(zones) > 1:
        candidates = "; ".join([*map(described, zones[:12]), *filter(None, [note])])
        raise ZoneError(f"{name!r} can mean several time zones: send one of {candidates}.")
    if zone := _known(zones[0]):
        return Zone(zone.name, zone.tz, note)
    raise ZoneError(f"{zones[0]} is missing from this machine's time zone data: update tzdata.")


def _known(key: str) -> Zone | None:
    try:
        return Zone(key, ZoneInfo(key))
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _unknown(name: str) -> str:
    key = folded(name)
    names = [*cities(), *countries(), *gazetteer.main_names(key[:1])]
    near = list(dict.fromkeys(difflib.get_close_matches(key, names, n=5, cutoff=0.75)))[:3]
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return (
        f"{name!r} is not a known time zone, city or country{hint}: send the IANA name of its zone, such as Asia/Tokyo "
        "or America/Los_Angeles, or an offset such as UTC+8."
    )
