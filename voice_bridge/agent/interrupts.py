"""Ctrl-C stops the work at hand, not the program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from voice_bridge.signals import on_signals

T = TypeVar("T")


class Interrupted(Exception):
    """A person pressed Ctrl-C."""


async def interruptible(work: Awaitable[T]) -> T:
    """The work's result. Raises `Interrupted` when SIGINT came first; the work was cancelled then, in good order."""
    # A task of its own: libraries that are cancelled while they connect may cancel once more, after the end.
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    with on_signals(stop, names=("SIGINT",)):
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not stopped or (caller is not None and caller.cancelling()):
                raise
            raise Interrupted from None
