"""Who wants to hear of what: list changes and resources, in each era's way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from voice_bridge.core.client import Client, Listen
from voice_bridge.core.effects import Effect, ToClient, ToServer
from voice_bridge.core.keys import ClientKey
from voice_bridge.core.peers import Params, Peers
from voice_bridge.core.pending import Own, Relisten
from voice_bridge.core.request import Request
from voice_bridge.core.server import Server
from voice_bridge.protocol import era, jsonrpc

LISTEN: Final = "subscriptions/listen"
CHANGES: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


def add_subscriber(peers: Peers, server: Server, uri: str, key: ClientKey, now: float) -> list[Effect]:
    """Subscribes at the server when this is the first who asks for that resource."""
    subscribers = server.subscribers.setdefault(uri, set())
    first = not subscribers
    subscribers.add(key)
    if not first or not server.ready:
        return []
    if server.modern:
        return listen_anew(peers, server, now)
    return peers.ask(server, "resources/subscribe", jsonrpc.dump({"uri": uri}), now)


def drop_subscriber(peers: Peers, server: Server, uri: str, key: ClientKey, now: float) -> list[Effect]:
    """Unsubscribes at the server when this was the last who asked for that resource."""
    subscribers = server.subscribers[uri]
    subscribers.discard(key)
    if subscribers:
        return []
    del server.subscribers[uri]
    if not server.ready:
        return []
    if server.modern:
        return listen_anew(peers, server, now)
    return peers.ask(server, "resources/unsubscribe", jsonrpc.dump({"uri": uri}), now)


def drop_all(peers: Peers, server: Server, key: ClientKey, now: float) -> list[Effect]:
    """A client no longer sees the server, or is gone."""
    wanted = [uri for uri, keys in server.subscribers.items() if key in keys]
    return [effect for uri in wanted for effect in drop_subscriber(peers, server, uri, key, now)]


def listen_anew(peers: Peers, server: Server, now: float) -> list[Effect]:
    """One subscription carries all wishes; the one before it ends when the new one is on its way (SEP-2575)."""
    earlier = [
        id_
        for id_, item in peers.pending.of_server(server.key)
        if isinstance(item, Relisten) or (isinstance(item, Own) and item.ask.method == LISTEN)
    ]
    open_ones = [id_ for id_ in earlier if isinstance(peers.pending.get(id_), Own)]
    server.listened_since = now
    effects = peers.ask(server, LISTEN, server.listen_params(), None)
    for id_ in earlier:
        peers.pending.close(id_)
    for id_ in open_ones:
        ended = jsonrpc.notification("notifications/cancelled", jsonrpc.dump({"requestId": id_}))
        effects.append(ToServer(server.key, ended))
    return effects


def listening_ended(peers: Peers, server: Server, now: float) -> list[Effect]:
    """A server ended our subscription, as it may: it is opened again after a while."""
    delay = server.listen_backoff.after_session(now - server.listened_since)
    peers.pending.add(Relisten(server.key, now + delay))
    return []


def resource_updated(peers: Peers, server: Server, params: Params) -> list[Effect]:
    """Tells those who subscribed, each in its own era's way."""
    method = "notifications/resources/updated"
    uri = jsonrpc.load(jsonrpc.members(params).get("uri", b"null"))
    if not isinstance(uri, str):
        return []
    effects: list[Effect] = []
    for key in sorted(server.subscribers.get(uri, ())):
        client = peers.clients.get(key)
        if client is None or server.key not in client.view.servers:
            continue
        if not client.modern:
            effects.append(ToClient(key, jsonrpc.notification(method, bytes(params))))
        heard = [listen for listen in client.listens.values() if uri in listen.uris]
        stamped = [era.stamped(bytes(params), listen.id) for listen in heard]
        effects += [ToClient(key, jsonrpc.notification(method, each)) for each in stamped]
    return effects


def restore(peers: Peers, server: Server, now: float) -> list[Effect]:
    """What a server that has just become ready must be told of its clients' wishes."""
    if server.modern:
        return listen_anew(peers, server, now)
    return [
        effect
        for uri in server.subscribers
        for effect in peers.ask(server, "resources/subscribe", jsonrpc.dump({"uri": uri}), now)
    ]


def listen(peers: Peers, request: Request) -> list[Effect]:
    """A subscription stays open until the client cancels it; its first message is the acknowledgement (SEP-2575)."""
    client = request.client
    wanted = jsonrpc.load(jsonrpc.members(request.params).get("notifications", b"{}"))
    wanted = wanted if isinstance(wanted, dict) else {}
    owned = _owned(peers, client, wanted.get("resourceSubscriptions"))
    honored: dict[str, object] = {key: True for key in CHANGES if wanted.get(key) is True}
    if owned:
        honored["resourceSubscriptions"] = list(owned)
    methods = frozenset(CHANGES[key] for key in honored if key in CHANGES)
    client.listens[jsonrpc.id_key(request.id)] = Listen(request.id, methods, frozenset(owned))
    if client.notified is None:
        client.notified = peers.catalog_of(client)
    acknowledged = era.stamped(jsonrpc.dump({"notifications": honored}), request.id)
    effects: list[Effect] = [
        ToClient(client.key, jsonrpc.notification("notifications/subscriptions/acknowledged", acknowledged))
    ]
    for uri, server in owned.items():
        effects += add_subscriber(peers, server, uri, client.key, request.now)
    return effects


def _owned(peers: Peers, client: Client, named: object) -> dict[str, Server]:
    """Of the resources that a client wants to hear of, those that some server has."""
    uris = [uri for uri in named if isinstance(uri, str)] if isinstance(named, list) else []
    owners = {uri: peers.catalog_of(client).owner_of_uri(uri) for uri in uris}
    return {uri: peers.servers[owner] for uri, owner in owners.items() if owner is not None}


def unlisten(peers: Peers, client: Client, wanted: bytes, now: float) -> list[Effect]:
    """A client ends its subscription."""
    ended = client.listens.pop(wanted)
    others = frozenset[str]().union(*(other.uris for other in client.listens.values()))
    return [
        effect
        for server in peers.visible(client)
        for uri in ended.uris - others
        if client.key in server.subscribers.get(uri, ())
        for effect in drop_subscriber(peers, server, uri, client.key, now)
    ]
