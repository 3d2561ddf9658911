"""A time somebody names, and whether it exists once, twice or not at all in its zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, timezone

from servers.zones.machine import local
from servers.zones.resolve import Zone, ZoneError, resolve

_AT = re.compile(
    r"""(?P<date>\d{4}-\d{1,2}-\d{1,2})?[T\s]*
        (?:(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::(?P<second>\d{2})(?:\.\d+)?)?\s*(?P<half>[ap]\.?m\.?)?)?
        \s*(?P<zone>[^\d\s].*)?""",
    re.VERBOSE | re.IGNORECASE,
)


# Words that stand where a zone may stand: MAR is also Morocco, and SUN was a country.
_DAY_OR_MONTH = re.compile(
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?|(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)\b\.?(?:[\s,]*\d.*)?",
    re.IGNORECASE,
)


def parse(at: str, zone: Zone | None) -> tuple[datetime, Zone, str]:
    """Return the moment `at`, the zone it was given in, and a note when that can be read in another way too.

    `zone` counts unless `at` names one itself: `2026-11-30T15:00+09:00`, `15:00 Asia/Tokyo`, `3 pm London`; without
    either it is this machine's, and without a date it is today there. Raises ZoneError.
    """
    match = _AT.fullmatch(at.strip()) if len(at) < 200 else None
    if match is None or not (match["date"] or match["hour"]):
        raise ZoneError(f"{at[:60]!r} is not a time: send YYYY-MM-DD HH:MM or HH:MM, and the zone in at_timezone.")
    named = match["zone"] and match["zone"].strip(" ,()")
    if named and _DAY_OR_MONTH.fullmatch(named):
        raise ZoneError(f"{at[:60]!r} is a date in words: send it as YYYY-MM-DD or YYYY-MM-DD HH:MM.")
    own = resolve(named) if named else None
    used = own or zone or local()
    try:
        today = datetime.now(used.tz).date()
        day = datetime.strptime(match["date"], "%Y-%m-%d").date() if match["date"] else today
        wall = datetime.combine(day, _clock(match))
    except ValueError as error:
        raise ZoneError(f"{at[:60]!r} is not a time ({error}): send YYYY-MM-DD HH:MM with hours up to 23.") from None
    moment, used, note = _in_zone(wall, used)
    if own and zone and moment.utcoffset() != _in_zone(wall, zone)[0].utcoffset():
        note = _joined(note, f"{named!r} in the time counts, and not the other zone, {zone.named(moment)}.")
    return moment, used, note


def shown_in(moment: datetime, zone: Zone) -> tuple[datetime, Zone, str]:
    """Return the moment as a clock in the zone shows it, what to call that zone, and a note as in `parse`.

    Raises OverflowError for a moment at the edge of the calendar.
    """
    there = moment.astimezone(zone.tz)
    if zone.stated is None or there.utcoffset() == zone.stated:
        return there, zone, zone.note
    meant = timezone(zone.stated)
    return moment.astimezone(meant), Zone("", meant), _joined(zone.note, _off_season(zone, there))


def _clock(match: re.Match[str]) -> time:
    hour = int(match["hour"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("hours before am or pm go from 1 to 12")
        hour = hour % 12 + (12 if match["half"].lower().startswith("p") else 0)
    return time(hour, int(match["minute"] or 0), int(match["second"] or 0))


def _in_zone(wall: datetime, zone: Zone) -> tuple[datetime, Zone, str]:
    """Return the wall clock's moment in the zone, the zone, and what was unclear (RFC 5545 §3.3.5: gaps, overlaps)."""
    try:
        first = wall.replace(tzinfo=zone.tz)
        second = first.replace(fold=1)
        after = first.astimezone(UTC).astimezone(zone.tz)
    except OverflowError:
        raise ZoneError(f"The year {wall.year} cannot be converted: send a year from 2 to 9998.") from None
    if zone.stated is not None:
        return _as_stated(first, second, zone)
    difference = (second.utcoffset() or timedelta()) - (first.utcoffset() or timedelta())
    if not difference:
        return first, zone, zone.note
    name = zone.named(after)
    if after.replace(tzinfo=None, fold=0) != wall:
        return (
            after,
            zone,
            _joined(
                zone.note,
                (
                    f"{wall:%H:%M} does not exist on {wall:%Y-%m-%d} in {name}: the clocks go forward by "
                    f"{difference // timedelta(minutes=1)} minutes then. {after:%H:%M} is used."
                ),
            ),
        )
    return (
        first,
        zone,
        _joined(
            zone.note,
            (
                f"{wall:%H:%M} happens twice on {wall:%Y-%m-%d} in {name}, because the clocks go back: the first, at "
                f"UTC{_colon(first)}, is used; the second is at UTC{_colon(second)}."
            ),
        ),
    )


def _as_stated(first: datetime, second: datetime, zone: Zone) -> tuple[datetime, Zone, str]:
    """Return the moment at the offset that the zone's abbreviation states, whatever the place has on that day."""
    meant = timezone(zone.stated or timedelta())
    moment = first.replace(tzinfo=meant)
    if zone.stated in (first.utcoffset(), second.utcoffset()):
        return moment.astimezone(zone.tz), zone, zone.note
    return moment, Zone("", meant), _joined(zone.note, _off_season(zone, first))


def _off_season(zone: Zone, there: datetime) -> str:
    """Return the note for an abbreviation that is not in force at a moment, which is given as the place shows it."""
    stated = there.replace(tzinfo=timezone(zone.stated or timedelta()))
    return (
        f"{zone.abbreviation} is UTC{_colon(stated)}, and that is used; but on {there:%Y-%m-%d} {zone.name} has "
        f"UTC{_colon(there)}. If its own time is meant, send {zone.name}."
    )


def _joined(*notes: str) -> str:
    return " ".join(filter(None, notes))


def _colon(moment: datetime) -> str:
    offset = moment.strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}"
