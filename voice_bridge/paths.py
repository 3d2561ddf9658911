"""Where the package keeps what it must remember between runs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from voice_bridge.errors import UsageError

REMEDY = "set VOICE_BRIDGE_DATA to a folder on this machine's own disk that you can write to"


def data_dir() -> Path:
    """The user's data folder for this program, made if it is missing.

    `VOICE_BRIDGE_DATA` overrides the platform's own place. Raises UsageError when there is no such folder and none can
    be made.
    """
    folder = _place()
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the data folder {folder} cannot be made: {_why(error)}; {REMEDY}") from None
    return Path(folder)


def _place() -> str:
    chosen = os.environ.get("VOICE_BRIDGE_DATA", "")
    try:
        folder = os.path.expanduser(chosen or platformdirs.user_data_dir("mcp-voice-bridge"))
    except RuntimeError:
        folder = "~"
    if folder.startswith("~"):  # expanduser leaves it standing where it finds no home
        of = f" for {chosen}" if chosen else ""
        raise UsageError(f"the data folder cannot be found: there is no home folder{of}; {REMEDY}")
    return folder


def _why(error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"{error.filename} is not a folder"
    return error.strerror or str(error)
