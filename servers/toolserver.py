"""MCP server with four tools together: `search_documents`, `list_documents`, `query_database` and `calculate`.

Over stdio, or with `--transport streamable-http` (or MCP_TRANSPORT) over HTTP at http://127.0.0.1:8765/mcp. On a
loopback address it checks Host and Origin, so that no web page can reach it; on any other address it demands
TOOLSERVER_TOKEN as bearer token. Settings of the tools are those of documents.py and database.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import argparse
import os
from contextlib import suppress

from mcp.server.mcpserver import MCPServer

from servers import database, documents, math_evaluator
from servers.docsearch.errors import DocumentsError, require_extra
from servers.docsearch.process import SearchProcess
from servers.serving import serve

TRANSPORTS = {
    "stdio": "stdio",
    "http": "streamable-http",
    "streamablehttp": "streamable-http",
}


def build(search: SearchProcess) -> MCPServer:
    """Return the server with its four tools."""
    server = MCPServer("toolserver", title="Tools", log_level="WARNING")
    documents.register(server, search)
    database.register(server, describing=False)
    math_evaluator.register(server)
    return server


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m servers.toolserver",
        description="Document search, database and calculator as one MCP server.",
        epilog="TOOLSERVER_TOKEN is the bearer token that clients must send; without one, only loopback is served.",
    )
    parser.add_argument(
        "--transport",
        default=os.environ.get("MCP_TRANSPORT") or "stdio",
        help="stdio or streamable-http (default: $MCP_TRANSPORT, else stdio)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8765, help="0 for a free one (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    transport = TRANSPORTS.get(parsed.transport.lower().replace("-", "").replace("_", ""))
    if transport is None:
        parser.error(f"{parsed.transport!r} is no transport: use stdio or streamable-http.")
    parsed.transport = transport
    return parsed


def main(arguments: list[str] | None = None) -> None:
    """Serve the four tools until stdin ends, or until SIGTERM or SIGINT over HTTP.

    Exit status 2 when the options cannot be followed, 1 when the port is taken.
    """
    options = _arguments(arguments)
    search = SearchProcess()
    with suppress(DocumentsError):  # a missing extra is told by each of the two tools
        require_extra()
        search.start()
    if options.transport == "stdio":
        serve(build(search))
        return
    from servers.http_serving import serve_http

    sys.exit(serve_http(build(search), options.host, options.port, os.environ.get("TOOLSERVER_TOKEN", "").strip()))


if __name__ == "__main__":
    main()
