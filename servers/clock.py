"""MCP server with one tool, `get_datetime`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from servers.serving import serve


class Moment(TypedDict):
    """The answer of `get_datetime`."""

    datetime: str
    date: str
    time: str
    weekday: str
    utc_offset: str
    timezone: str


def get_datetime(
    timezone: Annotated[str | None, Field(description="IANA name such as Asia/Singapore; absent: local time")] = None,
) -> Moment:
    """Tell the current date, time and weekday, here or in another time zone."""
    try:
        now = datetime.now(ZoneInfo(timezone)) if timezone else datetime.now().astimezone()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"{timezone!r} is not a known time zone: send an IANA name such as Asia/Tokyo.") from None
    return {
        "datetime": now.isoformat(timespec="seconds"),
        "date": now.strftime("%Y-%m-%d"),
        "time": now.strftime("%H:%M:%S"),
        "weekday": now.strftime("%A"),
        "utc_offset": now.strftime("%z"),
        "timezone": timezone or str(now.tzinfo),
    }


def register(server: MCPServer) -> None:
    """Add `get_datetime` to `server`."""
    server.add_tool(
        get_datetime,
        title="Date and time",
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def main() -> None:
    """Serve `get_datetime` over stdio."""
    server = MCPServer("clock", title="Clock", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
