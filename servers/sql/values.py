"""Makes rows fit for JSON and for a budget."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NotRequired

from typing_extensions import TypedDict

from servers.sql.limits import Limits


class Rows(TypedDict):
    """The answer of `query_database`: one list per row, in the order of `columns`."""

    columns: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    note: NotRequired[str]


def collect(columns: Sequence[str], rows: Iterable[Sequence[Any]], limits: Limits) -> Rows:
    """Return as many of `rows` as the limits allow; `truncated` and `note` say when there were more."""
    kept: list[list[Any]] = []
    size = len(json.dumps(list(columns), ensure_ascii=False).encode())
    note = ""
    for row in rows:
        if len(kept) == limits.rows:
            note = f"There are more rows: these are the first {limits.rows}. Use WHERE, LIMIT or an aggregate."
            break
        values = [wire(value) for value in row]
        size += len(json.dumps(values, ensure_ascii=False).encode()) + 1
        if size > limits.size:
            note = (
                f"The answer is cut after {len(kept)} rows because it exceeds {limits.size:,} bytes: "
                "select fewer or shorter columns."
            )
            break
        kept.append(values)
    answer: Rows = {
        "columns": unique(columns),
        "rows": kept,
        "row_count": len(kept),
        "truncated": bool(note),
    }
    if note:
        answer["note"] = note
    return answer


def unique(columns: Sequence[str]) -> list[str]:
    """Return the names with `_2`, `_3` … after those that come again."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def wire(value: Any) -> Any:
    """Return a database value as JSON can carry it, whole numbers of any size unchanged."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case bytes() | bytearray() | memoryview():
            return binary(len(value))
        case Decimal():
            return _decimal(value)
        case list() | tuple():
            return [wire(item) for item in value]
        case dict():
            return {str(key): wire(item) for key, item in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def binary(length: int) -> str:
    """Return what stands in the answer for binary data of that many bytes."""
    return f"(binary, {length:,} bytes)"


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> int | float | str:
    """Return a number when it says exactly the same, else the digits as text."""
    if not value.is_finite():
        return _not_finite(float(value))
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)
