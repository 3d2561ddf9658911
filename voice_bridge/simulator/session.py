"""One bridge's connection as the MCP client in the cloud uses it: handshake, list, call, and what comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from voice_bridge.simulator.kinds import Kind
from voice_bridge.simulator.messages import (
    BadAnswer,
    Disconnected,
    Dropped,
    Frame,
    Json,
    ListedTool,
    NoAnswer,
    Reply,
    encode,
)
from voice_bridge.simulator.wire import Wire

PROTOCOL_VERSION = "2024-11-05"
_MAX_PAGES = 1000
_NEXT_ID: Any = object()


class CloudSession(Wire):
    """A live connection to one bridge.

    `tools` and `server_info` are from the latest handshake or listing; `notifications` and `requests` are the
    messages the bridge sent by itself. `registered` turns False when the relay forgets the connection while the
    socket stays open: then nothing is asked of the bridge and whatever it sends is dropped.
    """

    def __init__(
        self,
        ws: ServerConnection,
        kind: Kind,
        number: int,
        *,
        keep: int,
        on_frame: Callable[[Frame], None],
        on_drop: Callable[[Dropped], None],
    ) -> None:
        super().__init__(ws, keep=keep, on_frame=on_frame)
        self._on_drop = on_drop
        self.number = number
        self.kind = kind
        self.tools: list[ListedTool] = []
        self.server_info: Json = {}
        self.notifications: deque[Json] = deque(maxlen=keep)
        self.requests: deque[Json] = deque(maxlen=keep)
        self.registered = True
        self.sent_binary = False
        self._ready = False
        self._failure = ""
        self._pending: dict[str, asyncio.Future[Frame]] = {}
        self._ids: Iterator[int] = itertools.count(kind.first_id)
        self._prefix = ""

    @property
    def is_usable(self) -> bool:
        """True while tools can be called: the handshake is through, and neither end nor relay has let go."""
        return self._ready and self.is_open and self.registered

    async def ready(self, timeout: float = 30) -> list[ListedTool]:
        """The tools, once the cloud's own handshake is through. Raises NoAnswer, BadAnswer or Disconnected."""
        await self.until(lambda: self._ready or bool(self._failure), timeout, "the handshake was not finished")
        if self._failure:
            raise BadAnswer(self._failure)
        return self.tools

    async def handshake(self, *, prefix: str = "") -> list[ListedTool]:
        """Start an MCP session down this socket, as each device does: initialize, initialized, tools/list.

        Ids start again from the kind's first. With a `prefix` they are strings, `<prefix>_n_1`, as the relay writes
        them. Raises NoAnswer, BadAnswer or Disconnected.
        """
        self._ids, self._prefix = itertools.count(self.kind.first_id), prefix
        hello = await self._ask("initialize", self._hello_params())
        if not self.kind.pipelined:
            await self._hear_hello(hello)
        await self.notify("notifications/initialized")
        listing = await self._ask("tools/list", {})
        if self.kind.pipelined:
            await self._hear_hello(hello)
        self.tools = await self._read_pages(listing)
        return self.tools

    async def list_tools(self) -> list[ListedTool]:
        """Every tool, following nextCursor to the end (MCP 2025-06-18, server/utilities/pagination)."""
        self.tools = await self._read_pages(await self._ask("tools/list", {}))
        return self.tools

    async def call(
        self,
        name: str,
        arguments: Json | None = None,
        *,
        meta: Json | None = None,
        id: object = _NEXT_ID,
        timeout: float | None = None,
    ) -> Reply:
        """Call a tool by its own or its spoken name and wait for the answer, be it a result or an error.

        Gives up after `timeout` seconds, by default the kind's own patience. Raises NoAnswer or Disconnected.
        """
        own = next((tool.name for tool in self.tools if name in (tool.name, tool.spoken)), name)
        params: Json = {"name": own, "arguments": arguments or {}, **dict(self.kind.call_extras)}
        if meta is not None:
            params["_meta"] = meta
        patience = self.kind.call_timeout if timeout is None else timeout
        return await self.request("tools/call", params, id=id, timeout=patience)

    async def request(
        self, method: str, params: Json | None = None, *, id: object = _NEXT_ID, timeout: float = 10
    ) -> Reply:
        """Send any request and wait for its answer. `id` may be any JSON value; left out, it is the next number.

        Raises NoAnswer or Disconnected, and ValueError when the id is still in flight.
        """
        return await self._answer(await self._ask(method, params, id), timeout)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification. Raises Disconnected."""
        await self.send(encode({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}))

    # ---- the cloud's own part, called by VoiceCloud

    async def pump(self) -> None:
        """Read until the connection ends."""
        try:
            async for data in self._ws:
                await self._take(self._log(False, data))
                self._changed()
        except (ConnectionClosed, Disconnected):
            pass
        finally:
            self._ended = True
            self._changed()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(Disconnected("the connection ended before the answer came"))
                    future.exception()  # looked at here, because a pipelined question may have no reader yet

    def mark_ready(self) -> None:
        """The handshake is through."""
        self._ready = True
        self._changed()

    def mark_failed(self, why: str) -> None:
        """The handshake did not go as it should."""
        self._failure = why
        self._changed()

    async def keep_pinging(self) -> str:
        """Ping every `ping_every` seconds; returns what is wrong when one stays unanswered."""
        while self.kind.ping_every is not None:
            await asyncio.sleep(self.kind.ping_every)
            try:
                await self.request("ping", timeout=self.kind.ping_patience)
            except NoAnswer as error:
                return str(error)
        return ""

    # ---- asking

    def _hello_params(self) -> Json:
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": dict(self.kind.capabilities),
            "clientInfo": {"name": self.kind.client_name, "version": "1.0.0"},
        }

    async def _ask(self, method: str, params: Json | None, id: object = _NEXT_ID) -> _Question:
        if not self.registered:
            raise Disconnected("the relay has forgotten this connection and passes nothing on to it")
        if id is _NEXT_ID:
            number = next(self._ids)
            id = f"{self._prefix}_n_{number}" if self._prefix else number
        question = _Question(method, _key(id))
        if question.key in self._pending:
            raise ValueError(f"id {question.key} is still in flight")
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        self._pending[question.key] = question.future
        try:
            await self.send(encode(message))
        except BaseException:
            del self._pending[question.key]
            raise
        return question

    async def _answer(self, question: _Question, timeout: float) -> Reply:
        try:
            async with asyncio.timeout(timeout):
                frame = await question.future
        except TimeoutError:
            raise NoAnswer(f"{question.method} was not answered within {timeout:g} s") from None
        finally:
            self._pending.pop(question.key, None)
        assert frame.message is not None
        result, error = frame.message.get("result"), frame.message.get("error")
        return Reply(
            id=frame.message["id"],
            result=result if isinstance(result, dict) else None,
            error=error if isinstance(error, dict) else None,
            text=self.kind.heard(result) if isinstance(result, dict) else "",
            milliseconds=(frame.at - question.asked_at) * 1000,
            raw=str(frame.data),
        )

    async def _hear_hello(self, hello: _Question) -> None:
        result = _result(await self._answer(hello, self.kind.handshake_timeout), "initialize")
        info = result.get("serverInfo")
        if not isinstance(info, dict) or not isinstance(result.get("protocolVersion"), str):
            raise BadAnswer("the answer to initialize lacks serverInfo or protocolVersion")
        self.server_info = info

    async def _read_pages(self, question: _Question) -> list[ListedTool]:
        tools: list[ListedTool] = []
        cursors: set[str] = set()
        while True:
            page = _result(await self._answer(question, self.kind.handshake_timeout), "tools/list")
            entries = page.get("tools")
            if not isinstance(entries, list):
                raise BadAnswer("the answer to tools/list has no list of tools")
            tools += [_tool(entry, self.kind) for entry in entries]
            cursor = page.get("nextCursor")
            if cursor is None:
                return tools
            if _key(cursor) in cursors or len(cursors) >= _MAX_PAGES:
                raise BadAnswer(f"the pages of tools/list never end: cursor {_key(cursor)} after {len(cursors)} pages")
            cursors.add(_key(cursor))
            question = await self._ask("tools/list", {"cursor": cursor})

    # ---- hearing

    async def _take(self, frame: Frame) -> None:
        message = frame.message
        if isinstance(frame.data, bytes) and self.kind.deaf:
            self.registered, self.sent_binary = False, True
        if message is None or not self.registered:
            self._drop(frame, frame.problem or "the relay has forgotten this connection")
        elif "method" not in message:
            self._take_answer(frame, message)
        elif "id" in message:
            await self._take_request(frame, message)
        else:
            self.notifications.append(message)
            if self.kind.deaf:
                self._drop(frame, "a notification")

    def _take_answer(self, frame: Frame, message: Json) -> None:
        future = self._pending.get(_key(message["id"]))
        if self.kind.deaf and message["id"] == 0:
            self._drop(frame, "an answer to id 0")
        elif future is None or future.done():
            self._drop(frame, f"an answer nobody waits for, id {_key(message['id'])}")
        else:
            future.set_result(frame)

    async def _take_request(self, frame: Frame, message: Json) -> None:
        self.requests.append(message)
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if self.kind.deaf:
            self._drop(frame, "a request from the bridge")
        elif message["method"] == "ping":
            await self.send(encode({**answer, "result": {}}))
        else:
            error = {"code": -32601, "message": f"{message['method']}: this cloud has no such method"}
            await self.send(encode({**answer, "error": error}))

    def _drop(self, frame: Frame, why: str) -> None:
        self.dropped.append(Dropped(frame, why))
        self._on_drop(self.dropped[-1])


@dataclass(slots=True)
class _Question:
    """A request in flight."""

    method: str
    key: str
    future: asyncio.Future[Frame] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    asked_at: float = field(default_factory=time.monotonic)


def _key(id: object) -> str:
    """An id as a key that keeps JSON types apart: 1, 1.0 and "1" are three ids."""
    return json.dumps(id, sort_keys=True)


def _result(reply: Reply, method: str) -> Json:
    if reply.result is None:
        raise BadAnswer(f"{method} was answered with the error {str(reply.error)[:200]}")
    return reply.result


def _tool(entry: object, kind: Kind) -> ListedTool:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        raise BadAnswer(f"tools/list holds an entry that is no tool: {str(entry)[:80]}")
    schema = entry.get("inputSchema")
    return ListedTool(
        name=name,
        spoken=kind.spoken_name(name),
        description=str(entry.get("description") or ""),
        schema=schema if isinstance(schema, dict) else {},
    )
