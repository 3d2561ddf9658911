"""A time somebody names, and whether it exists once, twice or not at all in its zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from servers.zones.resolve import Zone, ZoneError, resolve

_AT = re.compile(
    r"""(?P<date>\d{4}-\d{1,2}-\d{1,2})?[T\s]*
        (?:(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::(?P<second>\d{2})(?:\.\d+)?)?\s*(?P<half>[ap]\.?m\.?)?)?
        \s*(?P<zone>[^\d\s].*)?""",
    re.VERBOSE | re.IGNORECASE,
)


def parse(at: str, zone: Zone) -> tuple[datetime, Zone, str]:
    """Return the moment `at`, the zone it was given in, and a note when a clock change made it unclear.

    `zone` counts unless `at` names one itself: `2026-11-30T15:00+09:00`, `15:00 Asia/Tokyo`, `3 pm London`; without a
    date it is today there. Raises ZoneError.
    """
    match = _AT.fullmatch(at.strip()) if len(at) < 200 else None
    if match is None or not (match["date"] or match["hour"]):
        raise ZoneError(f"{at[:60]!r} is not a time: send YYYY-MM-DD HH:MM or HH:MM, and the zone in at_timezone.")
    if match["zone"]:
        zone = resolve(match["zone"])
    try:
        today = datetime.now(zone.tz).date()
        day = datetime.strptime(match["date"], "%Y-%m-%d").date() if match["date"] else today
        wall = datetime.combine(day, _clock(match))
    except ValueError as error:
        raise ZoneError(f"{at[:60]!r} is not a time ({error}): send YYYY-MM-DD HH:MM with hours up to 23.") from None
    moment, note = _in_zone(wall, zone)
    return moment, zone, note


def _clock(match: re.Match[str]) -> time:
    hour = int(match["hour"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("hours before am or pm go from 1 to 12")
        hour = hour % 12 + (12 if match["half"].lower().startswith("p") else 0)
    return time(hour, int(match["minute"] or 0), int(match["second"] or 0))


def _in_zone(wall: datetime, zone: Zone) -> tuple[datetime, str]:
    """Return the wall clock's moment in the zone (RFC 5545 §3.3.5 for gaps and overlaps) and what was unclear."""
    try:
        first = wall.replace(tzinfo=zone.tz)
        second = first.replace(fold=1)
        after = first.astimezone(UTC).astimezone(zone.tz)
    except OverflowError:
        raise ZoneError(f"The year {wall.year} cannot be converted: send a year from 2 to 9998.") from None
    difference = (second.utcoffset() or timedelta()) - (first.utcoffset() or timedelta())
    if not difference:
        return first, ""
    if after.replace(tzinfo=None, fold=0) != wall:
        return after, (
            f"{wall:%H:%M} does not exist on {wall:%Y-%m-%d} in {zone.name}: the clocks go forward by "
            f"{difference // timedelta(minutes=1)} minutes then. {after:%H:%M} is used."
        )
    return first, (
        f"{wall:%H:%M} happens twice on {wall:%Y-%m-%d} in {zone.name}, because the clocks go back: the first, at "
        f"UTC{_colon(first)}, is used; the second is at UTC{_colon(second)}."
    )


def _colon(moment: datetime) -> str:
    offset = moment.strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}"
