"""Lists: always from memory, and held a little while servers start."""

from __future__ import annotations

from collections.abc import Callable

from voice_bridge.core.effects import Effect
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Held
from voice_bridge.core.request import Request
from voice_bridge.protocol import jsonrpc


def of(kind: str) -> Callable[[Peers, Request], list[Effect]]:
    """The handler for one kind of list."""

    def listed(peers: Peers, request: Request) -> list[Effect]:
        cursor = jsonrpc.members(request.params).get("cursor") if request.params else None
        if cursor is not None and bytes(cursor) not in (jsonrpc.NULL, b'""'):
            return peers.invalid(request, "unknown cursor: the whole list comes on one page")
        if peers.hold(request, kind):
            return []
        return peers.listing(request.client, request.id, kind, request.now)

    return listed


def release(peers: Peers, now: float) -> list[Effect]:
    """Answers the list requests whose servers are all settled."""
    effects: list[Effect] = []
    for id_, item in peers.pending.items():
        if isinstance(item, Held) and not peers.awaited(item.client, now):
            peers.pending.close(id_)
            effects += peers.listing(item.client, item.id, item.kind, now)
    return effects
