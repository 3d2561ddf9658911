"""Both eras of MCP through one runtime: the SDK's own client in its modes, real child servers of each kind.

The two streams of the client are joined to it as a socket would be: what the client writes is a frame to the runtime,
what the runtime delivers is a frame to the client. Nothing else stands between them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types
import psutil
import pytest
from anyio.abc import TaskGroup
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.shared.message import SessionMessage

from voice_bridge.config import ServerSettings, Settings
from voice_bridge.core.client import View
from voice_bridge.core.keys import ServerKey
from voice_bridge.runtime.runtime import Runtime

ROOT = Path(__file__).parents[2]
LONGEST = 30.0
CHILDREN = {
    "old": ("tests/children.py", "prompts", "resources", "ask", "listchanged", "progress=2", "seen"),
    "new": ("tests/modern_child.py",),
    "dual": ("-m", "tests.dual_child"),
}
MODES = ("legacy", "auto", "2026-07-28")
BOTH_ERAS = MODES[:2]
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


class Wire:
    """A transport of the SDK's client that ends in the runtime."""

    def __init__(self, runtime: Runtime, view: View) -> None:
        self._hub, self._view = runtime, view
        self.received: list[bytes] = []
        self.sent: list[bytes] = []
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Any:
        self._incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
        write_stream, self._outgoing = anyio.create_memory_object_stream[SessionMessage](1000)
        self._key = self._hub.open_client(self._view, self._deliver)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._pump)
        return read_stream, write_stream

    def _deliver(self, data: bytes) -> None:
        self.received.append(data)
        self._incoming.send_nowait(SessionMessage(types.jsonrpc_message_adapter.validate_json(data)))

    def breaks(self) -> None:
        """The socket is gone from one moment to the next."""
        self._hub.close_client(self._key)

    async def _pump(self) -> None:
        async for message in self._outgoing:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            self.sent.append(data)
            self._hub.client_message(self._key, data)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.breaks()
        assert self._group is not None
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(kind, error, trace)


class House:
    """A runtime with some of the children, all ready."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @classmethod
    @asynccontextmanager
    async def of(cls, *names: str) -> AsyncIterator[Self]:
        servers = {
            name: ServerSettings(name=name, command=sys.executable, args=CHILDREN[name], cwd=ROOT) for name in names
        }
        async with asyncio.timeout(LONGEST), Runtime(Settings(servers=servers)) as runtime:
            assert await runtime.settled(LONGEST)
            assert {status.state for status in runtime.statuses()} == {"ready"}, runtime.statuses()
            yield cls(runtime)

    def wire(self, **view: Any) -> Wire:
        return Wire(self.runtime, View("cloud", tuple(self.runtime.router.peers.servers), **view))


def text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def until(condition: Callable[[], bool]) -> None:
    """Looks until something holds that another task or process brings about; the house's own time bounds it."""
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("mode", MODES)
async def test_every_client_uses_every_server(mode: str) -> None:
    """Tools, prompts, resources, templates and completion: three servers, whatever they and the client speak."""
    async with House.of("old", "new", "dual") as house, Client(house.wire(), mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"t", "echo", "meta", "add"} <= names
        assert text(await client.call_tool("echo", {"text": "读\u2028🎉"})) == "读\u2028🎉"
        assert text(await client.call_tool("new__echo", {"text": "读\u2028🎉"})) == "读\u2028🎉"
        assert text(await client.call_tool("add", {"a": 2**70, "b": 1})) == str(2**70 + 1)
        failed = await client.call_tool("iserror")
        assert failed.is_error
        with pytest.raises(MCPError, match="bad arguments"):
            await client.call_tool("rpcerror")
        with pytest.raises(MCPError, match="there is no tool 'nope'"):
            await client.call_tool("nope")

        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet", "welcome", "dual__greet"]
        for name, words in (("greet", "Greet Ann."), ("welcome", "Welcome Ann."), ("dual__greet", "Greet Ann.")):
            (message,) = (await client.get_prompt(name, {"who": "Ann"})).messages
            assert isinstance(message.content, types.TextContent)
            assert message.content.text == words
        assert {str(one.uri) for one in (await client.list_resources()).resources} >= {"memo://one", "note://one"}
        templates = (await client.list_resource_templates()).resource_templates
        assert {one.uri_template for one in templates} == {"memo://{id}", "note://{name}", "memo://{name}"}
        for uri, words in (("memo://one", "a memo"), ("note://two", "a note")):
            (content,) = (await client.read_resource(uri)).contents
            assert isinstance(content, types.TextResourceContents)
            assert content.text == words
        with pytest.raises(MCPError, match="ftp://"):
            await client.read_resource("ftp://nowhere")
        for name, whole in (("welcome", "Ann"), ("dual__greet", "Alice")):
            ref = types.PromptReference(type="ref/prompt", name=name)
            completed = await client.complete(ref, {"name": "who", "value": "A"})
            assert completed.completion.values == [whole]


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_progress_and_cancellation_pass_to_servers_of_every_kind(mode: str) -> None:
    heard: list[tuple[float, float | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with House.of("new", "dual") as house, Client(house.wire(), mode=mode) as client:

        async def call(name: str) -> None:
            await client.call_tool(name, progress_callback=progress)

        for expected, slow, count in ((1, "slow", "cancelled"), (2, "dual__slow", "cancellations")):
            async with anyio.create_task_group() as group:
                group.start_soon(call, slow)
                while len(heard) < expected:
                    await asyncio.sleep(0.01)
                assert heard[-1] == (1, 2)
                group.cancel_scope.cancel()

            while text(await client.call_tool(count)) == "0":
                await asyncio.sleep(0.01)
    assert house.runtime.router.peers.pending.items() == []


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_a_call_that_takes_too_long_is_given_up_and_its_server_told(mode: str) -> None:
    async with House.of("new") as house, Client(house.wire(call_timeout=0.2), mode=mode) as client:
        with pytest.raises(MCPError, match=r"server new did not answer slow within 0\.2 s"):
            await client.call_tool("slow")
        assert text(await client.call_tool("cancelled")) == "1"


async def test_an_old_client_is_told_of_changes_by_new_and_old_servers() -> None:
    heard: list[str] = []

    async def handle(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))
        elif isinstance(message, types.ToolListChangedNotification):
            heard.append("tools")

    async with House.of("old", "new") as house, Client(house.wire(), mode="legacy", message_handler=handle) as client:
        await client.list_tools()
        for name, tool in (("old", "change"), ("new", "grow")):
            before = {one.name for one in (await client.list_tools()).tools}
            await client.call_tool(tool)
            await until(lambda: "tools" in heard)
            assert len({one.name for one in (await client.list_tools()).tools} - before) == 1, name
            heard.clear()
        for uri in ("note://one", "note://two"):
            await client.subscribe_resource(uri)
        assert text(await client.call_tool("listens")) == "1", "one subscription at the server, however many wishes"
        for uri in ("note://one", "note://two"):
            await client.call_tool("touch", {"uri": uri})
        await until(lambda: len(heard) >= 2)
        await client.unsubscribe_resource("note://one")
        await client.call_tool("touch", {"uri": "note://one"})
        assert heard == ["note://one", "note://two"], "each update once"


async def test_a_new_client_is_told_of_changes_by_new_and_old_servers() -> None:
    async with House.of("old", "new") as house, Client(wire := house.wire(), mode="auto") as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True, resource_subscriptions=["note://one"]) as changes:
            assert changes.honored.tools_list_changed
            assert changes.honored.resource_subscriptions == ["note://one"]
            await client.call_tool("change")
            assert await anext(changes) == ToolsListChanged()
            assert any(tool.name.startswith("new") for tool in (await client.list_tools()).tools)
            await client.call_tool("touch", {"uri": "note://one"})
            assert await anext(changes) == ResourceUpdated(uri="note://one")
            await client.call_tool("grow")
            assert await anext(changes) == ToolsListChanged()
            await client.call_tool("touch", {"uri": "note://two"})

        await until(lambda: not house.runtime.router.peers.servers[ServerKey("new")].subscribers)
    assert not any(b"notifications/resources/updated" in data and b"note://two" in data for data in wire.received)


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_log_messages_reach_clients_of_both_eras(mode: str) -> None:
    heard: list[str] = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(str(params.data))

    async with (
        House.of("new", "dual") as house,
        Client(house.wire(), mode=mode, logging_callback=logged, log_level="error") as client,
    ):
        if mode == "legacy":
            await client.set_logging_level("error")
        await client.call_tool("log")
        await client.call_tool("dual__log")
        await until(lambda: len(heard) >= 5)
    assert heard == ["a error", "a critical", "a alert", "a emergency", "large"]


async def sampled(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="hello"), model="m")


async def elicited(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def rooted(context: ClientRequestContext) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ann")])  # type: ignore[arg-type]


async def test_what_an_old_client_declared_is_passed_through() -> None:
    able = {"sampling_callback": sampled, "elicitation_callback": elicited, "list_roots_callback": rooted}
    async with House.of("old", "dual") as house, Client(house.wire(), mode="legacy", **able) as client:  # type: ignore[arg-type]
        assert text(await client.call_tool("sample")) == "hello"
        assert text(await client.call_tool("elicit")) == "Ann"
        assert "file:///home/ann" in text(await client.call_tool("roots"))
        for kind, words in (("sampling", "hello"), ("roots", "file:///home/ann")):
            assert words in text(await client.call_tool("ask", {"kind": kind}))


@pytest.mark.parametrize("mode", BOTH_ERAS)
async def test_what_a_client_cannot_do_is_refused_at_once_and_no_server_hangs(mode: str) -> None:
    async with House.of("old", "dual") as house, Client(house.wire(), mode=mode) as client:
        for kind in ("sampling", "elicitation", "roots"):
            refusal = json.loads(text(await client.call_tool("ask", {"kind": kind})))
            assert refusal["error"]["code"] == -32601
        for tool in ("sample", "elicit", "roots"):
            with pytest.raises(MCPError, match="the client does not offer"):
                await client.call_tool(tool)
        assert json.loads(text(await client.call_tool("ask", {"kind": "ping"}))) == {"result": {}}


async def test_a_question_of_a_new_server_reaches_a_new_client_and_is_explained_to_an_old_one() -> None:
    async with House.of("new") as house:
        async with Client(house.wire(), mode="auto", elicitation_callback=elicited) as client:
            assert "Ann" in text(await client.call_tool("ask"))
        async with Client(house.wire(), mode="legacy", elicitation_callback=elicited) as client:
            with pytest.raises(MCPError, match="server new needs input that this client cannot give"):
                await client.call_tool("ask")


async def test_each_side_sees_only_its_own_era() -> None:
    """The envelope is added for new servers, taken off for old ones, and a new client's own one is left as it is."""
    async with House.of("old", "new") as house:
        async with Client(house.wire(), mode="legacy") as client:
            meta = json.loads(text(await client.call_tool("meta")))
            assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
        info = types.Implementation(name="speaker", version="7")
        wire = house.wire()
        async with Client(wire, mode="2026-07-28", client_info=info) as client:
            meta = json.loads(text(await client.call_tool("meta")))
            assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "speaker"
            seen = json.loads(text(await client.call_tool("seen")))
        assert not any(b'"initialize"' in data for data in wire.sent), "a new client shakes no hands"
    calls = [message for message in seen if message.get("method") == "tools/call"]
    assert calls
    assert not any("io.modelcontextprotocol" in json.dumps(message) for message in calls)


async def test_both_eras_are_served_side_by_side_in_one_runtime() -> None:
    async with (
        House.of("old", "new") as house,
        Client(house.wire(), mode="legacy") as old,
        Client(house.wire(), mode="auto") as new,
        anyio.create_task_group() as group,
    ):
        answers: dict[str, str] = {}

        async def ask(who: str, client: Client, tool: str, number: int) -> None:
            answers[f"{who} {tool} {number}"] = text(await client.call_tool(tool, {"text": f"{who} {number}"}))

        for number in range(20):
            for who, client in (("old", old), ("new", new)):
                for tool in ("echo", "new__echo"):
                    group.start_soon(ask, who, client, tool, number)
    assert len(answers) == 80
    assert all(key == f"{said.split()[0]} {key.split()[1]} {said.split()[1]}" for key, said in answers.items())


async def test_a_client_that_breaks_off_ends_its_subscriptions_and_calls_at_the_servers() -> None:
    async with House.of("new") as house:
        wire, router = house.wire(), house.runtime.router
        async with (
            Client(wire, mode="auto") as client,
            anyio.create_task_group() as group,
            client.listen(resource_subscriptions=["note://one"]),
        ):
            assert router.peers.servers[ServerKey("new")].subscribers.keys() == {"note://one"}
            open_before = len(router.peers.pending.items())
            group.start_soon(client.call_tool, "slow")
            await until(lambda: len(router.peers.pending.items()) > open_before)
            wire.breaks()
            group.cancel_scope.cancel()
        assert router.peers.servers[ServerKey("new")].subscribers == {}
        async with Client(house.wire(), mode="legacy") as other:
            assert text(await other.call_tool("listens")) == "1", "only the bridge's own subscription is left"
            assert int(text(await other.call_tool("cancelled"))) >= 2, "the call, and the subscription with the wish"


async def test_a_new_server_that_restarts_is_discovered_and_listened_to_again() -> None:
    heard: list[str] = []

    async def handle(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with House.of("new") as house, Client(house.wire(), mode="legacy", message_handler=handle) as client:
        await client.subscribe_resource("note://one")
        (status,) = house.runtime.statuses()
        assert status.pid is not None
        psutil.Process(status.pid).kill()
        await until(lambda: status.restarts == 1 and status.state == "ready")
        assert house.runtime.router.peers.servers[ServerKey("new")].modern
        await client.call_tool("touch", {"uri": "note://one"})
        await until(lambda: heard == ["note://one"])
