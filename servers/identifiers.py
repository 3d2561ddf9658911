"""MCP server with one tool, `get_uuid`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import uuid
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from servers.serving import serve


class Identifiers(TypedDict):
    """The answer of `get_uuid`."""

    uuids: list[str]


def get_uuid(count: Annotated[int, Field(ge=1, le=100, description="how many")] = 1) -> Identifiers:
    """Make new random UUIDs (version 4)."""
    return {"uuids": [str(uuid.uuid4()) for _ in range(count)]}


def register(server: MCPServer) -> None:
    """Add `get_uuid` to `server`."""
    server.add_tool(
        get_uuid,
        title="UUID",
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def main() -> None:
    """Serve `get_uuid` over stdio."""
    server = MCPServer("identifiers", title="Identifiers", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
