"""The blocks of a tool's result as text (MCP 2025-11-25, server/tools, Tool Result). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Raw

from voice_bridge.protocol import jsonrpc

JSON_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


class LeftOut(NamedTuple):
    """A block that is no text: what is known of it for the line that stands in its place.

    `type` is the block's own, empty when it has none or is no object. `name` is its title, name or URI, the first that
    is there. `size` is in bytes, as decoded from base64. What a server did not say is empty.
    """

    type: str = ""
    name: str = ""
    uri: str = ""
    mime: str = ""
    size: int = 0


def blocks(content: object) -> list[Any]:
    """The blocks of a result's `content`; what is no list and yet says something, as one block."""
    if content is None or isinstance(content, list):
        return content or []
    lone = isinstance(content, Mapping) and isinstance(content.get("type"), str)
    return [content if lone else {"type": "text", "text": content}]


def raw_blocks(content: Raw) -> list[Raw]:
    """The same of a `content` as its author wrote it."""
    written = bytes(content)
    if written == jsonrpc.NULL or written.startswith(b"["):
        return jsonrpc.elements(content)
    kind = jsonrpc.load(jsonrpc.members(content).get("type", jsonrpc.NULL))
    return [content if isinstance(kind, str) else Raw(b'{"type":"text","text":' + written + b"}")]


def as_text(block: object, line: Callable[[LeftOut], str]) -> str:
    """A content block's text, also that of an embedded resource; for any other block what `line` says of it.

    Never raises: a text that is no string is given as JSON, and null as the empty string. A block of the type text
    that has none is one for `line`, too.
    """
    if not isinstance(block, Mapping):
        return line(LeftOut())
    kind = _string(block, "type")
    if kind == "text" and "text" in block:
        return _worded(block["text"])
    inner = block.get("resource") if kind == "resource" else block
    inner = inner if isinstance(inner, Mapping) else {}
    if kind == "resource" and inner.get("text") is not None:
        return _worded(inner["text"])
    name = _string(inner, "title") or _string(inner, "name") or _string(inner, "uri")
    size = _decoded_size(_string(inner, "blob" if kind == "resource" else "data"))
    return line(LeftOut(kind, name, _string(inner, "uri"), _string(inner, "mimeType"), size))


def raw_as_text(block: Raw, line: Callable[[LeftOut], str]) -> str:
    """The same for a block as its author wrote it.

    Numbers keep every digit, and a member that cannot be read costs no other.
    """
    decoded = _decoded(block)
    if "resource" in decoded:
        decoded["resource"] = _decoded(jsonrpc.members(block)["resource"])
    return as_text(decoded, line)


def _decoded(raw: Raw) -> dict[str, Any]:
    members = jsonrpc.members(raw)
    return {name: _words(value) if name == "text" else jsonrpc.load(value) for name, value in members.items()}


def _words(raw: Raw) -> str | None:
    """A string; None for null; anything else as written, but for its letters, which no escape hides."""
    text: str | None = jsonrpc.load(raw)
    if isinstance(text, str) or bytes(raw) == jsonrpc.NULL:
        return text
    return JSON_STRING.sub(lambda string: _unescaped(string[0]), bytes(raw)).decode("utf-8", "replace")


def _unescaped(string: bytes) -> bytes:
    text = jsonrpc.load(string)
    return jsonrpc.dump(text) if isinstance(text, str) else string


def _string(block: Mapping[str, Any], member: str) -> str:
    value = block.get(member)
    return value if isinstance(value, str) else ""


def _worded(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else as_json(value)


def as_json(value: object) -> str:
    """The value as JSON with its letters unescaped, or a note where it has none. Never raises."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):  # thousands of digits or brackets, or what never was JSON
        return "(unreadable)"


def _decoded_size(base64: str) -> int:
    return (len(base64) - base64[-2:].count("=")) * 3 // 4
