"""The blocks of a tool's result as text (MCP 2025-11-25, server/tools, Tool Result). Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


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


def as_text(block: object, line: Callable[[LeftOut], str]) -> str:
    """A content block's text, also that of an embedded resource; for any other block what `line` says of it.

    Never raises: a text that is no string is given as JSON, and none at all as the empty string.
    """
    if not isinstance(block, Mapping):
        return line(LeftOut())
    kind = _string(block, "type")
    if kind == "text":
        return _worded(block.get("text"))
    inner = block.get("resource") if kind == "resource" else block
    inner = inner if isinstance(inner, Mapping) else {}
    if kind == "resource" and inner.get("text") is not None:
        return _worded(inner["text"])
    name = _string(inner, "title") or _string(inner, "name") or _string(inner, "uri")
    size = _decoded_size(_string(inner, "blob" if kind == "resource" else "data"))
    return line(LeftOut(kind, name, _string(inner, "uri"), _string(inner, "mimeType"), size))


def _string(block: Mapping[str, Any], member: str) -> str:
    value = block.get(member)
    return value if isinstance(value, str) else ""


def _worded(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):  # thousands of digits or brackets, or what never was JSON
        return "(unreadable)"


def _decoded_size(base64: str) -> int:
    return (len(base64) - base64[-2:].count("=")) * 3 // 4
