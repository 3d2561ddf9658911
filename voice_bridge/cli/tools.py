"""`voice-bridge tools`: every tool of every enabled server, as a cloud would see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from voice_bridge.cli.alone import settings_alone
from voice_bridge.cli.options import ConfigOption
from voice_bridge.cli.shown import safe_json, write
from voice_bridge.config import Settings
from voice_bridge.core.lifecycle import State
from voice_bridge.observe import log
from voice_bridge.ports.servers import process
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.text import one_line, plural, printable


def tools(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|SCRIPT …]", help="Servers of the settings, or scripts to run as servers."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tools as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """List every tool of every enabled server. Status 1 when none could be listed."""
    listed = process.run(_listed(settings_alone(servers or [], config)))
    if as_json:
        write(safe_json(json.dumps([tool for _, tool in listed], ensure_ascii=False, indent=2)))
    elif listed:
        write("\n".join(_lines(listed)))
    if not listed:
        raise typer.Exit(1)


async def _listed(settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Each tool with the name of its server."""
    async with Runtime(settings, readers=[log.LogReader()]) as runtime:
        await runtime.settled()
        with runtime.local_client() as client:
            found = [(client.owner(tool["name"]), tool) for tool in await client.tools()]
        for status in runtime.statuses():
            if status.state is not State.READY:
                write(one_line(f"{status.name}: {status.state}: {status.reason}"), error=True)
        for problem in settings.problems.values():
            write(printable(problem), error=True)
        return found


def _lines(listed: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    for server in dict.fromkeys(server for server, _ in listed):
        own = [tool for owner, tool in listed if owner == server]
        yield one_line(f"{server} ({plural(len(own), 'tool')})")
        for tool in own:
            yield one_line(f"  {tool['name']}({', '.join(_parameters(tool))})")
            first = str(tool.get("description") or "").strip().partition("\n")[0]
            if first:
                yield one_line(f"      {first}")


def _parameters(tool: dict[str, Any]) -> list[str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    needed = required if isinstance(required, list) else []
    return [name if name in needed else f"{name}?" for name in properties]
