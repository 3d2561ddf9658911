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

from voice_bridge.core import budget
from voice_bridge.core.client import Client, View
from voice_bridge.core.dialling import Dialling
from voice_bridge.core.effects import Effect, Note, ToClient, ToServer
from voice_bridge.core.facts import Fault, Noise, Outcome, Remark
from voice_bridge.core.handlers import handshake, notifications, questions, subscriptions
from voice_bridge.core.handlers.table import REQUESTS
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import (
    Asked,
    Call,
    Delayed,
    Held,
    Own,
    Patience,
    Relisten,
    Reread,
    Retry,
    Settling,
    Timed,
    minted,
)  # fmt: skip
from voice_bridge.core.request import Request
from voice_bridge.core.server import Ask, Server, error_text
from voice_bridge.core.supervisor import LIST_GRACE, Supervisor
from voice_bridge.protocol import capabilities, era, jsonrpc, methods
from voice_bridge.quota import Quota

_FAULT = "a fault in the bridge cost this message; its log has more"


class Router:
    """Routes between any number of clients and servers. Times are seconds on the caller's monotonic clock."""

    def __init__(self, list_grace: float = LIST_GRACE) -> None:
        self.peers = Peers()
        self.dialling = Dialling(self.peers)
        self.supervisor = Supervisor(self.peers, self.dialling, list_grace)

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
            return self._unreadable(server, data, f"it sent an answer that cannot be used: {bad}", now)
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
            return self._answered(server, message, now)
        if not isinstance(method, str):
            return _noise(server, data, now)
        params: bytes | Raw = b"" if message.params is UNSET else message.params
        if id_ is not UNSET and bytes(id_) != jsonrpc.NULL:
            return questions.asked_by_server(self.peers, server, bytes(id_), method, params, now, related)
        return notifications.from_server(self.peers, server, method, params, now, related)

    def server_oversized(self, key: ServerKey, ends: bytes, size: int, limit: int, now: float) -> list[Effect]:
        """A server wrote a message over the limit; `ends` are its first and last bytes."""
        text = f"its answer of {size:,} bytes is over the limit of {limit:,} (bridge.maxMessageBytes)"
        return self._unreadable(self.peers.servers[key], ends, text, now)

    def undelivered(self, key: ServerKey, data: bytes, now: float) -> list[Effect]:
        """A message could not be handed to a server that does not read its input: its call is answered."""
        message = jsonrpc.parse(data)
        id_ = minted(message.id)
        call = self.peers.pending.get(id_)
        if message.method is UNSET or id_ is None or not isinstance(call, Call) or call.server != key:
            return []
        self.peers.pending.close(id_)
        text = f"server {self.peers.servers[key].name} does not read its input"
        return self.peers.fail(id_, call, jsonrpc.SERVER_DOWN, text, "error", now)

    def _answered(self, server: Server, message: jsonrpc.Envelope, now: float) -> list[Effect]:
        id_ = minted(message.id)
        item = self.peers.pending.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            return _limited(server.log_quota, server.name, "dropped an answer that nobody waits for", now)
        self.peers.pending.close(id_)
        result = None if message.result is UNSET else message.result
        error = None if message.error is UNSET else message.error
        if error is not None and result is not None:  # not legal, but seen: a null beside the real one
            result, error = (result, None) if bytes(error) == jsonrpc.NULL else (None, error)
        if isinstance(item, Own):
            return self._own_answered(server, item.ask, result, error, now)
        done = self._delivered(id_, item, server, result, now) if result is not None else None
        if done is None:
            done = self._failed(id_, item, server, error, now)
        return [*done, *self.supervisor.tell_more(server, now)] if server.to_be_told else done

    def _delivered(self, id_: int, call: Call, server: Server, result: bytes | Raw, now: float) -> list[Effect]:
        client, given = call.client, result
        if client.modern:
            result = era.completed(result, call.method)
        elif server.modern and era.needs_input(result):
            text = f"server {server.name} {era.NEEDS_INPUT}"
            return self.peers.fail(id_, call, jsonrpc.INVALID_REQUEST, text, "error", now)
        limit = client.view.max_result_bytes
        if limit is not None and call.method == "tools/call":
            result = budget.fit(bytes(result), limit - len(call.id) - budget.FRAME)
        outcome: Outcome = "tool_error" if call.tool and budget.is_error(result) else "ok"
        cut = len(result) < len(given)
        ended = self.peers.ended(id_, call, outcome, now, len(result), cut=cut)
        return [*self.peers.result_to(client, call.id, result, now), ended]

    def _failed(self, id_: int, call: Call, server: Server, error: Raw | None, now: float) -> list[Effect]:
        if error is not None and jsonrpc.is_error(error):
            return self.peers.error_to(id_, call, error, "error", now, error_text(error))
        said = "neither a result nor an error" if error is None else f"an odd error: {error_text(error)}"
        text = f"server {server.name} answered with {said}"
        return self.peers.fail(id_, call, jsonrpc.INTERNAL_ERROR, text, "error", now)

    def _own_answered(
        self, server: Server, ask: Ask, result: Raw | None, error: Raw | None, now: float
    ) -> list[Effect]:
        if ask.method == subscriptions.LISTEN:
            if error is not None:
                return []  # it cannot; nothing to listen to
            return subscriptions.listening_ended(self.peers, server, now)
        effects = self.peers.ask_all(server, server.answered(ask, result, error), now)
        return [*effects, *self.supervisor.listed(server, now)] if ask.kind != "own" else effects

    def _unreadable(self, server: Server, data: bytes, why: str, now: float) -> list[Effect]:
        id_ = jsonrpc.salvage_id(data)
        item = self.peers.pending.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            return _noise(server, data, now)
        self.peers.pending.close(id_)
        told: list[Effect] = [Note(Remark(server.name, why, "warning"))]
        if isinstance(item, Call):
            text = f"server {server.name}: {why}"
            return [*told, *self.peers.fail(id_, item, jsonrpc.SERVER_DOWN, text, "error", now)]
        failure = Raw(jsonrpc.dump({"code": jsonrpc.INTERNAL_ERROR, "message": why}))
        return [*told, *self._own_answered(server, item.ask, None, failure, now)]

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do, or None."""
        return self.peers.pending.next_deadline()

    def expire(self, now: float) -> list[Effect]:
        """Does what is due: late calls are answered, held lists released, lists read again, tries made."""
        return [effect for id_, item in self.peers.pending.due(now) for effect in self._due(id_, item, now)]

    def _due(self, id_: int, item: Timed, now: float) -> list[Effect]:
        if isinstance(item, Call):
            return self._timed_out(id_, item, now)
        self.peers.pending.close(id_)
        match item:
            case Held():
                return self.peers.listing(item.client, item.id, item.kind, now)
            case Delayed():
                name = self.peers.servers[item.server].name
                return self.peers.refuse(item.request, jsonrpc.TIMED_OUT, f"server {name} took too long to begin anew")
            case Asked():
                late = jsonrpc.error(item.id, jsonrpc.TIMED_OUT, "the client did not answer")
                return [ToServer(item.server, late), questions.called_off(id_, item, "timed out")]
            case Patience():
                return self.supervisor.patience(item, now)
            case Settling():
                return self.dialling.settled(item.endpoint)
            case Retry():
                if isinstance(item.who, EndpointKey):
                    return self.dialling.retry(item.who, now)
                return self.supervisor.retry(item.who, now)
            case _:
                return self._due_at_server(item, self.peers.servers[item.server], now)

    def _due_at_server(self, item: Own | Reread | Relisten, server: Server, now: float) -> list[Effect]:
        if isinstance(item, Reread):
            return self.peers.ask_all(server, server.reread(item.kind), now)
        if isinstance(item, Relisten):
            effects = subscriptions.listen_anew(self.peers, server, now) if server.ready else []
            for kind in ("tools", "prompts", "resources", "templates"):  # what was missed meanwhile
                notifications.reread_soon(self.peers, server, kind, now)
            return effects
        if not server.unanswered(item.ask.kind):
            return []
        delay = server.list_backoff.after_failure()
        notifications.reread_soon(self.peers, server, item.ask.kind, now + delay)
        known = f"its list of {item.ask.kind} stays as it was"
        text = f"did not answer {item.ask.method}; {known}, next try in {delay:.0f} s"
        return [Note(Remark(server.name, text, "warning"))]

    def _timed_out(self, id_: int, call: Call, now: float) -> list[Effect]:
        server, what = self.peers.servers[call.server], call.tool or call.method
        told = Note(Remark(server.name, f"gave up on {what} after {call.timeout:g} s", "warning"))
        text = f"server {server.name} did not answer {what} within {call.timeout:g} s"
        cancelled = self.peers.cancel(id_, call, "timed out")
        failed = self.peers.fail(id_, call, jsonrpc.TIMED_OUT, text, "timed_out", now)
        return [told, *failed, *cancelled]


def _refused(client: Client, code: int, text: str, now: float) -> list[Effect]:
    told = _limited(client.log_quota, client.view.name, f"refused a message: {text}", now)
    return [*told, ToClient(client.key, jsonrpc.error(jsonrpc.NULL, code, text))]


def _noise(server: Server, data: bytes, now: float) -> list[Effect]:
    """Tells what a server wrote to its output that is no message."""
    text = data[:2000].decode("utf-8", "replace").strip()
    return _limited(server.log_quota, server.name, f"not a message: {text}", now) if text else []


def _limited(quota: Quota, subject: str, text: str, now: float) -> list[Effect]:
    """A line about somebody who makes us write it; floods are counted, not told."""
    admitted, held = quota.admit(now)
    return [Note(Noise(subject, text, held))] if admitted else []
