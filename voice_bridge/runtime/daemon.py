"""The daemon: a hub of servers, links to the endpoints' clouds, reload when the settings change, an end on signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from voice_bridge import config
from voice_bridge.config import EndpointSettings, Settings
from voice_bridge.core.client import View
from voice_bridge.errors import ConfigError, UsageError
from voice_bridge.log import LOG
from voice_bridge.ownership.lock import EndpointLock
from voice_bridge.ports.clients.endpoint import Link
from voice_bridge.ports.servers import process as platforms
from voice_bridge.runtime.runtime import Hub
from voice_bridge.runtime.watch import watch

NO_ENDPOINT = (
    "no endpoint: set MCP_ENDPOINT to the wss:// address from your cloud's console "
    "(`make demo` and `voice-bridge demo` need none)"
)
REAP_EVERY = 2.0
Reload = Callable[[], Settings]
Task = asyncio.Task[None]


class _Plug:
    """Connects one link to the hub; the view follows the settings."""

    def __init__(self, bridge: Bridge, endpoint: str, only: str | None) -> None:
        self._bridge, self._endpoint, self._only = bridge, endpoint, only

    def opened(self, deliver: Callable[[bytes], None]) -> str:
        hub = self._bridge.hub
        return hub.open_client(lambda: self._bridge.view(self._endpoint, self._only), deliver)

    def message(self, key: str, data: bytes) -> None:
        self._bridge.hub.client_message(key, data)

    def busy(self, key: str) -> bool:
        return self._bridge.hub.router.owes(key)

    def closed(self, key: str) -> None:
        self._bridge.hub.close_client(key)


@dataclass(slots=True)
class _Dialling:
    """An endpoint in use: its settings, its lock and the tasks of its links."""

    endpoint: EndpointSettings
    lock: EndpointLock
    links: dict[str | None, tuple[Link, Task]]
    after: list[Task]


class Bridge:
    """Everything that runs. `reload` reads the settings again, if they come from a file."""

    def __init__(self, settings: Settings, reload: Reload | None = None) -> None:
        self.settings = settings
        self.hub = Hub(settings)
        self._reload = reload
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._dialling: dict[str, _Dialling] = {}

    async def run(self) -> None:
        """Bridges until SIGINT or SIGTERM.

        Raises UsageError when there is no endpoint or no server that can be used, or when another bridge on this
        machine serves an endpoint.
        """
        _report(self.settings)
        if not self.settings.enabled_endpoints:
            raise UsageError(_all_wrong(self.settings, "endpoint") or NO_ENDPOINT)
        if not self.settings.enabled_servers:
            nothing = f"no server is switched on in {self.settings.source}"
            raise UsageError(_all_wrong(self.settings, "server") or nothing)
        platforms.allow_files(256 + 4 * len(self.settings.enabled_endpoints) + 8 * len(self.settings.enabled_servers))
        locks = {
            endpoint.name: EndpointLock(endpoint.name, endpoint.url) for endpoint in self.settings.enabled_endpoints
        }
        with platforms.on_signals(self._stopping.set, self._changed.set):
            async with self.hub, asyncio.TaskGroup() as group:
                for endpoint in self.settings.enabled_endpoints:
                    self._dial(group, endpoint, locks[endpoint.name])
                helpers = [
                    group.create_task(self._follow_changes(group), name="reload"),
                    group.create_task(_reap(), name="reap"),
                ]
                if self._reload is not None and self.settings.source is not None:
                    helpers.append(group.create_task(watch(self.settings.source, self._changed), name="watch"))
                await self._stopping.wait()
                LOG.info("bridge: stopping")
                for task in helpers:
                    task.cancel()
                for name in list(self._dialling):
                    self._hang_up(name)

    def view(self, endpoint: str, only: str | None) -> View:
        """What a link of an endpoint may see now: nothing when the endpoint is gone and its connection yet to close."""
        settings = self.settings.endpoints.get(endpoint)
        return self.hub.view(settings, only) if settings else View(endpoint, ())

    # Links

    def _dial(
        self, group: asyncio.TaskGroup, endpoint: EndpointSettings, lock: EndpointLock, after: Iterable[Task] = ()
    ) -> None:
        dialling = self._dialling[endpoint.name] = _Dialling(endpoint, lock, {}, list(after))
        self._match_links(group, dialling)

    def _match_links(self, group: asyncio.TaskGroup, dialling: _Dialling) -> None:
        """One link for the endpoint, or one for each server it may see."""
        endpoint = dialling.endpoint
        wanted: list[str | None] = [None]
        if endpoint.connection == "per-server":
            wanted = list(self.hub.names_for(endpoint))
        for only in dialling.links.keys() - set(wanted):
            dialling.links.pop(only)[1].cancel()
        for only in wanted:
            if only not in dialling.links:
                name = endpoint.name if only is None else f"{endpoint.name}/{only}"
                link = Link(name, endpoint, self.settings.bridge, _Plug(self, endpoint.name, only))
                task = group.create_task(self._run_link(link, endpoint.name, only, dialling.after), name=f"link {name}")
                dialling.links[only] = (link, task)

    async def _run_link(self, link: Link, endpoint: str, only: str | None, after: list[Task]) -> None:
        if after:
            await asyncio.wait(after)  # a relay that is dialled before the old socket is gone forgets the new one too
        servers = self.view(endpoint, only).servers
        await link.run(lambda: self.hub.settled(self.settings.bridge.dial_after, servers))

    def _hang_up(self, name: str) -> list[Task]:
        """Closes an endpoint's links; the tasks that end when they are closed."""
        dialling = self._dialling.pop(name)
        for _, task in dialling.links.values():
            task.cancel()
        dialling.lock.release()
        return [task for _, task in dialling.links.values()]

    # Reload

    async def _follow_changes(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._reload is None:
                LOG.info("bridge: there is no settings file to read again")
                continue
            try:
                new = config.keep_working(self._reload(), self.settings)
            except ConfigError as error:
                LOG.error("%s; the settings in use stay", error)
                continue
            if new != self.settings:
                self._apply(group, new)

    def _apply(self, group: asyncio.TaskGroup, new: Settings) -> None:
        LOG.info("bridge: the settings changed")
        _report(new)
        if new.bridge != self.settings.bridge:
            LOG.info('bridge: "bridge" takes effect for connections and servers that start from now on')
        self.settings = new
        wanted = {endpoint.name: endpoint for endpoint in new.enabled_endpoints}
        closing: list[tuple[EndpointSettings, list[Task]]] = []
        for name, dialling in list(self._dialling.items()):
            if name not in wanted or not wanted[name].same_connection(dialling.endpoint):
                LOG.info("%s: hanging up: %s", name, "its address changed" if name in wanted else "no longer wanted")
                closing.append((dialling.endpoint, self._hang_up(name)))
        self.hub.apply(new)
        for name, endpoint in wanted.items():
            if name in self._dialling:
                self._dialling[name].endpoint = endpoint
                self._match_links(group, self._dialling[name])
                continue
            # An endpoint that only got another name dials the address that its old connection still holds.
            after = [task for old, ends in closing if name == old.name or endpoint.url == old.url for task in ends]
            try:
                self._dial(group, endpoint, EndpointLock(name, endpoint.url), after)
            except UsageError as error:
                LOG.error("%s", error)


async def _reap() -> None:
    """Keeps orphans of servers, which the system gives to us as their new parent, from staying as zombies."""
    while True:
        await asyncio.sleep(REAP_EVERY)
        platforms.reap_orphans()


def _report(settings: Settings) -> None:
    for sentence in (*settings.problems.values(), *settings.warnings):
        LOG.warning("%s", sentence)


def _all_wrong(settings: Settings, what: str) -> str:
    """Why nothing is left to run, if it is because every entry is wrong."""
    section = "endpoints." if what == "endpoint" else "mcpServers."
    wrong = [text for key, text in settings.problems.items() if key.startswith(section)]
    return f"no {what} can be used: {wrong[0]}" if wrong else ""
