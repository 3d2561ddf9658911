"""Calls of tools."""

from __future__ import annotations

from voice_bridge.core.effects import Effect
from voice_bridge.core.handlers.naming import Unnamed, name_in, with_name
from voice_bridge.core.peers import Peers
from voice_bridge.core.request import Request


def call(peers: Peers, request: Request) -> list[Effect]:
    """Passes a call on to the tool's owner."""
    try:
        name = name_in(request.params, "tool")
    except Unnamed as unnamed:
        return peers.invalid(request, f"tools/call: {unnamed}")
    entry = peers.catalog_of(request.client).tools.get(name)
    if entry is None:
        return peers.invalid(request, _unknown(peers, request, name))
    if entry.original != name:
        request = request._replace(params=with_name(request.params, entry.original))
    return peers.forward(request, peers.servers[entry.server], name)


def _unknown(peers: Peers, request: Request, name: str) -> str:
    announced = request.client.announced
    gone = announced.tools.get(name) if announced else None
    if gone is not None and gone.server in peers.servers:
        server = peers.servers[gone.server]
        why = f" ({server.reason})" if server.reason else ""
        return f"server {server.name} no longer offers the tool {name!r}{why}"
    return f"there is no tool {name!r}"
