"""`voice-bridge run`: the daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from voice_bridge import platforms
from voice_bridge.bridge import serve
from voice_bridge.cli.options import ConfigOption, settings_for


def run(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|SCRIPT …]", help="Servers of the settings, or scripts to run as servers."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Connect the cloud at $MCP_ENDPOINT (or the settings' endpoints) with the MCP servers, until stopped."""
    platforms.run(serve(settings_for(servers or [], config)))
