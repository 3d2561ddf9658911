"""An MCP client in this process: it speaks the same messages to the router as a cloud does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec import UNSET, Raw

from voice_bridge.core.client import View
from voice_bridge.core.keys import ClientKey
from voice_bridge.errors import CallError
from voice_bridge.protocol import era, jsonrpc


class Exchange(Protocol):
    """Where a client plugs in; the runtime is one."""

    def open_client(self, view: View, deliver: Callable[[bytes], None]) -> ClientKey:
        """The key of a new connection."""

    def client_message(self, key: ClientKey, data: bytes) -> None:
        """Takes one message of a client."""

    def close_client(self, key: ClientKey) -> None:
        """Ends a connection."""

    def owner(self, key: ClientKey, tool: str) -> str:
        """The name of the server that owns a tool this client sees."""


class LocalClient:
    """Lists and calls tools of the running servers. Use as a context manager, or `close` it."""

    def __init__(self, exchange: Exchange, view: View) -> None:
        self._exchange = exchange
        self._waiting: dict[int, asyncio.Future[jsonrpc.Envelope]] = {}
        self._next_id = 0
        self._key = exchange.open_client(view, self._deliver)
        params = {"protocolVersion": era.LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": era.INFO}
        exchange.client_message(self._key, jsonrpc.request(0, "initialize", jsonrpc.dump(params)))
        exchange.client_message(self._key, jsonrpc.notification("notifications/initialized"))

    def __enter__(self) -> LocalClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; open calls are cancelled at their servers and raise CallError here."""
        self._exchange.close_client(self._key)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(CallError(jsonrpc.INTERNAL_ERROR, "the client was closed before the answer came"))

    async def tools(self) -> list[dict[str, Any]]:
        """The tools as MCP `Tool` objects, under the names they are called by."""
        listed = await self.request("tools/list", {})
        tools: list[dict[str, Any]] = listed["tools"]
        return tools

    async def call(self, name: str, arguments: dict[str, Any] | Raw, *, timeout: float | None = None) -> dict[str, Any]:
        """Calls a tool; a `CallToolResult` object. `timeout` is seconds; cancelling the task cancels the call.

        Raises CallError when the router or the server answers with an error, TimeoutError when the time is over.
        """
        result = _loaded(await self.call_raw(name, arguments, timeout=timeout))
        return result if isinstance(result, dict) else {"content": [], "structuredContent": result}

    async def call_raw(self, name: str, arguments: dict[str, Any] | Raw, *, timeout: float | None = None) -> Raw:
        """The same, with the result as its author wrote it. Raw arguments reach the server as they are."""
        async with asyncio.timeout(timeout):
            return await self._answer("tools/call", {"name": name, "arguments": arguments})

    def owner(self, name: str) -> str:
        """The server that owns a tool; empty when there is none of that name."""
        return self._exchange.owner(self._key, name)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Any request; its result.

        Raises CallError for an error response.
        """
        return _loaded(await self._answer(method, params))

    async def _answer(self, method: str, params: dict[str, Any]) -> Raw:
        self._next_id += 1
        id_ = self._next_id
        future = self._waiting[id_] = asyncio.get_running_loop().create_future()
        self._exchange.client_message(self._key, jsonrpc.request(id_, method, jsonrpc.dump(params)))
        try:
            message = await future
        except asyncio.CancelledError:
            cancelled = jsonrpc.dump({"requestId": id_, "reason": "cancelled by the caller"})
            self._exchange.client_message(self._key, jsonrpc.notification("notifications/cancelled", cancelled))
            raise
        finally:
            self._waiting.pop(id_, None)
        if message.result is UNSET:
            error = jsonrpc.load(message.error) if message.error is not UNSET else None
            error = error if isinstance(error, dict) else {}
            raise CallError(int(error.get("code", jsonrpc.INTERNAL_ERROR)), str(error.get("message", "unknown error")))
        return cast(Raw, message.result)

    def _deliver(self, data: bytes) -> None:
        message = jsonrpc.parse(data)
        if message.method is not UNSET or message.id is UNSET:
            return
        future = self._waiting.get(int(bytes(cast(Raw, message.id))))
        if future is not None and not future.done():
            future.set_result(message)


def _loaded(raw: Raw) -> Any:
    """The result as Python objects; integers keep their size. Raises CallError for what Python cannot hold."""
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallError(jsonrpc.INTERNAL_ERROR, f"the answer cannot be read: {why}") from None
