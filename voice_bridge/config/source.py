"""The bytes of a settings file as JSON: encodings, comments, trailing commas, and where a mistake stands."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voice_bridge.config.expand import kind, shorter
from voice_bridge.errors import ConfigError
from voice_bridge.text import printable

_JSON5_PLACE = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)
_LARGEST_FILE = 16 * 2**20
_MOST_LEVELS = 50
_LONGEST_JSON5 = 300_000  # its reader takes 5 µs for each character, while a running bridge waits
_MOST_DIGITS = 300  # what still fits a float
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_text(path: Path) -> str:
    """The file's text: UTF-8 or UTF-16 (as PowerShell's `>` writes it), with or without a byte-order mark.

    Raises ConfigError when the file is missing, unreadable, larger than 16 MiB or in another encoding.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `voice-bridge init` writes a starter") from None
    return decode(path, data)


def read_bytes(path: Path) -> bytes:
    """The file's bytes.

    Raises FileNotFoundError when there is none, and ConfigError when it cannot be read or is larger than 16 MiB.
    """
    try:
        with open(path, "rb", opener=_at_once) as file:
            data = file.read(_LARGEST_FILE + 1)  # a device may have no end
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ConfigError(f"{printable(str(path))}: cannot be read: {reason(error)}") from None
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{path}: it is larger than 16 MiB, which no settings are; name another file")
    return data


def _at_once(name: str, flags: int) -> int:
    """Opens a file without waiting: a pipe has no writer perhaps, and then it is as good as empty (POSIX open)."""
    if not hasattr(os, "O_NONBLOCK"):
        return os.open(name, flags)
    file = os.open(name, flags | os.O_NONBLOCK)
    os.set_blocking(file, True)
    return file


def reason(error: Exception) -> str:
    """Why the system refused a file's name, without repeating the name."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def decode(path: Path, data: bytes) -> str:
    """The text of a file that people write: UTF-8 or UTF-16, with or without a byte-order mark.

    Raises ConfigError naming the line where it is in another encoding.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return _decoded(path, data[len(bom) :], encoding)
    if data[1:2] == b"\0":
        return _decoded(path, data, "utf-16-le")
    return _decoded(path, data, "utf-16-be" if data[:1] == b"\0" else "utf-8")


def _decoded(path: Path, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: byte {error.start} is not {encoding.upper()}; save it as UTF-8") from None


def parse(path: Path, text: str) -> dict[str, Any]:
    """The JSON object in the text. Comments and trailing commas are allowed (JSON5).

    Raises ConfigError that names file, line and column; a key written twice in one object is an error too, because
    JSON readers keep only one of them.
    """
    if not text.strip():
        raise ConfigError(f'{path}:1:1: the file is empty; write at least {{"mcpServers": {{}}}}')
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_integer)
    except json.JSONDecodeError as error:
        if len(text) > _LONGEST_JSON5:
            what = f"{error.msg[0].lower()}{error.msg[1:]}"
            note = f"comments and trailing commas are understood up to {_LONGEST_JSON5:,} characters"
            raise ConfigError(f"{path}:{error.lineno}:{error.colno}: not JSON: {what}; {note}") from None
        value = _parse_json5(path, text)
    except _DuplicateKey as duplicate:
        raise _duplicate(path, text, duplicate.key) from None
    except RecursionError:
        raise _nested(path) from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}:1:1: expected an object in braces, found {kind(value)}")
    if _is_deeper(value, _MOST_LEVELS):
        raise _nested(path)
    return value


def _integer(digits: str, base: int = 10) -> int | float:
    """A whole number; one that no setting can take becomes infinity, as 1e999 does, so that its entry is told of it.

    Python refuses to read more than 4,300 digits, with a ValueError for the whole file.
    """
    if len(digits) <= _MOST_DIGITS:
        return int(digits, base)
    return -math.inf if digits.startswith("-") else math.inf


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects stand in each other more levels deep than these; without recursion."""
    level = [value]
    for _ in range(levels):
        inside = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [item for items in inside for item in items]
    return any(isinstance(item, dict | list) for item in level)


def _nested(path: Path) -> ConfigError:
    return ConfigError(f"{path}: lists and objects are nested too deeply; no setting needs {_MOST_LEVELS} levels")


class _DuplicateKey(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DuplicateKey(key)
        made[key] = value
    return made


def _parse_json5(path: Path, text: str) -> Any:
    import json5  # slow to import, and most files are plain JSON

    try:
        return json5.loads(text, object_pairs_hook=_without_duplicates, parse_int=_integer)
    except _DuplicateKey as duplicate:
        raise _duplicate(path, text, duplicate.key) from None
    except RecursionError:
        raise _nested(path) from None
    except ValueError as error:
        place = _JSON5_PLACE.search(str(error))
        if place is None:
            raise ConfigError(f"{path}:1:1: not JSON: {error}") from None
        line, what, column = place.groups()
        what = what.replace("\n", "\\n")
        raise ConfigError(f"{path}:{line}:{column}: not JSON: {what[0].lower() + what[1:]}") from None


def _duplicate(path: Path, text: str, key: str) -> ConfigError:
    places = list(re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text))
    offset = places[1].start() if len(places) > 1 else 0
    where = f"{path}:{_place(text, offset)}"
    return ConfigError(f'{where}: the key "{shorter(key)}" stands twice in one object; keep one of them')


def _place(text: str, offset: int) -> str:
    line = text.count("\n", 0, offset) + 1
    return f"{line}:{offset - (text.rfind(chr(10), 0, offset) + 1) + 1}"


def place_of(text: str, *keys: str) -> str:
    """`line:column` of a nested key in the text, as near as it can be found."""
    offset = 0
    for key in keys:
        found = re.compile(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:").search(text, offset)
        if found is None:
            break
        offset = found.start()
    return _place(text, offset)
