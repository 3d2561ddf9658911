"""The life of one server: started, greeted, restarted ever more slowly, given up for now, stopped at any moment."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path

import psutil
import pytest

from tests.support import Json, child, eventually, load, python, running, said
from voice_bridge.config import Settings
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.lifecycle import State
from voice_bridge.core.retry import QUICK_DEATHS_UNTIL_FAILED
from voice_bridge.observe import log
from voice_bridge.runtime.runtime import Runtime

REFUSES = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    error = {"code": -32000, "message": "license expired"}
    print(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error}), flush=True)
"""


def supervised(settings: Settings) -> Runtime:
    """A runtime whose facts go to the log."""
    return Runtime(settings, readers=[log.LogReader()])


def delays(messages: list[str]) -> list[float]:
    """The seconds announced in the log, in order."""
    return [
        float(found[1]) for line in messages if (found := re.search(r"(?:restarting|next try) in ([\d.]+) s", line))
    ]


async def test_a_server_that_dies_at_start_is_tried_ever_more_slowly_then_given_up_for_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "voice_bridge")
    async with Runtime(
        load(tmp_path, {"s": child("dieatstart")}, minBackoff=0.1, maxBackoff=5), readers=[log.LogReader()]
    ) as runtime:
        assert await runtime.settled(5)
        status = runtime.statuses()[0]
        assert (status.state, status.pid) == (State.BACKOFF, None)
        await eventually(lambda: status.state is State.FAILED, 20)
        reason = status.reason
        assert reason == "exited with code 1; it last said: no database at /nowhere: giving up"
        assert status.restarts == QUICK_DEATHS_UNTIL_FAILED
    announced = delays(caplog.messages)
    assert len(announced) == QUICK_DEATHS_UNTIL_FAILED + 1
    for seconds, nominal in zip(announced, [0.1, 0.2, 0.4, 0.8, 1.6], strict=False):
        assert nominal * 0.8 - 0.05 <= seconds <= nominal * 1.2 + 0.05  # the log rounds to tenths
    assert announced[-1] == 5
    last = [line for line in caplog.messages if "giving up" in line and "gave up for now" in line]
    assert last == [f"s: {reason}; gave up for now, next try in 5.0 s"]


async def test_a_program_that_is_not_there_yet_is_tried_again_soon(tmp_path: Path) -> None:
    script = tmp_path / "later.sh"
    async with supervised(load(tmp_path, {"s": {"command": "./later.sh"}}, maxBackoff=0.5)) as runtime:
        assert await runtime.settled(5)
        status = runtime.statuses()[0]
        assert (status.state, status.reason) == (State.BACKOFF, f"cannot start: {script} does not exist")
        command = child()
        script.write_text("#!/bin/sh\nexec " + " ".join([command["command"], *command["args"]]) + "\n")
        script.chmod(0o755)
        await eventually(lambda: status.state is State.READY, 5)
        assert status.tools == 9


async def test_a_missing_command_is_one_line_with_path_and_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime(
        load(tmp_path, {"s": {"command": "uvx-not-here"}}, maxBackoff=600), readers=[log.LogReader()]
    ) as runtime:
        assert await runtime.settled(5)
        assert runtime.statuses()[0].state is State.FAILED
    (line,) = caplog.messages
    assert line.startswith("s: cannot start: command 'uvx-not-here' was not found; searched ")
    assert line.endswith("give its full path, or set PATH for the service; gave up for now, next try in 10 min")


async def test_not_ready_within_start_timeout_is_an_end_and_a_new_start(tmp_path: Path) -> None:
    async with Runtime(
        load(tmp_path, {"s": python("import sys; sys.stdin.read()", startTimeout=0.4)}), readers=[log.LogReader()]
    ) as runtime:
        assert await runtime.settled(5)
        status = runtime.statuses()[0]
        assert status.reason == "was not ready within 0.4 s (startTimeout)"
        await eventually(lambda: status.restarts >= 1, 10)


async def test_a_server_that_refuses_to_be_initialized_is_quoted(tmp_path: Path) -> None:
    async with supervised(load(tmp_path, {"s": python(REFUSES)})) as runtime:
        assert await runtime.settled(5)
        assert runtime.statuses()[0].reason == "it refused to be initialized: license expired"


async def test_a_death_after_a_stable_life_is_followed_by_a_quick_restart_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, {"s": child()}, minBackoff=0.1, maxBackoff=60, stableAfter=0.3) as (runtime, client):
        status = runtime.statuses()[0]
        for number in range(QUICK_DEATHS_UNTIL_FAILED + 1):
            await asyncio.wait([asyncio.ensure_future(client.call("sleep", {"s": 0.35}))], timeout=5)
            psutil.Process(status.pid).kill()
            await eventually(lambda: status.restarts == number + 1 and status.state is State.READY, 5)  # noqa: B023
    assert all(seconds <= 0.2 for seconds in delays(caplog.messages))


async def test_a_ready_server_does_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    servers = {
        "slow": child("slow=2", tools={"rename": {"echo": "slow_echo"}}),
        "quick": child(tools={"include": ["echo"]}),
    }
    async with supervised(load(tmp_path, servers)) as runtime:
        assert await runtime.settled(5, [ServerKey("quick")])
        slow, quick = runtime.statuses()
        assert (slow.state, quick.state) == (State.STARTING, State.READY)
        with runtime.local_client() as client:
            assert said(await client.call("echo", {"text": "x"}, timeout=1)) == "x"
            assert not await runtime.settled(0.05, [ServerKey("slow")])
            assert await runtime.settled(10)
            assert said(await client.call("slow_echo", {"text": "y"}, timeout=1)) == "y"
        assert slow.took >= 2


@pytest.mark.parametrize(
    "entry",
    [child("slow=30"), child("dieatstart"), {"command": "no-such-binary-xyz"}, child("closestdout")],
    ids=["while it starts", "in backoff", "when it has failed", "when it is ready"],
)
async def test_a_server_can_be_stopped_at_any_moment(tmp_path: Path, entry: Json) -> None:
    async with supervised(load(tmp_path, {"s": entry}, minBackoff=60, maxBackoff=600)) as runtime:
        await runtime.settled(0.4)
        began, status = time.monotonic(), runtime.statuses()[0]
        pid = status.pid
    assert time.monotonic() - began < 4.5
    assert status.state is State.STOPPED
    assert pid is None or not psutil.pid_exists(pid)


async def test_fifty_servers_start_together_and_are_all_used_and_all_gone(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(50)]
    servers = {name: child("tools=" + name, f"name={name}") for name in names}
    threads = psutil.Process().num_threads()
    async with running(tmp_path, servers) as (runtime, client):
        pids = [status.pid for status in runtime.statuses()]
        assert [tool["name"] for tool in await client.tools()] == names
        answers = await asyncio.gather(*(client.call(name, {}, timeout=10) for name in names))
        assert [said(answer) for answer in answers] == [f"{name}:{name}" for name in names]
        assert psutil.Process().num_threads() - threads < 20
    assert not [pid for pid in pids if pid and psutil.pid_exists(pid)]
