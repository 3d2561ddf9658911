"""Whatever is saved while the bridge runs, it goes on, says what is wrong, and takes what is put right."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.wrong_values import GOOD_ENDPOINT, GOOD_SERVER, Case, wrong_files
from tests.runtime.wrong_inputs import (
    BROKEN_PARTS,
    CANNOT_BE_LOADED,
    ENTRIES,
    before,
    broken_part,
    sample,
    without_inotify,
    without_power_over_files,
)
from tests.support import QUICK, TOKEN, Bridge, Json, child, write_settings
from voice_bridge.simulator import CloudSession, VoiceCloud

GOOD = child("tools=pid")
MENDED = child("tools=echo")
SEED = 4711
NOTICED = r': the settings: unknown key "(file \d+)" is ignored|; the settings in use stay$'
SECTIONS_GONE = ("the section mcpServers:", "the section endpoints:")


@pytest.fixture(autouse=True)
def _no_endpoint_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MCP_ENDPOINT", "MCP_CONFIG", "NOBODY_SETS_THIS"):
        monkeypatch.delenv(name, raising=False)


# ---- every kind of wrong file under one living bridge


class Saved:
    """A settings file in a place whose changes the system does not announce: it is read when a signal asks, and once.

    So each answer of the bridge belongs to one file.
    """

    def __init__(self, folder: Path) -> None:
        self._files, self._current = folder / "files", folder / "current"
        self._files.mkdir()
        (folder / "linked").mkdir()
        self.path = folder / "linked" / "mcp_settings.json"
        self.path.symlink_to(self._current)
        self.count = 0

    def write(self, text: str) -> str:
        """The file is another one now; the mark by which it can be told apart."""
        self.count += 1
        mark, new = f"file {self.count}", self._files / f"{self.count}.json"
        new.write_text(f'{{"{mark}": 0, {text[1:]}', encoding="utf-8")
        fresh = self._files / "fresh"
        fresh.symlink_to(new)
        os.replace(fresh, self._current)
        return mark

    async def save(self, bridge: Bridge, text: str) -> bool:
        """Has a file read; whether it could be used, wholly or in part."""
        mark = self.write(text)
        bridge.process.send_signal(signal.SIGHUP)
        noticed = await bridge.says(NOTICED, times=self.count)
        assert noticed[1] in (mark, None)
        return noticed[1] is not None


def cases_of(cloud: VoiceCloud) -> tuple[str, list[Case]]:
    """The text of the right file, and the sample of wrong ones around the same server and endpoint."""
    server, endpoint = GOOD, {"url": cloud.url}
    right = json.dumps({"mcpServers": {GOOD_SERVER: server}, "endpoints": {GOOD_ENDPOINT: endpoint}, "bridge": QUICK})
    return right, sample(wrong_files(server, endpoint), SEED)


async def test_no_wrong_file_ends_the_bridge_its_connection_or_its_server(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    async with VoiceCloud(token=TOKEN) as cloud:
        right, cases = cases_of(cloud)
        cases = [case for case in cases if not case[0].startswith(SECTIONS_GONE)]
        saved.write(right)
        async with Bridge(saved.path) as bridge:
            session = await cloud.session()
            await session.ready()
            before = (await session.call("pid")).text
            for what, text in cases:
                await saved.save(bridge, text)
                assert (await session.call("pid")).text == before, what
            assert await saved.save(bridge, right)
            assert [tool.name for tool in await session.list_tools()] == ["pid"]
            assert cloud.sessions == [session]
            assert session.is_open
            assert not bridge.matching("<class|nable to parse|please report")
            assert (await bridge.end())[0] == 0
            assert bridge.left_behind() == []


async def test_a_section_that_is_wrong_as_a_whole_takes_with_it_no_more_than_itself(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    async with VoiceCloud(token=TOKEN) as cloud:
        right, cases = cases_of(cloud)
        cases = [case for case in cases if case[0].startswith(SECTIONS_GONE)]
        saved.write(right)
        async with Bridge(saved.path) as bridge:
            session = await cloud.session()
            await session.ready()
            for what, text in cases:
                used = await saved.save(bridge, text)
                if used and what.startswith("the section endpoints"):
                    await session.wait_closed()
                else:
                    reply = await session.call("pid")
                    assert reply.ok != used, what
                assert await saved.save(bridge, right)
                session = session if session.is_open else await cloud.session()
                await session.ready()
                await offers(session, ["pid"])
                assert (await session.call("pid")).ok, what
            assert (await bridge.end())[0] == 0


def test_the_sample_has_every_key_and_in_every_section_every_kind_of_value() -> None:
    cases = list(wrong_files(GOOD, {"url": "ws://127.0.0.1:9/"}))
    chosen = sample(cases, SEED)
    assert 150 < len(chosen) < 250
    assert chosen == sample(reversed(cases), SEED), "the same ones at each run"
    places, kinds = ({part(what) for what, _ in cases} for part in (place_of, kind_of))
    assert {place_of(what) for what, _ in chosen} == places
    for section in ("mcpServers", "endpoints", "bridge"):
        assert {kind_of(what) for what, _ in chosen if what.startswith(section)} == {
            kind_of(what) for what, _ in cases if what.startswith(section)
        }
    assert {kind_of(what) for what, _ in chosen} == kinds


def place_of(what: str) -> str:
    return what.removesuffix(" twice").partition(": ")[0]


def kind_of(what: str) -> str:
    return what.partition(": ")[2]


async def offers(session: CloudSession, tools: list[str]) -> None:
    """Waits until the bridge has these tools; a change is told, and a call may be sooner."""
    async with asyncio.timeout(15):
        while [tool.name for tool in await session.list_tools()] != tools:
            await asyncio.sleep(0.05)


# ---- one kind after the other, by the way that a user's editor goes


def save(path: Path, data: bytes) -> None:
    """As an editor saves: a new file takes the old one's place."""
    new = path.with_name("new")
    new.write_bytes(data)
    os.replace(new, path)


def settings_of(cloud: VoiceCloud, **odd: Json) -> bytes:
    """Settings with the good server and endpoint, and an odd one in a section."""
    data = {"mcpServers": {"good": GOOD}, "endpoints": {"fine": {"url": cloud.url}}, "bridge": QUICK}
    return json.dumps({**data, **{name: {**data[name], "odd": entry} for name, entry in odd.items()}}).encode()


@pytest.mark.parametrize("kind", ENTRIES)
async def test_an_entry_gone_wrong_is_named_and_taken_when_it_is_put_right(tmp_path: Path, kind: str) -> None:
    wrong, path = ENTRIES[kind], tmp_path / "mcp_settings.json"
    async with VoiceCloud(token=TOKEN) as cloud, VoiceCloud(token="token-number-2") as second:
        save(path, settings_of(cloud))
        async with Bridge(path, before=before(kind)) as bridge:
            session = await cloud.session()
            await session.ready()
            pid = (await session.call("pid")).text
            save(path, settings_of(cloud, **{wrong.section: wrong.entry(tmp_path)}))
            await bridge.says(wrong.words)
            assert (await session.call("pid")).text == pid
            if wrong.section == "mcpServers":
                save(path, settings_of(cloud, mcpServers=MENDED))
                await offers(session, ["pid", "echo"])
                assert (await session.call("echo", {"text": "there"})).text == "there"
            else:
                save(path, settings_of(cloud, endpoints={"url": second.url}))
                other = await second.session()
                await other.ready()
                assert (await other.call("pid")).text == pid
            assert (await session.call("pid")).text == pid
            assert cloud.sessions == [session]
            assert (await bridge.end())[0] == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"MCP_ENDPOINT=https://127.0.0.1/mcp/?token=another-77\nWORD=two\n",
            r"^MCP_ENDPOINT: endpoint 'default': the address begins with https://; a WebSocket's begins with wss://$",
        ),
        (b"MCP_ENDPOINT=wss://[::1/\nWORD=two\n", r"^MCP_ENDPOINT: endpoint 'default': the address is not like 'wss:"),
        (b"A=w\xf6rd\n", r"/\.env:1: byte 3 is not UTF-8; save it as UTF-8; the settings in use stay$"),
        (b"A=1\nB=\0\n", r"/\.env:2: it holds a NUL, which no environment can; save the file as UTF-8; the settings"),
    ],
    ids=["https", "an open bracket", "Latin-1", "NUL"],
)
async def test_a_dotenv_gone_wrong_is_named_and_taken_when_it_is_put_right(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = write_settings(tmp_path, {"good": GOOD, "speaks": child("tools=env", env={"SPOKEN": "${WORD}"})})
    async with VoiceCloud(token=TOKEN) as cloud:
        right = f"MCP_ENDPOINT={cloud.url}\nWORD=".encode()
        save(tmp_path / ".env", right + b"one\n")
        async with Bridge(path) as bridge:
            session = await cloud.session()
            await session.ready()
            pid = (await session.call("pid")).text
            save(tmp_path / ".env", data)
            await bridge.says(words)
            assert (await session.call("pid")).text == pid
            save(tmp_path / ".env", right + b"three\n")
            async with asyncio.timeout(15):
                while (await session.call("env", {"name": "SPOKEN"})).text != "three":
                    await asyncio.sleep(0.05)
            assert (await session.call("pid")).text == pid
            assert cloud.sessions == [session], "the connection stayed"
            assert "another-77" not in bridge.log
            assert (await bridge.end())[0] == 0


def _empty(path: Path) -> None:
    path.unlink()
    path.touch()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _closed(path: Path) -> None:
    path.chmod(0)


def _without_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.unlink, "there is no such file; `voice-bridge init` writes a starter"),
        (_without_its_folder, "there is no such file; `voice-bridge init` writes a starter"),
        (_empty, "the file is empty; write at least"),
        (_folder, "cannot be read: is a directory"),
        (_pipe, "the file is empty; write at least"),
        (_loop, "cannot be read: too many levels of symbolic links"),
        (_endless, "it is larger than 16 MiB, which no settings are; name another file"),
        (_closed, "cannot be read: permission denied"),
        (lambda path: path.write_bytes(b'{"\xf6": 1}'), "byte 2 is not UTF-8; save it as UTF-8"),
        (lambda path: path.write_text("{'mcpServers': "), "not JSON: "),
    ],
    ids=["gone", "gone with its folder", "empty", "folder", "pipe", "loop", "endless", "closed", "Latin-1", "half"],
)
async def test_a_settings_file_that_is_none_any_more_is_named_and_taken_when_it_is_put_right(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "folder" / "mcp_settings.json"
    path.parent.mkdir()
    async with VoiceCloud(token=TOKEN) as cloud:
        save(path, settings_of(cloud))
        async with Bridge(path, before=without_power_over_files()) as bridge:
            session = await cloud.session()
            await session.ready()
            pid = (await session.call("pid")).text
            make(path)
            await bridge.says(rf"mcp_settings\.json(:[\d:]+)?: {words}.*; the settings in use stay$")
            assert (await session.call("pid")).text == pid
            if path.is_dir():
                path.rmdir()
            path.parent.mkdir(exist_ok=True)
            save(path, settings_of(cloud, mcpServers=MENDED))
            await offers(session, ["pid", "echo"])
            assert (await session.call("pid")).text == pid
            assert cloud.sessions == [session]
            assert (await bridge.end())[0] == 0


def gone(servers: Json) -> Json:
    return {"rest": servers["rest"]}


def wrong(servers: Json) -> Json:
    return {**servers, "good": {"command": 5}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (gone, r"^there is no server 'good' in /.*mcp_settings\.json; it has: rest; the settings in use stay$"),
        (wrong, r"mcp_settings\.json:1:\d+: mcpServers good: command: .*text in quotes.*; the settings in use stay$"),
    ],
    ids=["removed", "wrong"],
)
async def test_the_one_server_asked_for_may_go_wrong_and_come_back(
    tmp_path: Path, change: Callable[[Json], Json], words: str
) -> None:
    servers: Json = {"good": GOOD, "rest": child("tools=t")}
    path = write_settings(tmp_path, servers)
    async with VoiceCloud(token=TOKEN) as cloud, Bridge(path, "good", endpoint=cloud.url) as bridge:
        session = await cloud.session()
        await session.ready()
        pid = (await session.call("pid")).text
        write_settings(tmp_path, change(servers))
        await bridge.says(words)
        assert (await session.call("pid")).text == pid
        write_settings(tmp_path, {**servers, "good": child("tools=pid,cwd")})
        await offers(session, ["pid", "cwd"])
        assert (await session.call("pid")).text != pid
        assert cloud.sessions == [session]
        assert (await bridge.end())[0] == 0


# ---- what the system does


async def test_without_inotify_the_files_are_looked_at_and_wrong_ones_told_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mcp_settings.json"
    async with VoiceCloud(token=TOKEN) as cloud:
        save(path, settings_of(cloud))
        async with Bridge(path, before=without_inotify()) as bridge:
            session = await cloud.session()
            await session.ready()
            pid = (await session.call("pid")).text
            await bridge.says(r"^bridge: the system cannot watch mcp_settings\.json \(.+\); it is looked at every 1 s")
            for number, broken in enumerate((b"{", b"A=\xff\n"), start=1):
                save(path if number == 1 else tmp_path / ".env", broken)
                await bridge.says("; the settings in use stay$", times=number)
                assert (await session.call("pid")).text == pid
            (tmp_path / ".env").unlink()
            save(path, settings_of(cloud, mcpServers=MENDED))
            await offers(session, ["pid", "echo"])
            assert (await session.call("pid")).text == pid
            assert cloud.sessions == [session]
            assert (await bridge.end())[0] == 0


@pytest.mark.parametrize("how", BROKEN_PARTS)
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_part_for_remote_servers_that_cannot_be_loaded_is_that_servers_trouble_only(
    tmp_path: Path, how: str, transport: str
) -> None:
    servers: Json = {"good": GOOD, "far": {"url": "http://127.0.0.1:9/mcp", "type": transport}}
    around = broken_part(tmp_path / "broken", how)
    path = write_settings(tmp_path, servers)
    async with VoiceCloud(token=TOKEN) as cloud, Bridge(path, endpoint=cloud.url, **around) as bridge:
        session = await cloud.session()
        await session.ready()
        pid = (await session.call("pid")).text
        await bridge.says(f"^far: {CANNOT_BE_LOADED}")
        assert (await session.call("pid")).text == pid
        shutil.rmtree(tmp_path / "broken")
        bridge.process.send_signal(signal.SIGHUP)
        await bridge.says(r"^far: cannot be reached at 127\.0\.0\.1:9: ")
        assert (await session.call("pid")).text == pid
        assert cloud.sessions == [session]
        assert (await bridge.end())[0] == 0
