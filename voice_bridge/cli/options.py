"""What several commands share: which settings to use, and results for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from voice_bridge import config
from voice_bridge.config import Settings
from voice_bridge.errors import UsageError

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings file; default: $MCP_CONFIG, else ./mcp_settings.json.",
        show_default=False,
    ),
]


def settings_for(words: Sequence[str], chosen: Path | None) -> Settings:
    """The settings for the servers and scripts named on the command line; all enabled servers when none is named.

    Raises UsageError when there is no settings file or no such server.
    """
    scripts = [word for word in words if config.is_script(word)]
    names = [word for word in words if word not in scripts]
    if not scripts:
        settings = _from_file(chosen)
        return config.select(settings, names) if names else settings
    alone = config.load_scripts(scripts, taken=names)
    if not names:
        return alone
    settings = config.select(_from_file(chosen), names)
    return replace(settings, servers={**settings.servers, **alone.servers})


def _from_file(chosen: Path | None) -> Settings:
    path = config.find(chosen)
    if path is None:
        raise UsageError(
            "there is no mcp_settings.json here and MCP_CONFIG is not set; "
            "`voice-bridge init` writes a starter, or name a script: voice-bridge run server.py"
        )
    return config.load(path)
