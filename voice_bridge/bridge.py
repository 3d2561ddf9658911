"""The daemon: a hub of servers, a link for each endpoint, and the signals that end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voice_bridge import platforms
from voice_bridge.config import EndpointSettings, Settings
from voice_bridge.errors import UsageError
from voice_bridge.hub import Hub
from voice_bridge.link import Link
from voice_bridge.log import LOG

NO_ENDPOINT = (
    "no endpoint: set MCP_ENDPOINT to the wss:// address from your cloud's console "
    "(`make demo` and `voice-bridge demo` need none)"
)


class _Plug:
    """Connects a link to the hub with an endpoint's view."""

    def __init__(self, hub: Hub, endpoint: EndpointSettings) -> None:
        self._hub, self._endpoint = hub, endpoint

    def opened(self, deliver: Callable[[bytes], None]) -> str:
        return self._hub.open_client(self._hub.view(self._endpoint), deliver)

    def message(self, key: str, data: bytes) -> None:
        self._hub.client_message(key, data)

    def closed(self, key: str) -> None:
        self._hub.close_client(key)


async def serve(settings: Settings) -> None:
    """Bridges until SIGINT or SIGTERM.

    Raises UsageError when the settings have no endpoint or no server that can run.
    """
    for sentence in (*settings.problems.values(), *settings.warnings):
        LOG.warning("%s", sentence)
    if not settings.enabled_endpoints:
        raise UsageError(_missing(settings, "endpoint") or NO_ENDPOINT)
    if not settings.enabled_servers:
        raise UsageError(_missing(settings, "server") or f"no server is switched on in {settings.source}")
    stop = asyncio.Event()
    with platforms.ending_signals(stop.set):
        async with Hub(settings) as hub, asyncio.TaskGroup() as links:
            tasks = [
                links.create_task(_run_link(hub, settings, endpoint), name=f"link {endpoint.name}")
                for endpoint in settings.enabled_endpoints
            ]
            await stop.wait()
            LOG.info("bridge: stopping")
            for task in tasks:
                task.cancel()


async def _run_link(hub: Hub, settings: Settings, endpoint: EndpointSettings) -> None:
    link = Link(endpoint.name, endpoint, settings.bridge, _Plug(hub, endpoint))
    servers = hub.view(endpoint).servers
    await link.run(lambda: hub.settled(settings.bridge.dial_after, servers))


def _missing(settings: Settings, what: str) -> str:
    """Why nothing is left to run, if it is because every entry is wrong."""
    wrong = list(settings.problems.values())
    return f"no {what} can be used: {wrong[0]}" if wrong else ""
