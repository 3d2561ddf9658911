"""Endpoints as they are connected: owned, dialled, heard and closed here; what became of it goes into the core."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from voice_bridge.config import EndpointSettings, Settings
from voice_bridge.core.client import View
from voice_bridge.core.effects import Effect, Note
from voice_bridge.core.facts import Fault, Remark
from voice_bridge.core.keys import ClientKey, EndpointKey
from voice_bridge.core.retry import Verdict
from voice_bridge.core.router import Router
from voice_bridge.errors import UsageError
from voice_bridge.ownership.lock import EndpointLock
from voice_bridge.ports.clients.endpoint import CloudConnection
from voice_bridge.runtime import plan
from voice_bridge.runtime.tasks import Tasks

_FAULT = Verdict("transient", "a fault in the bridge ended the connection; its log has more")


class ConnectionsHost(Protocol):
    """What connections need of the runtime that they live in."""

    settings: Settings
    router: Router
    tasks: Tasks

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Does what the core decided."""

    def open_client(
        self, view: Callable[[], View], deliver: Callable[[bytes], None], endpoint: EndpointKey
    ) -> ClientKey:
        """A key for a client that has come."""

    def client_message(self, key: ClientKey, data: bytes) -> None:
        """Takes a message of a client."""

    def close_client(self, key: ClientKey) -> None:
        """Takes it that a client has gone."""


class Connections:
    """The connections to all endpoints, and which addresses this process holds."""

    def __init__(self, house: ConnectionsHost) -> None:
        self._house = house
        self._wanted: Mapping[EndpointKey, EndpointSettings] = {}
        self._open: dict[EndpointKey, _Connection] = {}
        self._held: dict[str, EndpointLock] = {}
        self._postponed: list[EndpointKey] = []

    # What the settings want

    def leave(self, wanted: Mapping[EndpointKey, EndpointSettings], now: float) -> list[Effect]:
        """Hangs up what is no longer wanted."""
        dialling = self._house.router.dialling
        left = [key for key in self._wanted if key not in wanted]
        return [effect for key in left for effect in dialling.unwanted(key, now, "no longer wanted")]

    def join(self, wanted: Mapping[EndpointKey, EndpointSettings], now: float) -> list[Effect]:
        """Dials what is newly wanted, and anew what has another address."""
        dialling, before, self._wanted = self._house.router.dialling, self._wanted, wanted
        effects: list[Effect] = []
        for key, endpoint in wanted.items():
            servers = plan.view(self._house.settings, key).servers
            if key not in before:
                effects += dialling.wanted(key, servers, now)
            elif not endpoint.same_connection(before[key]):
                effects += dialling.renewed(key, servers, now)
        self.release()
        return effects

    # Ownership

    def own(self, endpoint: EndpointSettings) -> str:
        """Takes an address for this process; why that cannot be, else empty."""
        if endpoint.url not in self._held:
            try:
                lock = self._held[endpoint.url] = EndpointLock(endpoint.name, endpoint.url)
            except UsageError as taken:
                return str(taken)
            if lock.remark:
                self._house.carry_out([Note(Remark(endpoint.name, lock.remark, "warning"))])
        return ""

    def acquire(self, key: EndpointKey, now: float) -> list[Effect]:
        """Finds out whether an endpoint may be dialled; one whose address another name still holds waits for that."""
        endpoint = self._wanted[key]
        if any(other.endpoint != key.endpoint and open_.url == endpoint.url for other, open_ in self._open.items()):
            self._postponed.append(key)
            return []
        reason = self.own(endpoint)
        dialling = self._house.router.dialling
        return dialling.withheld(key, reason, now) if reason else dialling.granted(key, now)

    def release(self) -> None:
        """Lets the addresses go that are neither wanted nor connected."""
        used = {endpoint.url for endpoint in self._wanted.values()} | {open_.url for open_ in self._open.values()}
        for url in self._held.keys() - used:
            self._held.pop(url).release()

    def release_all(self) -> None:
        """Lets every address go."""
        self._wanted = {}
        self.release()

    # Connections

    def dial(self, key: EndpointKey) -> None:
        """Dials an endpoint."""
        connection = self._open[key] = _Connection(self._house, key, self._wanted[key])
        self._house.tasks.run(f"endpoint {key}", self._carry(key, connection))

    async def _carry(self, key: EndpointKey, connection: _Connection) -> None:
        verdict = _FAULT
        try:
            verdict = await connection.dial.run()
        except Exception:  # noqa: BLE001 - a fault costs this connection, which is dialled again
            self._house.carry_out([Note(Fault(str(key), traceback.format_exc()))])
        finally:
            connection.closed()
            del self._open[key]
            now = time.monotonic()
            self._house.carry_out(self._house.router.dialling.lost(key, verdict, now))
            self._follow(now)

    def _follow(self, now: float) -> None:
        """A socket is closed: who waited for its address may have it."""
        self.release()
        postponed, self._postponed = self._postponed, []
        for key in postponed:
            if key in self._wanted:
                self._house.carry_out(self.acquire(key, now))

    def hang_up(self, key: EndpointKey) -> None:
        """Closes a connection in good order."""
        self._open[key].dial.hang_up()

    def renew(self, client: ClientKey) -> None:
        """Closes a client's connection once its calls are answered, so that it is dialled again."""
        for connection in self._open.values():
            if connection.client == client:
                connection.dial.renew()


class _Connection:
    """One connection's way into the core."""

    def __init__(self, house: ConnectionsHost, key: EndpointKey, endpoint: EndpointSettings) -> None:
        self._house, self._key = house, key
        self.url = endpoint.url
        self.client: ClientKey | None = None
        self.dial = CloudConnection(endpoint, house.settings.bridge, self)

    def opened(self) -> None:
        self.client = self._house.open_client(self._view, self.dial.deliver, self._key)
        self._house.carry_out(self._house.router.dialling.opened(self._key, self.client, time.monotonic()))

    def _view(self) -> View:
        return plan.view(self._house.settings, self._key)

    def received(self, data: bytes) -> None:
        if self.client is not None:
            self._house.client_message(self.client, data)

    def owes(self) -> bool:
        return self.client is not None and self._house.router.owes(self.client)

    def answered(self) -> bool:
        endpoint = self._house.router.peers.endpoints.get(self._key)
        return endpoint is not None and endpoint.answered

    def closed(self) -> None:
        if self.client is not None:
            self._house.close_client(self.client)
            self.client = None
