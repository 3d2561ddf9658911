"""A voice cloud on this machine: a WebSocket server on loopback that is the MCP client, and can misbehave on demand."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from voice_bridge.simulator.events import (
    Attempt,
    Closed,
    Event,
    Failed,
    Framed,
    Ignored,
    Opened,
    Ready,
    Rejected,
)
from voice_bridge.simulator.kinds import OFFICIAL, Kind
from voice_bridge.simulator.messages import BadAnswer, Disconnected, NoAnswer
from voice_bridge.simulator.session import CloudSession

HOST = "127.0.0.1"


class VoiceCloud:
    """A local voice cloud, used as an async context manager.

    ::

        async with VoiceCloud() as cloud:              # VoiceCloud(RELAY) plays the self-hosted one
            ...                                        # start a bridge on cloud.url
            session = await cloud.session()            # the next connection; the handshake runs by itself
            await session.ready()                      # … and is through
            reply = await session.call("echo", {"text": "hi"})
            assert reply.text == "hi" and not session.dropped

    `token`: what a bridge must bring in `?token=`; None lets any pass. `greet=False`: the cloud sends nothing by
    itself, so the test plays the cloud with `session.request`, `send` and `receive`. `keep`: how many frames,
    notifications and drops each session remembers. `on_event` is called with everything that happens, at once.
    Opening raises OSError when the port cannot be had.
    """

    def __init__(
        self,
        kind: Kind = OFFICIAL,
        *,
        port: int = 0,
        token: str | None = None,
        greet: bool = True,
        keep: int = 10_000,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.kind = kind
        self.port = port
        self.token = token
        self.attempts: list[Attempt] = []
        self.sessions: list[CloudSession] = []
        self._greet = greet
        self._keep = keep
        self._on_event = on_event or (lambda _event: None)
        self._opened: asyncio.Queue[CloudSession] = asyncio.Queue()
        self._registered: dict[str, CloudSession] = {}
        self._count = 0
        self._refusal: tuple[int, float | None] | None = None
        self._close_after: tuple[float, int] | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._converse,
            HOST,
            self.port,
            process_request=self._admit,
            process_response=self._record,
            compression=None,
            max_size=self.kind.max_size,
            ping_interval=None,
            open_timeout=60,
            close_timeout=2,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._gate.set()
        for session in self.sessions:
            if session.stalled:
                session.abort()
        self._server.close(code=1001)
        # A peer that connected and never sent its request is not worth more than this.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._server.wait_closed()

    @property
    def url(self) -> str:
        """What a bridge gets as its MCP_ENDPOINT."""
        return f"ws://{HOST}:{self.port}/mcp/?token={quote(self.token or 'local', safe='')}"

    async def session(self, timeout: float = 10) -> CloudSession:
        """The next connection, in the order they came; each is handed out once. Raises NoAnswer."""
        try:
            async with asyncio.timeout(timeout):
                return await self._opened.get()
        except TimeoutError:
            raise NoAnswer(
                f"no bridge connected within {timeout:g} s; handshakes so far: {len(self.attempts)}"
            ) from None

    # ---- trouble for those who dial from now on

    def refuse(self, status: int, retry_after: float | None = None) -> None:
        """Answer each handshake with this HTTP status, and Retry-After in seconds if given (RFC 9110 §10.2.3)."""
        self._refusal, self._close_after = (status, retry_after), None

    def accept_and_close(self, after: float = 0, code: int = 1011) -> None:
        """Let each bridge in and close `after` seconds later, without a word of MCP. Code 1006 cuts the TCP."""
        self._refusal, self._close_after = None, (after, code)

    def hold(self) -> None:
        """Leave each handshake unanswered until `accept`."""
        self._gate.clear()

    def accept(self) -> None:
        """Behave again."""
        self._refusal = self._close_after = None
        self._gate.set()

    # ---- inside

    async def _admit(self, ws: ServerConnection, request: Request) -> Response | None:
        await self._gate.wait()
        if self._refusal is not None:
            status, retry_after = self._refusal
            response = ws.respond(status, f"this cloud was told to answer {status}\n")
            if retry_after is not None:
                response.headers["Retry-After"] = f"{retry_after:g}"
            return response
        if ws.transport.is_closing():
            return ws.respond(408, "the bridge gave up waiting\n")
        if not self._token_fits(request) and self.kind.bad_token < 1000:
            return ws.respond(self.kind.bad_token, "wrong token\n")
        return None

    def _record(self, _: ServerConnection, request: Request, response: Response) -> None:
        status = response.status_code
        attempt = Attempt(time.monotonic(), urlsplit(request.path).path, request.headers, status)
        self.attempts.append(attempt)
        if status != 101:
            why = (response.body or b"").decode("utf-8", "replace").partition("\n")[0]
            self._on_event(Rejected(attempt, why))

    def _token_fits(self, request: Request) -> bool:
        return self.token is None or hmac.compare_digest(_token_of(request).encode(), self.token.encode())

    async def _converse(self, ws: ServerConnection) -> None:
        assert ws.request is not None
        if self._close_after is not None:
            await _close_soon(ws, *self._close_after)
            return
        if not self._token_fits(ws.request):
            self._on_event(Rejected(self.attempts[-1], "wrong token"))
            await ws.close(self.kind.bad_token, "wrong token")
            return
        self._count += 1
        session = CloudSession(
            ws,
            self.kind,
            self._count,
            keep=self._keep,
            on_frame=lambda frame: self._on_event(Framed(session, frame)),
            on_drop=lambda dropped: self._on_event(Ignored(session, dropped)),
        )
        token = _token_of(ws.request)
        if self.kind.one_per_token:
            await self._displace(token, session)
        self.sessions.append(session)
        self._on_event(Opened(session))
        self._opened.put_nowait(session)
        try:
            async with asyncio.TaskGroup() as tasks:
                play = tasks.create_task(self._play(session))
                await session.pump()
                play.cancel()
        finally:
            self.sessions.remove(session)
            self._forget(token, session)
            self._on_event(Closed(session, *await session.wait_closed()))
            session.settled.set()

    async def _displace(self, token: str, session: CloudSession) -> None:
        old = self._registered.get(token)
        self._registered[token] = session
        if old is not None and old.registered:
            await old.close(1000, "displaced by a newer connection")
            await old.settled.wait()

    def _forget(self, token: str, session: CloudSession) -> None:
        """Clean up after a connection as the relay does: by token, whoever holds it now."""
        if session.sent_binary and self._registered.get(token) is not session:
            return  # its cleanup ran when the binary frame came
        holder = self._registered.pop(token, None)
        if holder is not None:
            holder.registered = False

    async def _play(self, session: CloudSession) -> None:
        """The cloud's own conversation: the handshake, then pings for ever."""
        if not self._greet or not session.registered:
            return
        try:
            await session.handshake()
            if self.kind.pipelined:
                await session.handshake(prefix=str(uuid.uuid4()))
            trouble = "the bridge lists no tools" if self.kind.needs_tools and not session.tools else ""
        except (NoAnswer, BadAnswer) as error:
            trouble = str(error)
        except Disconnected:
            return
        if not trouble:
            session.mark_ready()
            self._on_event(Ready(session))
            with contextlib.suppress(Disconnected):
                trouble = await session.keep_pinging()
        if trouble:
            session.mark_failed(trouble)
            self._on_event(Failed(session, trouble))
            if self.kind.catch_all is not None:
                await session.close(*self.kind.catch_all)


def _token_of(request: Request) -> str:
    return parse_qs(urlsplit(request.path).query).get("token", [""])[0]


async def _close_soon(ws: ServerConnection, after: float, code: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(after):
            await ws.wait_closed()
    if code == 1006:
        ws.transport.abort()
    else:
        await ws.close(code)
