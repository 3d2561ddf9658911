"""A remote MCP server, over streamable HTTP or the older SSE, through the SDK's client transports.

The SDK keeps the HTTP side (session id, streams, resumption, redirects); this module keeps the session's life. It ends,
so that the supervisor opens a new one and initializes it again, when the server cannot be reached, the connection is
lost, the credentials are refused (401) or the server no longer knows the session (404, MCP 2025-06-18
basic/transports; 400 where the body speaks of the session). Any other error status answers only its own request.

Importing this costs most of a second and 27 MiB: the supervisor does so when the first remote server is started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from httpx2 import HTTPError, HTTPStatusError
from mcp.client._transport import TransportStreams, WriteStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from msgspec import UNSET, Raw

from voice_bridge.config import ServerSettings
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers.headers import Routing
from voice_bridge.ports.servers.http_client import HELD, HttpClient, message_is_open_ended
from voice_bridge.ports.servers.port import ServerListener
from voice_bridge.protocol import jsonrpc
from voice_bridge.secrets import mask

GRACE = 2.0
# What they have to say is in our own lines, which do not show the address.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL + 1)


class RemoteSession:
    """A session with a remote server. `ended` resolves to the reason once it can no longer answer.

    Raises ServerError for settings that no server could be reached with.
    """

    pid: int | None = None

    def __init__(self, server: ServerSettings, limit: int, hears: ServerListener) -> None:
        _check(server)
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._server, self._limit, self._hears = server, limit, hears
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queued = 0
        self._routing = Routing()
        self._subscriptions: set[bytes] = set()
        self._life = asyncio.ensure_future(self._live())  # held, and awaited by `stop`

    # For the runtime

    def send(self, data: bytes) -> bool:
        """Queues one message; False when more than the message limit is waiting already."""
        if self.ended.done():
            return True  # its calls are answered by its end
        if self._queued > self._limit:
            return False
        self._queued += len(data)
        self._queue.put_nowait(data)
        return True

    async def stop(self) -> None:
        """Ends the session, at the server too (HTTP DELETE); within 4 s."""
        self.lost("was stopped")
        for _ in range(2):  # the first lets the SDK say goodbye
            if not self._life.done():
                self._life.cancel()
                await asyncio.wait([self._life], timeout=GRACE)

    # For the HTTP client

    def delivered(self, data: bytes, request: bytes = b"") -> bool:
        """Passes on one message as the server wrote it; whether it is an answer."""
        data = jsonrpc.one_line(data)
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            nameless = jsonrpc.salvage_id(data) is None
            if nameless and request:
                self.refused(request, f"sent an answer that cannot be used: {bad}")
            else:
                self._pass_up(data)
            return bool(request) or not nameless
        if message.method is not UNSET or not isinstance(message.id, Raw):
            self._pass_up(data, _id_of(request))
            return False
        id_ = bytes(message.id)
        if id_ == jsonrpc.NULL and request and isinstance(message.error, Raw):  # it could not even read the id
            id_ = bytes(jsonrpc.parse(request).id or id_)
            data = jsonrpc.error_raw(id_, message.error)
        self._subscriptions.discard(id_)
        if isinstance(message.result, Raw):
            self._routing.learn(id_, message.result)
        self._pass_up(data)
        return True

    def refused(self, request: bytes, text: str) -> None:
        """Answers a request that the server will not answer; a refused notification goes to the log."""
        message = jsonrpc.parse(request)
        if isinstance(message.id, Raw):
            error = jsonrpc.error(bytes(message.id), jsonrpc.SERVER_DOWN, f"server {self._server.name} {text}")
            self._pass_up(error)
        else:
            self._hears.remarked(f"{text} to {message.method}")

    def lost(self, reason: str) -> None:
        """Ends the session; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(mask(reason))

    # Inner

    def _pass_up(self, data: bytes, related: int | None = None) -> None:
        if not self.ended.done():
            self._hears.received(data, related)

    async def _live(self) -> None:
        try:
            async with self._transport() as (read, write), asyncio.TaskGroup() as tasks:
                pump = tasks.create_task(self._pump(write))
                async for item in read:
                    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCError):
                        self._given_up(item.message)
                pump.cancel()
            self.lost("closed the connection")
        except Exception as error:  # noqa: BLE001 — whatever a transport raises becomes the reason of the end
            self.lost(_reason(error))

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[TransportStreams]:
        server, sse = self._server, self._server.transport == "sse"
        client = HttpClient(server.headers, self._limit, self, stream_only=sse)

        def ready_made(headers: object = None, timeout: object = None, auth: object = None) -> HttpClient:
            return client

        if sse:
            async with sse_client(server.url, httpx_client_factory=ready_made) as streams:
                yield streams
        else:
            async with (
                client,
                streamable_http_client(server.url, http_client=client, max_sse_event_size=None) as streams,
            ):
                yield streams

    async def _pump(self, write: WriteStream[SessionMessage]) -> None:
        while True:
            data = await self._queue.get()
            await write.send(self._enveloped(data))
            self._queued -= len(data)

    def _enveloped(self, data: bytes) -> SessionMessage:
        """A message as the SDK is shown it: its kind and id, and the text itself as one string."""
        message = jsonrpc.parse(data)
        held: dict[str, Any] = {HELD: data.decode()}
        method, id_ = message.method, message.id
        if not isinstance(method, str):
            return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=0, result=held))
        params = b"" if message.params is UNSET else bytes(message.params)
        metadata = ClientMessageMetadata(headers=self._routing.headers(method, id_, params))
        if not isinstance(id_, Raw):
            if method == "notifications/cancelled":
                wanted = jsonrpc.members(params).get("requestId", b"null")
                self._subscriptions.discard(bytes(wanted))
                held["requestId"] = jsonrpc.load(wanted)
            return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=held), metadata)
        if message_is_open_ended(data):
            self._subscriptions.add(bytes(id_))
        return SessionMessage(
            JSONRPCRequest(jsonrpc="2.0", id=int(bytes(id_)), method=method, params=held), metadata
        )  # fmt: skip

    def _given_up(self, answer: JSONRPCError) -> None:
        """The SDK answers in the server's place when no answer can come any more."""
        id_ = b"%d" % answer.id if isinstance(answer.id, int) else b"null"
        if id_ in self._subscriptions:  # a subscription that broke off has ended, as the server may end it
            self._subscriptions.discard(id_)
            self._pass_up(jsonrpc.result(id_, jsonrpc.EMPTY))
            return
        text = f"server {self._server.name}: {mask(answer.error.message)}"
        self._pass_up(jsonrpc.error(id_, jsonrpc.SERVER_DOWN, text))


def _id_of(request: bytes) -> int | None:
    """The number of one of our requests."""
    raw = jsonrpc.parse(request).id if request else UNSET
    return int(bytes(raw)) if isinstance(raw, Raw) and bytes(raw).isdigit() else None


def _check(server: ServerSettings) -> None:
    try:
        parts = urlsplit(server.url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ServerError("cannot be reached: its url must begin with https:// or http:// and name a host")
    for name, value in server.headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ServerError(f"cannot be reached: its header {name} must be one line of plain ASCII characters")


def _reason(error: Exception) -> str:
    """The first real cause in a nest of groups, without the address."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, HTTPStatusError):
        return f"answered HTTP {error.response.status_code}"
    what = str(error) if isinstance(error, HTTPError | OSError) else f"{type(error).__name__}: {error}"
    return f"lost the session: {what}"
