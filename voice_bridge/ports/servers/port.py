"""What every way to a server has in common: what it can be told, and what it tells."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Oversized:
    """A message over the limit: its first and last bytes, and how long it was."""

    ends: bytes
    size: int


class ServerListener(Protocol):
    """Who hears what a server writes. Must not block and must not raise."""

    def received(self, message: bytes | Oversized, related: int | None = None) -> None:
        """Takes a message; `related` is the request of ours that it came in answer to, where the transport tells."""

    def said(self, text: str) -> None:
        """Takes a line of its stderr."""

    def remarked(self, text: str) -> None:
        """Takes a sentence on how it goes."""


class ServerPort(Protocol):
    """A running server, local or remote. `ended` resolves to the reason once it can no longer answer."""

    pid: int | None
    ended: asyncio.Future[str]

    def send(self, data: bytes) -> bool:
        """Passes one message on; False when the server does not take any more."""

    async def stop(self) -> None:
        """Ends the session and everything that belongs to it, within seconds."""
