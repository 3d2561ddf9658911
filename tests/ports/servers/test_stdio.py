"""A child process and its pipes: framing, environment, last words, and the ladder that ends it."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.children import NOISE, SPLIT_TEXT, U2028_TEXT
from tests.support import Json, child, eventually, is_alive, load, python, said
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers.port import Oversized
from voice_bridge.ports.servers.process import adopt_orphans
from voice_bridge.ports.servers.stdio import LONGEST_STDERR_LINE, Child, Lines

HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
CALL = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"%s","arguments":{}}}'
SETSID = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    time.sleep(300)
for line in sys.stdin: pass
"""
CLOSES_STDIN = "import os, time; os.close(0); time.sleep(300)"


pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")


@pytest.fixture(params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"])
def event_loop_policy(request: pytest.FixtureRequest) -> Any:
    return request.param()


class Peer:
    """A running child and what it wrote."""

    def __init__(self) -> None:
        self.heard: list[bytes | Oversized] = []
        self.errors: list[str] = []
        self._news = asyncio.Event()
        self.child: Child

    def received(self, message: bytes | Oversized, related: int | None = None) -> None:
        self.heard.append(message)
        self._news.set()

    def said(self, text: str) -> None:
        self.errors.append(text)

    def remarked(self, text: str) -> None:
        raise AssertionError(text)

    async def next(self, past: int = 0) -> bytes | Oversized:
        async with asyncio.timeout(15):
            while len(self.heard) <= past:
                self._news.clear()
                await self._news.wait()
        return self.heard[past]

    async def ask(self, request: bytes) -> Json:
        """The answer with an id to a request; anything else is skipped."""
        at = len(self.heard)
        self.child.send(request)
        while True:
            line = await self.next(at)
            at += 1
            if isinstance(line, bytes) and b'"id"' in line:
                answer: Json = json.loads(line)
                return answer


@asynccontextmanager
async def peer(folder: Path, entry: Json, limit: int = 1_000_000) -> AsyncIterator[Peer]:
    settings = load(folder, {"s": entry})
    assert not settings.problems
    talk = Peer()
    talk.child = await Child.spawn(settings.servers["s"], settings.child_environ, limit, talk)
    try:
        yield talk
    finally:
        await talk.child.stop()


async def refusal(folder: Path, entry: Json) -> str:
    with pytest.raises(ServerError) as refused:
        async with peer(folder, entry):
            pass
    return str(refused.value)


# ---- framing, without a process


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_only_a_newline_ends_a_message_wherever_the_reads_fall(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = Lines(1000)
    got = [line for start, end in itertools.pairwise(edges) for line in reader.feed(stream[start:end])]
    stripped = [line.removeprefix(b"\xef\xbb\xbf").strip() for line in lines]
    assert got == [line for line in stripped if line]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1e"])
def test_no_other_character_ends_a_message(mark: str) -> None:
    line = f'"a{mark}b"'.encode()
    assert Lines(1000).feed(line + b"\n") == [line]


def test_byte_order_mark_carriage_return_and_blank_lines_are_dropped() -> None:
    assert Lines(1000).feed(b'\xef\xbb\xbf{"a":1}\r\n\r\n  \n{"b":2}\n') == [b'{"a":1}', b'{"b":2}']


@pytest.mark.parametrize("size_of_read", [1, 7, 4096, 100_000])
def test_a_line_over_the_limit_is_known_by_its_ends_and_the_next_one_is_whole(size_of_read: int) -> None:
    reader, stream = Lines(2000), b"<" + b"x" * 50_000 + b">\n" + b"next\n"
    reads = range(0, len(stream), size_of_read)
    long, following = [line for at in reads for line in reader.feed(stream[at : at + size_of_read])]
    assert isinstance(long, Oversized)
    assert (long.ends[:2], long.ends[-2:], long.size) == (b"<x", b"x>", 50_002)
    assert following == b"next"


def test_an_endless_line_is_not_kept() -> None:
    reader = Lines(10_000)
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    (long,) = reader.feed(b"\n")
    assert isinstance(long, Oversized)
    assert long.size == 1_000_000
    assert len(long.ends) <= 1024


# ---- starting


async def test_a_missing_command_names_itself_the_path_searched_and_the_remedy(tmp_path: Path) -> None:
    text = await refusal(tmp_path, {"command": "no-such-binary-xyz", "env": {"PATH": "/usr/bin:/bin"}})
    assert "'no-such-binary-xyz' was not found; searched /usr/bin:/bin; give its full path, or set PATH" in text


async def test_a_whole_command_line_as_command_is_explained(tmp_path: Path) -> None:
    text = await refusal(tmp_path, {"command": "npx -y some-server"})
    assert 'put only the program in "command" and the rest in "args"' in text


async def test_files_that_cannot_run_and_folders_that_do_not_exist_are_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    assert await refusal(tmp_path, {"command": str(plain)}) == f"cannot start: {plain} is not executable"
    assert await refusal(tmp_path, {"command": "./nope"}) == f"cannot start: {tmp_path}/nope does not exist"
    assert f"working directory {tmp_path}/gone does not exist" in await refusal(tmp_path, child(cwd="gone"))
    assert "cannot start" in await refusal(tmp_path, child("ok\0"))


async def test_an_executable_without_a_header_is_named_or_left_to_the_shell(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"exit 7\n")
    garbage.chmod(0o755)
    try:
        async with peer(tmp_path, {"command": str(garbage)}) as talk:
            outcome = await asyncio.wait_for(talk.child.ended, 5)  # uvloop starts programs by execvp(3)
    except ServerError as error:
        outcome = str(error)
    assert outcome in (
        "exited with code 7",
        f"cannot start {garbage}: it is neither a program nor a script with a #! line",
    )


async def test_a_relative_command_counts_from_the_settings_folder(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {child()['args'][0]}\n")
    script.chmod(0o755)
    async with peer(tmp_path, {"command": "./serve.sh"}) as talk:
        assert (await talk.ask(HELLO))["result"]["serverInfo"]["name"] == "child"


async def test_env_is_laid_over_the_bridges_environment_and_its_secrets_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "wss://cloud.example/mcp/?token=abcdef-secret"
    for name, value in {
        "MCP_ENDPOINT": url, "LIVING_ROOM": url, "TOK": "abcdef-secret", "ANTHROPIC_API_KEY": "sk-1",
        "HTTPS_PROXY": "http://proxy:1", "PYTHONUTF8": "0", "PYTHONIOENCODING": "gbk", "LC_ALL": "zh_CN.GBK",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    async with peer(tmp_path, child(env={"API_KEY": "k", "PORT": 8080, "PATH": "/usr/bin:/bin"})) as talk:
        env = json.loads(said((await talk.ask(CALL % b"env"))["result"]))
    assert {"API_KEY": "k", "PORT": "8080", "PATH": "/usr/bin:/bin"}.items() <= env.items()
    assert env["HOME"] == os.environ["HOME"]
    assert env["HTTPS_PROXY"] == "http://proxy:1"
    assert (env["PYTHONUTF8"], env["PYTHONIOENCODING"], env["PYTHONUNBUFFERED"]) == ("1", "utf-8", "1")
    assert not {"MCP_ENDPOINT", "LIVING_ROOM", "TOK", "ANTHROPIC_API_KEY"} & env.keys()
    assert not any("abcdef-secret" in value for value in env.values())


async def test_the_running_interpreters_folder_comes_first_on_path_and_config_may_say_otherwise(tmp_path: Path) -> None:
    async with peer(tmp_path, child(env={"PYTHONUTF8": "0"})) as talk:
        env = json.loads(said((await talk.ask(CALL % b"env"))["result"]))
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["PYTHONUTF8"] == "0"


# ---- messages both ways


async def test_a_character_cut_by_read_boundaries_arrives_whole(tmp_path: Path) -> None:
    async with peer(tmp_path, child("split")) as talk:
        assert said((await talk.ask(CALL % b"t"))["result"]) == SPLIT_TEXT


async def test_line_separators_of_unicode_pass_both_ways(tmp_path: Path) -> None:
    async with peer(tmp_path, child("u2028", "line")) as talk:
        assert said((await talk.ask(CALL % b"t"))["result"]) == U2028_TEXT
        down = (CALL % b"line").replace(b"{}}}", '{"text":"a\u2028b\u0085c"}}}'.encode())
        assert said((await talk.ask(down))["result"]).encode().rstrip() == down


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 5_000_000])
async def test_long_lines_arrive_whole(tmp_path: Path, size: int) -> None:
    async with peer(tmp_path, child(f"big={size}"), limit=6_000_000) as talk:
        talk.child.send(CALL % b"t")
        line = await talk.next()
        assert isinstance(line, bytes)
        assert len(line) == size


async def test_bom_crlf_and_noise_leave_only_messages_and_whole_noise_lines(tmp_path: Path) -> None:
    async with peer(tmp_path, child("bom", "crlf", "noise")) as talk:
        assert (await talk.ask(HELLO))["id"] == 1
    noise = [line for line in talk.heard if isinstance(line, bytes) and b"jsonrpc" not in line]
    assert noise == [line for line in (raw.strip() for raw in NOISE.split(b"\n")) if line]


async def test_a_child_that_never_reads_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    async with peer(tmp_path, child("neverreads"), limit=200_000) as talk:
        talk.child.send(CALL % b"t")
        taken = 0
        while talk.child.send(b"x" * 10_000):
            taken += 1
            assert taken < 100


# ---- stderr


async def test_the_last_words_are_part_of_the_reason_for_the_end(tmp_path: Path) -> None:
    async with peer(tmp_path, child("die")) as talk:
        talk.child.send(CALL % b"t")
        reason = await asyncio.wait_for(talk.child.ended, 5)
    assert reason == "exited with code 3; it last said: out of cheese"


@pytest.mark.parametrize("mode", ["stderr", "stderrflood", "stderrcr"])
async def test_whatever_goes_to_stderr_calls_are_answered_and_lines_stay_short(tmp_path: Path, mode: str) -> None:
    async with peer(tmp_path, child(mode)) as talk:
        for _ in range(3):
            assert said((await talk.ask(CALL % b"t"))["result"]) == "ok"
    lines = talk.errors
    assert lines
    assert max(map(len, lines)) <= LONGEST_STDERR_LINE


async def test_stderr_in_any_encoding_is_shown_and_never_a_reason_to_fail(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.buffer.write(bytes(range(256)) + '错误\\n'.encode('gbk')); sys.exit(9)"
    async with peer(tmp_path, python(code)) as talk:
        assert (await asyncio.wait_for(talk.child.ended, 5)).startswith("exited with code 9; it last said: ")


# ---- the end


async def test_a_killed_child_says_by_which_signal(tmp_path: Path) -> None:
    async with peer(tmp_path, child()) as talk:
        await talk.ask(HELLO)
        os.kill(talk.child.pid or 0, signal.SIGKILL)
        assert await asyncio.wait_for(talk.child.ended, 5) == "was killed by signal 9"


async def test_closing_stdout_while_alive_is_an_end(tmp_path: Path) -> None:
    async with peer(tmp_path, child("closestdout")) as talk:
        talk.child.send(CALL % b"t")
        assert (await asyncio.wait_for(talk.child.ended, 3)).startswith("closed its output")


async def test_closing_stdin_while_alive_is_an_end(tmp_path: Path) -> None:
    async with peer(tmp_path, python(CLOSES_STDIN)) as talk:
        async with asyncio.timeout(10):
            while not talk.child.ended.done():
                talk.child.send(CALL % b"t")
                await asyncio.wait([talk.child.ended], timeout=0.05)
        assert talk.child.ended.result().startswith("closed its input")


async def test_the_ladder_is_climbed_only_as_far_as_needed_and_no_descendant_is_left(tmp_path: Path) -> None:
    wrapped = f"{sys.executable} {child()['args'][0]} tree; true"
    async with asyncio.TaskGroup() as group:
        polite, deaf_to_eof, deaf_to_all, other_session, wrapper, orphan, far_orphan = (
            group.create_task(seconds_to_end(tmp_path / name, *how))
            for name, *how in (
                ("polite", child()),
                ("deaf to eof", child("deafeof")),
                ("deaf to all, with a grandchild that is too", child("tree", "deafterm", "deafeof"), 1),
                ("a grandchild with a session of its own", python(SETSID), 1),
                ("a wrapper as npx is one", {"command": "sh", "args": ["-c", wrapped]}, 2),
                ("a grandchild that outlived its parent", child("tree"), 1, True),
                ("one with a session of its own that did", python(SETSID), 1, True),
            )
        )
    assert polite.result() < 1.5
    assert 1.9 < deaf_to_eof.result() < 3.5
    for far in (other_session, far_orphan):
        assert 1.9 < far.result() < 3.5  # it does not listen to our stdin, but to SIGTERM
    for stubborn in (deaf_to_all, wrapper, orphan):
        assert 3.9 < stubborn.result() < 6.5


async def seconds_to_end(folder: Path, entry: Json, family: int = 0, kill: bool = False) -> float:
    """How long a child's stop took; nothing of it and its descendants is left then."""
    async with peer(folder, entry) as talk:
        leader = psutil.Process(talk.child.pid)
        await eventually(lambda: len(leader.children(recursive=True)) == family)
        pids = [leader.pid, *(process.pid for process in leader.children(recursive=True))]
        if kill:
            leader.kill()
            await asyncio.wait_for(talk.child.ended, 5)
            assert is_alive(pids[1])
        else:
            talk.child.send(HELLO)
            await eventually(lambda: talk.heard or "sleep" in str(entry))
        began = time.monotonic()
        await asyncio.wait_for(talk.child.stop(), 10)
        took = time.monotonic() - began
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    return took


@pytest.fixture(autouse=True, scope="module")
def adopted_orphans() -> Iterator[None]:
    """As in the bridge: a killed grandchild is waited for here, because process 1 of a container may not do it."""
    adopt_orphans()
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = psutil.Process().num_fds()
    yield
    assert psutil.Process().num_fds() <= before + 8  # the loop's own, closed after the fixtures
