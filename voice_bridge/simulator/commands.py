"""What can be typed at the cloud's prompt. Pure: a line and the known tools in, a command or a sentence out."""

from __future__ import annotations

import difflib
import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from voice_bridge.simulator.messages import Json, ListedTool

HELP = """\
  tools                    list the tools, asking the bridge anew
  NAME key=value …         call a tool; quote values with spaces: text="good morning"
  NAME {"key": "value"}    the same, with JSON
  call NAME …              the same, for a tool that is called like a command
  frames on | off          show each frame that goes over the wire
  drop [CODE]              end the connection: with a close code (1012), or 1006 to cut the line
  help, quit               Ctrl-D and Ctrl-C quit too"""


_KEY = re.compile(r"[^\W\d][\w.-]*")


class CommandError(Exception):
    """The line cannot be understood; the sentence says what is wrong and what to type."""


@dataclass(frozen=True, slots=True)
class ListTools:
    """Ask for the tools."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call a tool."""

    tool: ListedTool
    arguments: Json


@dataclass(frozen=True, slots=True)
class ShowFrames:
    """Show frames from now on, or no longer."""

    on: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """End the connection; 1006 without a close frame."""

    code: int


@dataclass(frozen=True, slots=True)
class Help:
    """Show what can be typed."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


Command = ListTools | CallTool | ShowFrames | Drop | Help | Quit

WORDS = ("tools", "call", "frames", "drop", "help", "quit")


def needs_bridge(line: str) -> bool:
    """True when the line makes sense only while a bridge is connected."""
    return line.split(maxsplit=1)[0] not in ("frames", "help", "?", "quit", "exit")


def is_command(line: str, tools: Sequence[ListedTool]) -> bool:
    """True when the line begins with a command or a tool's name, rather than being a sentence."""
    word = line.split(maxsplit=1)[0]
    return word in (*WORDS, "?", "exit") or any(word in (tool.name, tool.spoken) for tool in tools)


def parse(line: str, tools: Sequence[ListedTool]) -> Command:
    """The command a line stands for. Raises CommandError; the line must not be blank."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    match word:
        case "tools":
            return ListTools()
        case "help" | "?":
            return Help()
        case "quit" | "exit":
            return Quit()
        case "frames":
            return _frames(rest)
        case "drop":
            return Drop(_close_code(rest or "1012"))
        case "call":
            name, _, rest = rest.partition(" ")
            if not name:
                raise CommandError("call whom? Type: call NAME key=value …   (`tools` lists the names)")
            return _call(name, rest.strip(), tools)
    return _call(word, rest, tools)


def usage(tool: ListedTool) -> str:
    """A tool's name and parameters, the optional ones with a question mark: `get_datetime(timezone?)`."""
    required = _required(tool)
    return f"{tool.spoken}({', '.join(name if name in required else name + '?' for name in _properties(tool))})"


def _frames(rest: str) -> ShowFrames:
    if rest not in ("on", "off"):
        raise CommandError("type `frames on` or `frames off`")
    return ShowFrames(rest == "on")


def _close_code(text: str) -> int:
    """A code that may be sent (RFC 6455 §7.4), or 1006."""
    code = int(text) if text.isascii() and text.isdigit() else 0
    if code in (1000, 1001, 1002, 1003, 1006) or 1007 <= code <= 1014 or 3000 <= code <= 4999:
        return code
    raise CommandError(f"{text} is no close code: use 1000–1003, 1007–1014, 3000–4999, or 1006 to cut the line")


def _call(name: str, rest: str, tools: Sequence[ListedTool]) -> CallTool:
    tool = next((tool for tool in tools if name in (tool.name, tool.spoken)), None)
    if tool is None:
        raise CommandError(_unknown(name, tools))
    if rest.startswith("{"):
        return CallTool(tool, _json_arguments(rest))
    return CallTool(tool, _pairs(tool, rest))


def _unknown(name: str, tools: Sequence[ListedTool]) -> str:
    near = difflib.get_close_matches(name, [*WORDS, *(tool.spoken for tool in tools)], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"there is no tool or command called {name}; {hint}`tools` lists the tools, `help` the commands"


def _json_arguments(text: str) -> Json:
    try:
        arguments = _loads(text)
    except json.JSONDecodeError as error:
        line = text[: error.pos].rpartition("\n")[2] + text[error.pos :].partition("\n")[0]
        pointer = " " * (error.colno - 1) + "^"
        problem = error.msg[:1].lower() + error.msg[1:]
        raise CommandError(f"the JSON is wrong at column {error.colno}: {problem}\n  {line}\n  {pointer}") from None
    assert isinstance(arguments, dict)  # it starts with a brace
    return arguments


def _loads(text: str) -> Any:
    """Strict JSON. Raises json.JSONDecodeError, and CommandError for numbers and depths that cannot be sent on."""
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise CommandError("the JSON is nested too deeply to be read") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _refuse_number(text)
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python's limit on digits
        _refuse_number(f"{text[:12]}…")


def _refuse_number(text: str) -> NoReturn:
    raise CommandError(f"{text} is no number that JSON can carry everywhere; send it as a string, in quotes")


def _pairs(tool: ListedTool, text: str) -> Json:
    try:
        words = shlex.split(text)
    except ValueError:
        raise CommandError('a quotation mark is never closed: write key="two words", or key="it\'s"') from None
    arguments: Json = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not (key in _properties(tool) or _KEY.fullmatch(key)):
            raise CommandError(f"{word} is not key=value. {_example(tool)}")
        if key in arguments:
            raise CommandError(f"{key} is given twice")
        arguments[key] = _value(key, value, _properties(tool).get(key))
    return arguments


def _example(tool: ListedTool) -> str:
    names = _required(tool) or list(_properties(tool))[:1]
    if not names:
        return f"{tool.spoken} takes no arguments: type its name alone"
    pairs = " ".join(f'{name}="…"' for name in names)
    as_json = json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False)
    return f"Type: {tool.spoken} {pairs}   or: {tool.spoken} {as_json}"


def _value(key: str, text: str, schema: object) -> Any:
    """The text as the type that the tool's schema asks for; without one, as JSON if it is some."""
    types = _types(schema)
    if types and types <= {"string", "null"}:
        return text
    try:
        return _loads(text)
    except json.JSONDecodeError:
        if types and "string" not in types:
            wanted = " or ".join(sorted(types - {"null"}))
            raise CommandError(f"{key} must be of type {wanted}, and {text!r} is not") from None
        return text


def _types(schema: object) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    own = schema.get("type", [])
    types = {own} if isinstance(own, str) else {name for name in own if isinstance(name, str)}
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _types(choice)
    return types


def _properties(tool: ListedTool) -> Json:
    properties = tool.schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(tool: ListedTool) -> list[str]:
    required = tool.schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
