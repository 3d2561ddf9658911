"""`voice-bridge run`: the daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from voice_bridge.cli.options import ConfigOption, settings_for
from voice_bridge.config import Settings
from voice_bridge.observe import log, stream
from voice_bridge.ports.servers import process
from voice_bridge.runtime.board import Reader
from voice_bridge.runtime.daemon import Bridge


def run(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|SCRIPT …]", help="Servers of the settings, or scripts to run as servers."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Connect the cloud at $MCP_ENDPOINT (or the settings' endpoints) with the MCP servers, until stopped."""
    words = servers or []
    settings = settings_for(words, config)
    source, chosen = settings.source, settings.bridge.log
    log.configure(format=chosen.format, level=chosen.level)
    process.run(_bridge(settings, None if source is None else lambda: settings_for(words, source)))


async def _bridge(settings: Settings, reload: Callable[[], Settings] | None) -> None:
    readers: list[Reader] = [log.LogReader()]
    if facts := os.environ.get(stream.VARIABLE):
        readers.append(stream.Stream(Path(facts)))
    await Bridge(settings, reload, readers).run()
