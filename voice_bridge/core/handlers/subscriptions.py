"""Who wants to hear of what: list changes, resources, log levels; in each era's way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from voice_bridge.core.client import LOG_LEVELS, Client, Listen, Send
from voice_bridge.core.pending import Own
from voice_bridge.core.server import Server
from voice_bridge.protocol import era, jsonrpc

if TYPE_CHECKING:
    from voice_bridge.core.router import Router

CHANGE_NOTICES: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


def to(client: Client, data: bytes) -> list[Send]:
    """One message to a client."""
    return [Send(client.key, data)]


def add_subscriber(router: Router, server: Server, uri: str, key: str) -> list[Send]:
    """Subscribes at the server when this is the first who asks for that resource."""
    subscribers = server.subscribers.setdefault(uri, set())
    first = not subscribers
    subscribers.add(key)
    if not first or server.state != "ready":
        return []
    if server.modern:
        return _listen_anew(router, server)
    return router.ask(server, "resources/subscribe", jsonrpc.dump({"uri": uri}))


def drop_subscriber(router: Router, server: Server, uri: str, key: str) -> list[Send]:
    """Unsubscribes at the server when this was the last who asked for that resource."""
    subscribers = server.subscribers[uri]
    subscribers.discard(key)
    if subscribers:
        return []
    del server.subscribers[uri]
    if server.state != "ready":
        return []
    if server.modern:
        return _listen_anew(router, server)
    return router.ask(server, "resources/unsubscribe", jsonrpc.dump({"uri": uri}))


def _listen_anew(router: Router, server: Server) -> list[Send]:
    """One subscription carries all wishes; the one before it ends when the new one is on its way (SEP-2575)."""
    earlier = [
        id_
        for id_, item in router.ledger.of_server(server.key)
        if isinstance(item, Own) and item.ask.method == "subscriptions/listen"
    ]
    sends = router.ask(server, "subscriptions/listen", server.listen_params())
    for id_ in earlier:
        router.ledger.close(id_)
        ended = jsonrpc.notification("notifications/cancelled", jsonrpc.dump({"requestId": id_}))
        sends.append(Send(server.key, ended))
    return sends


def resource_updated(router: Router, server: Server, params: bytes | Raw) -> list[Send]:
    """Tells those who subscribed, each in its own era's way."""
    method = "notifications/resources/updated"
    uri = jsonrpc.load(jsonrpc.members(params).get("uri", b"null"))
    if not isinstance(uri, str):
        return []
    sends = []
    for key in sorted(server.subscribers.get(uri, ())):
        client = router.clients.get(key)
        if client is None:
            continue
        if not client.modern:
            sends.append(Send(key, jsonrpc.notification(method, bytes(params))))
        heard = [listen for listen in client.listens.values() if uri in listen.uris]
        sends += [Send(key, jsonrpc.notification(method, era.stamped(bytes(params), listen.id))) for listen in heard]
    return sends


def ask_level(router: Router, server: Server) -> list[Send]:
    """Asks the server for the most talkative level that one of its clients wants."""
    if "logging" not in server.capabilities or server.modern or server.state != "ready":
        return []
    wanted = [client.log_level for client in router.clients.values() if server.key in client.view.servers]
    level = LOG_LEVELS[min(wanted, default=0)]
    return router.ask(server, "logging/setLevel", jsonrpc.dump({"level": level}))


def restore(router: Router, server: Server) -> list[Send]:
    """What a server that has just become ready must be told of its clients' wishes."""
    if server.modern:
        return _listen_anew(router, server)
    sends = [
        send
        for uri in server.subscribers
        for send in router.ask(server, "resources/subscribe", jsonrpc.dump({"uri": uri}))
    ]
    if any(client.log_level for client in router.clients.values() if server.key in client.view.servers):
        sends += ask_level(router, server)
    return sends


def listen(router: Router, client: Client, id_: bytes, params: bytes | Raw) -> list[Send]:
    """A subscription stays open until the client cancels it; its first message is the acknowledgement (SEP-2575)."""
    wanted = jsonrpc.load(jsonrpc.members(params).get("notifications", b"{}"))
    wanted = wanted if isinstance(wanted, dict) else {}
    named = wanted.get("resourceSubscriptions")
    uris = [uri for uri in named if isinstance(uri, str)] if isinstance(named, list) else []
    honored: dict[str, object] = {key: True for key in CHANGE_NOTICES if wanted.get(key) is True}
    if uris:
        honored["resourceSubscriptions"] = uris
    methods = frozenset(CHANGE_NOTICES[key] for key in honored if key in CHANGE_NOTICES)
    client.listens[jsonrpc.id_key(id_)] = Listen(id_, methods, frozenset(uris))
    if client.notified is None:
        client.notified = router.catalog_of(client)
    acknowledged = era.stamped(jsonrpc.dump({"notifications": honored}), id_)
    sends = to(client, jsonrpc.notification("notifications/subscriptions/acknowledged", acknowledged))
    for uri in uris:
        owner = router.catalog_of(client).owner_of_uri(uri)
        if owner is not None:
            sends += add_subscriber(router, router.servers[owner], uri, client.key)
    return sends


def tell(client: Client, kind: str) -> list[Send]:
    """The notice that a list changed, to those who want it."""
    method = f"notifications/{kind}/list_changed"
    if client.modern:
        heard = [listen for listen in client.listens.values() if method in listen.methods]
        notices = [jsonrpc.notification(method, era.stamped(b"", listen.id)) for listen in heard]
        return [send for notice in notices for send in to(client, notice)]
    return to(client, jsonrpc.notification(method)) if client.initialized else []
