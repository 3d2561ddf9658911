"""MCP server with `query_database` and `describe_database`: reads a SQLite or PostgreSQL database, and only reads.

`DATABASE_URL` says which (`sqlite:///path`, a plain path, `postgresql://…`); without it there is a demo company.
`DATABASE_MAX_ROWS` (500), `DATABASE_MAX_BYTES` (1,000,000) and `DATABASE_TIMEOUT` (5 seconds) bound an answer.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import os
import re
from typing import Annotated
from urllib.parse import unquote

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from servers.serving import answer, serve
from servers.sql.limits import Limits, QueryError
from servers.sql.schema import Description
from servers.sql.values import Rows

READ_ONLY = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


def query(sql: str, url: str, limits: Limits) -> Rows:
    """Return the rows of one query on the database at `url`. Raises QueryError."""
    from servers.sql.values import collect
    from servers.sql.wording import one_query

    if _is_postgres(url):
        from servers.sql import postgres

        statement = one_query(sql, "postgres")
        with postgres.connected(_libpq(url), limits) as remote:
            return collect(*remote.run(statement), limits)
    from servers.sql import sqlite

    statement = one_query(sql, "sqlite")
    with sqlite.connected(_path(url), limits) as local:
        return collect(*local.run(statement), limits)


def describe(url: str, limits: Limits) -> Description:
    """Return the tables of the database at `url`. Raises QueryError."""
    from servers.sql.schema import description

    if _is_postgres(url):
        from servers.sql import postgres, postgres_schema

        with postgres.connected(_libpq(url), limits) as remote:
            found = description("PostgreSQL", postgres_schema.tables(remote), limits)
            if remote.warning:
                found["warning"] = remote.warning
            return found
    from servers.sql import sqlite, sqlite_schema

    with sqlite.connected(_path(url), limits) as local:
        return description("SQLite", sqlite_schema.tables(local), limits)


def _is_postgres(url: str) -> bool:
    return bool(re.match(r"postgres(ql)?(\+\w+)?://|\w+=", url))


def _libpq(url: str) -> str:
    """Return `url` without the driver's name that other libraries put into it (`postgresql+psycopg://`)."""
    return re.sub(r"\A(postgres(?:ql)?)\+\w+://", r"\1://", url)


def _path(url: str) -> Path:
    """Return the file that `url` names, the demo database when it is empty. Raises QueryError for other databases."""
    if not url:
        from servers.sql.demo import demo_database
        from voice_bridge.errors import UsageError
        from voice_bridge.paths import data_dir

        try:
            return demo_database(data_dir())
        except (OSError, UsageError) as error:
            raise QueryError(
                f"The demo database has no folder ({error}): set DATABASE_URL or VOICE_BRIDGE_DATA."
            ) from None
    scheme, separator, rest = url.partition("://")
    if not separator:
        if "@" in url and not Path(url).exists():  # a mistyped URL, with a password perhaps
            raise QueryError(
                "DATABASE_URL is no existing file: write sqlite:///path or postgresql://user:password@host/name."
            )
        return Path(url).expanduser()
    if scheme.partition("+")[0] != "sqlite":
        raise QueryError(
            f"DATABASE_URL begins with {scheme[:20]}://, which is not supported: use sqlite:///path or postgresql://…"
        )
    # As in SQLAlchemy: three slashes before a relative path, four before an absolute one.
    return Path(unquote(rest.partition("?")[0].removeprefix("/"))).expanduser()


def register(server: MCPServer, *, describing: bool = True) -> None:
    """Add `query_database`, and `describe_database` unless told otherwise, to `server`."""

    @server.tool(title="Query the database", annotations=READ_ONLY)
    def query_database(
        sql: Annotated[str, Field(description="one SELECT statement in the dialect of the database")],
    ) -> Annotated[CallToolResult, Rows]:
        """Read from the owner's SQL database with one SELECT statement. It cannot change anything.

        Look at the tables first unless you know them: describe_database where there is such a tool, otherwise
        SELECT sql FROM sqlite_master, or information_schema.columns on PostgreSQL.
        Let SQL count, sum, average, sort and filter, and select only the columns you need: at most 500 rows come back,
        `truncated` says when there were more. When an error comes back, change the statement as it says.
        """
        try:
            return answer(query(sql, os.environ.get("DATABASE_URL", "").strip(), Limits.from_environment(os.environ)))
        except QueryError as error:
            raise ToolError(str(error)) from None

    if not describing:
        return

    @server.tool(title="Describe the database", annotations=READ_ONLY)
    def describe_database() -> Annotated[CallToolResult, Description]:
        """List the tables of the owner's SQL database: columns, types, keys, row counts and three sample rows each.

        Call this before the first query_database, so that you need not guess names.
        """
        try:
            return answer(describe(os.environ.get("DATABASE_URL", "").strip(), Limits.from_environment(os.environ)))
        except QueryError as error:
            raise ToolError(str(error)) from None


def main() -> None:
    """Serve the two tools over stdio."""
    server = MCPServer("database", title="Database", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
