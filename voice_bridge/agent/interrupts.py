"""Ctrl-C stops the work at hand, not the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """A person pressed Ctrl-C."""


async def interruptible(work: Awaitable[T]) -> T:
    """The work's result. Raises `Interrupted` when SIGINT came first; the work was cancelled then, in good order."""
    loop = asyncio.get_running_loop()
    # A task of its own: libraries that are cancelled while they connect may cancel once more, after the end.
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    before = signal.getsignal(signal.SIGINT)
    with suppress(NotImplementedError):  # Windows: the runner's own handler ends the program
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        return await task
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if not stopped or (caller is not None and caller.cancelling()):
            raise
        raise Interrupted from None
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
