"""The settings file is followed while the bridge runs: what changed is touched, nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.support import Bridge, Json, child, eventually, write_settings
from voice_bridge.simulator import CloudSession, VoiceCloud


def save(folder: Path, servers: Json, endpoints: Json | None = None, **bridge: Any) -> None:
    """As an editor saves: a new file takes the old one's place."""
    new = write_settings(folder / "new", servers, endpoints, **bridge)
    os.replace(new, folder / "mcp_settings.json")


async def names(session: CloudSession) -> list[str]:
    return [tool.name for tool in await session.list_tools()]


async def pid(session: CloudSession, tool: str) -> str:
    return (await session.call(tool)).text


async def becomes(session: CloudSession, wanted: list[str]) -> None:
    async with asyncio.timeout(10):
        while await names(session) != wanted:
            await asyncio.sleep(0.05)


async def test_servers_come_go_and_change_while_calls_on_others_go_on(tmp_path: Path) -> None:
    keep = child("tools=pid,sleep")
    save(tmp_path, {"keep": keep, "old": child("tools=echo")})
    async with VoiceCloud() as cloud, Bridge(tmp_path / "mcp_settings.json", endpoint=cloud.url) as bridge:
        session = await cloud.session()
        await session.ready()
        before = await pid(session, "pid")
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(session.call("sleep", {"s": 3}, timeout=15))
            save(tmp_path, {"keep": keep, "new": child("tools=cwd")})
            await becomes(session, ["pid", "sleep", "cwd"])
            assert not slow.done()
        assert slow.result().ok
        assert await pid(session, "pid") == before, "an untouched server keeps its process"
        assert any(note["method"] == "notifications/tools/list_changed" for note in session.notifications)
        gone = await session.call("echo")
        assert gone.error is not None
        save(tmp_path, {"keep": {**keep, "disabled": True}, "new": child("tools=cwd")})
        await becomes(session, ["cwd"])
        await eventually(lambda: len(bridge.left_behind()) == 1)
        assert len(cloud.sessions) == 1, "the connection stayed"


async def test_how_tools_are_shown_changes_without_a_restart(tmp_path: Path) -> None:
    server = child("tools=pid,echo,t")
    save(tmp_path, {"s": server})
    async with VoiceCloud() as cloud, Bridge(tmp_path / "mcp_settings.json", endpoint=cloud.url):
        session = await cloud.session()
        await session.ready()
        before = await pid(session, "pid")
        rules = {"exclude": ["ec*"], "rename": {"pid": "process_id"}, "describe": {"t": "Says ok."}}
        save(tmp_path, {"s": {**server, "tools": rules}})
        await becomes(session, ["process_id", "t"])
        assert session.tools[1].description == "Says ok."
        assert await pid(session, "process_id") == before


async def test_a_changed_command_restarts_only_that_server(tmp_path: Path) -> None:
    save(tmp_path, {"a": child("tools=pid"), "b": child("tools=cwd")})
    async with VoiceCloud() as cloud, Bridge(tmp_path / "mcp_settings.json", endpoint=cloud.url) as bridge:
        session = await cloud.session()
        await session.ready()
        before = await pid(session, "pid")
        save(tmp_path, {"a": child("tools=pid"), "b": child("tools=cwd,echo")})
        await becomes(session, ["pid", "cwd", "echo"])
        assert await pid(session, "pid") == before
        assert len(bridge.matching(r"^b: is restarted: its settings changed")) == 1
        await eventually(lambda: len(bridge.left_behind()) == 2)


async def test_a_broken_file_is_told_and_the_old_settings_stay(tmp_path: Path) -> None:
    save(tmp_path, {"a": child("tools=echo")})
    async with VoiceCloud() as cloud, Bridge(tmp_path / "mcp_settings.json", endpoint=cloud.url) as bridge:
        session = await cloud.session()
        await session.ready()
        (tmp_path / "mcp_settings.json").write_text('{\n "mcpServers": {')
        await bridge.says(r"mcp_settings\.json:2:\d+: not JSON: .*; the settings in use stay")
        save(tmp_path, {"a": {"command": 5}})
        await bridge.says(r"mcpServers a: command: ")
        assert (await session.call("echo", {"text": "still"})).text == "still"
        save(tmp_path, {"a": child("tools=echo"), "b": child("tools=pid")})
        await becomes(session, ["echo", "pid"])


async def test_sighup_reads_the_file_again(tmp_path: Path) -> None:
    """Where no change is announced (some network folders, a link in the middle of a chain), the signal does."""
    for folder, tools in (("old", "tools=echo"), ("new", "tools=echo,pid")):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder, {"a": child(tools)})
    for folder in ("middle", "linked"):
        (tmp_path / folder).mkdir()
    middle, link = tmp_path / "middle" / "current", tmp_path / "linked" / "mcp_settings.json"
    middle.symlink_to(tmp_path / "old" / "mcp_settings.json")
    link.symlink_to(middle)
    async with VoiceCloud() as cloud, Bridge(link, endpoint=cloud.url) as bridge:
        session = await cloud.session()
        await session.ready()
        middle.unlink()
        middle.symlink_to(tmp_path / "new" / "mcp_settings.json")
        bridge.process.send_signal(signal.SIGHUP)
        await becomes(session, ["echo", "pid"])


async def test_endpoints_come_go_and_change(tmp_path: Path) -> None:
    servers = {"a": child("tools=echo,pid"), "b": child("tools=cwd")}
    async with VoiceCloud(token="token-number-1") as one, VoiceCloud(token="token-number-2") as two:
        save(tmp_path, servers, {"one": {"url": one.url}})
        async with Bridge(tmp_path / "mcp_settings.json") as bridge:
            first = await one.session()
            await first.ready()
            before = await pid(first, "pid")
            save(tmp_path, servers, {"one": {"url": one.url, "servers": ["*", "!b"]}, "two": {"url": two.url}})
            second = await two.session()
            assert [tool.name for tool in await second.ready()] == ["echo", "pid", "cwd"]
            await becomes(first, ["echo", "pid"])
            assert first.is_open, "another view needs no new connection"
            assert await pid(second, "pid") == before, "servers are shared"
            save(tmp_path, servers, {"one": {"url": one.url, "disabled": True}, "two": {"url": two.url}})
            await first.wait_closed()
            save(tmp_path, servers, {"two": {"url": one.url}})
            again = await one.session()
            await again.ready()
            await second.wait_closed()
            assert await pid(again, "pid") == before
            assert "token-number" not in bridge.log


async def test_a_dotenv_beside_the_file_is_followed_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("WORD=one\n")
    save(tmp_path, {"a": child("tools=env", env={"SPOKEN": "${WORD}"})})
    async with VoiceCloud() as cloud, Bridge(tmp_path / "mcp_settings.json", endpoint=cloud.url):
        session = await cloud.session()
        await session.ready()
        assert (await session.call("env", {"name": "SPOKEN"})).text == "one"
        (tmp_path / ".env").write_text("WORD=two\n")
        async with asyncio.timeout(10):
            while (await session.call("env", {"name": "SPOKEN"})).text != "two":
                await asyncio.sleep(0.1)


async def test_a_connected_endpoint_may_vanish_from_the_file_or_get_another_name(tmp_path: Path) -> None:
    servers = {"a": child("tools=pid")}
    async with VoiceCloud(token="token-number-1") as one, VoiceCloud(token="token-number-2") as two:
        save(tmp_path, servers, {"one": {"url": one.url, "refresh": "reconnect"}, "two": {"url": two.url}})
        async with Bridge(tmp_path / "mcp_settings.json"):
            first, second = await one.session(), await two.session()
            await first.ready()
            await second.ready()
            before = await pid(second, "pid")
            save(tmp_path, servers, {"two": {"url": two.url}})
            await first.wait_closed()
            assert await pid(second, "pid") == before
            save(tmp_path, servers, {"zwei": {"url": two.url}})
            again = await two.session()
            assert not second.is_open, "a relay that is dialled before the old socket is gone forgets the new one too"
            await again.ready()
            assert await pid(again, "pid") == before


async def test_what_a_linked_settings_file_leads_to_is_followed(tmp_path: Path) -> None:
    for folder in ("real", "other", "linked"):
        (tmp_path / folder).mkdir()
    save(tmp_path / "real", {"a": child("tools=pid")})
    save(tmp_path / "other", {"a": child("tools=pid"), "b": child("tools=echo")})
    link = tmp_path / "linked" / "mcp_settings.json"
    link.symlink_to(tmp_path / "real" / "mcp_settings.json")
    async with VoiceCloud() as cloud, Bridge(link, endpoint=cloud.url):
        session = await cloud.session()
        await session.ready()
        before = await pid(session, "pid")
        save(tmp_path / "real", {"a": child("tools=pid"), "c": child("tools=cwd")})
        await becomes(session, ["pid", "cwd"])
        (tmp_path / "swap").symlink_to(tmp_path / "other" / "mcp_settings.json")
        os.replace(tmp_path / "swap", link)
        await becomes(session, ["pid", "echo"])
        save(tmp_path / "other", {"a": child("tools=pid")})
        await becomes(session, ["pid"])
        assert await pid(session, "pid") == before, "where the link leads to is not where the server runs"
