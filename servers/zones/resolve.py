"""From what somebody calls a time zone to a `tzinfo`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from voice_bridge.errors import VoiceBridgeError


class ZoneError(VoiceBridgeError):
    """A time zone or time that cannot be understood; the message tells a model what to send."""


@dataclass(frozen=True)
class Zone:
    """A time zone and the name to answer with; empty when there is none but the offset of the day."""

    name: str
    tz: tzinfo
    note: str = ""
    abbreviation: str = ""
    """Set when it was called so, as in EDT, which is one offset and not what the place has all year."""
    stated: timedelta | None = None
    """The offset that the abbreviation stands for."""

    def named(self, moment: datetime) -> str:
        """Return what to call the zone at `moment`, which is in it: its name or its offset then."""
        return self.name or offset_name(moment)


_OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])\s*(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_UTC = frozenset({"utc", "gmt", "z", "zulu"})


def resolve(text: str) -> Zone:
    """Return the zone called `text`: IANA name in any case, offset, city, country or abbreviation.

    Raises ZoneError with the candidates when it could be several, or with what to send when it is unknown.
    """
    name = text.strip()
    if not 0 < len(name) <= 100:
        raise ZoneError("The time zone is empty or too long: send an IANA name such as Asia/Tokyo.")
    if name.casefold() in _UTC:
        return Zone("UTC", UTC)
    if offset := _OFFSET.fullmatch(name.replace("−", "-")):
        return _fixed(name, offset)
    if not iana_names():
        raise ZoneError(
            f"{name!r} cannot be looked up: this machine has no time zone data. Ask the owner to run "
            '"pip install tzdata", or send an offset such as UTC+8.'
        )
    # The tables of names take a while to read, and most calls need none of them.
    from servers.zones import lookup

    # Before the IANA names, where EST has no summer time and CET has one, so that either would be taken at its word.
    if zone := lookup.abbreviated(name):
        return zone
    if key := iana_names().get(re.sub(r"\s+", "_", name.casefold())):
        return Zone(key, ZoneInfo(key))
    return lookup.find(name)


def offset_name(moment: datetime) -> str:
    offset = moment.strftime("%z")
    return "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"


def _fixed(name: str, offset: re.Match[str]) -> Zone:
    hours, minutes = int(offset[2]), int(offset[3] or 0)
    delta = timedelta(hours=hours, minutes=minutes) * (-1 if offset[1] == "-" else 1)
    if minutes > 59 or not timedelta(hours=-12) <= delta <= timedelta(hours=14):
        raise ZoneError(f"{name!r} is no offset in use: they reach from UTC-12:00 to UTC+14:00.")
    tz = timezone(delta)
    return Zone(offset_name(datetime.now(tz)), tz)


@cache
def iana_names() -> dict[str, str]:
    """Return IANA names by themselves in small letters; empty on a machine without time zone data."""
    return {name.casefold(): name for name in available_timezones() if _is_zone(name)}


def _is_zone(name: str) -> bool:
    return name not in ("Factory", "localtime", "posixrules") and not name.startswith(("posix/", "right/"))
