"""Servers as they run: each is opened, heard, and ended here, and what became of it goes back into the core."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from voice_bridge.config import ServerSettings, Settings
from voice_bridge.core.effects import Effect, Note
from voice_bridge.core.facts import Fact, Fault, Remark, ServerSaid
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.router import Router
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers.port import Oversized, ServerListener, ServerPort
from voice_bridge.ports.servers.stdio import Child
from voice_bridge.runtime.tasks import Tasks
from voice_bridge.text import one_line


class ProcessesHost(Protocol):
    """What servers need of the runtime that they run in."""

    settings: Settings
    router: Router
    tasks: Tasks

    def server(self, key: ServerKey) -> ServerSettings | None:
        """The settings of a server that is wanted."""

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Does what the core decided."""


class Processes:
    """The ports of all servers that run."""

    def __init__(self, house: ProcessesHost) -> None:
        self._house = house
        self._running: dict[ServerKey, _Running] = {}
        self._opening: dict[ServerKey, asyncio.Task[None]] = {}

    def send(self, key: ServerKey, data: bytes) -> bool:
        """Hands a message to a server; False when it does not take it."""
        running = self._running.get(key)
        return running is None or running.port.send(data)  # one that is ending: its calls are answered by its end

    def start(self, key: ServerKey) -> None:
        """Opens a server."""
        self._opening[key] = self._house.tasks.run(f"server {key}", self._open(key))

    async def _open(self, key: ServerKey) -> None:
        supervisor, ear = self._house.router.supervisor, _Ear(self._house, key)
        try:
            port = await self._opened(key, ear)
        except ServerError as error:
            self._failed(key, str(error), passing=error.passing)
        except asyncio.CancelledError:
            self._house.carry_out(supervisor.gone(key, time.monotonic()))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong there is this server's trouble only
            self._house.carry_out([Note(Fault(key, traceback.format_exc()))])
            self._failed(key, f"cannot start: {type(error).__name__}: {error}", passing=True)
        else:
            self._running[key] = _Running(port, ear)
            self._house.carry_out(supervisor.opened(key, port.pid, time.monotonic()))
            port.ended.add_done_callback(lambda ended: ear.ended(ended.result()))
        finally:
            self._opening.pop(key, None)

    async def _opened(self, key: ServerKey, hears: ServerListener) -> ServerPort:
        server, settings = self._house.server(key), self._house.settings
        if server is None:
            raise ServerError("is not wanted any more")
        limit = settings.bridge.max_message_bytes
        if server.transport == "stdio":
            return await Child.spawn(server, settings.environ_for(server), limit, hears)
        remote = await asyncio.to_thread(_remote)
        return remote(server, limit, hears)

    def _failed(self, key: ServerKey, reason: str, *, passing: bool) -> None:
        self._house.carry_out(self._house.router.supervisor.failed(key, reason, time.monotonic(), passing=passing))

    def stop(self, key: ServerKey) -> None:
        """Ends whatever is left of a server; from now on it is not heard any more."""
        running, opening = self._running.pop(key, None), self._opening.get(key)
        if running is not None:
            running.ear.detached = True
            self._house.tasks.run(f"end of server {key}", self._stop(key, running.port))
        elif opening is not None:
            opening.cancel()

    async def _stop(self, key: ServerKey, port: ServerPort) -> None:
        try:
            await port.stop()
        finally:
            self._house.carry_out(self._house.router.supervisor.gone(key, time.monotonic()))


class _Ear:
    """Passes on what one port of a server tells. Detached, what an old process still says is not heard."""

    def __init__(self, house: ProcessesHost, key: ServerKey) -> None:
        self._house, self._key = house, key
        self.detached = False

    def received(self, message: bytes | Oversized, related: int | None = None) -> None:
        if self.detached:
            return
        router, now = self._house.router, time.monotonic()
        if isinstance(message, bytes):
            self._house.carry_out(router.server_message(self._key, message, now, related))
        else:
            limit = self._house.settings.bridge.max_message_bytes
            self._house.carry_out(router.server_oversized(self._key, message.ends, message.size, limit, now))

    def said(self, text: str) -> None:
        self._tell(ServerSaid(self._name, text))

    def remarked(self, text: str) -> None:
        self._tell(Remark(self._name, text, "warning"))

    def ended(self, reason: str) -> None:
        if not self.detached:
            self._house.carry_out(self._house.router.supervisor.ended(self._key, reason, time.monotonic()))

    @property
    def _name(self) -> str:
        server = self._house.server(self._key)
        return server.name if server is not None else self._key

    def _tell(self, fact: Fact) -> None:
        self._house.carry_out([Note(fact)])


class _Running(NamedTuple):
    port: ServerPort
    ear: _Ear


def _remote() -> Callable[[ServerSettings, int, ServerListener], ServerPort]:
    """Imported with the first remote server, in a thread, because the SDK takes most of a second to load.

    Raises ServerError, and nothing else: a library that does not fit this machine costs the remote servers only.
    """
    try:
        from voice_bridge.ports.servers.http import RemoteSession
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a library does while it is loaded
        what = one_line(f"{type(error).__name__}: {error}")
        text = f"cannot start: the part for remote servers cannot be loaded: {what}; install mcp-voice-bridge anew"
        raise ServerError(text) from None
    return RemoteSession
