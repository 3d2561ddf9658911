"""The environment that settings are filled in from: the process's own, over `.env` files."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from voice_bridge.config import source
from voice_bridge.errors import ConfigError


def environment(config: Path | None = None) -> dict[str, str]:
    """The process's environment over the `.env` beside the settings file, over the `.env` of the working directory.

    A `.env` is UTF-8 or UTF-16, as the settings file. Raises ConfigError, naming file and line, for one that cannot be
    read or holds what no environment can.
    """
    values: dict[str, str] = {}
    for folder in _folders(config):
        values.update(_read(folder / ".env"))
    return {**values, **os.environ}


def _folders(config: Path | None) -> Iterator[Path]:
    with suppress(OSError):  # a working directory that was removed holds no .env
        yield Path.cwd()
    if config is not None:
        yield config.absolute().parent


def _read(path: Path) -> dict[str, str]:
    if not _is_plain_file(path):
        return {}
    try:
        text = source.decode(path, source.read_bytes(path))
    except FileNotFoundError:
        return {}
    for binding in parse_stream(io.StringIO(text)):
        _check(path, binding.original.line, binding.original.string, binding.key)
    found = dotenv_values(stream=io.StringIO(text))
    return {key: value for key, value in found.items() if value is not None}


def _is_plain_file(path: Path) -> bool:
    """A folder called .env is a virtual environment, and a pipe may have no writer to wait for.

    In a folder that may not be entered (a service's user started in somebody's home) there is none for us.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _check(path: Path, line: int, text: str, key: str | None) -> None:
    """Refuses what `putenv` does (POSIX, "Environment Variables"): otherwise no server could be started any more."""
    line += text[: len(text) - len(text.lstrip())].count("\n")  # the parser gives the empty lines before it to a value
    if "\0" in text:
        raise ConfigError(f"{path}:{line}: it holds a NUL, which no environment can; save the file as UTF-8")
    if key is not None and (not key or "=" in key):
        raise ConfigError(f"{path}:{line}: {key!r} cannot be a variable's name; write NAME=value")
