"""Replacements for SQLite functions that can take very long inside one step, where no deadline of SQLite stops them.

`replace(hex(zeroblob(400000)), …)` and its like compare every position with every other; Python's searches take
linear time. `printf('%.*c', 2000000000, 'x')` counts to two billion before it finds the result too long.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache

MAX_TRIM_CHARACTERS = 1_000
MAX_LENGTH = 1_000_000

Value = None | int | float | str | bytes

_PLACEHOLDER = re.compile(r"%[-+ 0#,!]*(\*|\d+)?(?:\.(\*|\d+)?)?l*(.)", re.DOTALL)


def install(connection: sqlite3.Connection) -> None:
    """Put the replacements into `connection`."""
    connection.create_function("replace", 3, _replace, deterministic=True)
    connection.create_function("instr", 2, _instr, deterministic=True)
    connection.create_function("trim", 2, _trim, deterministic=True)
    connection.create_function("ltrim", 2, _ltrim, deterministic=True)
    connection.create_function("rtrim", 2, _rtrim, deterministic=True)
    for name in ("printf", "format"):
        connection.create_function(name, -1, _printf, deterministic=True)


def _printf(*given: Value) -> Value:
    """Ask SQLite's own printf, once the widths it is told are known to be small."""
    if not given or given[0] is None:
        return None
    if _told_width(_text(given[0]), list(given[1:])) > MAX_LENGTH:
        raise OverflowError
    result: Value = _elsewhere().execute(f"SELECT printf({','.join('?' * len(given))})", given).fetchone()[0]
    return result


@cache
def _elsewhere() -> sqlite3.Connection:
    """Return a database without tables, in which no function is replaced."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
    return connection


def _told_width(template: str, arguments: list[Value]) -> int:
    """Return the sum of all widths and precisions, which stand in the template or, for `*`, among the arguments."""
    total = 0
    for *sizes, kind in _PLACEHOLDER.findall(template):
        for size in sizes:
            if size == "*":
                total += abs(_whole(arguments.pop(0))) if arguments else 0
            else:
                total += int(size[:10] or 0)
        if kind not in "%n" and arguments:
            arguments.pop(0)
    return total


def _whole(value: Value) -> int:
    """Return `value` as SQLite casts it to an integer; any number above the limit will do for a huge one."""
    if isinstance(value, float):
        return int(value) if abs(value) < MAX_LENGTH else MAX_LENGTH + 1
    digits = re.match(r"\s*([-+]?\d{1,20})", _text(value))
    return int(digits[1]) if digits else 0


def _text(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        # SQLite writes 2.0 as "2.0" and at most 15 digits.
        text = f"{value:.15g}"
        return text if not text.lstrip("-").isdigit() else f"{text}.0"
    return str(value)


def _replace(text: Value, pattern: Value, replacement: Value) -> str | None:
    if text is None or pattern is None or replacement is None:
        return None
    whole, old, new = _text(text), _text(pattern), _text(replacement)
    if not old:
        return whole
    if len(whole) + whole.count(old) * (len(new) - len(old)) > MAX_LENGTH:
        raise OverflowError  # SQLite reports it as "string or blob too big"
    return whole.replace(old, new)


def _instr(text: Value, pattern: Value) -> int | None:
    if text is None or pattern is None:
        return None
    if isinstance(text, bytes) and isinstance(pattern, bytes):
        return text.find(pattern) + 1
    return _text(text).find(_text(pattern)) + 1


def _trim(text: Value, characters: Value) -> str | None:
    return None if text is None or characters is None else _text(text).strip(_few(characters))


def _ltrim(text: Value, characters: Value) -> str | None:
    return None if text is None or characters is None else _text(text).lstrip(_few(characters))


def _rtrim(text: Value, characters: Value) -> str | None:
    return None if text is None or characters is None else _text(text).rstrip(_few(characters))


def _few(characters: Value) -> str:
    text = _text(characters)
    if len(text) > MAX_TRIM_CHARACTERS:
        raise OverflowError
    return text
