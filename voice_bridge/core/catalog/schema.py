"""What is repaired in a tool, so that no client that checks its list refuses the whole of it for one member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from voice_bridge.protocol import jsonrpc

_NO_SCHEMA: Final = Raw(b'{"type":"object"}')
_TOOL_MEMBERS: Final[Mapping[str, bytes]] = {
    "title": b'"', "description": b'"', "inputSchema": b"{", "outputSchema": b"{", "annotations": b"{", "icons": b"[",
    "execution": b"{", "_meta": b"{",
}  # fmt: skip
_SCHEMA_MEMBERS: Final[Mapping[str, bytes]] = {"properties": b"{", "required": b"["}


def completed(raw: bytes, description: str | None) -> bytes:
    """The tool as the server wrote it, unless the owner describes it anew or a member has a type it must not have."""
    members = _well_typed(jsonrpc.members(raw), _TOOL_MEMBERS)
    if description is not None:
        members["description"] = Raw(jsonrpc.dump(description))
    members["inputSchema"] = _object_schema(members.get("inputSchema", _NO_SCHEMA))
    return raw if members == jsonrpc.members(raw) else jsonrpc.dump(members)


def only_as_a_task(raw: bytes) -> bool:
    """Whether a tool cannot be called but as a task, which the bridge does not speak (MCP 2025-11-25, Tasks)."""
    execution = jsonrpc.members(jsonrpc.members(raw).get("execution", jsonrpc.NULL))
    return bool(jsonrpc.load(execution.get("taskSupport", jsonrpc.NULL)) == "required")


def _well_typed(members: dict[str, Raw], types: Mapping[str, bytes]) -> dict[str, Raw]:
    """The members without those whose value does not begin as its type in `types` does."""
    return {
        name: value
        for name, value in members.items()
        if name not in types or bytes(value).lstrip().startswith(types[name])
    }


def _object_schema(schema: Raw) -> Raw:
    """A schema of an object, as MCP wants it; a good one stays as it was written."""
    members = _well_typed(jsonrpc.members(schema), _SCHEMA_MEMBERS)
    if jsonrpc.load(members.get("type", jsonrpc.NULL)) != "object":
        members["type"] = Raw(b'"object"')
    return schema if members == jsonrpc.members(schema) else Raw(jsonrpc.dump(members))
