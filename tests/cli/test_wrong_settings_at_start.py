"""Whatever a bridge finds when it is started, it runs on with what is right or ends with status 2 and a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.config.wrong_values import GOOD_ENDPOINT, GOOD_SERVER, wrong_files
from tests.runtime.wrong_inputs import (
    BROKEN_PARTS,
    CANNOT_BE_LOADED,
    ENTRIES,
    LONG,
    RUN_MODULE,
    before,
    broken_part,
    sample,
    without_inotify,
)
from tests.support import TOKEN, Bridge, Json, child, write_settings
from voice_bridge.config import load
from voice_bridge.errors import ConfigError
from voice_bridge.simulator import VoiceCloud

GOOD = child("tools=pid")
SEED = 815
OF_EACH = 12


@pytest.fixture(autouse=True)
def _no_endpoint_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MCP_ENDPOINT", "MCP_CONFIG", "NOBODY_SETS_THIS"):
        monkeypatch.delenv(name, raising=False)


async def works(bridge: Bridge, cloud: VoiceCloud) -> None:
    """The bridge has come up with the good server, and ends when it is asked to."""
    session = await cloud.session(30)
    await session.ready()
    assert (await session.call("pid")).ok
    assert (await bridge.end())[0] == 0


async def ends(bridge: Bridge, words: str) -> None:
    """The bridge ends by itself with status 2, and what it says last fits these words."""
    assert await asyncio.wait_for(bridge.process.wait(), 30) == 2
    await bridge.says(rf"^voice-bridge: {words}")
    assert bridge.messages[-1].startswith("voice-bridge: "), bridge.log


@pytest.mark.parametrize("kind", ENTRIES)
async def test_a_wrong_entry_is_named_and_the_others_run(tmp_path: Path, kind: str) -> None:
    wrong = ENTRIES[kind]
    async with VoiceCloud(token=TOKEN) as cloud:
        entries: dict[str, dict[str, Json]] = {"mcpServers": {"good": GOOD}, "endpoints": {"fine": {"url": cloud.url}}}
        entries[wrong.section] = {"odd": wrong.entry(tmp_path), **entries[wrong.section]}
        path = write_settings(tmp_path, entries["mcpServers"], entries["endpoints"])
        async with Bridge(path, before=before(kind)) as bridge:
            await bridge.says(wrong.words)
            await works(bridge, cloud)


@pytest.mark.parametrize("start", [(), RUN_MODULE], ids=["script", "module"])
@pytest.mark.parametrize(
    "kind", [kind for kind, wrong in ENTRIES.items() if not wrong.words.startswith(("odd", "^odd"))]
)
async def test_a_wrong_entry_that_is_all_there_is_ends_it(tmp_path: Path, kind: str, start: tuple[str, ...]) -> None:
    wrong = ENTRIES[kind]
    entries: dict[str, dict[str, Json]] = {
        "mcpServers": {"good": GOOD},
        "endpoints": {"fine": {"url": f"ws://127.0.0.1:9/?token={TOKEN}"}},
    }
    entries[wrong.section] = {"odd": wrong.entry(tmp_path)}
    path = write_settings(tmp_path, entries["mcpServers"], entries["endpoints"])
    async with Bridge(path, before=(*before(kind), *start)) as bridge:
        what = "server" if wrong.section == "mcpServers" else "endpoint"
        await ends(bridge, rf"no {what} can be used: .*{wrong.words}")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            f"MCP_ENDPOINT=https://127.0.0.1/mcp/?token={TOKEN}\n".encode(),
            "no endpoint can be used: MCP_ENDPOINT: endpoint 'default': the address begins with https://; a W",
        ),
        (
            b"MCP_ENDPOINT=wss://[::1/\n",
            "no endpoint can be used: MCP_ENDPOINT: endpoint 'default': the address is not",
        ),
        (b"A=w\xf6rd\n", r"/.*/\.env:1: byte 3 is not UTF-8; save it as UTF-8"),
        (b"A=1\nB=\0\n", r"/.*/\.env:2: it holds a NUL, which no environment can; save the file as UTF-8"),
    ],
    ids=["https", "an open bracket", "Latin-1", "NUL"],
)
@pytest.mark.parametrize("start", [(), RUN_MODULE], ids=["script", "module"])
async def test_a_wrong_dotenv_is_named_with_its_line(
    tmp_path: Path, data: bytes, words: str, start: tuple[str, ...]
) -> None:
    path = write_settings(tmp_path, {"good": GOOD})
    (tmp_path / ".env").write_bytes(data)
    async with Bridge(path, before=start) as bridge:
        await ends(bridge, words)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://127.0.0.1/mcp", "the address begins with https://; a WebSocket's begins with wss://"),
        ("wss://[::1/", "the address is not like 'wss:"),
        ("ws://127.0.0.1:9/\udcff", r"the address holds the character \\udcff, which no text may have; take it out"),
        ("ws://127.0.0.1:99999/", "the address is not like 'wss:"),
    ],
    ids=["https", "an open bracket", "a byte that is not UTF-8", "a port beyond all"],
)
async def test_a_wrong_address_in_the_environment_is_named(tmp_path: Path, address: str, words: str) -> None:
    async with Bridge(write_settings(tmp_path, {"good": GOOD}), endpoint=address) as bridge:
        await ends(bridge, rf"no endpoint can be used: MCP_ENDPOINT: endpoint 'default': {words}")


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({"rest": GOOD}, r"there is no server 'good' in /.*mcp_settings\.json; it has: rest"),
        (
            {"good": {"command": 5}, "rest": GOOD},
            r"/.*mcp_settings\.json:1:\d+: mcpServers good: command: .*text in quotes",
        ),
    ],
    ids=["missing", "wrong"],
)
@pytest.mark.parametrize("start", [(), RUN_MODULE], ids=["script", "module"])
async def test_the_one_server_asked_for_must_be_there(
    tmp_path: Path, servers: Json, words: str, start: tuple[str, ...]
) -> None:
    address = f"ws://127.0.0.1:9/?token={TOKEN}"
    async with Bridge(write_settings(tmp_path, servers), "good", before=start, endpoint=address) as bridge:
        await ends(bridge, words)


def _itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("none.json", lambda path: None, "there is no such file; `voice-bridge init` writes a starter"),
        ("folder.json", Path.mkdir, "cannot be read: is a directory"),
        ("loop.json", _itself, "cannot be read: too many levels of symbolic links"),
        (f"{LONG}.json", lambda path: None, "cannot be read: file name too long"),
        ("latin.json", lambda path: path.write_bytes(b'{"\xf6": 1}'), "byte 2 is not UTF-8; save it as UTF-8"),
        ("empty.json", lambda path: path.write_bytes(b""), "the file is empty; write at least"),
        ("zero.json", lambda path: path.symlink_to("/dev/zero"), "it is larger than 16 MiB"),
    ],
    ids=["none", "folder", "loop", "300 letters", "Latin-1", "empty", "endless"],
)
async def test_a_settings_file_that_is_none_is_named(
    tmp_path: Path, name: str, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / name)
    async with Bridge(tmp_path / name, endpoint=f"ws://127.0.0.1:9/?token={TOKEN}") as bridge:
        await ends(bridge, f"/.*{name}:.*{words}")


async def test_settings_out_of_a_pipe_are_read_once_and_not_missed_afterwards(tmp_path: Path) -> None:
    async with VoiceCloud(token=TOKEN) as cloud:
        path = write_settings(tmp_path, {"good": GOOD}, {"fine": {"url": cloud.url}})
        substituted = ("bash", "-c", f'exec "$0" "$@" --config <(cat {path})')
        async with Bridge(None, before=substituted) as bridge:
            await works(bridge, cloud)
            assert not bridge.matching("the settings in use stay")


async def test_without_inotify_it_starts(tmp_path: Path) -> None:
    async with VoiceCloud(token=TOKEN) as cloud:
        path = write_settings(tmp_path, {"good": GOOD})
        async with Bridge(path, before=without_inotify(), endpoint=cloud.url) as bridge:
            await bridge.says(r"^bridge: the system cannot watch mcp_settings\.json \(.+\); it is looked at every 1 s")
            await works(bridge, cloud)


@pytest.mark.parametrize("how", BROKEN_PARTS)
async def test_where_the_part_for_remote_servers_cannot_be_loaded_the_others_run(tmp_path: Path, how: str) -> None:
    servers: Json = {"far": {"url": "http://127.0.0.1:9/mcp"}, "good": GOOD}
    async with VoiceCloud(token=TOKEN) as cloud:
        path = write_settings(tmp_path, servers)
        async with Bridge(path, endpoint=cloud.url, **broken_part(tmp_path, how)) as bridge:
            await bridge.says(f"^far: {CANNOT_BE_LOADED}")
            await works(bridge, cloud)


async def test_every_kind_of_wrong_file_starts_with_what_is_right_or_ends_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mcp_settings.json"
    async with VoiceCloud(token=TOKEN) as cloud:
        for number, (what, text, can_start) in enumerate(some_of_each(path, cloud)):
            path.write_text(text, encoding="utf-8")
            async with Bridge(path, before=RUN_MODULE if number % 2 else ()) as bridge:
                try:
                    await (works(bridge, cloud) if can_start else ends(bridge, "."))
                except BaseException as error:
                    error.add_note(what)
                    raise


def some_of_each(path: Path, cloud: VoiceCloud) -> list[tuple[str, str, bool]]:
    """As many files with the good server and endpoint left as without, by the loader, which other tests judge."""
    found: dict[bool, list[tuple[str, str, bool]]] = {True: [], False: []}
    for what, text in sample(wrong_files(GOOD, {"url": cloud.url}), SEED):
        path.write_text(text, encoding="utf-8")
        can_start = has_what_is_good(path)
        found[can_start].append((what, text, can_start))
    assert min(map(len, found.values())) >= OF_EACH
    return [*found[True][:OF_EACH], *found[False][:OF_EACH]]


def has_what_is_good(path: Path) -> bool:
    try:
        settings = load(path)
    except ConfigError:
        return False
    return GOOD_SERVER in settings.servers and GOOD_ENDPOINT in settings.endpoints
