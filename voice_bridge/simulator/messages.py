"""What passes over the wire, as the cloud sees it: frames, answers, tools, and why something could not be used."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class SessionError(Exception):
    """A session with a bridge did not go as the protocol has it."""


class NoAnswer(SessionError, TimeoutError):
    """The bridge left a request unanswered for too long."""


class Disconnected(SessionError, ConnectionError):
    """The connection ended, or the relay no longer knows it, before the answer came."""


class BadAnswer(SessionError):
    """The bridge answered something the cloud cannot use."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One WebSocket frame, as it went over the wire.

    `at` is `time.monotonic()`. `message` is the JSON-RPC object in it, or None; then `problem` says why.
    """

    number: int
    at: float
    sent: bool
    data: str | bytes
    message: Json | None
    problem: str

    def get(self, key: str) -> Any:
        """A member of the message; None when it has none or the frame holds no message."""
        return None if self.message is None else self.message.get(key)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A frame the cloud threw away, and why."""

    frame: Frame
    why: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: exactly one of `result` and `error` is set (JSON-RPC 2.0 §5).

    `raw` is the frame's own text, for tests on bytes. `text` is what this kind of cloud hears.
    """

    id: object
    result: Json | None
    error: Json | None
    text: str
    milliseconds: float
    raw: str

    @property
    def ok(self) -> bool:
        """True for a result that is not marked `isError`."""
        return self.result is not None and self.result.get("isError") is not True


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as the bridge lists it; `spoken` is the name after this cloud's own reduction."""

    name: str
    spoken: str
    description: str
    schema: Json


def encode(message: Json) -> str:
    """One frame's text: characters as they are, and escapes only where half a surrogate pair leaves no choice.

    Raises ValueError for NaN and infinity.
    """
    text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(message, allow_nan=False)
    return text


def read_message(data: str | bytes) -> tuple[Json | None, str]:
    """The JSON-RPC object in a frame, or None and the reason (JSON-RPC 2.0 §4, §5; RFC 8259 for NaN)."""
    if isinstance(data, bytes):
        return None, "a binary frame"
    try:
        message = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    if isinstance(message, list):
        return None, "a batch"
    if not isinstance(message, dict):
        return None, "JSON, but not an object"
    return _check_envelope(message)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _check_envelope(message: Json) -> tuple[Json | None, str]:
    if message.get("jsonrpc") != "2.0":
        return None, 'an object without "jsonrpc": "2.0"'
    if isinstance(message.get("method"), str):
        return message, ""
    if ("result" in message) == ("error" in message):
        return None, "neither a request, nor an answer with exactly one of result and error"
    if "id" not in message:
        return None, "an answer without an id"
    return message, ""
