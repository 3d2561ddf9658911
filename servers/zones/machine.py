"""This machine's own time zone, as TZ or /etc/localtime tells it at the moment of asking."""

from __future__ import annotations

import os
import re
import struct
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from servers.zones.resolve import Zone, iana_names

# POSIX.1-2017 §8.3: a name and an offset, perhaps with the rules of summer time.
_RULES = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[-+]?\d.*")


def local(localtime: Path = Path("/etc/localtime")) -> Zone:
    """Return this machine's zone; it always exists, if only as what the C library makes of it.

    Nothing is kept from one call to the next, for the owner may travel while the server runs.
    """
    chosen = os.environ.get("TZ", "").lstrip(":")
    if not chosen:
        return _of_file(localtime) or _of_c_library() or Zone("UTC", UTC)
    if key := iana_names().get(chosen.casefold()):
        return Zone(key, ZoneInfo(key))
    found = _of_file(Path(chosen)) if chosen.startswith("/") else None
    if found is None and _RULES.fullmatch(chosen):
        found = _of_c_library()
    return found or Zone("UTC", UTC, f"TZ is {chosen!r}, which is no time zone; UTC is used.")


def _of_file(path: Path) -> Zone | None:
    """Return the zone that a link into the tz database names, or the one that a plain file holds (RFC 8536)."""
    try:
        key = str(path.resolve()).rpartition("zoneinfo/")[2]
        if found := iana_names().get(key.casefold()):
            return Zone(found, ZoneInfo(found))
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return Zone("", ZoneInfo.from_file(file))
    except (OSError, ValueError, struct.error):
        return None


def _of_c_library() -> Zone | None:
    """Return the zone of the C library, which knows all of POSIX's rules; None when Python cannot hold its offset."""
    if hasattr(time, "tzset"):
        time.tzset()
    try:
        datetime.now().astimezone()
    except ValueError:  # the C library takes offsets of a day and more, Python does not
        return None
    return Zone("", _CLibrary())


class _CLibrary(tzinfo):
    """The C library's clock at any date; `datetime.astimezone` alone would give one offset for all the year."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return moment.replace(tzinfo=None).astimezone().utcoffset() if moment else None

    def tzname(self, moment: datetime | None) -> str | None:
        return moment.replace(tzinfo=None).astimezone().tzname() if moment else None

    def dst(self, moment: datetime | None) -> None:
        """POSIX does not tell how much of an offset is summer time."""

    def fromutc(self, moment: datetime) -> datetime:
        told = moment.replace(tzinfo=UTC).astimezone()
        wall = told.replace(tzinfo=self)
        return wall.replace(fold=int(wall.utcoffset() != told.utcoffset()))
