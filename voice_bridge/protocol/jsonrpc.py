"""The JSON-RPC 2.0 envelope on bytes.

Only the envelope is ever parsed. `params`, `result` and `error` stay the bytes their author wrote (`msgspec.Raw`),
because parsing and dumping again loses 2**70, 1.10, 1e400 and duplicate keys.

Messages are bytes without a line end. Functions that build one never put a raw newline in it, so any message can go
to a WebSocket frame or to a line of a pipe.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_DOWN: Final = -32000
TIMED_OUT: Final = -32001
RESOURCE_NOT_FOUND: Final = -32002
UNSUPPORTED_VERSION: Final = -32022

NULL: Final = b"null"
EMPTY: Final = b"{}"


class BadMessage(ValueError):
    """Bytes that are not one JSON-RPC message; `code` is the JSON-RPC error code for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Envelope(msgspec.Struct, gc=False):
    """One request, notification or response. Absent members are `UNSET`; Raw ones are bytes as written."""

    id: Raw | UnsetType = UNSET
    method: Any = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(Envelope).decode
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def parse(data: bytes) -> Envelope:
    """The envelope of one message.

    Raises BadMessage with PARSE_ERROR for what is not UTF-8 JSON (RFC 8259; NaN and Infinity are not), and with
    INVALID_REQUEST for JSON that is not an object (JSON-RPC 2.0 §4; batches were removed in MCP 2025-06-18).
    Half a surrogate pair (`\\ud83d` alone, as JavaScript writes a cut emoji) becomes U+FFFD: strict parsers refuse it.
    """
    try:
        envelope = _decode(data)
    except msgspec.ValidationError:
        raise BadMessage(INVALID_REQUEST, _not_an_object(data)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        if b"\\u" in data:
            repaired = _LONE_SURROGATE.sub(rb"\1\\ufffd", data)
            if repaired != data:
                return parse(repaired)
        raise BadMessage(PARSE_ERROR, _why_not_json(data, error)) from None
    if not is_utf8(data):
        raise BadMessage(PARSE_ERROR, "the text is not UTF-8")
    return envelope


def _not_an_object(data: bytes) -> str:
    if data.lstrip()[:1] == b"[":
        return "batches are not supported (MCP 2025-06-18 removed them): send one message per frame"
    return "a JSON-RPC message is a JSON object"


def _why_not_json(data: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if not data.strip():
        return "the message is empty"
    if not is_utf8(data):
        return "the text is not UTF-8"
    if re.search(rb"[:\[,]\s*-?(NaN|Infinity)\b", data):
        return "NaN and Infinity are not JSON"
    return f"not JSON: {error}"


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are well-formed UTF-8 (RFC 3629)."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d{1,19})\s*,\s*' + _VERSION + _ANSWER)
_ID_LATER = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,19})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


def salvage_id(data: bytes) -> int | None:
    """The integer id of an answer that `parse` refused, or None when it cannot be told for certain.

    Read leniently where the whole is at hand; else from either end, where servers write it. An `"id"` elsewhere is
    part of the payload, and a request's id is its author's own: either could be the number of somebody else's call.
    """
    try:
        loose = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        found = _ID_FIRST.match(data) or (_ID_LAST.search(data[-512:]) if _ID_LATER.match(data) else None)
        return int(found[1]) if found else None
    if not isinstance(loose, dict) or "method" in loose or not loose.keys() & {"result", "error"}:
        return None
    found_id = loose.get("id")
    return found_id if type(found_id) is int else None


def valid_id(raw: bytes) -> bool:
    """Whether a raw id may name a request: a string or a number (JSON-RPC 2.0 §4)."""
    return raw[:1] not in b"ntf{[" and raw != b""


def id_key(raw: bytes) -> bytes:
    """A key equal for two spellings of one id and different for ids that differ in type or value."""
    if raw[:1] == b'"' and b"\\" in raw:
        return msgspec.json.encode(msgspec.json.decode(raw))
    return raw


def one_line(raw: bytes) -> bytes:
    """The same JSON without raw line breaks; inside strings JSON has none (RFC 8259 §7), so nothing is lost."""
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\r", b" ").replace(b"\n", b" ")
    return raw


def request(id_: bytes | int, method: str, params: bytes | Raw = b"") -> bytes:
    """A request; `params` is raw JSON, empty for none."""
    head = b'{"jsonrpc":"2.0","id":%d' % id_ if isinstance(id_, int) else b'{"jsonrpc":"2.0","id":' + id_
    return head + b',"method":' + dump(method) + (b',"params":' + params if params != b"" else b"") + b"}"


def notification(method: str, params: bytes | Raw = b"") -> bytes:
    """A notification; `params` is raw JSON, empty for none."""
    return b'{"jsonrpc":"2.0","method":' + dump(method) + (b',"params":' + params if params != b"" else b"") + b"}"


def result(id_: bytes, raw: bytes | Raw) -> bytes:
    """A response that carries a result, both as raw JSON."""
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"result":' + raw + b"}"


def error(id_: bytes, code: int, message: str, data: bytes = b"") -> bytes:
    """A response that carries an error of our own; `data` is raw JSON, empty for none."""
    extra = b',"data":' + data if data else b""
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"error":{"code":%d,"message":' % code + dump(message) + extra + b"}}"


class _ErrorObject(msgspec.Struct, gc=False):
    code: int
    message: str


_decode_error = msgspec.json.Decoder(_ErrorObject).decode


def is_error(raw: bytes | Raw) -> bool:
    """Whether a raw value is an error object, as a client's parser wants it (JSON-RPC 2.0 §5.1)."""
    try:
        _decode_error(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def error_raw(id_: bytes, raw: bytes | Raw) -> bytes:
    """A response that carries somebody else's error, as written."""
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"error":' + raw + b"}"


def dump(value: object) -> bytes:
    """Compact UTF-8 JSON, text unescaped; `msgspec.Raw` inside stays as written."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        if not isinstance(value, str):
            raise
        return msgspec.json.encode(value.encode("utf-8", "replace").decode())  # half an emoji in somebody's settings


_members = msgspec.json.Decoder(dict[str, Raw]).decode


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """The members of a raw JSON object, each still raw; empty for anything that is not an object."""
    try:
        return _members(raw)
    except (msgspec.MsgspecError, RecursionError):
        return {}


def load(raw: bytes | Raw) -> Any:
    """A raw JSON value as Python objects; None where it does not decode. Never for what is forwarded."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


_elements = msgspec.json.Decoder(list[Raw]).decode


def elements(raw: bytes | Raw) -> list[Raw]:
    """The elements of a raw JSON array, each still raw; empty for anything that is not an array."""
    try:
        return _elements(raw)
    except (msgspec.MsgspecError, RecursionError):
        return []
