"""Keeps one server running: starts it, greets it, restarts it with backoff when it dies, stops it for good.

STARTING ──ready──▶ READY ──died──▶ BACKOFF ──delay──▶ STARTING
    └──────────could not start─────────┘ └─ too often ─▶ FAILED ──slowest pace──▶ STARTING
any state ──stop()──▶ STOPPED
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from voice_bridge.backoff import Backoff
from voice_bridge.config import BridgeSettings, ServerSettings
from voice_bridge.errors import ServerError
from voice_bridge.log import LOG
from voice_bridge.ports.servers.stdio import Child, Oversized
from voice_bridge.text import duration, plural

if TYPE_CHECKING:
    from voice_bridge.ports.servers.http import RemoteSession

QUICK_DEATHS_UNTIL_FAILED = 5
STILL_STARTING_EVERY = 15.0


class State(StrEnum):
    """Where a server is in its life."""

    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    FAILED = "failed"
    STOPPED = "stopped"


class Session(Protocol):
    """A running server, local or remote. `ended` resolves to the reason once it can no longer answer."""

    ended: asyncio.Future[str]

    def send(self, data: bytes) -> bool:
        """Passes one message on; False when the server does not take any more."""

    async def stop(self) -> None:
        """Ends the session and everything that belongs to it, within seconds."""


class Desk(Protocol):
    """What the supervisor tells the hub, and what it needs to know from it."""

    def started(self, session: Session) -> None:
        """The session is up: begin the handshake."""

    def received(self, line: bytes | Oversized) -> None:
        """The server wrote a message."""

    def exited(self, reason: str, *, gone: bool) -> None:
        """The server can no longer answer; `gone` when it will not be back soon."""


@dataclass(slots=True)
class Status:
    """What a person wants to know of one server; times are seconds."""

    name: str
    state: State = State.STARTING
    reason: str = ""
    pid: int | None = None
    took: float = 0.0
    restarts: int = 0
    tools: int = 0


class Supervised:
    """One server under supervision. `greeted` is to be called when its handshake ended, with its number of tools."""

    def __init__(self, server: ServerSettings, bridge: BridgeSettings, environ: Mapping[str, str], desk: Desk) -> None:
        self.server = server
        self.status = Status(server.name)
        self.settled = asyncio.Event()
        self._bridge, self._environ, self._desk = bridge, environ, desk
        self._backoff = Backoff(bridge.min_backoff, bridge.max_backoff, bridge.stable_after)
        self._handshake: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._quick_deaths = 0

    def greeted(self, failure: str | None, tools: int) -> None:
        """The handshake ended: well, or with the reason why not."""
        self.status.tools = tools
        if not self._handshake.done():
            self._handshake.set_result(failure)

    def stop(self) -> None:
        """Ends the supervision; `run` returns when the server is gone."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def run(self) -> None:
        """Supervises until stopped. Never raises for what a server does."""
        while not self._stopped.done():
            await self._one_life()
        self.status.state, self.status.pid = State.STOPPED, None
        self.settled.set()

    async def _one_life(self) -> None:
        began = time.monotonic()
        self.status.state = State.STARTING
        self._handshake = asyncio.get_running_loop().create_future()
        session: Session | None = None
        ready = False
        try:
            session = await self._open()
            self._desk.started(session)
            reason = await self._greet(session, began)
            if reason is None:
                ready = True
                self._is_ready(began)
                await self._wait(session.ended)
                reason = session.ended.result() if session.ended.done() else "was stopped"
        except ServerError as error:
            self._quick_deaths = QUICK_DEATHS_UNTIL_FAILED  # a missing command does not appear by itself
            reason = str(error)
        if self._stopped.done():
            self._desk.exited("was stopped", gone=True)
            if session is not None:
                await session.stop()
            return
        delay = self._plan(ready, time.monotonic() - began)
        self._ended(reason, delay)
        if session is not None:
            await session.stop()
        await self._wait(timeout=delay)
        self.status.restarts += 1

    async def _open(self) -> Session:
        if self.server.transport != "stdio":
            remote = await asyncio.to_thread(_remote)
            return remote(self.server, self._bridge.max_message_bytes, self._desk.received)
        child = await Child.spawn(self.server, self._environ, self._bridge.max_message_bytes, self._desk.received)
        self.status.pid = child.pid
        return child

    async def _greet(self, session: Session, began: float) -> str | None:
        """Waits for the handshake; the reason if it came to nothing."""
        deadline = began + self.server.start_timeout
        while (left := deadline - time.monotonic()) > 0:
            await self._wait(self._handshake, session.ended, timeout=min(left, STILL_STARTING_EVERY))
            if self._stopped.done():
                return "was stopped"
            if session.ended.done():
                return session.ended.result()
            if self._handshake.done():
                return self._handshake.result()
            LOG.info("%s: still starting after %.0f s", self.server.name, time.monotonic() - began)
        return f"was not ready within {self.server.start_timeout:g} s (startTimeout)"

    def _is_ready(self, began: float) -> None:
        self.status.state, self.status.reason = State.READY, ""
        self.status.took = time.monotonic() - began
        LOG.info("%s: ready in %.2f s, %s", self.server.name, self.status.took, plural(self.status.tools, "tool"))
        self.settled.set()

    def _plan(self, ready: bool, lived: float) -> float:
        """How long to wait before the next start."""
        stable = ready and lived >= self._bridge.stable_after
        self._quick_deaths = 1 if stable else self._quick_deaths + 1
        if self._quick_deaths > QUICK_DEATHS_UNTIL_FAILED:
            self.status.state = State.FAILED
            # A machine elsewhere may be back any minute; a program that keeps dying here needs a person.
            remote = self.server.transport != "stdio"
            return self._backoff.after_failure() if remote else self._bridge.max_backoff
        self.status.state = State.BACKOFF
        return self._backoff.after_session(lived) if stable else self._backoff.after_failure()

    def _ended(self, reason: str, delay: float) -> None:
        failed = self.status.state is State.FAILED
        self.status.reason, self.status.pid = reason, None
        self._desk.exited(reason, gone=failed)
        again = "gave up for now, next try in" if failed else "restarting in"
        if self.server.transport != "stdio":
            again = "next try in"
        LOG.warning("%s: %s; %s %s", self.server.name, reason, again, duration(delay))
        self.settled.set()

    async def _wait(self, *futures: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Until one of the futures is done, the supervision is stopped, or the time is over."""
        await asyncio.wait([*futures, self._stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _remote() -> type[RemoteSession]:
    """Imported with the first remote server, in a thread, because the SDK takes most of a second to load."""
    from voice_bridge.ports.servers.http import RemoteSession

    return RemoteSession
