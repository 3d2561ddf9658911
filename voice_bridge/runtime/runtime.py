"""The servers, running, and everyone in this process or on a cloud's socket who uses them.

The hub is the only place where the router's decisions become bytes on pipes: it feeds events in, hands messages out,
and wakes the router when a deadline is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self

from voice_bridge.config import EndpointSettings, ServerSettings, Settings
from voice_bridge.core.client import Send, View
from voice_bridge.core.router import Router
from voice_bridge.log import LOG
from voice_bridge.ports.clients.local import LocalClient
from voice_bridge.ports.servers.stdio import Oversized
from voice_bridge.runtime.supervisor import Session, Status, Supervised

Deliver = Callable[[bytes], None]


class _Post:
    """One server's way to the hub (supervisor.Desk). Once detached, what an old process still says is not heard."""

    def __init__(self, hub: Hub, key: str) -> None:
        self._hub, self._key = hub, key
        self.detached = False

    def started(self, session: Session) -> None:
        if not self.detached:
            self._hub.server_started(self._key, session)

    def received(self, line: bytes | Oversized) -> None:
        if not self.detached:
            self._hub.server_wrote(self._key, line)

    def exited(self, reason: str, *, gone: bool) -> None:
        if not self.detached:
            self._hub.server_exited(self._key, reason, gone=gone)


@dataclass(slots=True)
class _Running:
    supervised: Supervised
    post: _Post
    task: asyncio.Task[None]


class Hub:
    """Runs the enabled servers of the settings inside `async with`; clients come and go meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.router = Router()
        self._running: dict[str, _Running] = {}
        self._sessions: dict[str, Session] = {}
        self._deliver: dict[str, Deliver] = {}
        self._views: dict[str, Callable[[], View]] = {}
        self._numbers = count(1)
        self._group = asyncio.TaskGroup()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for key, server in self._wanted(self.settings).items():
            self._add(key, server)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in self._running.values():
            running.supervised.stop()
        # Not told of the block's own error, the group waits for the servers to end and leaves that error as it is.
        await self._group.__aexit__(None, None, None)
        if self._timer is not None:
            self._timer.cancel()

    # Servers

    def statuses(self) -> list[Status]:
        """Every server's state, in the order of the settings file."""
        return [self._running[key].supervised.status for key in self._wanted(self.settings) if key in self._running]

    async def settled(self, timeout: float | None = None, keys: Iterable[str] | None = None) -> bool:
        """Waits until each server is ready or has failed once; False when the time (seconds) was over first."""
        chosen = list(self._running if keys is None else [key for key in keys if key in self._running])
        try:
            async with asyncio.timeout(timeout):
                for key in chosen:
                    await self._running[key].supervised.settled.wait()
        except TimeoutError:
            return False
        return True

    def apply(self, new: Settings) -> None:
        """Goes over to new settings, touching only what changed; calls on untouched servers go on."""
        wanted = self._wanted(new)
        self.settings = new
        for key in [key for key in self._running if key not in wanted]:
            self._remove(key)
        for key, server in wanted.items():
            running = self._running.get(key)
            if running is None:
                self._add(key, server)
            elif running.supervised.server.same_process(server):
                if running.supervised.server != server:
                    running.supervised.server = server
                    self._carry_out(self.router.server_rules(key, server.tools, server.call_timeout))
            else:
                LOG.info("%s: its settings changed; restarting it", server.name)
                self._add(key, server, after=self._remove(key))
        for key, view in self._views.items():
            self._carry_out(self.router.client_view(key, view()))

    def view(self, endpoint: EndpointSettings, only: str | None = None) -> View:
        """What an endpoint, or its connection for one server, may see and how it is treated."""
        chosen = [server for server in self._seen_by(endpoint) if only in (None, server.name)]
        return View(
            name=endpoint.name,
            servers=tuple(_key(server, endpoint.name) for server in chosen),
            call_timeout=endpoint.call_timeout,
            max_result_bytes=endpoint.max_result_bytes,
            redial_on_change=endpoint.refresh == "reconnect",
        )

    def names_for(self, endpoint: EndpointSettings) -> list[str]:
        """The names of the servers an endpoint may see."""
        return [server.name for server in self._seen_by(endpoint)]

    def _seen_by(self, endpoint: EndpointSettings) -> list[ServerSettings]:
        return [server for server in self.settings.enabled_servers if _selected(server.name, endpoint.servers)]

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

    def _add(self, key: str, server: ServerSettings, after: asyncio.Task[None] | None = None) -> None:
        self.router.server_added(key, server.name, server.tools, server.call_timeout, time.monotonic())
        post = _Post(self, key)
        supervised = Supervised(server, self.settings.bridge, self.settings.child_environ, post)
        task = self._group.create_task(_run(supervised, after), name=f"server {key}")
        self._running[key] = _Running(supervised, post, task)

    def _remove(self, key: str) -> asyncio.Task[None]:
        """Stops a server for good; the task that ends when its process is gone."""
        running = self._running.pop(key)
        running.post.detached = True
        running.supervised.stop()
        self._sessions.pop(key, None)
        self._carry_out(self.router.server_removed(key, "was removed from the settings", time.monotonic()))
        return running.task

    def server_started(self, key: str, session: Session) -> None:
        """Begins the handshake with a server that is up."""
        self._sessions[key] = session
        self._carry_out(self.router.server_started(key))

    def server_wrote(self, key: str, line: bytes | Oversized) -> None:
        """Routes one message of a server."""
        now = time.monotonic()
        server = self.router.servers[key]
        greeting = server.state == "starting"
        if isinstance(line, bytes):
            self._guarded(key, self.router.server_message, key, line, now)
        else:
            limit = self.settings.bridge.max_message_bytes
            self._guarded(key, self.router.server_oversized, key, line.ends, line.size, limit, now)
        if greeting and (server.state == "ready" or server.failure):
            self._running[key].supervised.greeted(server.failure, len(server.lists.get("tools", ())))

    def server_exited(self, key: str, reason: str, *, gone: bool) -> None:
        """Answers what a dead server still owed."""
        self._sessions.pop(key, None)
        self._carry_out(self.router.server_exited(key, reason, gone=gone, now=time.monotonic()))

    # Clients

    def open_client(self, view: View | Callable[[], View], deliver: Deliver) -> str:
        """A client's key for this connection; `deliver` gets each message for it and must not block.

        A view given as a function is asked again when the settings change.
        """
        now = view() if callable(view) else view
        key = f"{now.name}#{next(self._numbers)}"
        if callable(view):
            self._views[key] = view
        self._deliver[key] = deliver
        self.router.client_opened(key, now)
        return key

    def client_message(self, key: str, data: bytes) -> None:
        """Routes one message of a client."""
        self._guarded(key, self.router.client_message, key, data, time.monotonic())

    def close_client(self, key: str) -> None:
        """Forgets a client; its open calls are cancelled."""
        self._views.pop(key, None)
        if self._deliver.pop(key, None) is not None:
            self._carry_out(self.router.client_closed(key))

    def local_client(self, view: View | None = None) -> LocalClient:
        """A client in this process, of every server unless a view says otherwise."""
        everything = View("local", tuple(self._wanted(self.settings)), call_timeout=600.0)
        return LocalClient(self, view or everything)

    def owner(self, key: str, tool: str) -> str:
        """The name of the server that owns a tool this client sees; empty when there is none."""
        entry = self.router.catalog_of(self.router.clients[key]).tools.get(tool)
        return self.router.servers[entry.server].name if entry else ""

    # Effects

    def _guarded(self, about: str, decide: Callable[..., list[Send]], *event: object) -> None:
        """Carries out the router's decision. A fault in it costs one message, never the connections of others."""
        try:
            sends = decide(*event)
        except Exception:  # noqa: BLE001 - see above
            LOG.exception("%s: a message was lost to a fault in the bridge; please report this", about)
            return
        self._carry_out(sends)

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
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        # The time is kept beside the handle: uvloop's handle of a time that is past has none.
        self._timer, self._timer_at = asyncio.get_running_loop().call_at(deadline, self._expire), deadline

    def _expire(self) -> None:
        self._timer = None
        self._carry_out(self.router.expire(time.monotonic()))


async def _run(supervised: Supervised, after: asyncio.Task[None] | None) -> None:
    if after is not None:
        await asyncio.wait([after])  # two processes of one server may not get on, at a port or a file
    await supervised.run()


def _key(server: ServerSettings, endpoint: str) -> str:
    return f"{server.name}@{endpoint}" if server.isolate else server.name


def _selected(name: str, chosen: Iterable[str]) -> bool:
    """Whether an endpoint's `servers` include a name: `*` is all, `!name` leaves one out."""
    words = list(chosen)
    if f"!{name}" in words:
        return False
    return name in words or "*" in words or all(word.startswith("!") for word in words)
