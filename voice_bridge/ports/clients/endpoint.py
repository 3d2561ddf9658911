"""One connection to a cloud, from the dial to its end: messages go both ways while it is up."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, Protocol, cast
from urllib.request import getproxies, proxy_bypass

from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import OPEN
from websockets.proxy import get_proxy
from websockets.uri import parse_uri

from voice_bridge import __version__
from voice_bridge.config import BridgeSettings, EndpointSettings
from voice_bridge.core.retry import Verdict
from voice_bridge.errors import UsageError
from voice_bridge.ports.clients.close_codes import judge
from voice_bridge.ports.clients.dial import reach
from voice_bridge.ports.clients.websocket import Connection, Pulse
from voice_bridge.text import duration

OPEN_TIMEOUT = 20.0
CLOSE_TIMEOUT = 2.0
QUIET_WITHIN = 30.0
QUIET_STEP = 0.05
_GOING_AWAY, _NORMAL = 1001, 1000  # RFC 6455 §7.4.1
RENEWED = "the tools changed; dialling anew so that the cloud reads them"
_CLOSED = Verdict("transient", "it was closed")


class ConnectionListener(Protocol):
    """Who hears what a connection brings. Must not block and must not raise."""

    def opened(self) -> None:
        """The socket is up."""

    def received(self, data: bytes) -> None:
        """Takes a frame."""

    def owes(self) -> bool:
        """Whether answers to this connection are still being worked on."""

    def answered(self) -> bool:
        """Whether the cloud asked for something on this connection and got a result."""


class CloudConnection:
    """One connection to an endpoint. `run` dials once and carries messages until the end, or until it is cancelled."""

    def __init__(self, endpoint: EndpointSettings, bridge: BridgeSettings, hears: ConnectionListener) -> None:
        self.endpoint = endpoint
        self._bridge, self._hears = bridge, hears
        self._connection: Connection | None = None
        self._early: list[bytes] | None = []
        self._end = asyncio.Event()
        self._renewing = False

    def deliver(self, data: bytes) -> None:
        """Sends one message. Never blocks, never raises."""
        if self._connection is not None:
            self._connection.deliver(data)

    def renew(self) -> None:
        """Closes the connection once its calls are answered; the verdict is "renewed"."""
        self._renewing = True
        self._end.set()

    def hang_up(self) -> None:
        """Closes the connection in good order."""
        self._renewing = False
        self._end.set()

    async def run(self) -> Verdict:
        """Dials and carries messages; why the connection ended or never came about."""
        dialling = asyncio.ensure_future(self._carry())
        ending = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait([dialling, ending], return_when=asyncio.FIRST_COMPLETED)
            if not dialling.done() and self._connection is None:
                return _CLOSED  # it is not even up
            return await dialling
        except Exception as error:  # noqa: BLE001 - whatever ends a connection becomes a wait and a redial
            return self._judged(error)
        finally:
            ending.cancel()
            dialling.cancel()
            await asyncio.wait([dialling])

    def _judged(self, error: Exception) -> Verdict:
        verdict, connection = judge(error, answered=self._hears.answered()), self._connection
        text = verdict.text
        if connection is not None and connection.silent_for:
            text = f"the cloud was silent for {duration(connection.silent_for)}"
        if connection is not None and connection.left_unread:
            text = f"the cloud left {connection.left_unread / 2**20:.0f} MiB unread"
        if verdict.kind == "too_large" and connection is not None:
            text += f"; the largest was {connection.largest_sent:,} bytes: set maxResultBytes for this endpoint"
        return Verdict(verdict.kind, text, verdict.code, verdict.retry_after)

    async def _carry(self) -> Verdict:
        """Raises what ended the connection: an OSError or a websockets exception."""
        bridge, endpoint = self._bridge, self.endpoint
        pulse = Pulse(bridge.ping_interval, bridge.ping_timeout)
        connecting = connect(
            endpoint.url,
            additional_headers=dict(endpoint.headers),
            user_agent_header=f"mcp-voice-bridge/{__version__}",
            compression=None,
            open_timeout=OPEN_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            ping_interval=None,  # the connection's own pulse does that
            max_size=bridge.max_message_bytes,
            create_connection=cast(Any, partial(Connection, received=self._received, pulse=pulse)),
            **await _way_to(endpoint),
        )
        connection = cast(Connection, await connecting)
        try:
            self._connection = connection
            connection.watch_pulse()
            self._hears.opened()
            early, self._early = self._early or [], None
            for data in early:
                self._hears.received(data)
            return await self._until_closed(connection)
        finally:
            await connection.close(_GOING_AWAY)

    async def _until_closed(self, connection: ClientConnection) -> Verdict:
        waits = [asyncio.ensure_future(connection.wait_closed()), asyncio.ensure_future(self._end.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._end.is_set():
            await connection.recv()  # raises what closed it
        if not self._renewing:
            return _CLOSED
        await self._quiet(connection)
        await connection.close(_NORMAL)
        return Verdict("renewed", RENEWED)

    async def _quiet(self, connection: ClientConnection) -> None:
        """Lets running calls have their answers before an orderly end, unless they take too long."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + QUIET_WITHIN
        while connection.state is OPEN and self._renewing and loop.time() < patience and self._hears.owes():
            await asyncio.sleep(QUIET_STEP)

    def _received(self, data: bytes) -> None:
        if self._early is not None:
            self._early.append(data)
        else:
            self._hears.received(data)


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
