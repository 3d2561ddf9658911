"""A started program as its starter sees it, on every system."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


class Events(Protocol):
    """What a child process tells; `fd` is 0, 1 or 2 as the child sees it."""

    def wrote(self, fd: int, data: bytes) -> None:
        """It wrote to one of its pipes."""

    def closed(self, fd: int) -> None:
        """It closed one of its pipes, mostly by ending."""

    def exited(self, code: int) -> None:
        """It ended; negative for a signal."""


@dataclass(frozen=True, slots=True)
class Process:
    """A started program, its standard input, and all that must be closed in the end."""

    pid: int
    stdin: asyncio.WriteTransport
    transports: tuple[asyncio.BaseTransport, ...]

    def close(self) -> None:
        """Lets go of the pipes, also of one that something out of reach holds open."""
        for transport in self.transports:
            transport.close()
