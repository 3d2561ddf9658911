"""Results made fit for a voice: a byte budget for the whole frame, and only what can be spoken.

Voice clouds drop or close on a frame over a few kilobytes, and read only the first text. So for an endpoint with a
limit a result becomes one text block: other blocks turn into a short line, structured data into text, what steers a
terminal goes, and what is too long is cut with a note that can be said aloud. Pure.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Raw

from voice_bridge.core.shorten import cut_text, shortened, size
from voice_bridge.protocol import jsonrpc
from voice_bridge.protocol.content import JSON_STRING, LeftOut, raw_as_text, raw_blocks
from voice_bridge.text import spoken

FRAME: Final = len(b'{"jsonrpc":"2.0","id":,"result":}')
_TOO_LARGE: Final = b'{"content":[{"type":"text","text":"The result is too large."}],"isError":true}'


def fit(result: bytes, limit: int) -> bytes:
    """A `CallToolResult` as one text block within `limit` bytes of UTF-8."""
    members = jsonrpc.members(result)
    if "content" not in members and "structuredContent" not in members:
        return result if len(result) <= limit else _TOO_LARGE
    text = _clean_text(
        "\n".join(raw_as_text(block, _line) for block in raw_blocks(members.pop("content", Raw(jsonrpc.NULL))))
    )
    structured = Raw(_clean_json(bytes(members.pop("structuredContent", jsonrpc.NULL))))
    if bytes(structured) != jsonrpc.NULL:
        if not text:
            text = _plain(structured)
        elif not _says_the_same(text, structured):
            members["structuredContent"] = structured
    for dropped in (None, "structuredContent", "_meta"):
        members.pop(dropped or "", None)
        whole = _assembled(text, members)
        if len(whole) <= limit:
            return whole
    budget = limit - len(_assembled("", members))
    return _assembled(shortened(text, budget), members) if budget > 0 else _TOO_LARGE


def is_error(result: bytes | Raw) -> bool:
    """Whether a `CallToolResult` says that the tool failed."""
    raw = bytes(result)
    return b'"isError"' in raw and jsonrpc.load(jsonrpc.members(raw).get("isError", b"false")) is True


def fit_error(error: bytes, limit: int) -> bytes:
    """A JSON-RPC error within `limit` bytes; a long message is cut and its data left out."""
    error = _clean_json(error)
    if len(error) <= limit:
        return error
    loaded = {name: jsonrpc.load(value) for name, value in jsonrpc.members(error).items() if name != "data"}
    code = loaded["code"] if type(loaded.get("code")) is int else jsonrpc.INTERNAL_ERROR
    message = loaded.get("message")
    message, budget = message if isinstance(message, str) and message else "unknown error", max(0, limit - 40)
    return jsonrpc.dump({"code": code, "message": message if size(message) <= budget else cut_text(message, budget)})


def _assembled(text: str, members: dict[str, Raw]) -> bytes:
    return jsonrpc.dump({"content": [{"type": "text", "text": text}], **members})


def _line(block: LeftOut) -> str:
    """What is said in place of a block that is no text."""
    named = f": {block.name}" if block.name else ""
    match block.type:
        case "image":
            return "(an image was left out)"
        case "audio":
            return "(a sound was left out)"
        case "resource_link":
            return f"(a link{named})"
        case "resource":
            return f"(a file was left out{named})"
        case "text":
            return ""
        case "":
            return "(something unreadable was left out)"
        case other:
            return f"(something of the type {other} was left out)"


def _clean_text(text: str) -> str:
    """The text as it can be said; one that is JSON holds its escape sequences escaped once more."""
    text = spoken(text)
    raw = text.encode("utf-8", "replace")
    return _clean_json(raw).decode() if jsonrpc.members(raw) or jsonrpc.elements(raw) else text


def _clean_json(raw: bytes) -> bytes:
    """The JSON with each string as it can be said, and every other byte as it was written."""
    return JSON_STRING.sub(lambda string: _clean_string(string[0]), raw)


def _clean_string(raw: bytes) -> bytes:
    text = jsonrpc.load(raw)
    clean = spoken(text) if isinstance(text, str) else text
    return raw if clean == text else jsonrpc.dump(clean)


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
