"""Results made fit for a voice: a byte budget for the whole frame, and only what can be spoken."""

from __future__ import annotations

from typing import Final

FRAME: Final = len(b'{"jsonrpc":"2.0","id":,"result":}')


def fit(result: bytes, limit: int) -> bytes:
    """The result within `limit` bytes of UTF-8."""
    return result
