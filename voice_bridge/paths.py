"""Where the package keeps what it must remember between runs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_dir() -> Path:
    """The user's data folder for this program, made if it is missing.

    `VOICE_BRIDGE_DATA` overrides the platform's own place.
    """
    chosen = os.environ.get("VOICE_BRIDGE_DATA")
    folder = Path(chosen).expanduser() if chosen else platformdirs.user_data_path("mcp-voice-bridge")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
