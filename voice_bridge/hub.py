"""The servers, running, and everyone in this process or on a cloud's socket who uses them.

The hub is the only place where the router's decisions become bytes on pipes: it feeds events in, hands messages out,
and wakes the router when a deadline is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Self

from voice_bridge.config import EndpointSettings, ServerSettings, Settings
from voice_bridge.downstream import Send, View
from voice_bridge.local import LocalClient
from voice_bridge.router import Router
from voice_bridge.stdio import Oversized
from voice_bridge.supervisor import Session, Status, Supervised

Deliver = Callable[[bytes], None]


class Hub:
    """Runs the enabled servers of the settings inside `async with`; clients come and go meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.router = Router()
        self._supervised: dict[str, Supervised] = {}
        self._sessions: dict[str, Session] = {}
        self._deliver: dict[str, Deliver] = {}
        self._numbers = count(1)
        self._group = asyncio.TaskGroup()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for key, server in self._wanted(self.settings).items():
            self._add(key, server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for supervised in self._supervised.values():
            supervised.stop()
        await self._group.__aexit__(kind, error, trace)
        if self._timer is not None:
            self._timer.cancel()

    # Servers

    def statuses(self) -> list[Status]:
        """Every server's state, in the order of the settings file."""
        return [supervised.status for supervised in self._supervised.values()]

    async def settled(self, timeout: float | None = None, keys: Iterable[str] | None = None) -> bool:
        """Waits until each server is ready or has failed once; False when the time (seconds) was over first."""
        chosen = self._supervised if keys is None else [key for key in keys if key in self._supervised]
        waits = [self._supervised[key].settled.wait() for key in chosen]
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*waits)
        except TimeoutError:
            return False
        return True

    def view(self, endpoint: EndpointSettings) -> View:
        """What an endpoint may see and how it is treated."""
        chosen = [server for server in self.settings.enabled_servers if _selected(server.name, endpoint.servers)]
        return View(
            name=endpoint.name,
            servers=tuple(_key(server, endpoint.name) for server in chosen),
            call_timeout=endpoint.call_timeout,
            max_result_bytes=endpoint.max_result_bytes,
            redial_on_change=endpoint.refresh == "reconnect",
        )

    def _wanted(self, settings: Settings) -> dict[str, ServerSettings]:
        """The processes to run: one for each server, or one for each endpoint of an isolated server."""
        wanted: dict[str, ServerSettings] = {}
        for server in settings.enabled_servers:
            if server.isolate and settings.enabled_endpoints:
                for endpoint in settings.enabled_endpoints:
                    if _selected(server.name, endpoint.servers):
                        wanted[_key(server, endpoint.name)] = server
            else:
                wanted[server.name] = server
        return wanted

    def _add(self, key: str, server: ServerSettings) -> None:
        self.router.server_added(key, server.name, server.tools, server.call_timeout, time.monotonic())
        supervised = Supervised(key, server, self.settings.bridge, self.settings.child_environ, self)
        self._supervised[key] = supervised
        self._group.create_task(supervised.run(), name=f"server {key}")

    # What supervisors tell (supervisor.Desk)

    def started(self, key: str, session: Session) -> None:
        """Begins the handshake with a server that is up."""
        self._sessions[key] = session
        self._carry_out(self.router.server_started(key))

    def received(self, key: str, line: bytes | Oversized) -> None:
        """Routes one message of a server."""
        now = time.monotonic()
        server = self.router.servers.get(key)
        if server is None:
            return
        greeting = server.state == "starting"
        if isinstance(line, bytes):
            self._carry_out(self.router.server_message(key, line, now))
        else:
            limit = self.settings.bridge.max_message_bytes
            self._carry_out(self.router.server_oversized(key, line.ends, line.size, limit, now))
        if greeting and (server.state == "ready" or server.failure):
            self._supervised[key].greeted(server.failure, len(server.lists.get("tools", ())))

    def exited(self, key: str, reason: str, *, gone: bool) -> None:
        """Answers what a dead server still owed."""
        self._sessions.pop(key, None)
        if key in self.router.servers:
            self._carry_out(self.router.server_exited(key, reason, gone=gone, now=time.monotonic()))

    # Clients

    def open_client(self, view: View, deliver: Deliver) -> str:
        """A client's key for this connection; `deliver` gets each message for it and must not block."""
        key = f"{view.name}#{next(self._numbers)}"
        self._deliver[key] = deliver
        self.router.client_opened(key, view)
        return key

    def client_message(self, key: str, data: bytes) -> None:
        """Routes one message of a client."""
        self._carry_out(self.router.client_message(key, data, time.monotonic()))

    def close_client(self, key: str) -> None:
        """Forgets a client; its open calls are cancelled."""
        if self._deliver.pop(key, None) is not None:
            self._carry_out(self.router.client_closed(key))

    def local_client(self, view: View | None = None) -> LocalClient:
        """A client in this process, of every server unless a view says otherwise."""
        everything = View("local", tuple(self._supervised), call_timeout=600.0)
        return LocalClient(self, view or everything)

    def owner(self, key: str, tool: str) -> str:
        """The name of the server that owns a tool this client sees; empty when there is none."""
        entry = self.router.catalog_of(self.router.clients[key]).tools.get(tool)
        return self.router.servers[entry.server].name if entry else ""

    # Effects

    def _carry_out(self, sends: list[Send]) -> None:
        for to, data in sends:
            deliver = self._deliver.get(to)
            if deliver is not None:
                deliver(data)
                continue
            session = self._sessions.get(to)
            if session is not None and not session.send(data):
                self._carry_out(self.router.undelivered(to, data))
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.router.next_deadline()
        if deadline is None or (self._timer is not None and self._timer.when() <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._carry_out(self.router.expire(time.monotonic()))


def _key(server: ServerSettings, endpoint: str) -> str:
    return f"{server.name}@{endpoint}" if server.isolate else server.name


def _selected(name: str, chosen: Iterable[str]) -> bool:
    """Whether an endpoint's `servers` include a name: `*` is all, `!name` leaves one out."""
    words = list(chosen)
    if f"!{name}" in words:
        return False
    return name in words or "*" in words or all(word.startswith("!") for word in words)
