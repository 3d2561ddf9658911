"""Several tokens in one process, each with its own view; two bridges never fight over one."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support import Bridge, Json, child, eventually, write_settings
from voice_bridge.simulator import RELAY, VoiceCloud


async def test_one_socket_for_a_token_carries_every_servers_tools(tmp_path: Path) -> None:
    path = write_settings(tmp_path, {name: child("tools=pid") for name in ("a", "b", "c")})
    async with VoiceCloud(RELAY) as cloud, Bridge(path, endpoint=cloud.url):
        session = await cloud.session()
        assert [tool.name for tool in await session.ready()] == ["pid", "b__pid", "c__pid"]
        answers = [(await session.call(tool.name)).text for tool in session.tools]
        assert len(set(answers)) == 3, "each call goes to its own server"
        assert len(cloud.sessions) == 1


async def test_twenty_endpoints_share_five_processes(tmp_path: Path) -> None:
    servers = {f"s{number}": child(f"tools=t{number}") for number in range(5)}
    async with AsyncExitStack() as stack:
        clouds = [await stack.enter_async_context(VoiceCloud(token=f"token-{number:04}")) for number in range(20)]
        endpoints = {
            f"room-{number}": {"url": cloud.url, "servers": [f"s{number % 5}"]} for number, cloud in enumerate(clouds)
        }
        bridge = await stack.enter_async_context(Bridge(write_settings(tmp_path, servers, endpoints)))
        for number, cloud in enumerate(clouds):
            session = await cloud.session(30)
            assert [tool.name for tool in await session.ready()] == [f"t{number % 5}"]
            assert (await session.call(f"t{number % 5}")).ok
            other = await session.call(f"t{(number + 1) % 5}")
            assert other.error is not None, "a server outside the view is out of reach"
        assert len(bridge.left_behind()) == 5


async def test_an_isolated_server_has_a_process_for_each_endpoint(tmp_path: Path) -> None:
    servers = {"own": child("tools=pid", isolate=True), "shared": child("tools=pid")}
    async with VoiceCloud() as one, VoiceCloud() as two:
        endpoints = {"one": {"url": one.url}, "two": {"url": two.url + "2"}}
        async with Bridge(write_settings(tmp_path, servers, endpoints)) as bridge:
            first, second = await one.session(), await two.session()
            await first.ready()
            await second.ready()
            own = [(await session.call("pid")).text for session in (first, second)]
            shared = [(await session.call("shared__pid")).text for session in (first, second)]
            assert own[0] != own[1]
            assert shared[0] == shared[1]
            assert len(bridge.left_behind()) == 3


async def test_a_connection_for_each_server_where_the_endpoint_wants_that(tmp_path: Path) -> None:
    servers = {"a": child("tools=echo"), "b": child("tools=echo,pid"), "c": child("tools=t")}
    async with VoiceCloud() as cloud:
        endpoints = {"e": {"url": cloud.url, "connection": "per-server", "servers": ["*", "!c"]}}
        async with Bridge(write_settings(tmp_path, servers, endpoints)) as bridge:
            sessions = [await cloud.session(), await cloud.session()]
            seen = sorted([[tool.name for tool in await session.ready()] for session in sessions])
            assert seen == [["echo"], ["echo", "pid"]], "no clash, so no prefix"
            await bridge.says(r"^e/a: connected")
            await bridge.says(r"^e/b: connected")


async def test_headers_go_to_the_cloud_and_not_into_the_log(tmp_path: Path) -> None:
    async with VoiceCloud() as cloud:
        endpoints = {"e": {"url": cloud.url, "headers": {"X-Device": "kitchen-secret-9"}}}
        async with Bridge(write_settings(tmp_path, {"a": child()}, endpoints)) as bridge:
            await (await cloud.session()).ready()
            assert cloud.attempts[0].headers["X-Device"] == "kitchen-secret-9"
            assert "kitchen-secret" not in bridge.log


async def test_a_second_bridge_on_one_endpoint_is_told_who_has_it(tmp_path: Path) -> None:
    path = write_settings(tmp_path, {"a": child()})
    async with VoiceCloud() as cloud, Bridge(path, endpoint=cloud.url) as first:
        await (await cloud.session()).ready()
        async with Bridge(path, endpoint=cloud.url) as second:
            assert await asyncio.wait_for(second.process.wait(), 15) == 2
            assert f"is already served by another bridge on this machine (process {first.pid})" in second.log
            assert "token=" not in second.log
        first.process.kill()
        await first.process.wait()
        async with Bridge(path, endpoint=cloud.url) as third:
            await (await cloud.session()).ready()
            assert third.process.returncode is None, "the lock died with its holder"


async def test_the_largest_result_of_an_endpoint_is_its_own_affair(tmp_path: Path) -> None:
    async with VoiceCloud() as small, VoiceCloud() as large:
        endpoints: dict[str, Json] = {
            "small": {"url": small.url, "maxResultBytes": 8192},
            "large": {"url": large.url + "2"},
        }
        async with Bridge(write_settings(tmp_path, {"a": child("big=30000")}, endpoints)):
            cut, whole = await small.session(), await large.session()
            await cut.ready()
            await whole.ready()
            reply = await cut.call("t")
            assert len(reply.raw.encode()) <= 8192
            assert "(shortened, " in reply.text
            full = await whole.call("t")
            assert "(shortened, " not in full.text
            assert len(full.raw) > 20_000


async def test_refresh_reconnect_redials_once_so_that_the_cloud_reads_the_tools(tmp_path: Path) -> None:
    async with VoiceCloud() as cloud:
        endpoints = {"e": {"url": cloud.url, "refresh": "reconnect"}}
        async with Bridge(write_settings(tmp_path, {"a": child("listchanged")}, endpoints)) as bridge:
            session = await cloud.session()
            before = await session.ready()
            assert (await session.call("change")).ok
            again = await cloud.session()
            assert len(await again.ready()) == len(before) + 1
            await eventually(lambda: not session.is_open)
            await bridge.says(r"^e: the tools changed; dialling anew")
            assert json.dumps(list(again.notifications)) == "[]"


async def test_a_redial_for_new_tools_waits_for_the_answers_to_running_calls(tmp_path: Path) -> None:
    servers = {"a": child("listchanged"), "slow": child()}
    async with VoiceCloud() as cloud:
        endpoints = {"e": {"url": cloud.url, "refresh": "reconnect"}}
        async with Bridge(write_settings(tmp_path, servers, endpoints)):
            session = await cloud.session()
            await session.ready()
            async with asyncio.TaskGroup() as group:
                running = group.create_task(session.call("slow__sleep", {"s": 2}, timeout=10))
                assert (await session.call("change")).ok
            assert running.result().ok
            await (await cloud.session()).ready()
