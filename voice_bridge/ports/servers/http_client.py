"""The HTTP client that the SDK's transports are given: they carry envelopes, the messages themselves pass them by.

The transports hold messages as parsed objects, and parsing and writing again would spoil numbers, duplicate keys and
spacing. So a message travels down inside an envelope as one string, which `send` unwraps into the request's body; each
message that comes up is delivered as the bytes the server wrote, and the SDK gets a stand-in that tells it only what
its bookkeeping needs: an answer, or not. What is left of the loss: invalid UTF-8 in an event stream becomes U+FFFD, as
the SSE standard has it (WHATWG HTML §9.2.6).

This module imports httpx: only `remote` imports it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

import httpx2

from voice_bridge import __version__
from voice_bridge.protocol import jsonrpc

HELD: Final = "voice_bridge.message"
CONNECT_TIMEOUT = 15.0
WRITE_TIMEOUT = 30.0
NOTICE_TIMEOUT = 30.0
LONGEST_ANSWER = 3600.0
PROBE_AFTER = 30
# Shorter than the 5 s after which many servers close an idle connection: a call must not meet a closing one.
_KEEP_ALIVE = 3.0
_ANSWER: Final = b'{"jsonrpc":"2.0","id":0,"result":{}}'
_NOTICE: Final = b'{"jsonrpc":"2.0","method":"delivered"}'
_SESSION_HEADER = "mcp-session-id"
_LONGEST_ERROR = 65536


class Listener(Protocol):
    """Who hears what the client learns."""

    def delivered(self, data: bytes, request: bytes = b"") -> bool:
        """Takes one message of the server, sent in reply to `request` if given; whether that is answered by it."""

    def refused(self, request: bytes, text: str) -> None:
        """Takes the reason why a message of ours was not taken or got no answer."""

    def lost(self, reason: str) -> None:
        """Takes the reason why the session is over."""


class HttpClient(httpx2.AsyncClient):
    """An httpx client for one session. `stream_only`: the transport is sse, where every failed request is the end."""

    def __init__(self, headers: Mapping[str, str], limit: int, listener: Listener, *, stream_only: bool) -> None:
        agent = {"user-agent": f"mcp-voice-bridge/{__version__}"}
        super().__init__(
            headers={**agent, **headers},
            timeout=httpx2.Timeout(CONNECT_TIMEOUT, write=WRITE_TIMEOUT, read=None, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEEP_ALIVE),
            verify=_trust(),
        )
        self._limit, self._listener, self._stream_only = limit, listener, stream_only
        self._streaming = False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends a request of the SDK's with the message itself as its body, and delivers what comes back."""
        if request.method == "POST" and HELD not in request.extensions:
            request = _unwrapped(request)
        message: bytes = request.extensions.get(HELD, b"")
        request.extensions = {**request.extensions, "trace": _traced}
        try:
            response = await super().send(request, **options)
            return await self._answered(request, message, response)
        except httpx2.ReadTimeout:
            if not _wants_answer(message):
                self._listener.lost(f"took longer than {NOTICE_TIMEOUT:g} s to take a message")
                raise
            self._listener.refused(message, f"sent no answer within {LONGEST_ANSWER:g} s")
            return _instead(request, _ANSWER)
        except httpx2.DecodingError:
            self._listener.refused(message, "sent an answer that cannot be decompressed")
            return _instead(request, _ANSWER)
        except httpx2.TransportError as error:
            self._listener.lost(_why(request, error))
            raise

    async def _answered(self, request: httpx2.Request, message: bytes, response: httpx2.Response) -> httpx2.Response:
        if response.status_code >= 400:
            return await self._failed(request, message, response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not response.is_success:
            return response
        if kind == "text/event-stream":
            self._streaming = self._streaming or request.method == "GET"
            return _rebuilt(response, stream=_Events(response, message, self._limit, self._listener))
        if kind == "application/json" and _wants_answer(message) and response.status_code != 202:
            return await self._whole(message, response)
        return response

    async def _whole(self, message: bytes, response: httpx2.Response) -> httpx2.Response:
        body = await _read(response, self._limit)
        if body is None:
            text = f"its answer is over the limit of {self._limit:,} bytes (bridge.maxMessageBytes)"
            self._listener.refused(message, text)
            return _rebuilt(response, content=_ANSWER)
        if not self._listener.delivered(body, message):
            self._listener.refused(message, "sent something else than an answer")
        return _rebuilt(response, content=_ANSWER)

    async def _failed(self, request: httpx2.Request, message: bytes, response: httpx2.Response) -> httpx2.Response:
        """Decides what an error status means: the end of the session, one failed request, or nothing."""
        status = response.status_code
        words = f"answered HTTP {status} {_phrase(status)}".rstrip()
        body = await _read(response, _LONGEST_ERROR) or b""
        response = _rebuilt(response, content=body)
        if status == HTTPStatus.UNAUTHORIZED:
            self._listener.lost(f"{words}; check its headers: a token belongs into headers.Authorization")
        elif request.method == "POST" and _SESSION_HEADER in request.headers and _session_is_gone(status, body):
            self._listener.lost(f"no longer knows the session (HTTP {status})")
        elif self._stream_only:
            hint = '; a streamable HTTP server needs "type": "http"' if request.method == "GET" else ""
            self._listener.lost(words + hint)
        elif request.method == "GET" and self._streaming:
            self._listener.lost(f"{words} when its stream of messages was to be resumed")
        elif _wants_answer(message):
            return self._told(request, message, response, words)
        elif message:
            self._listener.refused(message, words)
        return response

    def _told(self, request: httpx2.Request, message: bytes, response: httpx2.Response, words: str) -> httpx2.Response:
        """Passes on the server's own JSON-RPC error if there is one; the status alone says little."""
        body = response.content
        asked = jsonrpc.parse(message)
        error = jsonrpc.members(body).get("error")
        if error is not None and bytes(error).startswith(b"{"):
            self._listener.delivered(jsonrpc.error_raw(bytes(asked.id or b""), error))
        else:
            first = asked.method == "initialize" and response.status_code in (400, 404, 405)
            self._listener.refused(message, words + ('; an SSE server needs "type": "sse"' if first else ""))
        return _instead(request, _ANSWER)


class _Events(httpx2.AsyncByteStream):
    """An event stream whose messages are delivered on the way; events in their place keep ids and retry times."""

    def __init__(self, response: httpx2.Response, request: bytes, limit: int, listener: Listener) -> None:
        self._response, self._request, self._limit, self._listener = response, request, limit, listener

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=self._limit):
            data = event.data
            if event.event == "message" and data:
                data = (_ANSWER if self._listener.delivered(data.encode(), self._request) else _NOTICE).decode()
            fields = [("event", event.event), ("id", event.id)]
            if event.retry is not None:
                fields.append(("retry", str(event.retry)))
            fields += [("data", line) for line in data.split("\n")]
            yield "".join(f"{name}: {value}\n" for name, value in fields).encode() + b"\n"

    async def aclose(self) -> None:
        await self._response.aclose()


def _unwrapped(request: httpx2.Request) -> httpx2.Request:
    """The request with the message itself as its body; marked, because a redirect sends it once more."""
    envelope = json.loads(request.content)
    message = (envelope.get("params") or envelope["result"])[HELD].encode()
    timeout = {**request.extensions["timeout"]}
    if not message_is_open_ended(message):
        timeout["read"] = LONGEST_ANSWER if _wants_answer(message) else NOTICE_TIMEOUT
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    extensions = {**request.extensions, HELD: message, "timeout": timeout}
    return httpx2.Request(request.method, request.url, headers=headers, content=message, extensions=extensions)


def message_is_open_ended(message: bytes) -> bool:
    """Whether a request stays open for as long as the session: a subscription (SEP-2575)."""
    return b'"subscriptions/listen"' in message and jsonrpc.parse(message).method == "subscriptions/listen"


def _session_is_gone(status: int, body: bytes) -> bool:
    """404 says so (MCP 2025-06-18, basic/transports); many servers answer 400 and speak of the session."""
    return status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and b"session" in body.lower())


def _wants_answer(message: bytes) -> bool:
    if not message:
        return False
    envelope = jsonrpc.parse(message)
    return isinstance(envelope.method, str) and bool(envelope.id)


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    """The whole body, decompressed; None when it is over the limit."""
    parts, size = [], 0
    try:
        async for chunk in response.aiter_bytes():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                return None
    finally:
        await response.aclose()
    return b"".join(parts)


def _rebuilt(response: httpx2.Response, **body: Any) -> httpx2.Response:
    changed = {b"content-encoding", b"content-length", b"transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in changed]
    return httpx2.Response(response.status_code, headers=headers, request=response.request, **body)


def _instead(request: httpx2.Request, content: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=content, request=request)


def _why(request: httpx2.Request, error: httpx2.TransportError) -> str:
    """One clause on a failed request; the address without path and query, which may hold a key."""
    place = f"{request.url.host}:{request.url.port or (443 if request.url.scheme == 'https' else 80)}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            what = getattr(cause, "verify_message", "") or cause.strerror or str(cause)
            return f"cannot be reached at {place}: {what}"
        if isinstance(cause, ConnectionRefusedError):
            return f"cannot be reached at {place}: connection refused"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.LocalProtocolError):
        return "has a header that HTTP cannot carry: it must be one line of visible characters"
    if isinstance(error, httpx2.ConnectTimeout):
        return f"cannot be reached at {place}: no connection within {CONNECT_TIMEOUT:g} s"
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError | httpx2.UnsupportedProtocol):
        return f"cannot be reached at {place}: {error}"
    return f"lost the connection to {place}: {str(error) or type(error).__name__}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


async def _traced(event: str, facts: Mapping[str, Any]) -> None:
    """Asks the system to probe each connection: a stream that is only listened to never notices a vanished peer."""
    if event != "connection.connect_tcp.complete":
        return
    with contextlib.suppress(OSError, AttributeError):  # a system without these keeps its own pace
        number = facts["return_value"].get_extra_info("socket").fileno()
        # uvloop's socket objects refuse options; the options belong to the connection, not to the object
        with socket.socket(fileno=os.dup(number)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER)
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_AFTER // 3)
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


@functools.cache
def _trust() -> ssl.SSLContext:
    """The system's certificates, read once: each session would spend 50 ms on them."""
    return httpx2.create_ssl_context()
