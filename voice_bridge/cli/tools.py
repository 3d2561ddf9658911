"""`voice-bridge tools`: every tool of every enabled server, as a cloud would see them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from voice_bridge.cli.options import ConfigOption, settings_for
from voice_bridge.config import Settings
from voice_bridge.core.lifecycle import State
from voice_bridge.observe import log
from voice_bridge.ports.servers import process
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.text import plural


def tools(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|SCRIPT …]", help="Servers of the settings, or scripts to run as servers."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """List every tool of every enabled server. Status 1 when none could be listed."""
    listed = process.run(_listed(settings_for(servers or [], config)))
    if as_json:
        print(json.dumps([tool for _, tool in listed], ensure_ascii=False, indent=2))
    else:
        _print(listed)
    if not listed:
        raise typer.Exit(1)


async def _listed(settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Each tool with the name of its server."""
    async with Runtime(settings, readers=[log.Reader()]) as runtime:
        await runtime.settled()
        with runtime.local_client() as client:
            found = [(client.owner(tool["name"]), tool) for tool in await client.tools()]
        for status in runtime.statuses():
            if status.state is not State.READY:
                typer.echo(f"{status.name}: {status.state}: {status.reason}", err=True)
        for problem in settings.problems.values():
            typer.echo(problem, err=True)
        return found


def _print(listed: list[tuple[str, dict[str, Any]]]) -> None:
    for server in dict.fromkeys(server for server, _ in listed):
        own = [tool for owner, tool in listed if owner == server]
        print(f"{server} ({plural(len(own), 'tool')})")
        for tool in own:
            print(f"  {tool['name']}({', '.join(_parameters(tool))})")
            first = str(tool.get("description") or "").strip().partition("\n")[0]
            if first:
                print(f"      {first}")


def _parameters(tool: dict[str, Any]) -> list[str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    return [name if name in (required or []) else f"{name}?" for name in properties]
