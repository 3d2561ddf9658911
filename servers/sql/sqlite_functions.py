"""Replacements for SQLite functions whose own versions take quadratic time.

`replace(hex(zeroblob(400000)), …)` and its like compare every position with every other inside one step, where
no deadline of SQLite can stop them; Python's searches take linear time.
"""

from __future__ import annotations

import sqlite3

MAX_TRIM_CHARACTERS = 1_000
MAX_LENGTH = 1_000_000

Value = None | int | float | str | bytes


def install(connection: sqlite3.Connection) -> None:
    """Put the replacements into `connection`."""
    connection.create_function("replace", 3, _replace, deterministic=True)
    connection.create_function("instr", 2, _instr, deterministic=True)
    connection.create_function("trim", 2, _trim, deterministic=True)
    connection.create_function("ltrim", 2, _ltrim, deterministic=True)
    connection.create_function("rtrim", 2, _rtrim, deterministic=True)


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
