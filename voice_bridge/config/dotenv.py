"""The variables of the process and of the `.env` files."""

from __future__ import annotations

import os
import stat
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

from voice_bridge.config import source
from voice_bridge.errors import ConfigError, UsageError


def environment(config: Path | None = None) -> dict[str, str]:
    """The process's environment over the `.env` beside the settings file, over the `.env` of the working directory.

    Raises ConfigError for a `.env` that cannot be read, with the line where its text is neither UTF-8 nor UTF-16.
    """
    return {**from_files(config), **os.environ}


def from_files(config: Path | None = None) -> dict[str, str]:
    """What the two `.env` files say, without the process's environment. Raises ConfigError as `environment`."""
    try:
        folders = [Path.cwd()]
    except OSError:  # it was removed, and a `.env` in it too
        folders = []
    if config is not None:
        folders.append(absolute(config).parent)
    values: dict[str, str] = {}
    for folder in folders:
        values |= _read(folder / ".env")
    return values


def absolute(path: Path) -> Path:
    """The path from the root. Not resolved: a mounted ConfigMap is a link into a folder that lives until its next
    change.

    Raises UsageError for a relative path when the working directory is gone.
    """
    try:
        return path.absolute()
    except OSError as error:
        raise UsageError(
            f"{path}: the working directory cannot be used: {source.reason(error)}; change to one that exists"
        ) from None


def _read(path: Path) -> dict[str, str]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # `.env` is also a usual name for a virtual environment
            return {}
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {source.reason(error)}") from None
    text = source.decoded(path, data)
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigError(f"{path}:{line}: it holds a NUL character, which no variable can; save it as UTF-8 text")
    found = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in found.items() if value is not None and _possible(path, name)}


def _possible(path: Path, name: str) -> bool:
    if "=" in name:
        raise ConfigError(f"{path}: the variable {name!r} has a = in its name")
    return True
