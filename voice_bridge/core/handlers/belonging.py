"""Whose call it is that a server speaks of."""

from __future__ import annotations

from voice_bridge.core.client import Client
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Call
from voice_bridge.core.server import Server


def callers_of(peers: Peers, server: Server, related: int | None) -> list[Client]:
    """The clients on whose behalf a server may be speaking: one where it is known, several where it is not.

    `related` is the request that a transport brought the message in answer to, where it tells.
    """
    call = peers.pending.get(related)
    if isinstance(call, Call) and call.server == server.key:
        return [call.client]
    found = {item.client.key: item.client for _, item in peers.pending.of_server(server.key) if isinstance(item, Call)}
    return list(found.values())
