"""MCP server with one tool, `get_datetime`: what time it is, here and elsewhere, now and at another time."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from datetime import UTC, datetime
from typing import Annotated, NotRequired

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from servers.serving import answer, serve
from servers.zones.machine import local
from servers.zones.moments import parse, shown_in
from servers.zones.resolve import Zone, ZoneError, resolve

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Moment(TypedDict):
    """The answer of `get_datetime`."""

    datetime: Annotated[str, Field(description="ISO 8601 with offset")]
    date: str
    time: str
    weekday: str
    utc_offset: str
    timezone: str
    converted_from: NotRequired[Annotated[str, Field(description="the time in `at`, with its zone")]]
    note: NotRequired[str]


def moment(timezone: str | None, at: str | None, at_timezone: str | None) -> Moment:
    """Return now, or `at` in `at_timezone` (absent: this machine's zone), as a clock in `timezone` shows it.

    Raises ZoneError.
    """
    zone = resolve(timezone) if timezone else local()
    if not at:
        return _shown(datetime.now(UTC), zone)
    given, source, note = parse(at, resolve(at_timezone) if at_timezone else None)
    try:
        answered = _shown(given, zone, note)
    except OverflowError:
        raise ZoneError(f"{at!r} is outside of the years that can be converted.") from None
    answered["converted_from"] = f"{given.replace(tzinfo=None).isoformat(' ', 'seconds')} {source.named(given)}"
    return answered


def _shown(moment: datetime, zone: Zone, note: str = "") -> Moment:
    local_time, zone, target_note = shown_in(moment, zone)
    offset = local_time.strftime("%z")
    shown: Moment = {
        "datetime": local_time.isoformat(timespec="seconds"),
        "date": local_time.date().isoformat(),
        "time": local_time.time().isoformat(timespec="seconds"),
        "weekday": WEEKDAYS[local_time.weekday()],
        "utc_offset": f"{offset[:3]}:{offset[3:5]}",
        "timezone": zone.named(local_time),
    }
    # Both zones may be the same one, whose note is told once.
    if notes := " ".join(dict.fromkeys(filter(None, (note, target_note)))):
        shown["note"] = notes
    return shown


def register(server: MCPServer) -> None:
    """Add `get_datetime` to `server`."""

    @server.tool(title="Date and time", annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def get_datetime(
        timezone: Annotated[
            str | None, Field(description="IANA name such as Asia/Singapore, city, country or UTC+8; absent: local")
        ] = None,
        at: Annotated[
            str | None, Field(description="a time to convert instead of now: YYYY-MM-DD HH:MM, or HH:MM for today")
        ] = None,
        at_timezone: Annotated[str | None, Field(description="the zone that `at` is in; absent: local")] = None,
    ) -> Annotated[CallToolResult, Moment]:
        """Tell the date, time and weekday, now or at another time, here or anywhere in the world.

        "What time is it in Tokyo?" is timezone="Asia/Tokyo". "When it is 3 pm in London, what time is it in Tokyo?" is
        timezone="Asia/Tokyo", at="15:00", at_timezone="Europe/London". Tell the user what `note` says, if there is one.
        """
        try:
            return answer(moment(timezone, at, at_timezone))
        except ZoneError as error:
            raise ToolError(str(error)) from None


def main() -> None:
    """Serve `get_datetime` over stdio."""
    server = MCPServer("clock", title="Clock", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
