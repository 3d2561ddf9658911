"""What a program does when the system or a person asks it to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence

Callback = Callable[[], object]


@contextlib.contextmanager
def on_signals(
    stop: Callback, reload: Callback | None = None, *, names: Sequence[str] = ("SIGINT", "SIGTERM")
) -> Iterator[None]:
    """While the block runs, calls `stop` once, at the first of the named signals, and `reload` at each SIGHUP.

    What handled them before does so again afterwards. Names that this system does not know are left out, and so is
    SIGHUP as a reason to stop where it was ignored from the start: nohup asks for that. For the main thread; a block
    within another one must name other signals.
    """
    first = _once(stop)
    calls: dict[int, Callback] = {number: first for name in names if (number := _number(name)) is not None}
    if reload is not None and hasattr(signal, "SIGHUP"):
        calls[signal.SIGHUP] = reload
    with contextlib.ExitStack() as stack:
        for number, call in calls.items():
            stack.enter_context(_calling(number, call))
        yield


async def until_signal(work: Awaitable[int], *names: str) -> int:
    """The work's exit status; 0 when one of the named signals came first, which cancels the work in good order.

    A second signal does not cut the clean-up short. Raises CancelledError when somebody else cancelled as well.
    """
    task = asyncio.current_task()
    assert task is not None
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    with on_signals(stop, names=names):
        try:
            return await work
        except asyncio.CancelledError:
            if not stopped or task.uncancel():
                raise
            return 0


def _number(name: str) -> int | None:
    number: int | None = getattr(signal, name, None)
    if number is not None and name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN:
        return None
    return number


def _once(call: Callback) -> Callback:
    left = [call]

    def first() -> None:
        if left:
            left.pop()()

    return first


@contextlib.contextmanager
def _calling(number: int, call: Callback) -> Iterator[None]:
    loop, before = asyncio.get_running_loop(), signal.getsignal(number)
    if sys.platform == "win32":  # its loops watch no signals
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))
    else:
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        if sys.platform != "win32":
            loop.remove_signal_handler(number)
        signal.signal(number, before)
