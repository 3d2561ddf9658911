"""Notifications both ways: each finds those it is for."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from voice_bridge.core.client import Client
from voice_bridge.core.effects import Effect, ToClient, ToServer
from voice_bridge.core.handlers.logs import logged
from voice_bridge.core.handlers.questions import withdrawn
from voice_bridge.core.handlers.subscriptions import resource_updated, unlisten
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Asked, Call, Delayed, Held, Reread, minted
from voice_bridge.core.request import Params
from voice_bridge.core.server import Server
from voice_bridge.protocol import jsonrpc

REREAD_DELAY: Final = 0.1
_PROGRESS: Final = "notifications/progress"
_NO_ID: Final = Raw(jsonrpc.NULL)


def from_client(peers: Peers, client: Client, method: str, params: Params, now: float) -> list[Effect]:
    """A notification of a client: cancellation and progress find their server, the rest is for us."""
    if method == "notifications/cancelled":
        return _cancelled(peers, client, params, now)
    if method == _PROGRESS:
        return _progress_down(peers, client, params)
    if method == "notifications/roots/list_changed":
        told = [s for s in peers.visible(client) if s.ready and not s.modern and "roots" in s.declared]
        return [ToServer(server.key, jsonrpc.notification(method)) for server in told]
    return []


def _cancelled(peers: Peers, client: Client, params: Params, now: float) -> list[Effect]:
    """The receiver of a cancellation does not answer the request any more (MCP 2025-11-25, Cancellation)."""
    members = jsonrpc.members(params)
    wanted = jsonrpc.id_key(bytes(members.get("requestId", _NO_ID)))
    if wanted in client.listens:
        return unlisten(peers, client, wanted, now)
    reason = jsonrpc.load(members.get("reason", _NO_ID))
    for id_, item in reversed(list(peers.pending.of_client(client))):
        if isinstance(item, Asked) or jsonrpc.id_key(item.id) != wanted:
            continue
        if isinstance(item, Call):
            cancelled = peers.cancel(id_, item, reason if isinstance(reason, str) else "cancelled by the client")
            return [*cancelled, peers.ended(id_, item, "cancelled", now)]
        assert isinstance(item, Held | Delayed)
        peers.pending.close(id_)
        break
    return []


def _progress_down(peers: Peers, client: Client, params: Params) -> list[Effect]:
    members = jsonrpc.members(params)
    item = peers.pending.get(minted(members.get("progressToken")))
    if not isinstance(item, Asked) or item.client is not client or item.token is None:
        return []
    members["progressToken"] = Raw(item.token)
    return [ToServer(item.server, jsonrpc.notification(_PROGRESS, jsonrpc.dump(members)))]


def from_server(
    peers: Peers, server: Server, method: str, params: Params, now: float, related: int | None
) -> list[Effect]:
    """A notification of a server."""
    if method == _PROGRESS:
        return _progress_up(peers, server, params, now)
    if method == "notifications/message":
        return logged(peers, server, params, related)
    if method == "notifications/resources/updated":
        return resource_updated(peers, server, params)
    if method == "notifications/cancelled":
        return withdrawn(peers, server, params)
    for kind in server.kinds_changed(method):
        reread_soon(peers, server, kind, now + REREAD_DELAY)
    return []


def reread_soon(peers: Peers, server: Server, kind: str, at: float) -> None:
    """Reads a list again at that time, once however often it is asked for meanwhile."""
    waiting = [item for _, item in peers.pending.of_server(server.key) if isinstance(item, Reread)]
    if not any(item.kind == kind for item in waiting):
        peers.pending.add(Reread(server.key, kind, at))


def _progress_up(peers: Peers, server: Server, params: Params, now: float) -> list[Effect]:
    """Progress extends a call's time, up to a hard cap, and goes to its caller if that asked for it."""
    members = jsonrpc.members(params)
    call = peers.pending.get(minted(members.get("progressToken")))
    if not isinstance(call, Call) or call.server != server.key:
        return []
    call.deadline = min(call.hard_deadline, now + call.timeout)
    if call.token is None:
        return []
    members["progressToken"] = Raw(call.token)
    return [ToClient(call.client.key, jsonrpc.notification(_PROGRESS, jsonrpc.dump(members)))]
