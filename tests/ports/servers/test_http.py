"""Remote servers over both transports, in both eras: real SDK servers on loopback, killed, restarted and locked."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop

from tests.children import RAW_RESULT
from tests.remote_server import serve
from tests.support import ROOT, Cable, Json, child, eventually, listening, load, said
from voice_bridge.core.client import View
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.lifecycle import State
from voice_bridge.errors import CallError
from voice_bridge.observe import log
from voice_bridge.protocol import jsonrpc
from voice_bridge.runtime.runtime import Runtime

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.remote_server"])  # importing the SDK takes a second, and there are many starts
TOKEN = "s3cret-bearer-word"
TOOLS = {"echo", "add", "steps", "wait", "pid", "ask", "grow"}
KINDS = {
    "http": ("http",),
    "http-json": ("http", "json"),
    "http-modern": ("http", "modern"),
    "sse": ("sse",),
    "http-locked": ("http", f"token={TOKEN}"),
    "sse-locked": ("sse", f"token={TOKEN}"),
}
OPEN = ["http", "http-json", "http-modern", "sse"]


@pytest.fixture(autouse=True)
def bounded() -> object:
    """A test that hangs fails with a traceback of where it hung."""

    def too_late(*_: object) -> None:
        raise TimeoutError("the test took more than 40 s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(40)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def event_loop_policy() -> Any:
    """The loop that the product runs on; its sockets are not the standard library's."""
    return uvloop.EventLoopPolicy()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


Shared = Callable[[str], "RemoteServer"]
Own = Callable[..., "RemoteServer"]


class RemoteServer:
    """`tests.remote_server` as a process that can be killed and started again on its port."""

    def __init__(self, transport: str, *modes: str) -> None:
        self.transport, self.modes, self.port = transport, modes, 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        here, there = FORKS.Pipe()
        self.process = FORKS.Process(target=serve, args=(there, self.transport, self.port, *self.modes), daemon=True)
        self.process.start()
        assert here.poll(20), "the server did not start"
        self.port = here.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(10)

    def entry(self, port: int = 0, **more: object) -> Json:
        path = "sse" if self.transport == "sse" else "mcp"
        return {"type": self.transport, "url": f"http://127.0.0.1:{port or self.port}/{path}", **more}


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """A server of each kind for the tests that leave it as it is."""
    with contextlib.ExitStack() as stack:
        running: dict[str, RemoteServer] = {}

        def get(kind: str) -> RemoteServer:
            if kind not in running:
                running[kind] = stack.enter_context(RemoteServer(*KINDS[kind]))
            return running[kind]

        yield get


@pytest.fixture
def own() -> Iterator[Own]:
    """Servers for one test alone."""
    with contextlib.ExitStack() as stack:
        yield lambda *modes: stack.enter_context(RemoteServer(*modes))


@asynccontextmanager
async def bridged(folder: Path, entry: Json, **bridge: int) -> AsyncIterator[Runtime]:
    async with Runtime(load(folder, {"far": entry}, None, **bridge), readers=[log.LogReader()]) as runtime:
        yield runtime


class Cloud:
    """An MCP client of the runtime that keeps every message it gets."""

    def __init__(self, runtime: Runtime, capabilities: Json | None = None) -> None:
        self.received: list[Json] = []
        self.raw: list[bytes] = []
        self._news = asyncio.Event()
        self._hub = runtime
        self.key = runtime.open_client(lambda: View("cloud", (ServerKey("far"),), call_timeout=20.0), self._take)
        hello = {"protocolVersion": "2025-06-18", "capabilities": capabilities or {}, "clientInfo": {"name": "c"}}
        self.send(0, "initialize", hello)
        runtime.client_message(self.key, jsonrpc.notification("notifications/initialized"))

    def _take(self, data: bytes) -> None:
        self.raw.append(data)
        self.received.append(json.loads(data))
        self._news.set()

    def send(self, id_: int, method: str, params: Json) -> None:
        self._hub.client_message(self.key, jsonrpc.request(id_, method, jsonrpc.dump(params)))

    def call(self, id_: int, tool: str, arguments: Json | None = None, **more: object) -> None:
        self.send(id_, "tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def next(self, fits: Callable[[Json], object], within: float = 15) -> Json:
        async with asyncio.timeout(within):
            while True:
                for message in self.received:
                    if fits(message):
                        return message
                self._news.clear()
                await self._news.wait()

    async def answer(self, id_: int, within: float = 15) -> Json:
        return await self.next(lambda message: message.get("id") == id_ and "method" not in message, within)


def notices(cloud: Cloud, method: str) -> list[Json]:
    return [message for message in cloud.received if message.get("method") == method]


@pytest.mark.parametrize("kind", OPEN)
async def test_everything_a_server_offers_comes_through(kind: str, tmp_path: Path, shared: Shared) -> None:
    async with bridged(tmp_path, shared(kind).entry()) as runtime:
        assert await runtime.settled(20)
        assert runtime.router.peers.servers[ServerKey("far")].modern is (kind == "http-modern")
        with runtime.local_client() as client:
            tools = {tool["name"]: tool for tool in await client.tools()}
            assert set(tools) == TOOLS
            assert tools["add"]["annotations"]["readOnlyHint"] is True
            assert said(await client.call("echo", {"text": "读🎉 \u2028"})) == "读🎉 \u2028"
            assert said(await client.call("echo", {"text": "x" * 2_000_000})) == "x" * 2_000_000
            added = await client.call("add", {"a": 2**53 + 1, "b": 2**70})
            assert added["structuredContent"] == {"total": 2**53 + 1 + 2**70, "exact": True}
            assert (await client.call("add", {"a": "x", "b": 1}))["isError"] is True
            prompt = await client.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
            assert prompt["messages"][0]["content"]["text"] == "Greet Ada."
            read = await client.request("resources/read", {"uri": "memo://one"})
            assert read["contents"][0]["text"] == "a memo"


@pytest.mark.parametrize("kind", ["http", "http-modern", "sse"])
async def test_progress_reaches_the_one_who_asked(kind: str, tmp_path: Path, shared: Shared) -> None:
    async with bridged(tmp_path, shared(kind).entry()) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime)
        cloud.call(1, "steps", {"number": 3}, _meta={"progressToken": "p-1"})
        assert (await cloud.answer(1))["result"]["content"][0]["text"] == "3 steps"
        progress = [note["params"] for note in notices(cloud, "notifications/progress")]
        assert [(note["progressToken"], note["progress"]) for note in progress] == [("p-1", 1), ("p-1", 2), ("p-1", 3)]


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_question_of_the_server_reaches_the_caller_and_its_answer_comes_back(
    kind: str, tmp_path: Path, shared: Shared
) -> None:
    async with bridged(tmp_path, shared(kind).entry()) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime, {"elicitation": {}})
        cloud.call(1, "ask")
        question = await cloud.next(lambda message: message.get("method") == "elicitation/create")
        assert question["params"]["message"] == "Which colour?"
        answer = {"action": "accept", "content": {"colour": "blue"}}
        runtime.client_message(cloud.key, jsonrpc.result(b"%d" % question["id"], jsonrpc.dump(answer)))
        assert (await cloud.answer(1))["result"]["content"][0]["text"] == "accept: blue"


@pytest.mark.parametrize("kind", ["http", "http-modern", "sse"])
async def test_a_changed_list_is_read_again_and_announced(kind: str, tmp_path: Path, own: Own) -> None:
    server = own(*KINDS[kind])
    async with bridged(tmp_path, server.entry()) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime)
        cloud.send(1, "tools/list", {})
        await cloud.answer(1)
        cloud.call(2, "grow")
        await cloud.answer(2)
        await cloud.next(lambda message: message.get("method") == "notifications/tools/list_changed")
        cloud.call(3, "grown")
        assert (await cloud.answer(3))["result"]["content"][0]["text"] == "I am new"


@pytest.mark.parametrize("kind", ["http", "http-modern", "sse"])
async def test_a_killed_server_answers_its_open_calls_and_is_initialized_again(
    kind: str, tmp_path: Path, own: Own
) -> None:
    server = own(*KINDS[kind])
    async with bridged(tmp_path, server.entry()) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime)
        cloud.call(1, "wait", {"seconds": 30})
        cloud.call(2, "pid")
        first = (await cloud.answer(2))["result"]["content"][0]["text"]
        server.kill()
        killed = time.monotonic()
        error = (await cloud.answer(1, within=5))["error"]
        assert time.monotonic() - killed < 5
        assert error["message"].startswith("server far")
        assert "http://" not in error["message"]
        server.start()
        with runtime.local_client() as client:
            second = await eventually_called(client.call, "pid")
        assert second != first
        assert second == str(server.process.pid)


async def eventually_called(call: Callable[[str, Json], Awaitable[Json]], tool: str, within: float = 15) -> str:
    """Calls until an answer comes; while the server is away each call is refused at once."""
    async with asyncio.timeout(within):
        while True:
            try:
                return said(await call(tool, {}))
            except CallError:
                await asyncio.sleep(0.05)


async def test_a_server_that_lost_the_session_meanwhile_is_initialized_again_without_a_call(
    tmp_path: Path, own: Own
) -> None:
    """The stream of messages breaks and cannot be resumed: 404."""
    server = own("http")
    async with bridged(tmp_path, server.entry()) as runtime:
        assert await runtime.settled(20)
        server.kill()
        server.start()
        await eventually(lambda: runtime.statuses()[0].restarts >= 1 and runtime.statuses()[0].state is State.READY, 15)
        with runtime.local_client() as client:
            assert said(await client.call("pid", {})) == str(server.process.pid)


async def test_a_subscription_of_the_new_era_is_opened_again_after_a_restart(tmp_path: Path, own: Own) -> None:
    server = own("http", "modern")
    async with bridged(tmp_path, server.entry()) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime)
        cloud.send(1, "tools/list", {})
        await cloud.answer(1)
        server.kill()
        server.start()
        with runtime.local_client() as client:
            assert await eventually_called(client.call, "grow") == "grew"
        await cloud.next(lambda message: message.get("method") == "notifications/tools/list_changed")


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_cut_connection_is_noticed_and_mended(kind: str, tmp_path: Path, shared: Shared) -> None:
    server = shared(kind)
    async with Cable(server.port) as cable, bridged(tmp_path, server.entry(cable.port)) as runtime:
        assert await runtime.settled(20)
        cloud = Cloud(runtime)
        cloud.call(1, "wait", {"seconds": 30})
        cloud.call(2, "echo", {"text": "x"})
        await cloud.answer(2)
        cable.cut()
        assert (await cloud.answer(1, within=6))["error"]["message"].startswith("server far")
        with runtime.local_client() as client:
            assert await eventually_called(client.call, "pid") == str(server.process.pid)


@pytest.mark.parametrize("kind", ["http-locked", "sse-locked"])
async def test_the_right_bearer_token_opens_the_door(kind: str, tmp_path: Path, shared: Shared) -> None:
    entry = shared(kind).entry(headers={"Authorization": f"Bearer {TOKEN}"})
    async with bridged(tmp_path, entry) as runtime:
        assert await runtime.settled(20)
        with runtime.local_client() as client:
            assert said(await client.call("echo", {"text": "in"})) == "in"


@pytest.mark.parametrize("kind", ["http-locked", "sse-locked"])
async def test_a_wrong_bearer_token_is_named_as_the_cause_and_never_shown(
    kind: str, tmp_path: Path, shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "n0t-the-right-word"
    entry = shared(kind).entry(headers={"Authorization": f"Bearer {wrong}"})
    async with bridged(tmp_path, entry) as runtime:
        assert await runtime.settled(20)
        reason = runtime.statuses()[0].reason
    assert reason == "answered HTTP 401 Unauthorized; check its headers: a token belongs into headers.Authorization"
    assert f"far: {reason}" in caplog.text
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("voice_bridge", "mcp"))]
    assert wrong not in "\n".join(ours)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"url": "ftp://x/"}, "its url must begin with https:// or http:// and name a host"),
        ({"url": "http:///mcp"}, "its url must begin with https:// or http:// and name a host"),
        (
            {"url": "http://127.0.0.1:9/", "headers": {"X-Key": "s3cret-读-word"}},
            "its header X-Key must be one line of plain ASCII characters",
        ),
        (
            {"url": "http://127.0.0.1:9/", "headers": {"X-Key": "s3cret\nword"}},
            "its header X-Key must be one line of plain ASCII characters",
        ),
        ({"url": "http://voice-bridge.invalid/"}, "cannot be reached at voice-bridge.invalid:80: "),
    ],
)
async def test_settings_that_cannot_work_are_named(
    entry: Json, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "voice_bridge")
    async with bridged(tmp_path, {"type": "http", **entry}) as runtime:
        assert await runtime.settled(20)
        assert reason in runtime.statuses()[0].reason
    assert "s3cret" not in caplog.text


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads the kernel's table of connections")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_the_system_probes_a_stream_that_is_only_listened_to(kind: str, tmp_path: Path, shared: Shared) -> None:
    server = shared(kind)
    async with bridged(tmp_path, server.entry()) as runtime:
        assert await runtime.settled(20)
        await eventually(lambda: KEEP_ALIVE_TIMER in timers_towards(server.port))


KEEP_ALIVE_TIMER = "02"


def timers_towards(port: int) -> list[str]:
    """The kernel's timer of each connection to a port of the loopback (proc(5): `tr` in /proc/net/tcp)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[5].split(":")[0] for row in rows if row[2] == f"0100007F:{port:04X}"]


async def test_a_server_that_comes_later_is_found(tmp_path: Path, own: Own, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "voice_bridge")
    server = own("http")
    server.kill()
    secret = f"http://user:pass-word@127.0.0.1:{server.port}/mcp?token=abcdefgh"
    async with bridged(tmp_path, server.entry(url=secret)) as runtime:
        assert await runtime.settled(20)
        assert runtime.statuses()[0].reason == f"cannot be reached at 127.0.0.1:{server.port}: connection refused"
        server.start()
        await eventually(lambda: runtime.statuses()[0].state is State.READY, 15)
    assert "pass-word" not in caplog.text
    assert "abcdefgh" not in caplog.text


async def test_nothing_of_the_sdk_is_imported_without_a_remote_server(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from voice_bridge import config
from voice_bridge.runtime.daemon import Bridge
from voice_bridge.observe import log
from voice_bridge.runtime.runtime import Runtime
async def main():
    async with Runtime(config.load(Path(sys.argv[1]))) as runtime:
        assert await runtime.settled(20)
asyncio.run(main())
print(sorted(name for name in ("mcp", "mcp_types", "httpx", "httpx2", "anyio", "starlette") if name in sys.modules))
"""
    settings = load(tmp_path, {"near": child("ok")}).source
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(settings)],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[]", done.stderr


async def test_more_calls_than_a_pool_of_connections_holds_run_side_by_side(tmp_path: Path, shared: Shared) -> None:
    async with bridged(tmp_path, shared("http").entry()) as runtime:
        assert await runtime.settled(20)
        with runtime.local_client() as client:
            async with asyncio.timeout(20):
                answers = await asyncio.gather(*(client.call("wait", {"seconds": 0.5}) for _ in range(120)))
        assert [said(answer) for answer in answers] == ["waited"] * 120


# Answers that no SDK gives, byte by byte over a raw socket


class RawServer:
    """An HTTP server whose answers are bytes of the test's own; it keeps the bodies it was sent."""

    def __init__(self, answer: Callable[[Json, bytes], bytes]) -> None:
        self.answer = answer
        self.bodies: list[bytes] = []
        self.heads: list[str] = []

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = next((line for line in head.lower().split("\r\n") if line.startswith("content-length:")), "0:0")
            body = await reader.readexactly(int(length.split(":")[1]))
            self.bodies.append(body)
            if head.startswith("GET"):
                reply = response(405)
            elif head.startswith("DELETE"):
                reply = response(204)
            else:
                reply = self.reply(json.loads(body), body)
            writer.write(reply)
            await writer.drain()

    def reply(self, message: Json, body: bytes) -> bytes:
        method, id_ = message["method"], message.get("id")
        if id_ is None:
            return response(202)
        if method == "initialize":
            info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "0"}}
            return answered(id_, json.dumps({"protocolVersion": "2025-06-18", **info}), session="s-1")
        if method == "tools/list":
            return answered(id_, '{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}')
        return self.answer(message, body)


def response(status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", f"content-type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answered(id_: object, result: str, session: str = "") -> bytes:
    body = f'{{"jsonrpc":"2.0","id":{id_},\n  "result":{result}}}'.encode()
    return response(200, body, **({"mcp_session_id": session} if session else {}))


def as_event(message: Json, result: str) -> bytes:
    data = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'
    return response(200, f": hello\r\nevent: message\r\nid: 1\r\ndata: {data}\r\n\r\n".encode(), "text/event-stream")


@asynccontextmanager
async def raw(
    folder: Path, answer: Callable[[Json, bytes], bytes], **bridge: int
) -> AsyncIterator[tuple[RawServer, Runtime, Cloud]]:
    server = RawServer(answer)
    async with listening(server.converse) as port, bridged(folder, at(port), **bridge) as runtime:
        assert await runtime.settled(20)
        yield server, runtime, Cloud(runtime)


def at(port: int, transport: str = "http", **more: object) -> Json:
    return {"type": transport, "url": f"http://127.0.0.1:{port}/mcp", **more}


def packed(message: Json, result: str) -> bytes:
    body = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'.encode()
    return response(200, gzip.compress(body), content_encoding="gzip")


@pytest.mark.parametrize(
    "way", [lambda message, result: answered(message["id"], result), as_event, packed], ids=["json", "event", "gzip"]
)
async def test_payloads_pass_byte_for_byte_both_ways(way: Callable[[Json, str], bytes], tmp_path: Path) -> None:
    arguments = b'{"price":1.10,"huge":1e400,"big":1180591620717411303424,"twice":1,"twice":2, "s" : "\\u00e9 \\/"}'
    async with raw(tmp_path, lambda message, _: way(message, RAW_RESULT)) as (server, runtime, cloud):
        call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":' + arguments + b"}}"
        runtime.client_message(cloud.key, call)
        await cloud.answer(1)
        assert cloud.raw[-1] == b'{"jsonrpc":"2.0","id":1,"result":' + RAW_RESULT.encode() + b"}"
        assert b'"arguments":' + arguments in server.bodies[-1]


@pytest.mark.parametrize(
    ("answer", "said_to_client"),
    [
        (response(503), "server far answered HTTP 503 Service Unavailable"),
        (response(403), "server far answered HTTP 403 Forbidden"),
        (response(200, b"<html>", "text/html"), "server far: Unexpected content type: text/html"),
        (response(202), "server far: server answered a request with 202 Accepted"),
        (response(200, b"x" * 3000), "server far its answer is over the limit of 2,000 bytes"),
        (response(200, b": nothing\n\n", "text/event-stream"), "server far: SSE stream ended without a response"),
        (response(200, b"not json"), "server far sent an answer that cannot be used: not JSON"),
        (response(200, b'{"jsonrpc":"2.0","method":"x"}'), "server far sent something else than an answer"),
        (response(200, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'), "what?"),
        (response(200, b"data: {\n\n", "text/event-stream"), "server far sent an answer that cannot be used: not JSON"),
        (
            response(200, b'data: {"jsonrpc":"2.0","id":null,"error":{"message":"eh?"}}\n\n', "text/event-stream"),
            "eh?",
        ),
        (response(200, b"no gzip", content_encoding="gzip"), "server far sent an answer that cannot be decompressed"),
        (response(302, location="http://127.0.0.1:1/x?key=abcdefgh"), "Redirect to http://127.0.0.1:1/x not followed"),
    ],
    ids=[
        "503",
        "403",
        "html",
        "202",
        "oversized",
        "empty stream",
        "not JSON",
        "no answer",
        "no id",
        "event not JSON",
        "event without id",
        "not gzip",
        "redirect",
    ],
)
async def test_an_odd_answer_fails_only_its_own_call(answer: bytes, said_to_client: str, tmp_path: Path) -> None:
    def odd_once(message: Json, _: bytes) -> bytes:
        return answer if message["params"]["arguments"] else answered(message["id"], '{"content":[]}')

    async with raw(tmp_path, odd_once, maxMessageBytes=2000) as (_, runtime, cloud):
        cloud.call(1, "t", {"odd": True})
        assert said_to_client in (await cloud.answer(1))["error"]["message"]
        cloud.call(2, "t")
        assert (await cloud.answer(2))["result"] == {"content": []}
        assert runtime.statuses()[0].restarts == 0


async def test_an_error_of_the_server_itself_passes_whatever_its_http_status(tmp_path: Path) -> None:
    error = '{"code":-32602,"message":"bad","data":{"x":1.10}}'
    body = f'{{"jsonrpc":"2.0","id":null,"error":{error}}}'.encode()
    async with raw(tmp_path, lambda *_: response(400, body)) as (_, _hub, cloud):
        cloud.call(1, "t")
        await cloud.answer(1)
        assert cloud.raw[-1] == b'{"jsonrpc":"2.0","id":1,"error":' + error.encode() + b"}"


@pytest.mark.parametrize(
    ("loss", "status"),
    [(response(404), 404), (response(400, b'{"jsonrpc":"2.0","error":{"message":"No valid session ID"}}'), 400)],
    ids=["by the book", "as the reference server says it"],
)
async def test_a_lost_session_is_named_and_a_new_one_begun(loss: bytes, status: int, tmp_path: Path) -> None:
    lost = [loss]

    def forgetful(message: Json, _: bytes) -> bytes:
        return lost.pop() if lost else answered(message["id"], '{"content":[]}')

    async with raw(tmp_path, forgetful) as (server, runtime, cloud):
        cloud.call(1, "t")
        error = (await cloud.answer(1))["error"]["message"]
        assert error == f"server far no longer knows the session (HTTP {status})"
        await eventually(lambda: runtime.statuses()[0].state is State.READY)
        cloud.call(2, "t")
        assert (await cloud.answer(2))["result"] == {"content": []}
        assert sum(b'"initialize"' in body for body in server.bodies) == 2


async def test_the_session_and_the_version_are_told_with_each_request_and_the_end_with_a_delete(tmp_path: Path) -> None:
    async with raw(tmp_path, lambda message, _: answered(message["id"], '{"content":[]}')) as (server, _, cloud):
        cloud.call(1, "t")
        await cloud.answer(1)
        head = server.heads[-1].lower()
        assert "\r\nmcp-session-id: s-1\r\n" in head
        assert "\r\nmcp-protocol-version: 2025-06-18\r\n" in head
        assert "\r\nuser-agent: mcp-voice-bridge/" in head
    assert server.heads[-1].startswith("DELETE ")


async def test_a_server_that_never_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(silent) as port, bridged(tmp_path, at(port, startTimeout=0.5)) as runtime:
        assert await runtime.settled(10)
        assert runtime.statuses()[0].reason == "was not ready within 0.5 s (startTimeout)"
        began = time.monotonic()
    assert time.monotonic() - began < 6


@pytest.mark.parametrize(
    ("entry", "advice"),
    [("http", 'an SSE server needs "type": "sse"'), ("sse", 'a streamable HTTP server needs "type": "http"')],
)
async def test_the_wrong_transport_is_named_with_the_remedy(entry: str, advice: str, tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(405, connection="close"))
        await writer.drain()

    async with listening(refuse) as port, bridged(tmp_path, at(port, entry)) as runtime:
        assert await runtime.settled(10)
        assert "HTTP 405 Method Not Allowed" in runtime.statuses()[0].reason
        assert advice in runtime.statuses()[0].reason
