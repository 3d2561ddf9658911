"""What is passed on besides requests of clients: notifications both ways, and what servers ask of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Raw

from voice_bridge.core.client import LOG_LEVELS, Client, Send
from voice_bridge.core.handlers.subscriptions import drop_subscriber, resource_updated
from voice_bridge.core.pending import Asked, Call, Held, Reread, minted
from voice_bridge.core.server import Server
from voice_bridge.log import LOG
from voice_bridge.protocol import era, jsonrpc

if TYPE_CHECKING:
    from voice_bridge.core.router import Router

Params = bytes | Raw
REREAD_DELAY: Final = 0.1
ASKED_TIMEOUT: Final = 600.0
_NEEDED_CAPABILITY: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
_NO_ID: Final = Raw(jsonrpc.NULL)


# From a client


def from_client(router: Router, client: Client, method: str, params: Params) -> list[Send]:
    """A notification of a client: cancellation and progress find their server, the rest is for us."""
    if method == "notifications/cancelled":
        return _cancelled(router, client, params)
    if method == "notifications/progress":
        return _progress_down(router, client, params)
    if method == "notifications/roots/list_changed":
        notice = jsonrpc.notification(method)
        servers = [server for server in router.visible(client) if server.state == "ready" and not server.modern]
        return [Send(server.key, notice) for server in servers]
    return []


def _cancelled(router: Router, client: Client, params: Params) -> list[Send]:
    """The receiver of a cancellation does not answer the request any more (MCP 2025-11-25, Cancellation)."""
    members = jsonrpc.members(params)
    wanted = jsonrpc.id_key(bytes(members.get("requestId", _NO_ID)))
    if wanted in client.listens:
        return _unlisten(router, client, wanted)
    reason = jsonrpc.load(members.get("reason", _NO_ID))
    for id_, item in reversed(list(router.ledger.of_client(client))):
        if isinstance(item, Call | Held) and jsonrpc.id_key(item.id) == wanted:
            if isinstance(item, Call):
                return router.cancel(id_, item, reason if isinstance(reason, str) else "cancelled by the client")
            router.ledger.close(id_)
            break
    return []


def _unlisten(router: Router, client: Client, wanted: bytes) -> list[Send]:
    ended = client.listens.pop(wanted)
    others = frozenset[str]().union(*(other.uris for other in client.listens.values()))
    return [
        send
        for server in router.visible(client)
        for uri in ended.uris - others
        if client.key in server.subscribers.get(uri, ())
        for send in drop_subscriber(router, server, uri, client.key)
    ]


def _progress_down(router: Router, client: Client, params: Params) -> list[Send]:
    members = jsonrpc.members(params)
    item = router.ledger.get(minted(members.get("progressToken")))
    if not isinstance(item, Asked) or item.client is not client or item.token is None:
        return []
    members["progressToken"] = Raw(item.token)
    return [Send(item.server, jsonrpc.notification("notifications/progress", jsonrpc.dump(members)))]


def client_answered(router: Router, client: Client, message: jsonrpc.Envelope) -> list[Send]:
    """A client's answer to what a server asked of it."""
    id_ = minted(message.id)
    item = router.ledger.get(id_)
    if id_ is None or not isinstance(item, Asked) or item.client is not client:
        LOG.debug("%s: dropped an answer nobody asked for", client.view.name)
        return []
    router.ledger.close(id_)
    if message.result is UNSET and message.error is not UNSET:
        return [Send(item.server, jsonrpc.one_line(jsonrpc.error_raw(item.id, message.error)))]
    return [Send(item.server, jsonrpc.one_line(jsonrpc.result(item.id, message.result or jsonrpc.NULL)))]


# From a server


def from_server(router: Router, server: Server, method: str, params: Params, now: float) -> list[Send]:
    """A notification of a server: each finds those it is for."""
    if method == "notifications/progress":
        return _progress_up(router, server, params, now)
    if method == "notifications/message":
        return _logged(router, server, params)
    if method == "notifications/resources/updated":
        return resource_updated(router, server, params)
    if method == "notifications/cancelled":
        return _ask_withdrawn(router, server, params)
    for kind in server.kinds_changed(method):
        waiting = [item for _, item in router.ledger.of_server(server.key) if isinstance(item, Reread)]
        if not any(item.kind == kind for item in waiting):
            router.ledger.open(router.ledger.mint(), Reread(server.key, kind, now + REREAD_DELAY))
    return []


def _progress_up(router: Router, server: Server, params: Params, now: float) -> list[Send]:
    """Progress goes to its caller and extends the call's time, up to a hard cap."""
    members = jsonrpc.members(params)
    call = router.ledger.get(minted(members.get("progressToken")))
    if not isinstance(call, Call) or call.server != server.key or call.token is None:
        return []
    call.deadline = min(call.hard_deadline, now + call.timeout)
    members["progressToken"] = Raw(call.token)
    return [Send(call.client.key, jsonrpc.notification("notifications/progress", jsonrpc.dump(members)))]


def _logged(router: Router, server: Server, params: Params) -> list[Send]:
    level = jsonrpc.load(jsonrpc.members(params).get("level", _NO_ID))
    rank = LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
    message = jsonrpc.notification("notifications/message", params)
    clients = list(router.viewers(server))
    asked = _asked_for_logs(router, server, rank) if any(client.modern for client in clients) else set()
    return [
        Send(client.key, message)
        for client in clients
        if (client.key in asked if client.modern else client.initialized and rank >= client.log_level)
    ]


def _asked_for_logs(router: Router, server: Server, rank: int) -> set[str]:
    """The clients of the new era that want to hear a message of that level: it is asked for call by call (SEP-2577)."""
    return {
        call.client.key
        for _, call in router.ledger.of_server(server.key)
        if isinstance(call, Call) and call.log_level in LOG_LEVELS and rank >= LOG_LEVELS.index(call.log_level)
    }


def _ask_withdrawn(router: Router, server: Server, params: Params) -> list[Send]:
    members = jsonrpc.members(params)
    wanted = jsonrpc.id_key(bytes(members.get("requestId", _NO_ID)))
    for id_, item in router.ledger.of_server(server.key):
        if isinstance(item, Asked) and jsonrpc.id_key(item.id) == wanted:
            members["requestId"] = Raw(b"%d" % id_)
            router.ledger.close(id_)
            return [Send(item.client.key, jsonrpc.notification("notifications/cancelled", jsonrpc.dump(members)))]
    return []


def asked_by_server(router: Router, server: Server, id_: bytes, method: str, params: Params, now: float) -> list[Send]:
    """A server's request: passed to the client it works for if that can answer, else refused at once."""
    if method == "ping":
        return [Send(server.key, jsonrpc.result(id_, jsonrpc.EMPTY))]
    client = _caller_of(router, server)
    needed = _NEEDED_CAPABILITY.get(method)
    if client is None or needed is None or needed not in client.capabilities:
        text = f"the client does not offer {method}"
        return [Send(server.key, jsonrpc.error(id_, jsonrpc.METHOD_NOT_FOUND, text))]
    own_id = router.ledger.mint()
    token = era.progress_token(params)
    router.ledger.open(own_id, Asked(server.key, id_, client, token, now + ASKED_TIMEOUT))
    if token is not None:
        params = era.with_token(params, b"%d" % own_id)
    return [Send(client.key, jsonrpc.request(own_id, method, params))]


def _caller_of(router: Router, server: Server) -> Client | None:
    """The client on whose behalf a server asks: the one that called it last and still waits."""
    for item in router.ledger.newest_first():
        if isinstance(item, Call) and item.server == server.key:
            return item.client
    return None
