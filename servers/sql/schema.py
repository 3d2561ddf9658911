"""What `describe_database` answers, the same for every kind of database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from servers.sql.limits import Limits
from servers.sql.values import wire

MAX_TABLES = 100
SAMPLE_ROWS = 3
MAX_SAMPLE_CHARACTERS = 120
SECONDS_PER_COUNT = 0.5


class Column(TypedDict):
    """One column; `references` is `table.column`."""

    name: str
    type: str
    primary_key: NotRequired[bool]
    not_null: NotRequired[bool]
    references: NotRequired[str]


class Table(TypedDict):
    """One table or view; `row_count` is null when counting takes too long."""

    name: str
    kind: str
    columns: list[Column]
    row_count: int | None
    sample_rows: list[list[Any]]
    note: NotRequired[str]


class Description(TypedDict):
    """The answer of `describe_database`."""

    database: str
    tables: list[Table]
    truncated: bool
    note: NotRequired[str]
    warning: NotRequired[str]


def column(name: str, kind: str, *, primary_key: bool, not_null: bool, references: str | None) -> Column:
    """Return a column with only the keys that say something."""
    answer: Column = {"name": name, "type": kind}
    if primary_key:
        answer["primary_key"] = True
    if not_null:
        answer["not_null"] = True
    if references:
        answer["references"] = references
    return answer


def sample(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return rows with their long texts shortened: a sample shows what values look like."""
    return [[_short(wire(value)) for value in row] for row in rows]


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:MAX_SAMPLE_CHARACTERS] + "…" if len(text) > MAX_SAMPLE_CHARACTERS else value


def description(database: str, tables: Iterable[Table], limits: Limits) -> Description:
    """Return as many tables as the limits allow."""
    kept: list[Table] = []
    size = 0
    note = ""
    for table in tables:
        size += len(json.dumps(table, ensure_ascii=False).encode())
        if len(kept) == MAX_TABLES or size > limits.size:
            note = f"There are more tables: these are the first {len(kept)}."
            break
        kept.append(table)
    answer: Description = {"database": database, "tables": kept, "truncated": bool(note)}
    if note:
        answer["note"] = note
    return answer
