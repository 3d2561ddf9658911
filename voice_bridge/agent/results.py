"""Turns an MCP CallToolResult into the content of a `tool_result` block.

Images the Messages API takes go as images; everything else becomes text within a budget. No text
block is ever empty, because the API refuses those.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

Block = dict[str, Any]

NOTHING = "(the tool returned nothing)"
# The API refuses an image above 5 MB, counted in base64 (Messages API, vision limits).
LARGEST_IMAGE = 5 * 1024 * 1024
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


def clean(text: str) -> str:
    """`text` with U+FFFD for each half of an emoji, which no JSON body can carry (RFC 8259 §8.2).

    Two halves that follow each other, as a stream may cut them, become the character they are.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def to_content(result: dict[str, Any], budget: int) -> tuple[list[Block], str]:
    """The blocks of a tool result, and the same as text for people. `budget` is in characters."""
    items = result.get("content")
    blocks = [_block(item) for item in items] if isinstance(items, list) else []
    blocks = [block for block in blocks if block.get("text", "image").strip()]
    if not blocks and result.get("structuredContent") is not None:
        blocks = [_text(json.dumps(result["structuredContent"], ensure_ascii=False))]
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
    if not isinstance(item, dict):
        return _text(f"[a block that is not an object: {type(item).__name__}]")
    match item.get("type"):
        case "text":
            return _text(_words(item.get("text")))
        case "image":
            return _image(str(item.get("data") or ""), item.get("mimeType"))
        case "audio":
            return _text(f"[audio, {item.get('mimeType')}, {_size(_decoded_size(item.get('data')))}, not shown]")
        case "resource":
            return _resource(item.get("resource"))
        case "resource_link":
            name = item.get("title") or item.get("name") or "resource"
            return _text(f"[link to {name}: {item.get('uri')}]")
        case other:
            return _text(f"[a block of type {other!r}, not shown]")


def _words(text: object) -> str:
    """The text of a block; what should be text and is not, as JSON."""
    if text is None or isinstance(text, str):
        return text or ""
    return json.dumps(text, ensure_ascii=False)


def _resource(resource: object) -> Block:
    if not isinstance(resource, dict):
        return _text("[an embedded resource without content]")
    if isinstance(resource.get("text"), str):
        return _text(resource["text"])
    kind = resource.get("mimeType") or "unknown type"
    if isinstance(resource.get("blob"), str) and str(kind).startswith("image/"):
        return _image(resource["blob"], kind)
    return _text(f"[resource {resource.get('uri')}, {kind}, {_size(_decoded_size(resource.get('blob')))}, not shown]")


def _image(data: str, declared: object) -> Block:
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
    return {"type": "text", "text": clean(text)}


def _decoded_size(data: object) -> int:
    return len(data) * 3 // 4 if isinstance(data, str) else 0


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:,.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"
