"""The runtime with real children: each misbehaves in its own way, and only its own callers ever notice."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from pathlib import Path

import pytest
import uvloop

from tests.children import RAW_RESULT, SPLIT_TEXT, U2028_TEXT
from tests.support import Json, child, eventually, load, python, running, said
from voice_bridge.core.client import View
from voice_bridge.core.keys import ServerKey
from voice_bridge.errors import CallError
from voice_bridge.ports.clients.local import LocalClient
from voice_bridge.runtime.runtime import Runtime

THIEF = """
import json, sys
for line in sys.stdin:
    for id in range(60):  # also to ids that only other servers were asked under
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "stolen"}]}}))
    sys.stdout.flush()
"""
SILENT_ABOUT_LISTS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        who = {"name": "x", "version": "0"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": who}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": hello}), flush=True)
"""


async def refused(call: asyncio.Future[Json] | asyncio.Task[Json]) -> str:
    """The words with which a call failed."""
    with pytest.raises(CallError) as failure:
        async with asyncio.timeout(15):
            await call
    return str(failure.value)


def start(client: LocalClient, tool: str, **arguments: object) -> asyncio.Task[Json]:
    """A call under way."""
    return asyncio.ensure_future(client.call(tool, arguments))


@pytest.mark.parametrize(
    ("modes", "text"),
    [
        (["ok"], "ok"),
        (["banner"], "ok"),
        (["noise", "crlf", "bom"], "ok"),
        (["split"], SPLIT_TEXT),
        (["u2028"], U2028_TEXT),
        (["badbyte"], "still here"),
        (["raw"], json.loads(RAW_RESULT)["content"][0]["text"]),
        (["stderr"], "ok"),
        (["stderrflood"], "ok"),
        (["stderrcr"], "ok"),
        (["unasked"], "ok"),
        (["oddtools"], "ok"),
        (["roundpages"], "ok"),
        (["pages=2"], "ok"),
        (["progress=3"], "ok"),
        (["slow=0.4"], "ok"),
        (["big=5000000"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
async def test_a_child_with_bad_manners_is_still_understood(tmp_path: Path, modes: list[str], text: str | None) -> None:
    async with running(tmp_path, {"s": child(*modes)}) as (runtime, client):
        before = runtime.statuses()[0].pid
        for _ in range(3):
            heard = said(await client.call("t", {}, timeout=5))
            assert heard == text or (text is None and len(heard) > 4_999_000)
        assert said(await client.call("echo", {"text": "a\u2028\u0085😀\0"}, timeout=5)) == "a\u2028\u0085😀\0"
        assert {"t", "echo", "sleep"} <= {tool["name"] for tool in await client.tools()}
        assert runtime.statuses()[0].pid == before


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        (["gbk"], "UTF-8"),
        (["nan"], "NaN"),
        (["big=70000"], "is over the limit of 65,536 (bridge.maxMessageBytes)"),
        (["rpcerror"], "bad arguments"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_an_answer_that_cannot_be_used_fails_alone_and_says_why(
    tmp_path: Path, modes: list[str], words: str
) -> None:
    tool = "rpcerror" if modes == ["rpcerror"] else "t"
    modes = [] if modes == ["rpcerror"] else modes
    async with running(tmp_path, {"odd": child(*modes)}, maxMessageBytes=65_536) as (runtime, client):
        before, beside = runtime.statuses()[0].pid, start(client, "sleep", s=0.3)
        text = await refused(start(client, tool))
        assert words in text
        assert said(await client.call("echo", {"text": "next"}, timeout=5)) == "next"
        assert said(await beside) == "slept"
        assert runtime.statuses()[0].pid == before


@pytest.mark.parametrize("extra", [-1, 0, 1])
async def test_the_limit_of_a_message_is_exact(tmp_path: Path, extra: int) -> None:
    async with running(tmp_path, {"s": child(f"big={65_536 + extra}")}, maxMessageBytes=65_536) as (_, client):
        if extra > 0:
            assert "its answer of 65,537 bytes is over the limit" in await refused(start(client, "t"))
        else:
            assert len(said(await client.call("t", {}, timeout=5))) > 65_000


async def test_a_crash_answers_all_its_open_calls_within_a_second_and_no_other(tmp_path: Path) -> None:
    servers = {"cheese": child("die", tools={"rename": {"sleep": "nap"}}), "good": child(tools={"include": ["sleep"]})}
    async with running(tmp_path, servers) as (runtime, client):
        beside = start(client, "sleep", s=1)
        began = time.monotonic()
        texts = await asyncio.gather(*(refused(start(client, "t")) for _ in range(3)))
        assert time.monotonic() - began < 1
        assert set(texts) == {"server cheese exited with code 3; it last said: out of cheese"}
        assert said(await beside) == "slept"
        assert "t" in {tool["name"] for tool in await client.tools()}
        assert runtime.statuses()[1].restarts == 0


async def test_a_call_while_a_server_is_restarting_is_refused_at_once_and_the_next_one_works(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": child()}, minBackoff=0.5) as (runtime, client):
        assert "exited with code 7; it last said: crashed as told" in await refused(start(client, "crash"))
        assert "server s is not available: exited with code 7" in await refused(start(client, "echo", text="x"))
        await eventually(lambda: runtime.statuses()[0].state == "ready")
        assert said(await client.call("echo", {"text": "back"}, timeout=5)) == "back"
        assert runtime.statuses()[0].restarts == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_signal_in_the_middle_of_a_call_is_named_and_the_server_comes_back(tmp_path: Path, number: int) -> None:
    async with running(tmp_path, {"s": child()}) as (runtime, client):
        call, pid = start(client, "sleep", s=60), int(said(await client.call("pid", {})))
        began = time.monotonic()
        os.kill(pid, number)
        assert await refused(call) == f"server s was killed by signal {number}"
        assert time.monotonic() - began < 1
        await eventually(lambda: runtime.statuses()[0].state == "ready")
        assert int(said(await client.call("pid", {}))) != pid


async def test_a_child_that_closes_stdout_and_lives_on_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": child("closestdout")}) as (runtime, client):
        began = time.monotonic()
        assert "server s closed its output" in await refused(start(client, "t"))
        assert time.monotonic() - began < 1.5
        await eventually(lambda: runtime.statuses()[0].state == "ready")


async def test_a_child_that_never_reads_delays_only_its_own_callers(tmp_path: Path) -> None:
    servers = {
        "deaf": child("neverreads", tools={"include": ["t"]}, callTimeout=1.5),
        "good": child(tools={"include": ["echo"]}),
    }
    async with running(tmp_path, servers, maxMessageBytes=200_000) as (_, client):
        stuck = [start(client, "t", filler="x" * 50_000) for _ in range(12)]
        began = time.monotonic()
        for number in range(50):
            assert said(await client.call("echo", {"text": str(number)}, timeout=1)) == str(number)
        assert time.monotonic() - began < 1
        texts = [await refused(call) for call in stuck]
        assert "server deaf does not read its input" in texts
        assert texts[0] == "server deaf did not answer t within 1.5 s"


async def test_a_late_answer_goes_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_bridge")
    async with running(tmp_path, {"s": child("late=0.6", callTimeout=0.2)}) as (_, client):
        assert await refused(start(client, "t")) == "server s did not answer t within 0.2 s"
        await eventually(lambda: "s: dropped an answer that nobody waits for" in caplog.messages, 3)
        assert said(await client.call("echo", {"text": "on"}, timeout=1)) == "on"


async def test_answers_under_another_servers_ids_reach_nobody(tmp_path: Path) -> None:
    servers = {"thief": python(THIEF), "honest": child(tools={"include": ["sleep", "echo"]})}
    async with running(tmp_path, servers) as (runtime, client):
        pending = start(client, "sleep", s=0.5)
        os.kill(runtime.statuses()[0].pid or 0, signal.SIGKILL)  # started anew, it answers under every id again
        await eventually(lambda: runtime.statuses()[0].restarts >= 1)
        assert said(await pending) == "slept"
        assert said(await client.call("echo", {"text": "mine"}, timeout=5)) == "mine"


async def test_unwanted_answers_do_not_flood_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_bridge")
    async with running(tmp_path, {"s": child("unasked")}) as (_, client):
        for _ in range(40):
            await client.call("t", {}, timeout=5)
    dropped = [line for line in caplog.messages if "nobody waits for" in line]
    assert 3 <= len(dropped) <= 60


async def test_junk_is_logged_under_the_servers_name_and_not_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "voice_bridge")
    async with running(tmp_path, {"chatty": child("noise", "banner")}) as (_, client):
        for _ in range(30):
            await client.call("t", {}, timeout=5)
    junk = [line for line in caplog.messages if line.startswith("chatty: not a message: ")]
    assert any("Starting server" in line for line in junk)
    assert 5 < len(junk) < 60


async def test_the_environment_that_config_adds_is_laid_over_the_bridges(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": child(env={"API_KEY": "k"}, cwd=".")}) as (_, client):
        assert said(await client.call("env", {"name": "API_KEY"})) == "k"
        assert said(await client.call("env", {"name": "PATH"})).endswith(os.environ["PATH"])
        assert Path(said(await client.call("cwd", {}))) == tmp_path


async def test_one_wrong_server_stops_no_other_and_each_says_what_is_wrong(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers: dict[str, Json] = {
        "good": child(),
        "bad": {"command": "no-such-binary-xyz"},
        "dies": {"command": "false"},
        "mute": python(SILENT_ABOUT_LISTS, startTimeout=0.5),
        "odd": {"comment": "nothing here"},
    }
    async with running(tmp_path, servers) as (runtime, client):
        assert "echo" in {tool["name"] for tool in await client.tools()}
        reasons = {status.name: status.reason for status in runtime.statuses()}
        assert "it has neither a command nor a url" in runtime.settings.problems["mcpServers.odd"]
    assert reasons["good"] == ""
    assert "'no-such-binary-xyz' was not found; searched /" in reasons["bad"]
    assert reasons["dies"] == "exited with code 1"
    assert reasons["mute"] == "was not ready within 0.5 s (startTimeout)"
    for name in ("bad", "dies", "mute"):
        assert len([line for line in caplog.messages if line.startswith(f"{name}: {reasons[name]}")]) >= 1


async def test_stopping_answers_what_is_open(tmp_path: Path) -> None:
    async with Runtime(load(tmp_path, {"s": child("deafterm")})) as runtime:
        assert await runtime.settled(10)
        client = runtime.local_client()
        call = start(client, "sleep", s=60)
        await client.call("pid", {})
    assert await refused(call) == "server s was stopped"


async def test_closing_a_client_ends_its_open_calls(tmp_path: Path) -> None:
    async with running(tmp_path, {"s": child("seen")}) as (runtime, client):
        with runtime.local_client() as leaving:
            call = start(leaving, "sleep", s=60)
            await leaving.call("pid", {})
        assert "closed" in await refused(call)
        assert '"notifications/cancelled"' in said(await client.call("seen", {}))


def test_calls_whose_time_is_over_at_once_are_answered_on_uvloop_too(tmp_path: Path) -> None:
    """uvloop's handle of a time that is past does not know its time."""

    async def main() -> list[object]:
        async with Runtime(load(tmp_path, {"s": child("tools=sleep")})) as runtime:
            await runtime.settled(10)
            with runtime.local_client(View("hasty", (ServerKey("s"),), call_timeout=-1.0)) as client:
                calls = [client.call("sleep", {"s": 5}) for _ in range(3)]
                return list(await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5))

    answers = uvloop.run(main())
    assert [type(answer) for answer in answers] == [CallError] * 3
    assert all("did not answer sleep within -1 s" in str(answer) for answer in answers)
