"""Results made fit for a voice: a byte budget for the whole frame, and only what can be spoken.

Voice clouds drop or close on a frame over a few kilobytes, and read only the first text. So for an endpoint with a
limit a result becomes one text block: other blocks turn into a short line, structured data into text, and what is too
long is cut where a listener would not mind, with a note that can be said aloud. Pure.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from voice_bridge.protocol import jsonrpc

FRAME: Final = len(b'{"jsonrpc":"2.0","id":,"result":}')
_SENTENCE_ENDS: Final = ".!?。！？…"
_NEAR: Final = 0.8
_FEW_LINES: Final = 5
_TOO_LARGE: Final = b'{"content":[{"type":"text","text":"The result is too large."}],"isError":true}'


def fit(result: bytes, limit: int) -> bytes:
    """A `CallToolResult` as one text block within `limit` bytes of UTF-8."""
    members = jsonrpc.members(result)
    if "content" not in members and "structuredContent" not in members:
        return result if len(result) <= limit else _TOO_LARGE
    text = "\n".join(_spoken(block) for block in jsonrpc.elements(members.pop("content", b"[]")))
    structured = members.pop("structuredContent", None)
    if structured is not None and not text:
        text = _plain(structured)
    elif structured is not None and not _says_the_same(text, structured):
        members["structuredContent"] = structured
    for dropped in (None, "structuredContent", "_meta"):
        members.pop(dropped or "", None)
        whole = _assembled(text, members)
        if len(whole) <= limit:
            return whole
    budget = limit - len(_assembled("", members))
    return _assembled(_shortened(text, budget), members) if budget > 0 else _TOO_LARGE


def is_error(result: bytes | Raw) -> bool:
    """Whether a `CallToolResult` says that the tool failed."""
    raw = bytes(result)
    return b'"isError"' in raw and jsonrpc.load(jsonrpc.members(raw).get("isError", b"false")) is True


def fit_error(error: bytes, limit: int) -> bytes:
    """A JSON-RPC error within `limit` bytes; a long message is cut and its data left out."""
    if len(error) <= limit:
        return error
    loaded = jsonrpc.load(error)
    loaded = loaded if isinstance(loaded, dict) else {}
    code = loaded.get("code") if isinstance(loaded.get("code"), int) else jsonrpc.INTERNAL_ERROR
    message, budget = str(loaded.get("message") or "unknown error"), max(0, limit - 40)
    return jsonrpc.dump({"code": code, "message": message if _size(message) <= budget else _cut_text(message, budget)})


def _assembled(text: str, members: dict[str, Raw]) -> bytes:
    return jsonrpc.dump({"content": [{"type": "text", "text": text}], **members})


def _spoken(block: Raw) -> str:
    """A content block as text: its own, or a short line that says what was left out."""
    value = jsonrpc.load(block)
    if not isinstance(value, dict):
        return "(something unreadable was left out)"
    kind = value.get("type")
    if kind == "text":
        return str(value.get("text", ""))
    if kind in ("image", "audio"):
        return "(an image was left out)" if kind == "image" else "(a sound was left out)"
    if kind == "resource_link":
        return f"(a link: {value.get('title') or value.get('name') or value.get('uri')})"
    if kind == "resource":
        resource = value.get("resource")
        resource = resource if isinstance(resource, dict) else {}
        if isinstance(resource.get("text"), str):
            return str(resource["text"])
        return f"(a file was left out: {resource.get('uri', 'unnamed')})"
    return f"(something of the type {kind} was left out)"


def _plain(structured: Raw) -> str:
    """Structured data as text, numbers as written and letters unescaped; a lone `result` without its wrapping."""
    members = jsonrpc.members(structured)
    if set(members) == {"result"}:
        value = jsonrpc.load(members["result"])
        return value if isinstance(value, str) else bytes(members["result"]).decode()
    return bytes(structured).decode()


def _says_the_same(text: str, structured: Raw) -> bool:
    if text == _plain(structured):
        return True
    try:
        value, said = json.loads(bytes(structured)), json.loads(text)
    except (ValueError, RecursionError):  # not JSON, thousands of digits, or thousands of brackets
        return False
    return bool(said == value or (isinstance(value, dict) and set(value) == {"result"} and said == value["result"]))


# Cutting


def _shortened(text: str, budget: int) -> str:
    """The text cut to so many bytes of JSON, with a note of how much that is."""
    return _fewer_rows(text, budget) or _fewer_lines(text, budget) or _cut_text(text, budget)


def _fewer_rows(text: str, budget: int) -> str | None:
    """For JSON that is, or holds, one long list: as many whole rows as fit."""
    raw = text.strip().encode("utf-8", "replace")
    members = jsonrpc.members(raw)
    lists = {name: jsonrpc.elements(value) for name, value in members.items()}
    longest = max(lists, key=lambda name: len(bytes(members[name])), default="")
    rows = jsonrpc.elements(raw) if raw.startswith(b"[") else lists.get(longest, [])
    if not rows:
        return None

    def shown(count: int) -> str:
        kept = rows[:count]
        whole = jsonrpc.dump({**members, longest: kept} if members else kept).decode()
        return f"{whole}\n(shortened, {count:,} of {len(rows):,} rows)"

    kept = _most(min(len(rows), budget), lambda n: _size(shown(n)) <= budget)
    return shown(kept) if kept else None


def _fewer_lines(text: str, budget: int) -> str | None:
    """For text of many lines: as many whole lines as fit."""
    lines = text.split("\n")
    if len(lines) < _FEW_LINES:
        return None
    note = f"\n(shortened, {{}} of {len(lines):,} lines)"

    def shown(count: int) -> str:
        return "\n".join(lines[:count]) + note.format(f"{count:,}")

    kept = _most(min(len(lines), budget), lambda n: _size(shown(n)) <= budget)
    return shown(kept) if kept and _size(shown(kept)) >= budget * (1 - _NEAR) else None


def _cut_text(text: str, budget: int) -> str:
    """As many characters as fit, ended at a sentence or a word where one is near."""
    note = f" … (shortened, {{}} of {len(text):,} characters)"
    room = budget - len(note) - len(f"{len(text):,}")
    if room <= 0:
        return text[: _most(max(0, budget), lambda n: _size(text[:n]) <= budget)]
    kept = _most(min(len(text), room), lambda n: _size(text[:n]) <= room)
    head = text[: _good_end(text, kept)]
    return head + note.format(f"{len(head):,}")


def _good_end(text: str, most: int) -> int:
    """The best place to stop at or before `most` characters: after a sentence, before a word, between characters."""
    least = int(most * _NEAR)
    for end in range(most, least, -1):
        if text[end - 1] in _SENTENCE_ENDS and (end == len(text) or text[end - 1] not in ".!?" or text[end].isspace()):
            return end
    for end in range(most, least, -1):
        if text[end : end + 1].isspace():
            return end
    while 0 < most < len(text) and (_joins(text[most]) or text[most - 1] == "\u200d"):
        most -= 1
    return most


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it: accents, joiners, variation selectors, skin tones."""
    return (
        unicodedata.combining(character) > 0
        or character in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _most(highest: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `highest` that fits; fitting must get no easier as numbers grow."""
    low, high = 0, highest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _size(text: str) -> int:
    """The bytes that a text takes inside a JSON string."""
    return len(jsonrpc.dump(text)) - 2
