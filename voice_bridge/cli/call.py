"""`voice-bridge call`: one tool, once, without a cloud."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, NoReturn

import msgspec
import typer
from msgspec import Raw

from voice_bridge.cli.alone import settings_alone
from voice_bridge.cli.options import ConfigOption
from voice_bridge.cli.shown import safe_json, write
from voice_bridge.config import Settings
from voice_bridge.core.lifecycle import State
from voice_bridge.errors import CallError, UsageError
from voice_bridge.observe import log
from voice_bridge.ports.servers import process
from voice_bridge.protocol import jsonrpc
from voice_bridge.protocol.content import LeftOut, raw_as_text
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.text import encodable, one_line, printable

_DEEPEST = 500  # about half of what the JSON readers of Python take; those of servers may take less
_LIKE = 'write them like \'{"expression": "1+1"}\''


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
    given = checked(arguments)
    result = process.run(_called(settings_alone(server or [], config), tool, given))
    write(safe_json(_pretty(result)) if as_json else printable("\n".join(_readable(result))))
    if jsonrpc.load(jsonrpc.members(result).get("isError", b"null")):
        raise typer.Exit(1)


def checked(text: str) -> Raw:
    """The arguments as they were written, so that numbers keep every digit; half an emoji becomes U+FFFD.

    Raises UsageError for what is no JSON object (RFC 8259), and for a name that stands twice in one object: servers
    differ in which of the two they take.
    """
    text = encodable(text)
    if _depth(text) > _DEEPEST:
        raise UsageError(f"the arguments are nested too deeply; {_DEEPEST} objects or lists in each other is the most")
    try:
        # Numbers stay text here: Python would refuse the long ones and round the others.
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_int=str, parse_float=str)
    except ValueError as error:
        raise UsageError(f"the arguments are not JSON: {error}; {_LIKE}") from None
    if not isinstance(found, dict):
        raise UsageError(f"the arguments must be a JSON object; {_LIKE}")
    return Raw(jsonrpc.one_line(text.encode()))


def _depth(text: str) -> int:
    """How many objects and lists are open at once, at most."""
    brackets = re.sub(r'"(?:[^"\\]|\\.)*"|[^][{}]', "", text)
    return max(accumulate(1 if char in "[{" else -1 for char in brackets), default=0)


def _once(members: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in members:
        if name in found:
            raise UsageError(f"the arguments give {name!r} twice in one object; leave one of them out")
        found[name] = value
    return found


def _no_number(word: str) -> NoReturn:
    raise UsageError(f"the arguments hold {word}, which JSON does not know; give a number, or a text in quotes")


async def _called(settings: Settings, tool: str, arguments: Raw) -> Raw:
    async with Runtime(settings, readers=[log.LogReader()]) as runtime:
        await runtime.settled()
        with runtime.local_client() as client:
            if not client.owner(tool):
                raise UsageError(_no_such_tool(tool, [str(each["name"]) for each in await client.tools()], runtime))
            try:
                return await client.call_raw(tool, arguments)
            except CallError as error:
                failed = {"content": [{"type": "text", "text": str(error)}], "isError": True}
                return Raw(json.dumps(failed).encode())


def _no_such_tool(tool: str, known: list[str], runtime: Runtime) -> str:
    down = [
        f"{status.name} is {status.state}: {status.reason}"
        for status in runtime.statuses()
        if status.state is not State.READY
    ]
    listed = ", ".join(known) or "no tools at all"
    return printable("; ".join([f"there is no tool {tool!r}; the servers offer: {listed}", *down]), keep="")


def _readable(result: Raw) -> Iterator[str]:
    """The text of a result; other blocks as a line that says what they are. Whatever it holds, it is shown."""
    members = jsonrpc.members(result)
    content = members.get("content", Raw(b"null"))
    blocks = jsonrpc.elements(content)
    yield from map(_block, blocks)
    if not blocks:
        rest = [members.get("structuredContent"), content] if members else [result]
        yield from (_pretty(raw) for raw in rest if raw is not None and bytes(raw) not in (b"null", b"[]"))


def _block(raw: Raw) -> str:
    return raw_as_text(raw, lambda block: _line(block, raw))


def _line(block: LeftOut, raw: Raw) -> str:
    """What is shown in place of a block that is no text."""
    if not jsonrpc.members(raw):
        return f"[a block that is no object: {one_line(bytes(raw).decode(), 200)}]"
    uri = block.uri if block.uri != block.name else ""
    return f"[{' '.join(filter(None, (block.type or 'unknown', block.mime, block.name, uri)))}]"


def _pretty(raw: Raw) -> str:
    """The JSON with its lines indented and every value as written."""
    try:
        return msgspec.json.format(bytes(raw), indent=2).decode()
    except (msgspec.MsgspecError, RecursionError):
        return bytes(raw).decode()
