"""Signals as the system sends them, to this process and to its loops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import ROOT, eventually
from voice_bridge.signals import on_signals, until_signal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends itself signals")

PROGRAM = """
import asyncio, os, signal, sys
from voice_bridge import loop
from voice_bridge.signals import on_signals

async def main():
    stopped = asyncio.Event()
    with on_signals(stopped.set, names=("SIGINT", "SIGTERM", "SIGHUP")):
        for name in sys.argv[1:]:
            os.kill(os.getpid(), getattr(signal, name))
        async with asyncio.timeout(10):
            await stopped.wait()
    print("stopped", type(asyncio.get_running_loop()).__module__.partition(".")[0])

loop.run(main())
"""


NOHUP = """
import asyncio, os, signal
from voice_bridge import loop
from voice_bridge.signals import on_signals

async def main():
    heard, term = [], asyncio.Event()
    with on_signals(lambda: heard.append(1), names=("SIGHUP",)), on_signals(term.set, names=("SIGTERM",)):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await term.wait()  # a signal with a lower number is delivered first
    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, heard)

loop.run(main())
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """What handled the signals before each test does so again after it."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


async def test_the_first_signal_stops_and_each_hangup_reloads() -> None:
    heard: list[str] = []
    with on_signals(lambda: heard.append("stop"), lambda: heard.append("reload")):
        send(signal.SIGHUP)
        await eventually(lambda: heard == ["reload"])
        send(signal.SIGTERM)
        await eventually(lambda: heard == ["reload", "stop"])
        send(signal.SIGINT, signal.SIGTERM)
        send(signal.SIGHUP)
        await eventually(lambda: heard.count("reload") == 2)
    assert heard.count("stop") == 1


async def test_only_the_named_signals_are_heard_and_unknown_names_are_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    stopped = asyncio.Event()
    with on_signals(stopped.set, names=("SIGTERM", "SIGNEVER")):
        assert signal.getsignal(signal.SIGINT) is before
        send(signal.SIGTERM)
        await asyncio.wait_for(stopped.wait(), 10)


async def test_blocks_for_other_signals_may_stand_within_each_other() -> None:
    heard: list[str] = []
    with on_signals(lambda: heard.append("outer"), names=("SIGTERM",)):
        with on_signals(lambda: heard.append("inner"), names=("SIGINT",)):
            send(signal.SIGINT)
            await eventually(lambda: heard == ["inner"])
        send(signal.SIGTERM)
        await eventually(lambda: heard == ["inner", "outer"])


async def test_an_error_in_the_block_leaves_nothing_behind() -> None:
    mine: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: mine.append(number))
    try:
        with pytest.raises(ZeroDivisionError), on_signals(lambda: None):
            raise ZeroDivisionError
        send(signal.SIGTERM)
        await eventually(lambda: mine == [signal.SIGTERM])
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_work_that_a_signal_ends_is_cleaned_up_to_the_last_and_gives_0() -> None:
    done: list[str] = []

    async def work() -> int:
        send(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            send(signal.SIGTERM, signal.SIGHUP)
            with on_signals(lambda: done.append("later"), names=("SIGINT",)):
                send(signal.SIGINT)  # the last one sent
                await eventually(lambda: done == ["later"])
            done.append("cleaned up")
        return 7

    assert await until_signal(work(), "SIGTERM", "SIGHUP") == 0
    assert done == ["later", "cleaned up"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "what comes next must not be cancelled"


async def test_work_that_no_signal_ends_gives_its_own_status() -> None:
    async def work() -> int:
        return 7

    assert await until_signal(work(), "SIGTERM") == 7


@pytest.mark.parametrize("also", [[], [signal.SIGTERM]])
async def test_who_is_cancelled_by_somebody_else_stays_cancelled(also: list[int]) -> None:
    begun = asyncio.Event()

    async def work() -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            with on_signals(heard.set, names=("SIGINT",)):
                send(*also, signal.SIGINT)
                await asyncio.wait_for(heard.wait(), 10)
        return 7

    heard = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(until_signal(work(), "SIGTERM"))
        await begun.wait()
        task.cancel()
    assert task.cancelled()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("sent", [["SIGINT"], ["SIGTERM"], ["SIGHUP"], ["SIGINT", "SIGINT", "SIGTERM"]])
def test_a_program_ends_in_good_order(loop: str, sent: list[str]) -> None:
    assert said([sys.executable, "-c", PROGRAM, *sent], loop) == f"stopped {loop}"


def test_under_nohup_a_closed_terminal_is_no_reason_to_stop() -> None:
    assert said(["nohup", sys.executable, "-c", NOHUP], "uvloop") == "True []"


def said(command: list[str], loop: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "VOICE_BRIDGE_LOOP": loop}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
