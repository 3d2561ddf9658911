"""One WebSocket to a cloud: dials for as long as it lives, and carries messages both ways while it is up."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast
from urllib.request import getproxies, proxy_bypass

from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import OPEN
from websockets.proxy import get_proxy
from websockets.uri import parse_uri

from voice_bridge import __version__
from voice_bridge.backoff import Backoff
from voice_bridge.config import BridgeSettings, EndpointSettings
from voice_bridge.errors import UsageError
from voice_bridge.log import LOG
from voice_bridge.ports.clients.close_codes import Verdict, judge
from voice_bridge.ports.clients.dial import reach
from voice_bridge.ports.clients.websocket import Connection, Pulse
from voice_bridge.text import duration

OPEN_TIMEOUT = 20.0
CLOSE_TIMEOUT = 2.0
QUIET_WITHIN = 30.0
QUIET_STEP = 0.05
REJECTED_PAUSE = 60.0
REPLACED_PAUSE = 60.0
REPLACEMENTS_UNTIL_WARNING = 3
# Three times the pause: two bridges that take turns a minute apart still count as a quarrel, a cloud that closes idle
# connections every few minutes does not.
REPLACED_WINDOW = 180.0


class Exchange(Protocol):
    """Where a link's messages go; the bridge connects it to the hub."""

    def opened(self, deliver: Callable[[bytes], None]) -> str:
        """A connection is up; the key for it."""

    def message(self, key: str, data: bytes) -> None:
        """A frame arrived."""

    def busy(self, key: str) -> bool:
        """Whether answers to this connection are still being worked on."""

    def closed(self, key: str) -> None:
        """The connection is gone."""


@dataclass(slots=True)
class LinkStatus:
    """How a link fares: whether its connection was greeted, and why the last one ended or never came about."""

    greeted: bool = False
    reason: str = ""


class Redial(Exception):
    """The lists changed and the cloud reads them only on a new connection."""


class Link:
    """Keeps an endpoint connected. `run` returns only when it is cancelled."""

    def __init__(self, name: str, endpoint: EndpointSettings, bridge: BridgeSettings, exchange: Exchange) -> None:
        self.name, self.endpoint = name, endpoint
        self.status = LinkStatus()
        self.bridge, self._exchange = bridge, exchange
        self._backoff = Backoff(bridge.min_backoff, bridge.max_backoff, bridge.stable_after)
        self._replaced: deque[float] = deque(maxlen=REPLACEMENTS_UNTIL_WARNING)
        self._rejected = 0

    async def run(self, ready: Callable[[], Awaitable[object]]) -> None:
        """Dials once `ready` has returned, and again and again."""
        await ready()
        while True:
            session = _Session(self, self._exchange)
            try:
                await session.carry()
            except Redial:
                LOG.info("%s: the tools changed; dialling anew so that the cloud reads them", self.name)
                carried = session.lived or 0.0
                if carried < self.bridge.stable_after:  # tools that change all the time must not become a storm
                    await asyncio.sleep(self._backoff.after_session(carried))
                continue
            except Exception as error:  # noqa: BLE001 - whatever ends a connection becomes a wait and a redial
                verdict = judge(error, greeted=session.greeted)
            lived = session.lived
            delay = self._delay(verdict, session, lived)
            self._report(verdict, session, lived, delay)
            await asyncio.sleep(delay)

    def _delay(self, verdict: Verdict, session: _Session, lived: float | None) -> float:
        if verdict.kind == "rejected":
            self._rejected += 1
            pause = min(self.bridge.max_backoff, REJECTED_PAUSE * 2.0 ** (self._rejected - 1))
            return max(pause, verdict.retry_after or 0.0)
        if verdict.kind == "replaced":
            self._replaced.append(time.monotonic())
        if session.greeted:
            self._rejected = 0
            delay = self._backoff.after_session(lived or 0.0)
        else:
            delay = self._backoff.after_failure()
        if verdict.kind == "replaced" and self._quarrelling():
            delay = max(delay, REPLACED_PAUSE)
        return max(delay, verdict.retry_after or 0.0)

    def _quarrelling(self) -> bool:
        """Whether this connection was replaced several times of late."""
        many = len(self._replaced) == REPLACEMENTS_UNTIL_WARNING
        return many and time.monotonic() - self._replaced[0] < REPLACED_WINDOW

    def _report(self, verdict: Verdict, session: _Session, lived: float | None, delay: float) -> None:
        text = verdict.text
        if session.connection is not None and session.connection.silent_for:
            text = f"the cloud was silent for {duration(session.connection.silent_for)}"
        if verdict.kind == "too_large" and session.connection is not None:
            text += f"; the largest was {session.connection.largest_sent:,} bytes: set maxResultBytes for this endpoint"
        if verdict.kind == "replaced" and self._quarrelling():
            text += "; again and again: another bridge seems to use this token"
        self.status.reason = text
        what = "not connected"
        if lived is not None:
            code = f" with code {verdict.code}" if verdict.code is not None else ""
            what = f"disconnected{code} after {duration(lived)}"
        LOG.warning("%s: %s: %s; next try in %s", self.name, what, text, duration(delay))


class _Session:
    """One connection, from dialling to its end."""

    def __init__(self, link: Link, exchange: Exchange) -> None:
        self._link, self._exchange = link, exchange
        self.opened_at: float | None = None
        self.greeted = False
        self.connection: Connection | None = None
        self._key: str | None = None
        self._early: list[bytes] = []
        self._redial = asyncio.Event()

    @property
    def lived(self) -> float | None:
        """Seconds since the connection was up; None when it never was."""
        return None if self.opened_at is None else time.monotonic() - self.opened_at

    async def carry(self) -> None:
        """Connects and carries messages until the end.

        Raises what ended it: an OSError or a websockets exception, or Redial.
        """
        link, bridge = self._link, self._link.bridge
        pulse = Pulse(bridge.ping_interval, bridge.ping_timeout)
        connecting = connect(
            link.endpoint.url,
            additional_headers=dict(link.endpoint.headers),
            user_agent_header=f"mcp-voice-bridge/{__version__}",
            compression=None,
            open_timeout=OPEN_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            ping_interval=None,  # the connection's own pulse does that
            max_size=bridge.max_message_bytes,
            create_connection=cast(Any, partial(Connection, received=self._receive, pulse=pulse)),
            **await _way_to(link.endpoint),
        )
        async with connecting as connection:
            self.connection = cast(Connection, connection)
            self.opened_at = time.monotonic()
            self.connection.ask_for_a_pong()
            LOG.info("%s: connected", link.name)
            link.status.reason = ""
            self._key = self._exchange.opened(self._deliver)
            try:
                for data in self._early:
                    self._receive(data)
                await self._until_closed(connection)
            finally:
                self._exchange.closed(self._key)
                self._key = None

    async def _until_closed(self, connection: ClientConnection) -> None:
        waits = [asyncio.ensure_future(connection.wait_closed()), asyncio.ensure_future(self._redial.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._redial.is_set():
            await self._quiet(connection)
            await connection.close()
            raise Redial
        await connection.recv()  # raises what closed it

    async def _quiet(self, connection: ClientConnection) -> None:
        """Lets running calls have their answers before an orderly end, unless they take too long."""
        patience = time.monotonic() + QUIET_WITHIN
        while connection.state is OPEN and time.monotonic() < patience:
            if self._key is None or not self._exchange.busy(self._key):
                return
            await asyncio.sleep(QUIET_STEP)

    def _receive(self, data: bytes) -> None:
        if self._key is None:
            self._early.append(data)
            return
        if not self.greeted:
            self.greeted = b'"initialize"' in data or b'"server/discover"' in data
            self._link.status.greeted = self.greeted
        self._exchange.message(self._key, data)

    def _deliver(self, data: bytes) -> None:
        if not data:
            self._redial.set()
        elif self.connection is not None:
            self.connection.deliver(data)


async def _way_to(endpoint: EndpointSettings) -> dict[str, Any]:
    """Options for `connect`: a socket unless a proxy makes the connection, and whom to trust."""
    options: dict[str, Any] = {}
    if endpoint.url.startswith("wss:") and endpoint.ca_file is not None:
        try:
            options["ssl"] = ssl.create_default_context(cafile=str(endpoint.ca_file))
        except OSError as error:
            why = error.strerror if not isinstance(error, ssl.SSLError) else "it holds no certificate"
            raise UsageError(f"caFile {endpoint.ca_file} cannot be used: {why}") from None
    uri = parse_uri(endpoint.url)
    options["proxy"] = get_proxy(uri) or _proxy_for_all(f"{uri.host}:{uri.port}")
    if options["proxy"] is None:
        async with asyncio.timeout(OPEN_TIMEOUT):
            options["sock"] = await reach(uri.host, uri.port)
    return options


def _proxy_for_all(place: str) -> str | None:
    """ALL_PROXY, which websockets leaves out and curl and its like read."""
    return None if proxy_bypass(place) else getproxies().get("all")
