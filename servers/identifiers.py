"""MCP server with one tool, `get_uuid`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import secrets
import time
import uuid
from collections.abc import Callable
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from servers.serving import answer, serve

MAX_COUNT = 100


class Identifiers(TypedDict):
    """The answer of `get_uuid`."""

    uuids: list[str]


def uuid1() -> uuid.UUID:
    """Return a time-based UUID whose node is random, so that it does not give away the machine (RFC 9562 §6.10)."""
    return uuid.uuid1(node=secrets.randbits(48) | 1 << 40)


def uuid7() -> uuid.UUID:
    """Return a UUID that sorts by the millisecond it was made in (RFC 9562 §5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = secrets.randbits(74)
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | (random >> 62) << 64 | 0b10 << 62 | random & (1 << 62) - 1)


VERSIONS: dict[int, Callable[[], uuid.UUID]] = {1: uuid1, 4: uuid.uuid4, 7: uuid7}


def identifiers(version: int, count: int) -> Identifiers:
    """Return new UUIDs. Raises ValueError for a version or a count that is not offered."""
    if version not in VERSIONS:
        raise ValueError(f"Version {version} is not offered: use 4 (random), 7 (sorts by time) or 1 (time-based).")
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"{count} UUIDs cannot be made at once: ask for 1 to {MAX_COUNT}.")
    return {"uuids": [str(VERSIONS[version]()) for _ in range(count)]}


def register(server: MCPServer) -> None:
    """Add `get_uuid` to `server`."""

    @server.tool(title="UUID", annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def get_uuid(
        version: Annotated[int, Field(description="4 random, 7 sorts by time, 1 time-based")] = 4,
        count: Annotated[int, Field(description=f"how many, 1 to {MAX_COUNT}")] = 1,
    ) -> Annotated[CallToolResult, Identifiers]:
        """Make new unique identifiers (UUIDs). Use this instead of inventing one: an invented one is not unique."""
        try:
            return answer(identifiers(version, count))
        except ValueError as error:
            raise ToolError(str(error)) from None


def main() -> None:
    """Serve `get_uuid` over stdio."""
    server = MCPServer("identifiers", title="Identifiers", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
