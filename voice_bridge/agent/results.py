"""Turns an MCP CallToolResult into the content of a `tool_result` block.

Images the Messages API takes go as images; everything else becomes text within a budget. No text
block is ever empty, because the API refuses those.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from voice_bridge.protocol import content
from voice_bridge.protocol.content import LeftOut, as_json, as_text
from voice_bridge.text import encodable

Block = dict[str, Any]

NOTHING = "(the tool returned nothing)"
# The API refuses an image above 5 MB, counted in base64 (Messages API, vision limits).
LARGEST_IMAGE = 5 * 1024 * 1024
_UNKNOWN = "unknown type"
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def cut(text: str, limit: int) -> str:
    """`text` within about `limit` characters: its head, a note of what is missing, its tail."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    missing = len(text) - head - tail
    end = text[len(text) - tail :] if tail else ""
    return f"{text[:head]}\n[… {missing:,} characters left out …]\n{end}"


def to_content(result: dict[str, Any], budget: int) -> tuple[list[Block], str]:
    """The blocks of a tool result, and the same as text for people. `budget` is in characters."""
    blocks = [_block(item) for item in content.blocks(result.get("content"))]
    blocks = [block for block in blocks if block.get("text", "image").strip()]
    if not blocks and result.get("structuredContent") is not None:
        blocks = [_text(as_json(result["structuredContent"]))]
    if not blocks:
        blocks = [_text(NOTHING)]
    blocks = _merge_texts(blocks)
    total = sum(len(block["text"]) for block in blocks if block["type"] == "text")
    for block in blocks:
        if block["type"] == "text":
            block["text"] = cut(block["text"], max(200, budget * len(block["text"]) // max(1, total)))
    return blocks, "\n".join(describe(block) for block in blocks)


def describe(block: Block) -> str:
    """One block as text; an image as a line that says what it was."""
    if block["type"] != "image":
        return str(block["text"])
    source = block["source"]
    return f"[{source['media_type']}, {_size(len(source['data']) * 3 // 4)}]"


def _merge_texts(blocks: list[Block]) -> list[Block]:
    merged: list[Block] = []
    for block in blocks:
        if merged and block["type"] == merged[-1]["type"] == "text":
            merged[-1]["text"] += "\n" + block["text"]
        else:
            merged.append(block)
    return merged


def _block(item: object) -> Block:
    match item:
        case {"type": "image", "data": str(data), **others}:
            return _image(data, others.get("mimeType"))
        case {"type": "resource", "resource": {"blob": str(data), "mimeType": str(kind)} as resource}:
            if kind.startswith("image/") and resource.get("text") is None:
                return _image(data, kind)
    return _text(as_text(item, lambda block: _line(block, item)))


def _line(block: LeftOut, item: object) -> str:
    """What stands in place of a block that is neither text nor an image that can be shown."""
    kind, size = block.mime or _UNKNOWN, _size(block.size)
    match block.type:
        case "text":
            return ""
        case "image":
            return f"[image, {kind}, not shown: it has no data]"
        case "audio":
            return f"[audio, {kind}, {size}, not shown]"
        case "resource" if not (block.name or block.mime or block.size):
            return "[an embedded resource without content]"
        case "resource":
            return f"[resource {block.name or 'without a name'}, {kind}, {size}, not shown]"
        case "resource_link":
            return (
                f"[link to {': '.join(filter(None, dict.fromkeys((block.name, block.uri)))) or 'an unnamed resource'}]"
            )
        case "":
            return _oddity(item)
        case other:
            return f"[a block of type {other!r}, not shown]"


def _oddity(item: object) -> str:
    if not isinstance(item, dict):
        return f"[a block that is not an object: {as_json(item)}]"
    if item.get("type") is None:
        return "[a block without a type, not shown]"
    return f"[a block of type {as_json(item['type'])}, not shown]"


def _image(data: str, mime: object) -> Block:
    declared = mime if isinstance(mime, str) and mime else _UNKNOWN
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _text(f"[image, {declared}, not shown: it is not valid base64]")
    # The API refuses an image whose bytes disagree with the declared type, so the bytes decide.
    media_type = _sniff(raw)
    if media_type is None:
        return _text(f"[image, {declared}, {_size(len(raw))}, not shown: only png, jpeg, gif and webp can be]")
    if len(data) > LARGEST_IMAGE:
        return _text(f"[image, {media_type}, {_size(len(raw))}, not shown: too large]")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _sniff(raw: bytes) -> str | None:
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if raw.startswith(signature)), None)


def _text(text: str) -> Block:
    return {"type": "text", "text": encodable(text)}


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"
