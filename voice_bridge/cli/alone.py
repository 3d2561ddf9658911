"""Settings for a command that serves no cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from voice_bridge.cli.options import settings_for
from voice_bridge.config import Settings


def settings_alone(words: Sequence[str], chosen: Path | None) -> Settings:
    """`settings_for` without endpoints, so that a server that runs once for each of them runs once.

    Raises UsageError when there is no settings file or no such server.
    """
    return replace(settings_for(words, chosen), endpoints={})
