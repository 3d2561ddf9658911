"""Tools, between the servers that own them and the Messages API that offers them to the model."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from voice_bridge.agent.schemas import UnusableSchema, repair
from voice_bridge.errors import CallError
from voice_bridge.names import legal_name, unique_name
from voice_bridge.text import encodable

INVALID_PARAMS = -32602  # JSON-RPC 2.0 §5.1
_LONGEST_NAME = 128  # Messages API, tool definitions


class ToolSource(Protocol):
    """Where tools come from: the runtime, a simulated cloud's session, anything with these three methods."""

    async def tools(self) -> list[dict[str, Any]]:
        """MCP Tool objects as JSON, under the names `call` takes."""

    async def call(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """A CallToolResult as JSON, within `timeout` seconds or the source's own limit.

        Raises `CallError` when the answer is a JSON-RPC error. Cancelling the task cancels the call.
        """

    def owner(self, name: str) -> str:
        """The server that owns a tool."""


class NoTools:
    """A source with nothing in it."""

    async def tools(self) -> list[dict[str, Any]]:
        return []

    async def call(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        raise CallError(INVALID_PARAMS, f"there is no tool {name!r}")

    def owner(self, name: str) -> str:
        return ""


@dataclass(frozen=True)
class Tool:
    """One tool: `name` is the source's, `definition` is what the Messages API gets.

    `read_only` is true where a trusted server says so; such a tool runs without asking.
    """

    name: str
    server: str
    read_only: bool
    definition: dict[str, Any]
    renamed: dict[str, str] = field(default_factory=dict)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """The model's input under the server's own argument names."""
        return {self.renamed.get(name, name): value for name, value in given.items()}


@dataclass
class Toolbox:
    """The tools of one turn by the name the model sees, and a sentence for each one left out."""

    tools: dict[str, Tool] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """What goes into the request's `tools`, in a stable order so that the prompt cache holds."""
        return [tool.definition for tool in self.tools.values()]

    def leave_out(self, index: int, reason: str) -> str:
        """Drops the tool at `index` of `definitions`; returns the sentence that says so."""
        tool = self.tools.pop(list(self.tools)[index])
        return self._note(tool.name, tool.server, reason)

    def _note(self, name: str, server: str, reason: str) -> str:
        note = f"The tool {name!r} of server {server!r} is left out: {reason}."
        self.left_out.append(note)
        return note


def toolbox(source: ToolSource, listed: list[dict[str, Any]], trusted: Collection[str] = frozenset()) -> Toolbox:
    """The listed tools as the Messages API takes them; what cannot be repaired is left out and noted.

    Only a server named in `trusted` is believed that a tool of its is read-only (MCP, tools/annotations).
    """
    box = Toolbox()
    names: set[str] = set()
    seen: set[str] = set()
    for entry in listed:
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            box.left_out.append("A tool without a name is left out.")
            continue
        server = source.owner(name)
        if name in seen:
            box._note(name, server, "another tool has the same name")
            continue
        seen.add(name)
        try:
            schema, renamed = repair(entry.get("inputSchema"))
        except UnusableSchema as error:
            box._note(name, server, str(error))
            continue
        shown = unique_name(legal_name(name, _LONGEST_NAME), names, _LONGEST_NAME)
        definition: dict[str, Any] = {"name": shown, "input_schema": schema}
        if description := (entry.get("description") or entry.get("title")):
            definition["description"] = str(description)
        read_only = server in trusted and _says_read_only(entry.get("annotations"))
        try:
            box.tools[shown] = Tool(name, server, read_only, _sendable(definition), renamed)
        except ValueError:
            box._note(name, server, "its input schema holds a number that JSON does not know")
    return box


def _says_read_only(annotations: object) -> bool:
    return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True


def _sendable(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition without lone surrogates, which no request can carry (RFC 8259 §8.2).

    Raises ValueError for NaN and Infinity, which no JSON holds (RFC 8259 §6).
    """
    sendable: dict[str, Any] = json.loads(encodable(json.dumps(definition, ensure_ascii=False, allow_nan=False)))
    return sendable
