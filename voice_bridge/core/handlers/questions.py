"""What servers ask of clients: sampling, elicitation, roots."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from voice_bridge.core.client import Client
from voice_bridge.core.effects import Effect, Note, ToClient, ToServer
from voice_bridge.core.facts import Remark
from voice_bridge.core.handlers.belonging import callers_of
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Asked, minted
from voice_bridge.core.request import Params
from voice_bridge.core.server import Server
from voice_bridge.protocol import capabilities, era, jsonrpc

ASKED_TIMEOUT: Final = 600.0
_NO_ID: Final = Raw(jsonrpc.NULL)


def asked_by_server(
    peers: Peers, server: Server, id_: bytes, method: str, params: Params, now: float, related: int | None
) -> list[Effect]:
    """A server's request goes to the client whose call it belongs to; refused at once where that cannot be known."""
    if method == "ping":
        return [ToServer(server.key, jsonrpc.result(id_, jsonrpc.EMPTY))]
    callers = callers_of(peers, server, related)
    needed = capabilities.NEEDED.get(method)
    if len(callers) > 1:
        text = f"several clients are being served, so it cannot be known whom {method} is for"
        return [ToServer(server.key, jsonrpc.error(id_, jsonrpc.INTERNAL_ERROR, text))]
    if not callers or needed is None or needed not in callers[0].capabilities:
        text = f"the client does not offer {method}"
        return [ToServer(server.key, jsonrpc.error(id_, jsonrpc.METHOD_NOT_FOUND, text))]
    token = era.progress_token(params)
    own_id = peers.pending.add(Asked(server.key, id_, callers[0], token, now + ASKED_TIMEOUT))
    if token is not None:
        params = era.with_token(params, b"%d" % own_id)
    return [ToClient(callers[0].key, jsonrpc.request(own_id, method, params))]


def answered_by_client(peers: Peers, client: Client, message: jsonrpc.Envelope) -> list[Effect]:
    """A client's answer to what a server asked of it."""
    id_ = minted(message.id)
    item = peers.pending.get(id_)
    if id_ is None or not isinstance(item, Asked) or item.client is not client:
        return [Note(Remark(client.view.name, "dropped an answer nobody asked for", "debug"))]
    peers.pending.close(id_)
    if not isinstance(message.result, Raw) and isinstance(message.error, Raw):
        return [ToServer(item.server, jsonrpc.one_line(jsonrpc.error_raw(item.id, message.error)))]
    result = message.result if isinstance(message.result, Raw) else jsonrpc.NULL
    return [ToServer(item.server, jsonrpc.one_line(jsonrpc.result(item.id, result)))]


def withdrawn(peers: Peers, server: Server, params: Params) -> list[Effect]:
    """A server no longer wants to know."""
    members = jsonrpc.members(params)
    wanted = jsonrpc.id_key(bytes(members.get("requestId", _NO_ID)))
    reason = jsonrpc.load(members.get("reason", _NO_ID))
    for id_, item in peers.pending.of_server(server.key):
        if isinstance(item, Asked) and jsonrpc.id_key(item.id) == wanted:
            peers.pending.close(id_)
            return [called_off(id_, item, reason if isinstance(reason, str) else "")]
    return []


def called_off(id_: int, item: Asked, reason: str) -> Effect:
    """Tells a client that its answer is not wanted any more."""
    params = {"requestId": id_, "reason": reason} if reason else {"requestId": id_}
    return ToClient(item.client.key, jsonrpc.notification("notifications/cancelled", jsonrpc.dump(params)))
