"""Servers that other people wrote, run as their authors say and used over a real WebSocket.

`make other-servers` installs them; without that these tests are skipped.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import ROOT, Bridge, Json, running, said, write_settings
from voice_bridge.errors import CallError
from voice_bridge.simulator import OFFICIAL, CloudSession, Reply, VoiceCloud

INSTALLED = ROOT / ".cache" / "other-servers"
NODE, PYTHON = INSTALLED / "node", INSTALLED / "python" / "bin"
SERVED_BY_NODE = [NODE / "node_modules" / "@modelcontextprotocol" / f"server-{name}" for name in
                  ("everything", "filesystem", "memory")]  # fmt: skip
SERVED_BY_PYTHON = [PYTHON / "mcp-server-time", PYTHON / "mcp-server-sqlite"]
MISSING = [path.name for path in [*SERVED_BY_NODE, *SERVED_BY_PYTHON] if not path.exists()]
LISTENER = replace(
    OFFICIAL, capabilities=(("roots", {}), ("sampling", {}), ("elicitation", {})), needs_tools=False, call_timeout=20
)
"""A cloud that says it can be asked, so that servers ask; it then answers that it has no such method."""

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed (make other-servers): {', '.join(MISSING)}"),
]
Voice = tuple[CloudSession, Bridge, Path]


def npx(package: str, *args: str, **more: object) -> Json:
    """As the packages' own instructions have it; npx finds in `cwd` what was installed and downloads nothing."""
    return {"command": "npx", "args": ["-y", f"@modelcontextprotocol/{package}", *args], "cwd": str(NODE), **more}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voice(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Voice]:
    """All five servers behind one bridge, and the cloud's end of its connection."""
    folder = tmp_path_factory.mktemp("others")
    shared = folder / "shared"
    shared.mkdir()
    servers = {
        "everything": npx("server-everything", env={"VOICE_BRIDGE_SEEN": "yes"}),
        "files": npx("server-filesystem", str(shared)),
        "memory": npx("server-memory", env={"MEMORY_FILE_PATH": str(folder / "memory.json")}),
        "time": {"command": str(PYTHON / "mcp-server-time"), "args": ["--local-timezone", "Asia/Singapore"]},
        "sqlite": {"command": str(PYTHON / "mcp-server-sqlite"), "args": ["--db-path", str(folder / "a.db")]},
    }
    async with VoiceCloud(LISTENER) as cloud:
        settings = write_settings(folder, servers, {"default": {"url": cloud.url}}, dialAfter=40)
        async with Bridge(settings) as bridge:
            session = await cloud.session(60)
            await session.ready(30)
            yield session, bridge, folder
            assert (await bridge.end())[0] == 0
            assert bridge.left_behind() == []


async def test_all_five_start_and_list_their_tools(voice: Voice) -> None:
    session, bridge, _ = voice
    for name in ("everything", "files", "memory", "time", "sqlite"):
        await bridge.says(rf"^{name}: ready in ")
    names = {tool.name for tool in session.tools}
    assert set(EVERY_TOOL) | {"read_text_file", "create_entities", "convert_time", "read_query"} <= names


def says(*parts: str) -> Callable[[Json], bool]:
    return lambda result: all(part in str(result["content"][0].get("text")) for part in parts)


def is_image(result: Json) -> bool:
    image = next(block for block in result["content"] if block["type"] == "image")
    return image["mimeType"] == "image/png" and base64.b64decode(image["data"]).startswith(b"\x89PNG")


EVERY_TOOL: dict[str, tuple[Json, Callable[[Json], object]]] = {
    "echo": ({"message": "读🎉"}, says("Echo: 读🎉")),
    "get-annotated-message": (
        {"messageType": "error", "includeImage": True},
        lambda result: is_image(result) and result["content"][0]["annotations"]["priority"] == 1,
    ),
    "get-env": ({}, lambda result: json.loads(result["content"][0]["text"])["VOICE_BRIDGE_SEEN"] == "yes"),
    "get-resource-links": (
        {"count": 2},
        lambda result: [block["type"] for block in result["content"]] == ["text", "resource_link", "resource_link"],
    ),
    "get-resource-reference": (
        {"resourceType": "Blob", "resourceId": 3},
        lambda result: result["content"][1]["resource"]["uri"] == "demo://resource/dynamic/blob/3",
    ),
    "get-structured-content": (
        {"location": "Chicago"},
        lambda result: result["structuredContent"] == json.loads(result["content"][0]["text"]),
    ),
    "get-sum": ({"a": 1.5, "b": 2}, says("3.5")),
    "get-tiny-image": ({}, is_image),
    "gzip-file-as-resource": (
        {"name": "hi.gz", "data": "data:text/plain;base64,aGk="},
        lambda result: result["content"][0]["uri"] == "demo://resource/session/hi.gz",
    ),
    "toggle-simulated-logging": ({}, says("Started simulated, random-leveled logging")),
    "toggle-subscriber-updates": ({}, says("Started simulated resource updated")),
    "trigger-long-running-operation": ({"duration": 0.3, "steps": 3}, says("completed", "Steps: 3")),
    "get-roots-list": ({}, says("no roots")),
    "trigger-elicitation-request": ({}, says("elicitation/create: this cloud has no such method")),
    "trigger-sampling-request": ({"prompt": "hi"}, says("sampling/createMessage: this cloud has no such method")),
}
"""Arguments for every tool of server-everything, and what must come back."""
REFUSED = {"trigger-elicitation-request", "trigger-sampling-request"}
ASKING = {"get-roots-list", *REFUSED}
"""Tools that it offers only to clients who can be asked."""
ONLY_AS_TASK = "simulate-research-query"


async def test_server_everything_has_no_tool_that_is_not_called_here(voice: Voice) -> None:
    session, bridge, _ = voice
    ready = await bridge.says(r"^everything: ready in .* s, (\d+) tools")
    assert int(ready[1]) == len(EVERY_TOOL.keys() - ASKING) + 1, "nobody who can be asked had come yet"
    assert set(EVERY_TOOL) <= {tool.name for tool in session.tools}
    assert ONLY_AS_TASK not in {tool.name for tool in session.tools}
    await bridge.says(rf"^everything: left out the tool .*{ONLY_AS_TASK}")


@pytest.mark.parametrize("tool", EVERY_TOOL)
async def test_every_tool_of_server_everything_answers(tool: str, voice: Voice) -> None:
    session = voice[0]
    arguments, fits = EVERY_TOOL[tool]
    reply = await session.call(tool, arguments)
    assert reply.result is not None, reply.raw
    assert reply.result.get("isError", False) is (tool in REFUSED), reply.raw
    assert fits(reply.result), reply.raw


async def test_a_long_running_operation_reports_its_progress_under_the_callers_token(voice: Voice) -> None:
    session = voice[0]
    arguments = {"duration": 0.4, "steps": 4}
    reply = await session.call("trigger-long-running-operation", arguments, meta={"progressToken": "voice-7"})
    assert reply.ok
    progress = [note["params"] for note in session.notifications if note["method"] == "notifications/progress"]
    ours = [(note["progress"], note["total"]) for note in progress if note["progressToken"] == "voice-7"]
    assert ours == [(step, 4) for step in range(1, 5)]


async def test_what_server_everything_asks_reaches_the_cloud(voice: Voice) -> None:
    session = voice[0]
    await session.call("trigger-sampling-request", {"prompt": "What is new?"})
    await session.call("trigger-elicitation-request")
    asked = {request["method"]: request["params"] for request in session.requests if "params" in request}
    assert "What is new?" in json.dumps(asked["sampling/createMessage"]["messages"])
    assert asked["elicitation/create"]["requestedSchema"]["properties"]["name"]["type"] == "string"


async def test_its_prompts_are_listed_and_read(voice: Voice) -> None:
    session = voice[0]
    listed = result(await session.request("prompts/list", {}))["prompts"]
    arguments = {
        "simple-prompt": {},
        "args-prompt": {"city": "Rome", "state": "Lazio"},
        "completable-prompt": {"department": "Engineering", "name": "Alice"},
        "resource-prompt": {"resourceType": "Text", "resourceId": "2"},
    }
    assert set(arguments) <= {prompt["name"] for prompt in listed}
    for name, given in arguments.items():
        messages = result(await session.request("prompts/get", {"name": name, "arguments": given}))["messages"]
        words = json.dumps(messages)
        assert all(value in words for value in given.values()), words
    asked = {
        "ref": {"type": "ref/prompt", "name": "completable-prompt"},
        "argument": {"name": "department", "value": "E"},
    }
    completion = result(await session.request("completion/complete", asked))["completion"]
    assert completion["values"] == ["Engineering"]


async def test_its_resources_are_listed_read_and_followed(voice: Voice) -> None:
    session = voice[0]
    resources = result(await session.request("resources/list", {}))["resources"]
    documents = [one["uri"] for one in resources if one["uri"].startswith("demo://resource/static/document/")]
    assert len(documents) >= 5
    for uri in documents:
        assert result(await session.request("resources/read", {"uri": uri}))["contents"][0]["text"]
    templates = result(await session.request("resources/templates/list", {}))["resourceTemplates"]
    assert {one["uriTemplate"] for one in templates} == {
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}",
    }
    blob = result(await session.request("resources/read", {"uri": "demo://resource/dynamic/blob/5"}))["contents"][0]
    assert base64.b64decode(blob["blob"])
    uri = "demo://resource/dynamic/text/9"
    assert result(await session.request("resources/subscribe", {"uri": uri})) == {}
    await toggled_on(session, "toggle-subscriber-updates")
    await noticed(session, lambda note: note == updated(uri))
    assert result(await session.request("resources/unsubscribe", {"uri": uri})) == {}


async def test_its_log_messages_and_list_changes_are_heard(voice: Voice) -> None:
    session = voice[0]
    assert result(await session.request("logging/setLevel", {"level": "debug"})) == {}
    await toggled_on(session, "toggle-simulated-logging")
    await noticed(
        session, lambda note: note["method"] == "notifications/message" and "message" in note["params"]["data"]
    )
    session.notifications.clear()
    await session.call("gzip-file-as-resource", {"name": "new.gz", "data": "data:text/plain;base64,aGk="})
    await noticed(session, lambda note: note["method"] == "notifications/resources/list_changed")
    resources = result(await session.request("resources/list", {}))["resources"]
    assert "demo://resource/session/new.gz" in {one["uri"] for one in resources}


def result(reply: Reply) -> Json:
    assert reply.result is not None, reply.raw
    return reply.result


def updated(uri: str) -> Json:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}


async def toggled_on(session: CloudSession, tool: str) -> None:
    """The switch may be on from an earlier test; then it is turned off and on."""
    for _ in range(2):
        if "Started" in (await session.call(tool)).text:
            return
    raise AssertionError(f"{tool} does not start")


async def noticed(session: CloudSession, fits: Callable[[Json], object]) -> None:
    await session.until(lambda: any(fits(note) for note in session.notifications), 15, "the notice did not come")


async def test_server_filesystem_writes_reads_and_keeps_to_its_folder(voice: Voice) -> None:
    session, _, folder = voice
    path = folder / "shared" / "note 1.txt"
    assert (await session.call("write_file", {"path": str(path), "content": "Zeile 1\n读🎉\n"})).ok
    assert path.read_text(encoding="utf-8") == "Zeile 1\n读🎉\n"
    assert (await session.call("read_text_file", {"path": str(path)})).text == "Zeile 1\n读🎉\n"
    assert "note 1.txt" in (await session.call("list_directory", {"path": str(path.parent)})).text
    outside = await session.call("read_text_file", {"path": "/etc/hostname"})
    assert not outside.ok
    assert "outside allowed directories" in outside.text


async def test_server_memory_remembers(voice: Voice) -> None:
    session = voice[0]
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
    assert (await session.call("create_entities", {"entities": [ada]})).ok
    found = result(await session.call("search_nodes", {"query": "tea"}))
    assert json.loads(found["content"][0]["text"])["entities"] == [ada]
    assert found["structuredContent"]["entities"] == [ada]


async def test_mcp_server_time_converts(voice: Voice) -> None:
    question = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "UTC"}
    assert "T03:00:00" in (await voice[0].call("convert_time", question)).text


async def test_mcp_server_sqlite_creates_fills_and_reads_a_table(voice: Voice) -> None:
    session, _, folder = voice
    assert (await session.call("create_table", {"query": "CREATE TABLE t (n INTEGER, word TEXT)"})).ok
    assert (await session.call("write_query", {"query": "INSERT INTO t VALUES (1, '读')"})).ok
    assert "读" in (await session.call("read_query", {"query": "SELECT word FROM t"})).text
    with sqlite3.connect(folder / "a.db") as database:
        assert database.execute("SELECT n FROM t").fetchall() == [(1,)]
    memo = result(await session.request("resources/read", {"uri": "memo://insights"}))
    assert memo["contents"][0]["text"]


async def test_calls_to_all_five_run_at_the_same_time(voice: Voice) -> None:
    session, _, folder = voice
    began = asyncio.get_running_loop().time()
    replies = await asyncio.gather(
        session.call("trigger-long-running-operation", {"duration": 1, "steps": 1}),
        session.call("list_directory", {"path": str(folder / "shared")}),
        session.call("read_graph"),
        session.call("get_current_time", {"timezone": "Asia/Singapore"}),
        session.call("list_tables"),
    )
    assert all(reply.ok for reply in replies)
    assert all(reply.milliseconds < replies[0].milliseconds for reply in replies[1:])
    assert asyncio.get_running_loop().time() - began < 15
    assert not session.dropped


@pytest_asyncio.fixture(loop_scope="module", params=["http", "sse"])
async def everything_remote(request: pytest.FixtureRequest) -> AsyncIterator[EverythingRemote]:
    """server-everything as a server of its own, over one of its remote transports."""
    server = EverythingRemote(request.param)
    await server.start()
    yield server
    await server.kill()


class EverythingRemote:
    """A process that can be killed and started again on its port."""

    def __init__(self, transport: str) -> None:
        self._word = {"http": "streamableHttp", "sse": "sse"}[transport]
        self._port = free_port()
        path = {"http": "mcp", "sse": "sse"}[transport]
        self.entry: Json = {"type": transport, "url": f"http://127.0.0.1:{self._port}/{path}"}

    async def start(self) -> None:
        program = NODE / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
        self._process = await asyncio.create_subprocess_exec(
            "node", str(program), self._word, env={**os.environ, "PORT": str(self._port)},
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        async with asyncio.timeout(30):
            while f"port {self._port}".encode() not in await self._process.stderr.readline():
                pass

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.wait_for(self._process.wait(), 10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def test_server_everything_is_used_over_its_remote_transports_and_outlived(
    everything_remote: EverythingRemote, tmp_path: Path
) -> None:
    """When it comes back it answers the old session with 400, where the specification has 404."""
    async with running(tmp_path, {"far": everything_remote.entry}) as (runtime, client):
        assert {tool["name"] for tool in await client.tools()} == EVERY_TOOL.keys() - ASKING
        assert is_image(await client.call("get-tiny-image", {}))
        await everything_remote.kill()
        await everything_remote.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    answer = await client.call("echo", {"message": "again"})
                    break
                except CallError:
                    await asyncio.sleep(0.05)
        assert said(answer) == "Echo: again"
        assert runtime.statuses()[0].restarts >= 1
