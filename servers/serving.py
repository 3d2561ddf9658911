"""What every bundled server shares: how it answers, and how it listens on stdin."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer


def serve(server: MCPServer) -> None:
    """Serve MCP on stdin and stdout until stdin ends."""
    server.run()
