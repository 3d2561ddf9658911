"""Carries out what the core decides: servers are started and ended, endpoints dialled, messages handed over.

Events of processes, sockets and the clock go into the router; its effects come out and are done here, and nowhere
else. What fails while one is done becomes an event again, or a fact: it never ends the runtime.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Self

from voice_bridge.config import ServerSettings, Settings
from voice_bridge.core.client import View
from voice_bridge.core.effects import (
    Acquire,
    Dial,
    Effect,
    HangUp,
    Note,
    Redial,
    Start,
    Stop,
    ToClient,
    ToServer,
)  # fmt: skip
from voice_bridge.core.facts import ServerState
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.lifecycle import State
from voice_bridge.core.router import Router
from voice_bridge.core.server import Server
from voice_bridge.ports.clients.local import LocalClient
from voice_bridge.runtime import plan
from voice_bridge.runtime.board import Board, Reader
from voice_bridge.runtime.connections import Connections
from voice_bridge.runtime.processes import Processes
from voice_bridge.runtime.tasks import Tasks

Deliver = Callable[[bytes], None]
STOPPING = "was stopped"


class Status:
    """What a person wants to know of one server, always as it is now; times are seconds."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name = server.name

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._server.life.state

    @property
    def reason(self) -> str:
        """Why it is there, when it is not well."""
        return self._server.life.reason

    @property
    def pid(self) -> int | None:
        """Its process; None for a remote one and while it does not run."""
        return self._server.pid

    @property
    def took(self) -> float:
        """The time from its last start until it was ready."""
        return self._server.took

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self._server.starts - 1)

    @property
    def tools(self) -> int:
        """How many tools it has."""
        return len(self._server.lists.get("tools", ()))


class Runtime:
    """Runs the enabled servers of the settings inside `async with`; clients come and go meanwhile.

    `dial` connects the endpoints of the settings too.
    """

    def __init__(self, settings: Settings, *, dial: bool = False, readers: Iterable[Reader] = ()) -> None:
        self.settings = settings
        self.router = Router()
        self.board = Board(readers)
        self.tasks = Tasks(self.board)
        self.connections = Connections(self)
        self._processes = Processes(self)
        self._dial = dial
        self._servers: dict[ServerKey, ServerSettings] = {}
        self._deliver: dict[ClientKey, Deliver] = {}
        self._views: dict[ClientKey, Callable[[], View]] = {}
        self._numbers = count(1)
        self._settling: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    async def __aenter__(self) -> Self:
        self.apply(self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = time.monotonic()
        self.router.falls_silent()
        for key in list(self._servers):  # first, so that the calls still open are answered before the sockets close
            self.carry_out(self.router.supervisor.unwanted(key, now, STOPPING))
        for endpoint in list(self.router.peers.endpoints):
            self.carry_out(self.router.dialling.unwanted(endpoint, now, STOPPING))
        await self.tasks.join()
        self.connections.release_all()
        if self._timer is not None:
            self._timer.cancel()

    # Settings

    def apply(self, new: Settings) -> None:
        """Goes over to new settings, touching only what changed; calls on untouched servers go on."""
        now = time.monotonic()
        self.settings = new
        self.router.supervisor.settings(new.bridge)
        self.router.dialling.settings(new.bridge)
        dialled = plan.wanted_endpoints(new) if self._dial else {}
        self.carry_out(self.connections.leave(dialled, now))
        self._apply_servers(plan.wanted_servers(new), now)
        for key, view in self._views.items():
            self.carry_out(self.router.client_view(key, view(), now))
        self.carry_out(self.connections.join(dialled, now))

    def _apply_servers(self, wanted: dict[ServerKey, ServerSettings], now: float) -> None:
        supervisor, before = self.router.supervisor, self._servers
        self._servers = wanted
        for key in before.keys() - wanted.keys():
            self.carry_out(supervisor.unwanted(key, now, "was removed from the settings"))
        for key, server in wanted.items():
            known, manner = before.get(key), plan.manner(server)
            if known is None:
                self.carry_out(supervisor.wanted(key, manner, now))
            elif not known.same_process(server):
                self.carry_out(supervisor.renewed(key, manner, now, "is restarted: its settings changed"))
            elif known != server:
                self.carry_out(supervisor.treated(key, manner))

    def nudge(self) -> None:
        """Somebody thinks that it may work now: nothing waits for its next try."""
        now = time.monotonic()
        self.carry_out(self.router.supervisor.nudge(now))
        self.carry_out(self.router.dialling.nudge(now))

    # Servers

    def server(self, key: ServerKey) -> ServerSettings | None:
        """The settings of a server that is wanted."""
        return self._servers.get(key)

    def statuses(self) -> list[Status]:
        """Every server's state, in the order of the settings file."""
        return [Status(self.router.peers.servers[key]) for key in self._servers]

    async def settled(self, timeout: float | None = None, keys: Iterable[ServerKey] | None = None) -> bool:
        """Waits until each server is ready or has failed once; False when the time (seconds) was over first."""
        chosen = list(self._servers if keys is None else keys)
        try:
            async with asyncio.timeout(timeout):
                while not all(self._is_settled(key) for key in chosen):
                    news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._settling.append(news)
                    await news
        except TimeoutError:
            return False
        return True

    def _is_settled(self, key: ServerKey) -> bool:
        server = self.router.peers.servers.get(key)
        return server is None or server.settled

    # Clients

    def open_client(
        self, view: View | Callable[[], View], deliver: Deliver, endpoint: EndpointKey | None = None
    ) -> ClientKey:
        """A client's key for this connection; `deliver` gets each message for it and must not block.

        A view given as a function is asked again when the settings change.
        """
        now = view() if callable(view) else view
        key = ClientKey(f"{now.name}#{next(self._numbers)}")
        if callable(view):
            self._views[key] = view
        self._deliver[key] = deliver
        self.router.client_opened(key, now, endpoint)
        return key

    def client_message(self, key: ClientKey, data: bytes) -> None:
        """Routes one message of a client."""
        self.carry_out(self.router.client_message(key, data, time.monotonic()))

    def close_client(self, key: ClientKey) -> None:
        """Forgets a client; its open calls are cancelled."""
        self._views.pop(key, None)
        if self._deliver.pop(key, None) is not None:
            self.carry_out(self.router.client_closed(key, time.monotonic()))

    def local_client(self, view: View | None = None) -> LocalClient:
        """A client in this process, of every server unless a view says otherwise."""
        return LocalClient(self, view or plan.everything(self.settings))

    def owner(self, key: ClientKey, tool: str) -> str:
        """The name of the server that owns a tool this client sees; empty when there is none."""
        entry = self.router.peers.catalog_of(self.router.peers.clients[key]).tools.get(tool)
        return self.router.peers.servers[entry.server].name if entry else ""

    # Effects

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Does what the core decided, in its order."""
        for effect in effects:
            if type(effect) is ToClient:
                deliver = self._deliver.get(effect.to)
                if deliver is not None:
                    deliver(effect.data)
            elif type(effect) is ToServer:
                if not self._processes.send(effect.to, effect.data):
                    self.carry_out(self.router.undelivered(effect.to, effect.data, time.monotonic()))
            elif type(effect) is Note:
                self._note(effect)
            else:
                self._act(effect)
        self._set_timer()

    def _note(self, note: Note) -> None:
        if isinstance(note.fact, ServerState):
            waiting, self._settling = self._settling, []
            for news in waiting:
                if not news.done():
                    news.set_result(None)
        self.board.tell(note.fact)

    def _act(self, effect: Effect) -> None:
        match effect:
            case Start(server):
                self._processes.start(server)
            case Stop(server):
                self._processes.stop(server)
            case Acquire(endpoint):
                self.carry_out(self.connections.acquire(endpoint, time.monotonic()))
            case Dial(endpoint):
                self.connections.dial(endpoint)
            case HangUp(endpoint):
                self.connections.hang_up(endpoint)
            case Redial(client):
                self.connections.renew(client)

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
        self.carry_out(self.router.expire(time.monotonic()))
