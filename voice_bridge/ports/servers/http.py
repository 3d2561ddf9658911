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
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from httpx2 import HTTPError, HTTPStatusError
from mcp.client._transport import TransportStreams, WriteStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from msgspec import UNSET, Raw

from voice_bridge.backoff import Backoff
from voice_bridge.config import ServerSettings
from voice_bridge.errors import ServerError
from voice_bridge.log import LOG
from voice_bridge.ports.servers.headers import Routing
from voice_bridge.ports.servers.http_client import HELD, Client, message_is_open_ended
from voice_bridge.ports.servers.stdio import Oversized
from voice_bridge.protocol import jsonrpc
from voice_bridge.secrets import keep_secret, mask

GRACE = 2.0
_LISTS: Final = ("tools", "prompts", "resources")

# What they have to say is in our own lines, which do not show the address.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL + 1)


class RemoteSession:
    """A session with a remote server. `ended` resolves to the reason once it can no longer answer.

    Raises ServerError for settings that no server could be reached with.
    """

    def __init__(self, server: ServerSettings, limit: int, received: Callable[[bytes | Oversized], None]) -> None:
        _check(server)
        keep_secret(*(word for value in server.headers.values() for word in value.split()))
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._server, self._limit, self._received = server, limit, received
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queued = 0
        self._routing = Routing()
        self._subscriptions: dict[bytes, _Subscription] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._life = asyncio.ensure_future(self._live())  # held, and awaited by `stop`

    # For the supervisor

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
        for timer in self._timers:
            timer.cancel()
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
            self._pass_up(data)
            return False
        id_ = bytes(message.id)
        if id_ == jsonrpc.NULL and request and isinstance(message.error, Raw):  # it could not even read the id
            id_ = bytes(jsonrpc.parse(request).id or id_)
            data = jsonrpc.error_raw(id_, message.error)
        subscription = self._subscriptions.get(id_)
        if subscription is not None and message.error is UNSET:
            self._subscribe_again(subscription)
            return True
        self._subscriptions.pop(id_, None)
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
            LOG.warning("%s: %s to %s", self._server.name, text, message.method)

    def lost(self, reason: str) -> None:
        """Ends the session; the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(mask(reason))

    # Inner

    def _pass_up(self, data: bytes) -> None:
        if not self.ended.done():
            self._received(data)

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
        client = Client(server.headers, self._limit, self, stream_only=sse)

        def ready_made(headers: object = None, timeout: object = None, auth: object = None) -> Client:
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
                self._subscriptions.pop(bytes(wanted), None)
                held["requestId"] = jsonrpc.load(wanted)
            return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=held), metadata)
        if message_is_open_ended(data):
            self._subscriptions.setdefault(bytes(id_), _Subscription(data)).began = time.monotonic()
        return SessionMessage(
            JSONRPCRequest(jsonrpc="2.0", id=int(bytes(id_)), method=method, params=held), metadata
        )  # fmt: skip

    def _given_up(self, answer: JSONRPCError) -> None:
        """The SDK answers in the server's place when no answer can come any more."""
        id_ = b"%d" % answer.id if isinstance(answer.id, int) else b"null"
        subscription = self._subscriptions.get(id_)
        if subscription is not None:
            self._subscribe_again(subscription)
            return
        text = f"server {self._server.name}: {mask(answer.error.message)}"
        self._pass_up(jsonrpc.error(id_, jsonrpc.SERVER_DOWN, text))

    def _subscribe_again(self, subscription: _Subscription) -> None:
        """Opens a subscription anew that the server ended, and reads the lists, for what was missed meanwhile."""
        if self.ended.done():
            return
        delay = subscription.backoff.after_session(time.monotonic() - subscription.began)
        LOG.info("%s: its subscription ended; opening it again in %.1f s", self._server.name, delay)

        def again() -> None:
            self._timers.discard(timer)
            if self.send(subscription.request):
                for kind in _LISTS:
                    self._pass_up(jsonrpc.notification(f"notifications/{kind}/list_changed"))

        timer = asyncio.get_running_loop().call_later(delay, again)
        self._timers.add(timer)


class _Subscription:
    """An open `subscriptions/listen` (SEP-2575)."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.began = time.monotonic()
        self.backoff = Backoff(minimum=0.5, maximum=60.0)


def _check(server: ServerSettings) -> None:
    parts = urlsplit(server.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
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
