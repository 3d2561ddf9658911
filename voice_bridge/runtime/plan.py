"""From the settings to what shall run: which servers, which connections, and who sees what. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from voice_bridge.config import EndpointSettings, ServerSettings, Settings
from voice_bridge.core.client import View
from voice_bridge.core.keys import EndpointKey, ServerKey
from voice_bridge.core.server import Manner

LOCAL_CALL_TIMEOUT = 600.0


def server_key(server: ServerSettings, endpoint: str) -> ServerKey:
    """The server that an endpoint uses: the one of all, or its own where the settings isolate it."""
    return ServerKey(f"{server.name}@{endpoint}" if server.isolate else server.name)


def wanted_servers(settings: Settings) -> dict[ServerKey, ServerSettings]:
    """What to run: one for each server, or one for each endpoint of an isolated server."""
    wanted: dict[ServerKey, ServerSettings] = {}
    for server in settings.enabled_servers:
        if server.isolate and settings.enabled_endpoints:
            for endpoint in settings.enabled_endpoints:
                if selected(server.name, endpoint.servers):
                    wanted[server_key(server, endpoint.name)] = server
        else:
            wanted[ServerKey(server.name)] = server
    return wanted


def wanted_endpoints(settings: Settings) -> dict[EndpointKey, EndpointSettings]:
    """What to dial: one connection for each endpoint, or one for each server that it sees."""
    wanted: dict[EndpointKey, EndpointSettings] = {}
    for endpoint in settings.enabled_endpoints:
        if endpoint.connection == "per-server":
            for server in _seen_by(settings, endpoint):
                wanted[EndpointKey(endpoint.name, server.name)] = endpoint
        else:
            wanted[EndpointKey(endpoint.name)] = endpoint
    return wanted


def manner(server: ServerSettings) -> Manner:
    """How the core is to treat a server."""
    return Manner(server.name, server.tools, server.call_timeout, server.start_timeout, server.transport != "stdio")


def view(settings: Settings, key: EndpointKey) -> View:
    """What a connection may see now: nothing when its endpoint is gone and it is yet to be closed."""
    endpoint = settings.endpoints.get(key.endpoint)
    if endpoint is None:
        return View(key.endpoint, ())
    chosen = [server for server in _seen_by(settings, endpoint) if key.only in (None, server.name)]
    return View(
        name=endpoint.name,
        servers=tuple(server_key(server, endpoint.name) for server in chosen),
        call_timeout=endpoint.call_timeout,
        max_result_bytes=endpoint.max_result_bytes,
        redial_on_change=endpoint.refresh == "reconnect",
    )


def everything(settings: Settings) -> View:
    """Every server, each once, for a client in this process."""
    first: dict[str, ServerKey] = {}
    for key, server in wanted_servers(settings).items():
        first.setdefault(server.name, key)
    return View("local", tuple(first.values()), call_timeout=LOCAL_CALL_TIMEOUT)


def _seen_by(settings: Settings, endpoint: EndpointSettings) -> list[ServerSettings]:
    return [server for server in settings.enabled_servers if selected(server.name, endpoint.servers)]


def selected(name: str, chosen: Iterable[str]) -> bool:
    """Whether an endpoint's `servers` include a name: `*` is all, `!name` leaves one out."""
    words = list(chosen)
    if f"!{name}" in words:
        return False
    return name in words or "*" in words or all(word.startswith("!") for word in words)
