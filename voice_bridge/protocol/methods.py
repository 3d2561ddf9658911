"""What differs between the eras besides the envelope: which methods there are, and which code an error has. Pure."""

from __future__ import annotations

from typing import Final

from voice_bridge.protocol import jsonrpc

_HANDSHAKE_ONLY: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)


def exists(method: str, *, modern: bool) -> bool:
    """Whether an era has this method (2026-07-28, "Key Changes": the session's methods went with the session)."""
    return not modern or method not in _HANDSHAKE_ONLY


def unknown_resource(*, modern: bool) -> int:
    """The error code for a resource that nobody has: -32002 until 2025-11-25, -32602 since 2026-07-28."""
    return jsonrpc.INVALID_PARAMS if modern else jsonrpc.RESOURCE_NOT_FOUND


def empty_result(*, modern: bool) -> bytes:
    """A result that says nothing but that it is one; since 2026-07-28 every result has a `resultType`."""
    return b'{"resultType":"complete"}' if modern else jsonrpc.EMPTY
