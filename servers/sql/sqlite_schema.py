"""The tables of a SQLite database, through the same hardened connection as any query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from servers.sql.limits import QueryError
from servers.sql.schema import SAMPLE_ROWS, SECONDS_PER_COUNT, Column, Table, column, sample
from servers.sql.sqlite import ReadOnlyConnection, quoted


def tables(connection: ReadOnlyConnection) -> Iterator[Table]:
    """Yield every table and view with its columns, row count and three rows. Raises QueryError."""
    _, listed = connection.run("PRAGMA table_list")
    found = sorted(
        (name, kind)
        for schema, name, kind, *_ in listed
        if schema == "main" and kind != "shadow" and not name.startswith("sqlite_")
    )
    for name, kind in found:
        yield _table(connection, name, kind)


def _table(connection: ReadOnlyConnection, name: str, kind: str) -> Table:
    table: Table = {"name": name, "kind": kind, "columns": [], "row_count": None, "sample_rows": []}
    try:
        table["columns"] = _columns(connection, name)
        table["sample_rows"] = sample(_sample_rows(connection, table))
    except QueryError as error:
        table["note"] = str(error)  # a view over a missing table, say: the others are still worth hearing about
    table["row_count"] = _count(connection, name)
    return table


def _columns(connection: ReadOnlyConnection, name: str) -> list[Column]:
    _, keys = connection.run(f"PRAGMA foreign_key_list({quoted(name)})")
    references = {row[3]: f"{row[2]}.{row[4]}" if row[4] else str(row[2]) for row in keys}
    _, columns = connection.run(f"PRAGMA table_info({quoted(name)})")
    return [
        column(
            found,
            kind or "any",
            primary_key=bool(in_key),
            not_null=bool(not_null),
            references=references.get(found),
        )
        for _, found, kind, not_null, _, in_key in columns
    ]


def _sample_rows(connection: ReadOnlyConnection, table: Table) -> list[tuple[object, ...]]:
    try:
        return list(connection.run(f"SELECT * FROM {quoted(table['name'])} LIMIT {SAMPLE_ROWS}")[1])
    except QueryError:
        # One huge value spoils the row: ask again without the huge ones.
        fields = ", ".join(
            f"CASE WHEN length({name}) > 10000 THEN '(' || length({name}) || ' long)' ELSE {name} END"
            for name in (quoted(found["name"]) for found in table["columns"])
        )
        return list(connection.run(f"SELECT {fields} FROM {quoted(table['name'])} LIMIT {SAMPLE_ROWS}")[1])


def _count(connection: ReadOnlyConnection, name: str) -> int | None:
    deadline, connection.deadline = connection.deadline, min(connection.deadline, time.monotonic() + SECONDS_PER_COUNT)
    try:
        with suppress(QueryError):
            return int(next(connection.run(f"SELECT count(*) FROM {quoted(name)}")[1])[0])
        return None
    finally:
        connection.deadline = deadline
