"""Ctrl-C and the work it stops."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from voice_bridge.agent.interrupts import Interrupted, interruptible


async def test_a_second_cancellation_by_a_library_stays_with_the_work() -> None:
    """anyio cancels its task once more when a connection in the making is stopped."""

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            raise

    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        await interruptible(work())
    await asyncio.sleep(0)


async def test_who_is_cancelled_meanwhile_stays_cancelled() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            stopped.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(interruptible(work()))
        await asyncio.sleep(0.05)
        task.cancel()
    assert task.cancelled()
    assert stopped.is_set()
