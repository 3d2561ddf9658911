"""Every fact as a line of JSON in a file, for a program that started the bridge and wants to know how it fares."""

from __future__ import annotations

import json
from pathlib import Path

from voice_bridge.runtime.board import Told
from voice_bridge.secrets import mask

VARIABLE = "VOICE_BRIDGE_FACTS"


class Stream:
    """Appends each fact: when, its kind, and what it says. A file that cannot be written ends the stream in silence."""

    def __init__(self, path: Path) -> None:
        self._path: Path | None = path

    def __call__(self, told: Told) -> None:
        if self._path is None:
            return
        line = {"at": told.at, "kind": type(told.fact).__name__, **told.fact._asdict()}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(mask(json.dumps(line, ensure_ascii=False)) + "\n")
        except OSError:
            self._path = None
