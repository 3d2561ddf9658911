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
    task = asyncio.current_task()
    assert task is not None
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
        return await work
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
        raise Interrupted from None
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
