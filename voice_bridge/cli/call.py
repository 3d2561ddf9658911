"""`voice-bridge call`: one tool, once, without a cloud."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from voice_bridge.cli.options import ConfigOption, settings_for
from voice_bridge.config import Settings
from voice_bridge.core.lifecycle import State
from voice_bridge.errors import CallError, UsageError
from voice_bridge.observe import log
from voice_bridge.ports.servers import process
from voice_bridge.runtime.runtime import Runtime


def call(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name, as `voice-bridge tools` shows it.")],
    arguments: Annotated[
        str, typer.Argument(metavar="['{\"json\": …}']", help="The arguments as a JSON object.", show_default=False)
    ] = "{}",
    server: Annotated[
        list[str] | None, typer.Option("--server", metavar="NAME|SCRIPT", help="Start only this server; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Call one tool and print its result. Status 1 when the result is an error."""
    result = process.run(_called(settings_for(server or [], config), tool, _parsed(arguments)))
    print(json.dumps(result, ensure_ascii=False, indent=2) if as_json else "\n".join(_readable(result)))
    if result.get("isError"):
        raise typer.Exit(1)


def _parsed(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise UsageError(f'the arguments are not JSON: {error}; write them like \'{{"expression": "1+1"}}\'') from None
    if not isinstance(arguments, dict):
        raise UsageError('the arguments must be a JSON object, like \'{"expression": "1+1"}\'')
    return arguments


async def _called(settings: Settings, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    async with Runtime(settings, readers=[log.Reader()]) as runtime:
        await runtime.settled()
        with runtime.local_client() as client:
            if not client.owner(tool):
                raise UsageError(_no_such_tool(tool, [each["name"] for each in await client.tools()], runtime))
            try:
                return await client.call(tool, arguments)
            except CallError as error:
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def _no_such_tool(tool: str, known: list[str], runtime: Runtime) -> str:
    down = [
        f"{status.name} is {status.state}: {status.reason}"
        for status in runtime.statuses()
        if status.state is not State.READY
    ]
    listed = ", ".join(known) or "no tools at all"
    return "; ".join([f"there is no tool {tool!r}; the servers offer: {listed}", *down])


def _readable(result: dict[str, Any]) -> list[str]:
    """The text of a result; other blocks as a line that says what they are."""
    shown = []
    for block in result.get("content") or []:
        if block.get("type") == "text":
            shown.append(str(block.get("text", "")))
        else:
            shown.append(f"[{block.get('type', 'unknown')} {block.get('mimeType', '')}]".replace(" ]", "]"))
    if not shown and "structuredContent" in result:
        shown.append(json.dumps(result["structuredContent"], ensure_ascii=False, indent=2))
    return shown
