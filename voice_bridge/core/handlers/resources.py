"""Resources: read where they are, and subscribed to there for as long as somebody wants to hear of them."""

from __future__ import annotations

from voice_bridge.core.effects import Effect
from voice_bridge.core.handlers.subscriptions import add_subscriber, drop_subscriber
from voice_bridge.core.peers import Peers
from voice_bridge.core.request import Params, Request
from voice_bridge.core.server import Server
from voice_bridge.protocol import jsonrpc, methods


def read(peers: Peers, request: Request) -> list[Effect]:
    """Asks the resource's owner for it."""
    server = _owner_of(peers, request)
    return _unknown(peers, request) if server is None else peers.forward(request, server)


def subscribe(peers: Peers, request: Request) -> list[Effect]:
    """The client hears of changes from now on."""
    server, uri = _owner_of(peers, request), _uri(request.params)
    if server is None or uri is None:
        return _unknown(peers, request)
    subscribed = add_subscriber(peers, server, uri, request.client.key, request.now)
    return subscribed + peers.answer(request, jsonrpc.EMPTY)


def unsubscribe(peers: Peers, request: Request) -> list[Effect]:
    """The client hears of changes no more."""
    uri, key = _uri(request.params), request.client.key
    if uri is None:
        return _unknown(peers, request)
    effects = [
        effect
        for server in peers.visible(request.client)
        if key in server.subscribers.get(uri, ())
        for effect in drop_subscriber(peers, server, uri, key, request.now)
    ]
    return effects + peers.answer(request, jsonrpc.EMPTY)


def _uri(params: Params) -> str | None:
    uri = jsonrpc.load(jsonrpc.members(params).get("uri", b"null"))
    return uri if isinstance(uri, str) else None


def _owner_of(peers: Peers, request: Request) -> Server | None:
    uri = _uri(request.params)
    owner = peers.catalog_of(request.client).owner_of_uri(uri) if uri is not None else None
    return peers.servers.get(owner) if owner is not None else None


def _unknown(peers: Peers, request: Request) -> list[Effect]:
    uri = bytes(jsonrpc.members(request.params).get("uri", b"null"))
    code = methods.unknown_resource(modern=request.client.modern)
    return peers.refuse(request, code, f"no server has a resource {uri.decode()}")
