"""Who owes whom an answer: the two doors through which messages come in. Pure: events in, effects out.

The laws, each a property in the tests:

1. Every request of a client gets exactly one response while that client is connected, whatever the servers do, unless
   the client itself cancels it; none after it closed, even if ids are used again on the next connection.
2. The response carries the request's id, identical in value and JSON type.
3. What a server wrote in `result`, `error` or `params` reaches the client byte for byte, unless a setting asks for a
   change. Only ids, renamed names and progress tokens are replaced.
4. A server sees only ids minted here, only requests of clients whose view includes it, and only what its present
   clients can do. What it asks goes to the client whose call it belongs to, and is refused when that cannot be known.
5. Order between one client and one server is kept, and a slow call delays nobody else.
6. What a view no longer includes is silent: nothing of it reaches that client again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from msgspec import UNSET, Raw

from voice_bridge.core.answers import Answers, limited, noise
from voice_bridge.core.client import Client, View
from voice_bridge.core.deadlines import Deadlines
from voice_bridge.core.dialling import Dialling
from voice_bridge.core.effects import Effect, Note, ToClient, ToServer
from voice_bridge.core.facts import Fault
from voice_bridge.core.handlers import handshake, notifications, questions, subscriptions
from voice_bridge.core.handlers.table import REQUESTS
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Asked, Call, Delayed
from voice_bridge.core.request import Request
from voice_bridge.core.server import Server
from voice_bridge.core.supervisor import LIST_GRACE, Supervisor
from voice_bridge.protocol import capabilities, era, jsonrpc, methods

_FAULT = "a fault in the bridge cost this message; its log has more"


class Router:
    """Routes between any number of clients and servers. Times are seconds on the caller's monotonic clock."""

    def __init__(self, list_grace: float = LIST_GRACE) -> None:
        self.peers = Peers()
        self.dialling = Dialling(self.peers)
        self.supervisor = Supervisor(self.peers, self.dialling, list_grace)
        self._answers = Answers(self.peers, self.supervisor)
        self._deadlines = Deadlines(self.peers, self.supervisor, self.dialling)

    # Clients

    def client_opened(self, key: ClientKey, view: View, endpoint: EndpointKey | None = None) -> None:
        """A connection begins; nothing of an earlier one is left."""
        self.peers.clients[key] = Client(key, view, endpoint)

    def client_view(self, key: ClientKey, view: View, now: float) -> list[Effect]:
        """The settings changed what this client may see: what it no longer sees is silent from now on."""
        client = self.peers.clients[key]
        left = [server for server in self.peers.visible(client) if server.key not in view.servers]
        effects = [effect for server in left for effect in self._parted(client, server, now)]
        client.view, client.catalog = view, None
        return [*effects, *self.peers.announce([client])]

    def _parted(self, client: Client, server: Server, now: float) -> list[Effect]:
        effects = subscriptions.drop_all(self.peers, server, client.key, now)
        for id_, item in self.peers.pending.of_client(client):
            if isinstance(item, Call) and item.server == server.key:
                effects += self.peers.cancel(id_, item, "the client no longer sees this server")
                text = f"server {server.name} was taken away from this endpoint"
                effects += self.peers.fail(id_, item, jsonrpc.SERVER_DOWN, text, "error", now)
            elif isinstance(item, Asked) and item.server == server.key:
                effects += self._unasked(id_, item)
        return effects

    def owes(self, key: ClientKey) -> bool:
        """Whether a server still works on a call of this client."""
        client = self.peers.clients.get(key)
        return client is not None and any(
            isinstance(item, Call | Delayed) for _, item in self.peers.pending.of_client(client)
        )

    def client_closed(self, key: ClientKey, now: float) -> list[Effect]:
        """The connection ended: its calls are cancelled at the servers, and their answers will go nowhere."""
        client = self.peers.clients.pop(key, None)
        if client is None:
            return []
        effects: list[Effect] = []
        for id_, item in self.peers.pending.of_client(client):
            if isinstance(item, Call):
                cancelled = self.peers.cancel(id_, item, "the client disconnected")
                effects += [*cancelled, self.peers.ended(id_, item, "client_gone", now)]
            elif isinstance(item, Asked):
                effects += self._unasked(id_, item)
            else:
                self.peers.pending.close(id_)
        for server in self.peers.servers.values():
            effects += subscriptions.drop_all(self.peers, server, key, now)
        return effects

    def _unasked(self, id_: int, item: Asked) -> list[Effect]:
        self.peers.pending.close(id_)
        gone = jsonrpc.error(item.id, jsonrpc.INTERNAL_ERROR, "the client disconnected")
        return [ToServer(item.server, gone)]

    def falls_silent(self) -> None:
        """The bridge ends: no client is told any more how its lists change."""
        for client in self.peers.clients.values():
            client.notified = None

    def client_message(self, key: ClientKey, data: bytes, now: float) -> list[Effect]:
        """One frame from a client. A fault in the bridge itself costs this message only, and is answered too."""
        client = self.peers.clients.get(key)
        if client is None:
            return []
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            return _refused(client, bad.code, str(bad), now)
        try:
            return self._from_client(client, message, now)
        except Exception:  # noqa: BLE001 - see above
            fault = Note(Fault(client.view.name, traceback.format_exc()))
            if message.method is UNSET or not isinstance(message.id, Raw):
                return [fault]
            return [fault, ToClient(key, jsonrpc.error(bytes(message.id), jsonrpc.INTERNAL_ERROR, _FAULT))]

    def _from_client(self, client: Client, message: jsonrpc.Envelope, now: float) -> list[Effect]:
        method, id_ = message.method, message.id
        params: bytes | Raw = b"" if message.params is UNSET else message.params
        if method is UNSET:
            if message.result is UNSET and message.error is UNSET:
                return _refused(client, jsonrpc.INVALID_REQUEST, "the message has no method", now)
            return questions.answered_by_client(self.peers, client, message)
        if not isinstance(method, str):
            return _refused(client, jsonrpc.INVALID_REQUEST, "the method must be a string", now)
        if id_ is UNSET:
            return notifications.from_client(self.peers, client, method, params, now)
        raw_id = bytes(id_)
        if not jsonrpc.valid_id(raw_id):
            return _refused(client, jsonrpc.INVALID_REQUEST, "an id is a string or a number", now)
        return self._requested(Request(client, raw_id, method, params, now))

    def _requested(self, request: Request) -> list[Effect]:
        client, method = request.client, request.method
        if not client.initialized and method != "initialize":
            version = era.version_of(request.params)
            if version not in (None, era.MODERN):
                return handshake.unsupported(self.peers, request, version)
            client.modern = client.modern or method == "server/discover" or version is not None
        handler = REQUESTS.get(method)
        if handler is None or (client.modern and method != "initialize" and not methods.exists(method, modern=True)):
            return self.peers.refuse(request, jsonrpc.METHOD_NOT_FOUND, f"there is no method {method!r}")
        known = client.capabilities
        if client.modern:
            declared, name = era.declared_in(request.params)
            if declared is not None:
                client.capabilities = capabilities.spoken(declared, name)
        effects = handler(self.peers, request)
        if client.capabilities == known:
            return effects
        tell = self.supervisor.tell_more
        return effects + [more for server in list(self.peers.visible(client)) for more in tell(server, request.now)]

    # Servers

    def server_message(self, key: ServerKey, data: bytes, now: float, related: int | None = None) -> list[Effect]:
        """One message of a server; `related` is the request that a transport brought it in answer to, if it tells."""
        server = self.peers.servers.get(key)
        if server is None:
            return []
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            return self._answers.unreadable(server, data, f"it sent an answer that cannot be used: {bad}", now)
        return self._guarded(server, lambda: self._from_server(server, message, data, now, related))

    def _guarded(self, server: Server, decide: Callable[[], list[Effect]]) -> list[Effect]:
        """A fault in the bridge itself costs one message, never the connections of others."""
        try:
            return decide()
        except Exception:  # noqa: BLE001 - see above
            return [Note(Fault(server.name, traceback.format_exc()))]

    def _from_server(
        self, server: Server, message: jsonrpc.Envelope, data: bytes, now: float, related: int | None
    ) -> list[Effect]:
        method, id_ = message.method, message.id
        empty = message.result is UNSET and message.error is UNSET and b'"jsonrpc"' not in data  # somebody's log
        if method is UNSET and id_ is not UNSET and not empty:
            return self._answers.take(server, message, now)
        if not isinstance(method, str):
            return noise(server, data, now)
        params: bytes | Raw = b"" if message.params is UNSET else message.params
        if id_ is not UNSET and bytes(id_) != jsonrpc.NULL:
            return questions.asked_by_server(self.peers, server, bytes(id_), method, params, now, related)
        return notifications.from_server(self.peers, server, method, params, now, related)

    def server_oversized(self, key: ServerKey, ends: bytes, size: int, limit: int, now: float) -> list[Effect]:
        """A server wrote a message over the limit; `ends` are its first and last bytes."""
        text = f"its answer of {size:,} bytes is over the limit of {limit:,} (bridge.maxMessageBytes)"
        return self._answers.unreadable(self.peers.servers[key], ends, text, now)

    def undelivered(self, key: ServerKey, data: bytes, now: float) -> list[Effect]:
        """A message could not be handed to a server that does not read its input: its call is answered."""
        return self._answers.undelivered(key, data, now)

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do, or None."""
        return self.peers.pending.next_deadline()

    def expire(self, now: float) -> list[Effect]:
        """Does what is due: late calls are answered, held lists released, lists read again, tries made."""
        return self._deadlines.expire(now)


def _refused(client: Client, code: int, text: str, now: float) -> list[Effect]:
    told = limited(client.log_quota, client.view.name, f"refused a message: {text}", now)
    return [*told, ToClient(client.key, jsonrpc.error(jsonrpc.NULL, code, text))]
