"""Who owes whom an answer. Pure: events in, `list[Send]` out; no clock, no task, no socket.

The laws (DESIGN §2), each a property in the tests:

1. Every request of a client gets exactly one response while that client is connected, whatever the servers do, unless
   the client itself cancels it; none after it closed, even if ids are used again on the next connection.
2. The response carries the request's id, identical in value and JSON type.
3. What a server wrote in `result`, `error` or `params` reaches the client byte for byte, unless a setting asks for a
   change. Only ids, renamed names and progress tokens are replaced.
4. A server sees only ids minted here, and only requests of clients whose view includes it.
5. Order between one client and one server is kept, and a slow call delays nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Raw

from voice_bridge.config import ToolRules
from voice_bridge.core import budget as shaping
from voice_bridge.core.catalog import Catalog, Offer, merge
from voice_bridge.core.client import LOG_LEVELS, Client, Send, View
from voice_bridge.core.handlers import notifications as notices
from voice_bridge.core.handlers import requests as methods
from voice_bridge.core.handlers import subscriptions
from voice_bridge.core.pending import Asked, Call, Held, Ledger, Own, Timed, minted
from voice_bridge.core.server import Ask, Server, error_text
from voice_bridge.log import LOG
from voice_bridge.protocol import era, jsonrpc

LIST_GRACE = 5.0
DEFAULT_CALL_TIMEOUT = 60.0


class Router:
    """Routes between any number of clients and servers. Times are seconds on the caller's monotonic clock."""

    def __init__(self, list_grace: float = LIST_GRACE) -> None:
        self.servers: dict[str, Server] = {}
        self.clients: dict[str, Client] = {}
        self.ledger = Ledger()
        self._list_grace = list_grace
        self._merged: dict[tuple[str, ...], Catalog] = {}

    # Clients

    def client_opened(self, key: str, view: View) -> None:
        """A connection begins; nothing of an earlier one is left."""
        self.clients[key] = Client(key, view)

    def client_view(self, key: str, view: View) -> list[Send]:
        """The settings changed what this client may see."""
        client = self.clients[key]
        client.view, client.catalog = view, None
        return self._announce([client])

    def owes(self, key: str) -> bool:
        """Whether a server still works on a call of this client."""
        client = self.clients.get(key)
        return client is not None and any(isinstance(item, Call) for _, item in self.ledger.of_client(client))

    def client_closed(self, key: str) -> list[Send]:
        """The connection ended: its calls are cancelled at the servers, and their answers will go nowhere."""
        client = self.clients.pop(key, None)
        if client is None:
            return []
        sends: list[Send] = []
        for id_, item in self.ledger.of_client(client):
            if isinstance(item, Call):
                sends += self.cancel(id_, item, "the client disconnected")
                continue
            self.ledger.close(id_)
            if isinstance(item, Asked):
                gone = jsonrpc.error(item.id, jsonrpc.INTERNAL_ERROR, "the client disconnected")
                sends.append(Send(item.server, gone))
        for server in self.servers.values():
            for uri in [uri for uri, keys in server.subscribers.items() if key in keys]:
                sends += subscriptions.drop_subscriber(self, server, uri, key)
        return sends

    def client_message(self, key: str, data: bytes, now: float) -> list[Send]:
        """One frame from a client."""
        client = self.clients.get(key)
        if client is None:
            return []
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            return _refused(client, bad.code, str(bad), now)
        method, id_ = message.method, message.id
        params = b"" if message.params is UNSET else message.params
        if method is UNSET:
            if message.result is UNSET and message.error is UNSET:
                return _refused(client, jsonrpc.INVALID_REQUEST, "the message has no method", now)
            return notices.client_answered(self, client, message)
        if not isinstance(method, str):
            return _refused(client, jsonrpc.INVALID_REQUEST, "the method must be a string", now)
        if id_ is UNSET:
            return notices.from_client(self, client, method, params)
        raw_id = bytes(id_)
        if not jsonrpc.valid_id(raw_id):
            return _refused(client, jsonrpc.INVALID_REQUEST, "an id is a string or a number", now)
        if not client.initialized and method != "initialize":
            version = era.version_of(params)
            if version not in (None, era.MODERN):
                return methods.unsupported(client, raw_id, version)
            client.modern = client.modern or method == "server/discover" or version is not None
        answer = methods.REQUESTS.get(method)
        if answer is None:
            return [Send(key, jsonrpc.error(raw_id, jsonrpc.METHOD_NOT_FOUND, f"there is no method {method!r}"))]
        return answer(self, client, raw_id, params, now)

    # Servers

    def server_added(self, key: str, name: str, rules: ToolRules, call_timeout: float | None, now: float) -> None:
        """A server will be started. Lists wait for it a little, the first time."""
        self.servers[key] = Server(key, name, rules, call_timeout, now + self._list_grace)
        self._merged.clear()

    def server_rules(self, key: str, rules: ToolRules, call_timeout: float | None) -> list[Send]:
        """The settings changed how this server's tools are shown."""
        server = self.servers[key]
        before, after = server.rules.rename, rules.rename
        renamed = {tool for tool in before.keys() | after.keys() if before.get(tool) != after.get(tool)}
        for client in self.viewers(server):
            if client.announced is not None:
                client.announced = client.announced.without(key, renamed)
        server.rules, server.call_timeout = rules, call_timeout
        return self._changed(server)

    def server_started(self, key: str) -> list[Send]:
        """The process or the remote session is up; the handshake begins."""
        server = self.servers[key]
        return self._ask(server, server.begin())

    def server_message(self, key: str, data: bytes, now: float) -> list[Send]:
        """One line of a server's output."""
        server = self.servers.get(key)
        if server is None:
            return []
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            return self._unreadable(server, data, f"it sent an answer that cannot be used: {bad}", now)
        method, id_ = message.method, message.id
        empty = message.result is UNSET and message.error is UNSET and b'"jsonrpc"' not in data  # somebody's log
        if method is UNSET and id_ is not UNSET and not empty:
            return self._server_answered(server, message, now)
        if not isinstance(method, str):
            _log_noise(server, data, now)
            return []
        params = b"" if message.params is UNSET else message.params
        if id_ is not UNSET and bytes(id_) != jsonrpc.NULL:
            return notices.asked_by_server(self, server, bytes(id_), method, params, now)
        return notices.from_server(self, server, method, params, now)

    def server_oversized(self, key: str, ends: bytes, size: int, limit: int, now: float) -> list[Send]:
        """A server wrote a message over the limit; `ends` are its first and last bytes."""
        text = f"its answer of {size:,} bytes is over the limit of {limit:,} (bridge.maxMessageBytes)"
        return self._unreadable(self.servers[key], ends, text, now)

    def server_exited(self, key: str, reason: str, *, gone: bool, now: float) -> list[Send]:
        """A server ended: its open calls are answered. While it is to be restarted its tools stay listed."""
        server = self.servers[key]
        server.state, server.reason = "down", reason
        sends: list[Send] = []
        for id_, item in self.ledger.of_server(key):
            self.ledger.close(id_)
            if isinstance(item, Call):
                sends.append(_failed(item, jsonrpc.SERVER_DOWN, f"server {server.name} {reason}"))
        if gone:
            server.lists = {}
        return sends + self._changed(server) + self._release(now)

    def server_removed(self, key: str, reason: str, now: float) -> list[Send]:
        """A server is no longer in the settings."""
        sends = self.server_exited(key, reason, gone=True, now=now)
        del self.servers[key]
        self._merged.clear()
        return sends

    def undelivered(self, key: str, data: bytes) -> list[Send]:
        """A message could not be handed to a server that does not read its input: its call is answered."""
        message = jsonrpc.parse(data)
        id_ = minted(message.id)
        call = self.ledger.get(id_)
        if message.method is UNSET or id_ is None or not isinstance(call, Call) or call.server != key:
            return []
        self.ledger.close(id_)
        return [_failed(call, jsonrpc.SERVER_DOWN, f"server {self.servers[key].name} does not read its input")]

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do, or None."""
        return self.ledger.next_deadline()

    def expire(self, now: float) -> list[Send]:
        """Does what is due: late calls are answered, held lists released, changed lists read again."""
        return [send for id_, item in self.ledger.due(now) for send in self._due(id_, item)]

    def _due(self, id_: int, item: Timed) -> list[Send]:
        if isinstance(item, Call):
            name, what = self.servers[item.server].name, item.tool or item.method
            LOG.warning("%s: gave up on %s after %g s", name, what, item.timeout)
            text = f"server {name} did not answer {what} within {item.timeout:g} s"
            return [_failed(item, jsonrpc.TIMED_OUT, text), *self.cancel(id_, item, "timed out")]
        self.ledger.close(id_)
        if isinstance(item, Held):
            return [Send(item.client.key, methods.listing(self, item.client, item.id, item.kind))]
        if isinstance(item, Asked):
            return [Send(item.server, jsonrpc.error(item.id, jsonrpc.TIMED_OUT, "the client did not answer"))]
        server = self.servers[item.server]
        return self._ask(server, server.reread(item.kind)) if server.state == "ready" else []

    # For `methods`, `notices` and `subscriptions`

    def forward(
        self,
        client: Client,
        id_: bytes,
        server: Server,
        method: str,
        params: bytes | Raw,
        now: float,
        token: bytes | None = None,
        tool: str = "",
    ) -> list[Send]:
        """Passes a client's request to a server, or says why that cannot be."""
        if server.state != "ready":
            text = f"server {server.name} is not available: {server.reason}"
            return [Send(client.key, jsonrpc.error(id_, jsonrpc.SERVER_DOWN, text))]
        limits = [limit for limit in (client.view.call_timeout, server.call_timeout) if limit is not None]
        timeout = min(limits, default=DEFAULT_CALL_TIMEOUT)
        own_id = self.ledger.mint()
        call = Call(client, id_, server.key, method, tool, now, timeout, token)
        if client.modern:
            call.log_level = era.log_level(params)
        self.ledger.open(own_id, call)
        if token is not None:
            params = era.with_token(params, b"%d" % own_id)
        if server.modern and not client.modern:
            level = LOG_LEVELS[client.log_level] if "logging" in server.capabilities else None
            params = era.enveloped(params or jsonrpc.EMPTY, level)
        elif client.modern and not server.modern:
            params = era.unenveloped(params or jsonrpc.EMPTY)
        return [Send(server.key, jsonrpc.request(own_id, method, jsonrpc.one_line(bytes(params))))]

    def cancel(self, id_: int, call: Call, reason: str) -> list[Send]:
        """Forgets a call and tells its server so."""
        self.ledger.close(id_)
        server = self.servers.get(call.server)
        if server is None or server.state != "ready":
            return []
        params = jsonrpc.dump({"requestId": id_, "reason": reason})
        if server.modern:
            params = era.enveloped(params)
        return [Send(call.server, jsonrpc.notification("notifications/cancelled", params))]

    def ask(self, server: Server, method: str, params: bytes) -> list[Send]:
        """A request of our own whose answer does not matter."""
        return self._ask(server, [Ask(method, params, "own")])

    def catalog_of(self, client: Client) -> Catalog:
        """What this client sees now; names it was shown keep their owners."""
        if client.catalog is None:
            keys = client.view.servers
            if keys not in self._merged:
                self._merged[keys] = merge(self._offers(keys))
            shared = self._merged[keys]
            moved = client.announced is not None and client.announced.moves_a_name(shared)
            client.catalog = merge(self._offers(keys), client.announced) if moved else shared
        return client.catalog

    def hold(self, client: Client, id_: bytes, kind: str, now: float) -> bool:
        """Whether a list request must wait for a server that is about to be ready; if so it is kept."""
        until = max((server.hold_lists_until for server in self._starting(client)), default=now)
        if until <= now:
            return False
        self.ledger.open(self.ledger.mint(), Held(client, id_, kind, until))
        return True

    def visible(self, client: Client) -> Iterable[Server]:
        """The servers in a client's view, in the order of the settings file."""
        return (self.servers[key] for key in client.view.servers if key in self.servers)

    def viewers(self, server: Server) -> Iterable[Client]:
        """The clients whose view includes a server."""
        return (client for client in self.clients.values() if server.key in client.view.servers)

    # Inner

    def _server_answered(self, server: Server, message: jsonrpc.Envelope, now: float) -> list[Send]:
        id_ = minted(message.id)
        item = self.ledger.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            _log_limited(server, "dropped an answer that nobody waits for", now)
            return []
        self.ledger.close(id_)
        result = None if message.result is UNSET else message.result
        error = None if message.error is UNSET else message.error
        if error is not None and result is not None:  # not legal, but seen: a null beside the real one
            result, error = (result, None) if bytes(error) == jsonrpc.NULL else (None, error)
        if isinstance(item, Own):
            return self._own_answered(server, item.ask, result, error, now)
        if result is None:
            if error is not None and jsonrpc.is_error(error):
                return [_error_to(item, error)]
            said = "neither a result nor an error" if error is None else f"an odd error: {error_text(error)}"
            return [_failed(item, jsonrpc.INTERNAL_ERROR, f"server {server.name} answered with {said}")]
        return [_delivered(item, server, result)]

    def _own_answered(self, server: Server, ask: Ask, result: Raw | None, error: Raw | None, now: float) -> list[Send]:
        before, lists = server.state, server.lists.copy()
        sends = self._ask(server, server.answered(ask, result, error))
        if server.state == "ready" and (before != "ready" or lists != server.lists):
            if before != "ready":
                sends += subscriptions.restore(self, server)
            sends += self._changed(server) + self._release(now)
        return sends

    def _unreadable(self, server: Server, data: bytes, why: str, now: float) -> list[Send]:
        id_ = jsonrpc.salvage_id(data)
        item = self.ledger.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            _log_noise(server, data, now)
            return []
        LOG.warning("%s: %s", server.name, why)
        self.ledger.close(id_)
        if isinstance(item, Call):
            return [_failed(item, jsonrpc.SERVER_DOWN, f"server {server.name}: {why}")]
        failure = Raw(jsonrpc.dump({"code": jsonrpc.INTERNAL_ERROR, "message": why}))
        return self._own_answered(server, item.ask, None, failure, now)

    def _ask(self, server: Server, asks: Iterable[Ask]) -> list[Send]:
        sends = []
        for ask in asks:
            if ask.kind:
                own_id = self.ledger.mint()
                self.ledger.open(own_id, Own(server.key, ask))
                sends.append(Send(server.key, jsonrpc.request(own_id, ask.method, ask.params)))
            else:
                sends.append(Send(server.key, jsonrpc.notification(ask.method, ask.params)))
        return sends

    def _offers(self, keys: tuple[str, ...]) -> list[Offer]:
        return [self.servers[key].offer for key in keys if key in self.servers]

    def _starting(self, client: Client) -> Iterable[Server]:
        return (server for server in self.visible(client) if server.state == "starting")

    def _changed(self, server: Server) -> list[Send]:
        """Shows every client that sees this server what has changed."""
        self._merged.clear()
        return self._announce(self.viewers(server))

    def _announce(self, clients: Iterable[Client]) -> list[Send]:
        sends: list[Send] = []
        for client in clients:
            client.catalog = None
            before = client.notified
            if before is None:
                continue
            after = client.notified = self.catalog_of(client)
            kinds = after.differences(before)
            if kinds and client.view.redial_on_change:
                sends.append(Send(client.key, b""))
            else:
                sends += [send for kind in kinds for send in subscriptions.tell(client, kind)]
        return sends

    def _release(self, now: float) -> list[Send]:
        """Answers the list requests whose servers are all settled."""
        sends = []
        for id_, item in self.ledger.items():
            if isinstance(item, Held) and not any(s.hold_lists_until > now for s in self._starting(item.client)):
                self.ledger.close(id_)
                sends.append(Send(item.client.key, methods.listing(self, item.client, item.id, item.kind)))
        return sends


def _delivered(call: Call, server: Server, result: bytes | Raw) -> Send:
    client = call.client
    if client.modern is not server.modern:
        if client.modern:
            result = era.completed(result, call.method)
        elif era.needs_input(result):
            return _failed(call, jsonrpc.INVALID_REQUEST, f"server {server.name} {era.NEEDS_INPUT}")
    limit = client.view.max_result_bytes
    if limit is not None and call.method == "tools/call":
        result = shaping.fit(bytes(result), limit - len(call.id) - shaping.FRAME)
    return Send(client.key, jsonrpc.result(call.id, result))


def _error_to(call: Call, error: bytes | Raw) -> Send:
    limit = call.client.view.max_result_bytes
    if limit is not None:
        error = shaping.fit_error(bytes(error), limit - len(call.id) - shaping.FRAME)
    return Send(call.client.key, jsonrpc.error_raw(call.id, error))


def _failed(call: Call, code: int, text: str) -> Send:
    return _error_to(call, jsonrpc.dump({"code": code, "message": text}))


def _refused(client: Client, code: int, text: str, now: float) -> list[Send]:
    admitted, held = client.log_quota.admit(now)
    if held:
        LOG.info("%s: (%d more refused messages)", client.view.name, held)
    if admitted:
        LOG.info("%s: refused a message: %s", client.view.name, text)
    return [Send(client.key, jsonrpc.error(jsonrpc.NULL, code, text))]


def _log_noise(server: Server, data: bytes, now: float) -> None:
    """Logs what a server wrote to stdout that is no message."""
    text = data[:2000].decode("utf-8", "replace").strip()
    if text:
        _log_limited(server, f"not a message: {text}", now)


def _log_limited(server: Server, text: str, now: float) -> None:
    """Logs a line about a server; floods are counted, not shown."""
    admitted, held = server.log_quota.admit(now)
    if held:
        LOG.info("%s: (%d more lines)", server.name, held)
    if admitted:
        LOG.info("%s: %s", server.name, text)
