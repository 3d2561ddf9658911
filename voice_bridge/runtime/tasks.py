"""Long-lived tasks: whatever one of them raises is told and tried again; none takes another with it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from voice_bridge.backoff import Backoff
from voice_bridge.core.facts import Fault, TaskFailed
from voice_bridge.runtime.board import Board
from voice_bridge.secrets import mask

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
Work = Callable[[], Coroutine[Any, Any, None]]


class Tasks:
    """Starts tasks and holds them; `join` waits for all."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: set[asyncio.Task[None]] = set()

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs something once. What it raises is a fault of the bridge: told, and the end of this task only."""
        task: asyncio.Task[None] = asyncio.ensure_future(self._once(name, work))
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        return task

    def keep(self, name: str, work: Work) -> asyncio.Task[None]:
        """Runs something for as long as the bridge lives: when it fails it is started again after a while."""
        return self.run(name, self._again_and_again(name, work))

    async def join(self) -> None:
        """Waits until every task has ended."""
        while self._held:
            await asyncio.wait(self._held)

    async def _once(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - the one place where a task's failure becomes a fact
            self._board.tell(Fault(name, traceback.format_exc()))

    async def _again_and_again(self, name: str, work: Work) -> None:
        backoff = Backoff(FIRST_WAIT, LONGEST_WAIT)
        while True:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001 - as above
                delay = backoff.after_failure()
                self._board.tell(TaskFailed(name, mask(f"{type(error).__name__}: {error}"), delay))
                await asyncio.sleep(delay)
