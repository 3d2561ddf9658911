"""The bridge as a process of its own, as a user starts and stops it: signals, families, sessions, surroundings."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support import (
    CHILDREN,
    ROOT,
    TOKEN,
    Bridge,
    Json,
    child,
    eventually,
    is_alive,
    python,
    write_settings,
    zombies,
)
from voice_bridge.simulator import OFFICIAL, CloudSession, VoiceCloud

QUIET = replace(OFFICIAL, ping_every=None)
WRAPPER: Json = {"command": "sh", "args": ["-c", f"{sys.executable} {CHILDREN} tree; true"]}
POLITE_WRAPPER: Json = {"command": "sh", "args": ["-c", f"{sys.executable} {CHILDREN} tools=wrapped; true"]}
# A grandchild in a session of its own, beside a server that answers.
FAR = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    time.sleep(300)
os.execv(sys.executable, [sys.executable, {CHILDREN!r}, "tools=far"])
"""
LEAVES_ORPHANS = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 3)
        time.sleep(0.3)
        os._exit(0)
"""


def cloud_of() -> VoiceCloud:
    return VoiceCloud(QUIET, token=TOKEN)


async def usable(cloud: VoiceCloud, timeout: float = 20) -> CloudSession:
    session = await cloud.session(timeout)
    await session.ready(timeout)
    return session


# ---- signals


async def ended_by(folder: Path, *numbers: int) -> None:
    """A bridge with the worst of servers and a cloud that has stopped reading ends in time, well, leaving nothing."""
    servers = {"deaf": child("tree", "deafterm", "deafeof"), "far": python(FAR), "npx": POLITE_WRAPPER}
    async with (
        cloud_of() as cloud,
        Bridge(write_settings(folder, servers, dialAfter=0.5), endpoint=cloud.url) as bridge,
    ):
        session = await usable(cloud)
        call = asyncio.ensure_future(session.call("sleep", {"s": 60}))
        grandchild = int((await session.call("grandchild", timeout=5)).text)
        assert len(bridge.left_behind()) == 6
        session.stall()
        began = time.monotonic()
        for number in numbers:
            bridge.process.send_signal(number)
            await bridge.says("^bridge: stopping")
        assert await asyncio.wait_for(bridge.process.wait(), 15) == 0
        assert time.monotonic() - began < 10
        assert bridge.left_behind() == []
        assert not is_alive(grandchild)
        session.abort()
        await asyncio.gather(call, return_exceptions=True)


async def test_sigterm_sigint_and_two_of_them_end_it_well_and_leave_nothing(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ended_by(tmp_path / "term", signal.SIGTERM))
        group.create_task(ended_by(tmp_path / "int", signal.SIGINT))
        group.create_task(ended_by(tmp_path / "twice", signal.SIGINT, signal.SIGINT))


async def test_ctrl_c_during_a_wait_or_a_slow_start_ends_it_at_once(tmp_path: Path) -> None:
    url = f"ws://127.0.0.1:9/mcp/?token={TOKEN}"
    waiting = write_settings(tmp_path / "a", {"s": child()}, minBackoff=60, maxBackoff=600)
    starting = write_settings(tmp_path / "b", {"s": python("import time; time.sleep(300)")}, dialAfter=60)
    failing = write_settings(tmp_path / "c", {"s": child("dieatstart")}, minBackoff=60, maxBackoff=600, dialAfter=60)
    async with (
        Bridge(waiting, endpoint=url) as one,
        Bridge(starting, endpoint=url + "2") as two,
        Bridge(failing, endpoint=url + "3") as three,
    ):
        await one.says(r"^default: not connected: no connection: Connection refused; next try in \d")
        await eventually(lambda: two.left_behind())
        await three.says("^default: not connected")
        await eventually(lambda: two.left_behind())
        for bridge, most in ((one, 1.5), (two, 3.5), (three, 1.5)):
            status, seconds = await bridge.end(signal.SIGINT)
            assert (status, bridge.left_behind()) == (0, [])
            assert seconds < most


async def test_after_kill_9_of_the_bridge_well_behaved_servers_leave(tmp_path: Path) -> None:
    servers = {
        "s": child("tools=a"), "npx": POLITE_WRAPPER,
        "math": {"command": sys.executable, "args": ["-m", "servers.math_evaluator"], "cwd": str(ROOT)},
    }  # fmt: skip
    async with cloud_of() as cloud, Bridge(write_settings(tmp_path, servers), endpoint=cloud.url) as bridge:
        session = await usable(cloud)
        assert {"a", "wrapped", "calculate"} <= {tool.name for tool in session.tools}
        assert len(bridge.left_behind()) == 4
        bridge.process.kill()
        assert await eventually(lambda: not bridge.left_behind(), 10) < 8


# ---- families


async def test_wrapped_servers_started_and_stopped_twenty_times_leave_nothing(tmp_path: Path) -> None:
    servers: dict[str, Json] = {f"n{number}": POLITE_WRAPPER for number in range(19)}
    servers["deaf"] = WRAPPER
    settings = write_settings(tmp_path, servers, dialAfter=30)
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url) as bridge:
        await usable(cloud, 40)
        assert len(bridge.left_behind()) == 41
        # A change of the settings stops and starts all twenty.
        servers = {name: {**entry, "env": {"ROUND": "2"}} for name, entry in servers.items()}
        before = set(bridge.left_behind())
        write_settings(tmp_path, servers, dialAfter=30)
        await bridge.says("is restarted: its settings changed", times=20)
        await eventually(lambda: not before & set(bridge.left_behind()), 20)
        await eventually(lambda: len(bridge.left_behind()) == 41, 20)
        assert zombies(bridge.pid) == []
        status, seconds = await bridge.end()
        assert (status, bridge.left_behind()) == (0, [])
        assert seconds < 10


async def test_neither_crashes_nor_orphans_leave_zombies_while_it_runs(tmp_path: Path) -> None:
    servers = {"crashing": child("tree"), "leaving": python(LEAVES_ORPHANS)}
    settings = write_settings(tmp_path, servers, dialAfter=0.5, stableAfter=30, maxBackoff=600)
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url) as bridge:
        session = await usable(cloud)
        await session.call("crash", timeout=5)
        await bridge.says("^crashing: ready in", times=2, within=20)
        await bridge.says("^leaving: .*gave up for now", within=20)
        await eventually(lambda: not zombies(bridge.pid), 6)
        await eventually(lambda: len(bridge.left_behind()) == 2)  # the server and its newest grandchild


# ---- sessions


async def test_fifty_redials_give_the_same_tools_at_once_and_leak_nothing(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, {"s": child("late=0.3", "inits")}, minBackoff=0.02, stableAfter=0)
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url) as bridge:
        tools = [tool.name for tool in (await usable(cloud)).tools]
        process = psutil.Process(bridge.pid)
        descriptors, threads = [], []
        session = next(iter(cloud.sessions))
        for _ in range(50):
            late = asyncio.ensure_future(session.call("t", id=2))
            await session.request("ping", id="p", timeout=2)
            session.abort()
            session = await cloud.session()
            began = time.monotonic()
            assert [tool.name for tool in await session.ready(2)] == tools
            assert time.monotonic() - began < 2
            assert isinstance((await asyncio.gather(late, return_exceptions=True))[0], ConnectionError)
            assert (await session.call("inits", id=2, timeout=2)).text == "1"
            descriptors.append(process.num_fds())
            threads.append(process.num_threads())
        assert descriptors[-1] <= descriptors[5]
        assert threads[-1] <= threads[5]
        assert len(bridge.left_behind()) == 1


async def test_initialize_twice_on_one_socket_is_answered_twice(tmp_path: Path) -> None:
    async with cloud_of() as cloud, Bridge(write_settings(tmp_path, {"s": child()}), endpoint=cloud.url) as bridge:
        session = await usable(cloud)
        first = [tool.name for tool in session.tools]
        assert [tool.name for tool in await session.handshake()] == first
        assert [tool.name for tool in await session.handshake(prefix="device")] == first
        assert bridge.process.returncode is None


async def test_a_slow_server_keeps_nobody_waiting_and_its_tools_come_later(tmp_path: Path) -> None:
    servers = {"slow": child("slow=4", "tools=late_tool"), "quick": child()}
    async with cloud_of() as told, cloud_of() as redialled:
        endpoints: dict[str, Json] = {
            "told": {"url": told.url},
            "redialled": {"url": redialled.url, "refresh": "reconnect"},
        }
        async with Bridge(write_settings(tmp_path, servers, endpoints, dialAfter=0.3)) as bridge:
            began = time.monotonic()
            session, first = await told.session(), await redialled.session()
            assert (await session.receive(lambda frame: frame.get("id") == 0, 2)).get("result")  # initialize, at once
            await session.ready(8)
            await session.until(lambda: bool(session.notifications) or len(session.tools) > 9, 8, "no change told")
            assert "late_tool" in {tool.name for tool in await session.list_tools()}
            await first.ready(8)
            if "late_tool" not in {tool.name for tool in first.tools}:
                again = await usable(redialled)
                assert "late_tool" in {tool.name for tool in again.tools}
            assert len(redialled.attempts) <= 2
            assert time.monotonic() - began < 9
            await bridge.says("^slow: ready in 4")


async def test_a_broken_server_does_not_look_like_a_dead_endpoint(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, {"bad": {"command": "no-such-binary-xyz"}}, minBackoff=5, maxBackoff=600)
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url) as bridge:
        session = await cloud.session()
        hello = await session.receive(lambda frame: frame.get("id") == 0)
        assert hello.get("result")["serverInfo"]["name"] == "mcp-voice-bridge"
        assert (await session.receive(lambda frame: frame.get("id") == 1)).get("result") == {"tools": []}
        await bridge.says(
            r"^bad: cannot start: command 'no-such-binary-xyz' was not found; searched /.*; give its full path"
        )
        await bridge.says(
            r"^default: disconnected with code 4004 after \d\.\d s: .*catch-all.*; next try in [4-6]\.\d s$"
        )


async def test_a_server_that_never_reads_and_one_that_floods_leave_the_cloud_its_answers(tmp_path: Path) -> None:
    servers = {
        "deaf": child("neverreads", tools={"include": ["t"]}, callTimeout=2),
        "loud": child("stderrflood", "noise", tools={"include": ["echo"]}),
        "crash": child(tools={"include": ["crash"]}),
    }
    async with cloud_of() as cloud, Bridge(write_settings(tmp_path, servers), endpoint=cloud.url) as bridge:
        session = await usable(cloud)
        stuck = [asyncio.ensure_future(session.call("t", {"filler": "x" * 200_000}, timeout=20)) for _ in range(5)]
        crashed = asyncio.ensure_future(session.call("crash", timeout=5))
        for number in range(100):
            reply = await session.call("echo", {"text": str(number)}, timeout=5)
            assert reply.text == str(number)
            await session.request("ping", timeout=2)
        error = (await crashed).error or {}
        assert error["message"] == "server crash exited with code 7; it last said: crashed as told"
        for call in stuck:
            assert "server deaf did not answer t within 2 s" in str((await call).error)
        junk = [frame for frame in session.frames if not frame.sent and frame.problem]
        assert junk == []
        assert list(session.dropped) == []
        assert len(bridge.matching("^loud: ")) < 120
        assert psutil.Process(bridge.pid).memory_info().rss < 150 * 2**20


# ---- surroundings


async def test_another_locale_changes_nothing(tmp_path: Path) -> None:
    text, name = "你好\u00a0🎉\u2028", "计算器"
    settings = write_settings(tmp_path, {name: child("raw")})
    odd = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "gbk", "LC_ALL": "zh_CN.GBK", "LANG": "zh_CN.GBK"}
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url, **odd) as bridge:
        session = await usable(cloud)
        assert (await session.call("echo", {"text": text}, timeout=5)).text == text
        env = (await session.call("env", {"name": "PYTHONIOENCODING"}, timeout=5)).text
        assert env == "utf-8"
        await bridge.says("ready in")
        assert "Logging error" not in bridge.log


async def test_a_bare_environment_as_services_have_it_is_enough_and_a_missing_command_names_its_path(
    tmp_path: Path,
) -> None:
    settings = write_settings(tmp_path, {"good": child(), "bad": {"command": "uvx"}}, maxBackoff=600)
    async with cloud_of() as cloud:
        bare = [
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            f"HOME={tmp_path}",
            f"MCP_ENDPOINT={cloud.url}",
            f"MCP_CONFIG={settings}",
        ]
        async with Bridge(None, before=bare) as bridge:
            session = await usable(cloud)
            assert (await session.call("env", {"name": "HOME"}, timeout=5)).text == str(tmp_path)
            assert (await session.call("env", {"name": "MCP_ENDPOINT"}, timeout=5)).text == "<unset>"
            await bridge.says(
                r"^bad: cannot start: command 'uvx' was not found; searched \S+:/usr/bin:/bin; give its full path"
            )
            assert (await bridge.end())[0] == 0


@pytest.mark.parametrize("loop", ["", "asyncio"], ids=["uvloop", "asyncio"])
async def test_fifty_servers_start_together_without_a_thread_each(tmp_path: Path, loop: str) -> None:
    names = [f"s{number}" for number in range(50)]
    settings = write_settings(tmp_path, {name: child("tools=" + name, f"name={name}") for name in names}, dialAfter=60)
    async with cloud_of() as cloud, Bridge(settings, endpoint=cloud.url, VOICE_BRIDGE_LOOP=loop) as bridge:
        session = await usable(cloud, 60)
        assert [tool.name for tool in session.tools] == names
        replies = await asyncio.gather(*(session.call(name, timeout=10) for name in names))
        assert [reply.text for reply in replies] == [f"{name}:{name}" for name in names]
        assert psutil.Process(bridge.pid).num_threads() <= 8
        assert len(bridge.left_behind()) == 50
        assert zombies(bridge.pid) == []
        assert (await bridge.end())[0] == 0
        assert bridge.left_behind() == []


async def test_without_endpoint_or_servers_it_says_what_to_do_and_ends_with_status_2(tmp_path: Path) -> None:
    environment = {"MCP_ENDPOINT": ""}
    nothing = write_settings(tmp_path / "a", {"s": child()})
    broken = write_settings(tmp_path / "b", {"s": {"comment": "nothing here"}})
    wrong = f"https://cloud.example/mcp/?token={TOKEN}"
    for settings, endpoint, words in (
        (nothing, "", "no endpoint: set MCP_ENDPOINT to the wss:// address .*need none"),
        (broken, f"ws://127.0.0.1:9/?token={TOKEN}", "no server can be used: .*neither a command nor a url"),
        (nothing, wrong, "the address begins with https://; a WebSocket's begins with wss://"),
    ):
        async with Bridge(settings, endpoint=endpoint, **({} if endpoint else environment)) as bridge:
            assert await asyncio.wait_for(bridge.process.wait(), 15) == 2
            assert re.search(words, bridge.log), bridge.log
            assert os.path.basename(sys.executable) not in bridge.log
