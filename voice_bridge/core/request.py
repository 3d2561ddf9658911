"""One request of a client, on its way through the core."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Raw

from voice_bridge.core.client import Client

Params = bytes | Raw


class Request(NamedTuple):
    """Who asks, under which id (raw), what, and when (seconds on the caller's monotonic clock)."""

    client: Client
    id: bytes
    method: str
    params: Params
    now: float
