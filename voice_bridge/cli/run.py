"""`voice-bridge run`: the daemon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from voice_bridge.cli.options import ConfigOption, settings_for
from voice_bridge.config import Settings
from voice_bridge.ports.servers import process as platforms
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
    if settings.source is None:
        platforms.run(_bridge(settings, None))
    else:
        source = settings.source
        platforms.run(_bridge(settings, lambda: settings_for(words, source)))


async def _bridge(settings: Settings, reload: Callable[[], Settings] | None) -> None:
    await Bridge(settings, reload).run()
