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

import heapq
from collections.abc import Callable, Iterable
from itertools import count

import msgspec
from msgspec import UNSET, Raw

from voice_bridge import era, jsonrpc, methods, shaping
from voice_bridge.catalog import Catalog, Offer, merge
from voice_bridge.config import ToolRules
from voice_bridge.downstream import LOG_LEVELS, Asked, Call, Client, Held, Send, View
from voice_bridge.log import LOG
from voice_bridge.upstream import Ask, Server

LIST_GRACE = 5.0
REREAD_DELAY = 0.1
ASKED_TIMEOUT = 600.0


class _Own(msgspec.Struct, gc=False):
    """A request of ours to a server."""

    server: str
    ask: Ask


class _Reread(msgspec.Struct, gc=False):
    """A list to be read again once a burst of change notices is over."""

    server: str
    kind: str
    deadline: float


Timed = Call | Held | Asked | _Own | _Reread


class Router:
    """Routes between any number of clients and servers. Times are seconds on the caller's monotonic clock."""

    def __init__(self, list_grace: float = LIST_GRACE) -> None:
        self.servers: dict[str, Server] = {}
        self.clients: dict[str, Client] = {}
        self._list_grace = list_grace
        self._open: dict[int, Timed] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._ids = count(1)
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

    def client_closed(self, key: str) -> list[Send]:
        """The connection ended: its calls are cancelled at the servers, and their answers will go nowhere."""
        client = self.clients.pop(key, None)
        if client is None:
            return []
        sends: list[Send] = []
        for id_, item in list(self._open.items()):
            if isinstance(item, Call) and item.client is client:
                sends += self._cancel(id_, item, "the client disconnected")
            elif isinstance(item, Held) and item.client is client:
                del self._open[id_]
            elif isinstance(item, Asked) and item.client is client:
                del self._open[id_]
                sends.append(
                    Send(item.server, jsonrpc.error(item.id, jsonrpc.INTERNAL_ERROR, "the client disconnected"))
                )
        for server in self.servers.values():
            for uri in [uri for uri, keys in server.subscribers.items() if key in keys]:
                sends += methods.drop_subscriber(self, server, uri, key)
        return sends

    def client_message(self, key: str, data: bytes, now: float) -> list[Send]:
        """One frame from a client."""
        client = self.clients.get(key)
        if client is None:
            return []
        try:
            message = jsonrpc.parse(data)
        except jsonrpc.BadMessage as bad:
            LOG.info("%s: refused a message: %s", client.view.name, bad)
            return [Send(key, jsonrpc.error(jsonrpc.NULL, bad.code, str(bad)))]
        method, id_ = message.method, message.id
        params = b"" if message.params is UNSET else message.params
        if method is UNSET:
            if message.result is UNSET and message.error is UNSET:
                return [Send(key, jsonrpc.error(jsonrpc.NULL, jsonrpc.INVALID_REQUEST, "the message has no method"))]
            return self._client_answered(client, message)
        if not isinstance(method, str):
            return [Send(key, jsonrpc.error(jsonrpc.NULL, jsonrpc.INVALID_REQUEST, "the method must be a string"))]
        if id_ is UNSET:
            return methods.notified(self, client, method, params)
        raw_id = bytes(id_)
        if not jsonrpc.valid_id(raw_id):
            return [Send(key, jsonrpc.error(jsonrpc.NULL, jsonrpc.INVALID_REQUEST, "an id is a string or a number"))]
        if not client.initialized and not client.modern and method != "initialize":
            client.modern = method == "server/discover" or era.version_of(params) is not None
        answer = methods.REQUESTS.get(method)
        if answer is None:
            return [Send(key, jsonrpc.error(raw_id, jsonrpc.METHOD_NOT_FOUND, f"there is no method {method!r}"))]
        return answer(self, client, raw_id, params, now)

    def _client_answered(self, client: Client, message: jsonrpc.Envelope) -> list[Send]:
        id_ = _minted(message.id)
        asked = self._open.get(id_) if id_ is not None else None
        if id_ is None or not isinstance(asked, Asked) or asked.client is not client:
            LOG.debug("%s: dropped an answer nobody asked for", client.view.name)
            return []
        del self._open[id_]
        if message.error is not UNSET and message.result is UNSET:
            return [Send(asked.server, jsonrpc.one_line(jsonrpc.error_raw(asked.id, message.error)))]
        return [Send(asked.server, jsonrpc.one_line(jsonrpc.result(asked.id, message.result or jsonrpc.NULL)))]

    # Servers

    def server_added(self, key: str, name: str, rules: ToolRules, call_timeout: float | None, now: float) -> None:
        """A server will be started. Lists wait for it a little, the first time."""
        self.servers[key] = Server(key, name, rules, call_timeout, now + self._list_grace)
        self._merged.clear()

    def server_rules(self, key: str, rules: ToolRules, call_timeout: float | None) -> list[Send]:
        """The settings changed how this server's tools are shown."""
        server = self.servers[key]
        server.rules, server.call_timeout = rules, call_timeout
        return self._changed(server)

    def server_started(self, key: str, now: float) -> list[Send]:
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
        if method is UNSET:
            if id_ is UNSET or (message.result is UNSET and message.error is UNSET):
                self.log_line(server, "on stdout", data, now)
                return []
            return self._server_answered(server, message, now)
        if not isinstance(method, str):
            self.log_line(server, "on stdout", data, now)
            return []
        params = b"" if message.params is UNSET else message.params
        if id_ is not UNSET and bytes(id_) != jsonrpc.NULL:
            return self._server_asks(server, bytes(id_), method, params, now)
        return self._server_notified(server, method, params, now)

    def server_oversized(self, key: str, ends: bytes, size: int, limit: int, now: float) -> list[Send]:
        """A server wrote a message over the limit; `ends` are its first and last bytes."""
        server = self.servers[key]
        text = f"its answer of {size:,} bytes is over the limit of {limit:,} (bridge.maxMessageBytes)"
        return self._unreadable(server, ends, text, now)

    def server_exited(self, key: str, reason: str, *, gone: bool, now: float) -> list[Send]:
        """A server ended: its open calls are answered. While it is to be restarted its tools stay listed."""
        server = self.servers[key]
        server.state, server.reason = "down", reason
        sends: list[Send] = []
        for id_, item in list(self._open.items()):
            if isinstance(item, Call | Asked | _Own | _Reread) and item.server == key:
                del self._open[id_]
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
        server = self.servers[key]
        id_ = _minted(jsonrpc.parse(data).id)
        call = self._open.get(id_) if id_ is not None else None
        if id_ is None or not isinstance(call, Call):
            return []
        del self._open[id_]
        return [_failed(call, jsonrpc.SERVER_DOWN, f"server {server.name} does not read its input")]

    def _unreadable(self, server: Server, data: bytes, why: str, now: float) -> list[Send]:
        id_ = jsonrpc.salvage_id(data)
        call = self._open.get(id_) if id_ is not None else None
        if id_ is None or not isinstance(call, Call | _Own) or call.server != server.key:
            self.log_line(server, "on stdout", data, now)
            return []
        LOG.warning("%s: %s", server.name, why)
        del self._open[id_]
        if isinstance(call, Call):
            return [_failed(call, jsonrpc.SERVER_DOWN, f"server {server.name}: {why}")]
        failure = Raw(jsonrpc.dump({"code": jsonrpc.INTERNAL_ERROR, "message": why}))
        return self._own_answered(server, call.ask, None, failure, now)

    def _server_answered(self, server: Server, message: jsonrpc.Envelope, now: float) -> list[Send]:
        id_ = _minted(message.id)
        item = self._open.get(id_) if id_ is not None else None
        if id_ is None or not isinstance(item, Call | _Own) or item.server != server.key:
            LOG.info("%s: dropped an answer that nobody waits for", server.name)
            return []
        del self._open[id_]
        result = None if message.result is UNSET else message.result
        error = None if message.error is UNSET else message.error
        if error is not None and result is not None:  # not legal, but seen: a null beside the real one
            result, error = (result, None) if bytes(error) == jsonrpc.NULL else (None, error)
        if isinstance(item, _Own):
            return self._own_answered(server, item.ask, result, error, now)
        if result is None:
            return [Send(item.client.key, jsonrpc.error_raw(item.id, error or Raw(jsonrpc.EMPTY)))]
        return [self._delivered(item, server, result)]

    def _delivered(self, call: Call, server: Server, result: bytes | Raw) -> Send:
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

    def _own_answered(self, server: Server, ask: Ask, result: Raw | None, error: Raw | None, now: float) -> list[Send]:
        before, lists = server.state, server.lists.copy()
        sends = self._ask(server, server.answered(ask, result, error))
        if server.state == "ready" and (before != "ready" or lists != server.lists):
            if before != "ready":
                sends += methods.restore(self, server)
            sends += self._changed(server) + self._release(now)
        return sends

    def _server_asks(self, server: Server, id_: bytes, method: str, params: bytes | Raw, now: float) -> list[Send]:
        if method == "ping":
            return [Send(server.key, jsonrpc.result(id_, jsonrpc.EMPTY))]
        capability = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
        client = self._caller_of(server)
        needed = capability.get(method)
        if client is None or needed is None or needed not in client.capabilities:
            text = f"the client does not offer {method}"
            return [Send(server.key, jsonrpc.error(id_, jsonrpc.METHOD_NOT_FOUND, text))]
        minted = next(self._ids)
        token = era.progress_token(params)
        self._watch(minted, Asked(server.key, id_, client, token, now + ASKED_TIMEOUT))
        if token is not None:
            params = era.with_token(params, b"%d" % minted)
        return [Send(client.key, jsonrpc.request(minted, method, params))]

    def _caller_of(self, server: Server) -> Client | None:
        """The client on whose behalf a server asks: the one that called it last and still waits."""
        for item in reversed(self._open.values()):
            if isinstance(item, Call) and item.server == server.key:
                return item.client
        return None

    def _server_notified(self, server: Server, method: str, params: bytes | Raw, now: float) -> list[Send]:
        if method == "notifications/progress":
            return self._progressed(server, params, now)
        if method == "notifications/message":
            return self._logged(server, params)
        if method == "notifications/resources/updated":
            return methods.resource_updated(self, server, params)
        if method == "notifications/cancelled":
            return self._ask_withdrawn(server, params)
        for kind in server.kinds_changed(method):
            if not any(
                isinstance(i, _Reread) and i.server == server.key and i.kind == kind for i in self._open.values()
            ):
                self._watch(next(self._ids), _Reread(server.key, kind, now + REREAD_DELAY))
        return []

    def _progressed(self, server: Server, params: bytes | Raw, now: float) -> list[Send]:
        call = self._open.get(_minted(jsonrpc.members(params).get("progressToken", UNSET)) or 0)
        if not isinstance(call, Call) or call.server != server.key or call.token is None:
            return []
        call.deadline = min(call.hard_deadline, now + call.timeout)
        members = jsonrpc.members(params)
        members["progressToken"] = Raw(call.token)
        return [Send(call.client.key, jsonrpc.notification("notifications/progress", jsonrpc.dump(members)))]

    def _logged(self, server: Server, params: bytes | Raw) -> list[Send]:
        level = jsonrpc.load(jsonrpc.members(params).get("level", b"null"))
        rank = LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
        message = jsonrpc.notification("notifications/message", bytes(params))
        return [
            Send(client.key, message)
            for client in self._viewers(server)
            if client.initialized and not client.modern and rank >= client.log_level
        ]

    def _ask_withdrawn(self, server: Server, params: bytes | Raw) -> list[Send]:
        members = jsonrpc.members(params)
        wanted = jsonrpc.id_key(bytes(members.get("requestId", b"")))
        for id_, item in self._open.items():
            if isinstance(item, Asked) and item.server == server.key and jsonrpc.id_key(item.id) == wanted:
                members["requestId"] = Raw(b"%d" % id_)
                del self._open[id_]
                return [Send(item.client.key, jsonrpc.notification("notifications/cancelled", jsonrpc.dump(members)))]
        return []

    # Time

    def next_deadline(self) -> float | None:
        """When `expire` has something to do, or None."""
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Send]:
        """Does what is due: late calls are answered, held lists released, changed lists read again."""
        sends: list[Send] = []
        while (when := self.next_deadline()) is not None and when <= now:
            _, id_ = heapq.heappop(self._deadlines)
            item = self._open[id_]
            if isinstance(item, _Own):
                continue
            if item.deadline > now:
                heapq.heappush(self._deadlines, (item.deadline, id_))
                continue
            sends += self._due(id_, item)
        return sends

    def _due(self, id_: int, item: Call | Held | Asked | _Reread) -> list[Send]:
        if isinstance(item, Call):
            name = self.servers[item.server].name
            LOG.warning("%s: gave up on %s after %g s", name, item.tool or item.method, item.timeout)
            text = f"server {name} did not answer {item.tool or item.method} within {item.timeout:g} s"
            return [_failed(item, jsonrpc.TIMED_OUT, text), *self._cancel(id_, item, "timed out")]
        del self._open[id_]
        if isinstance(item, Held):
            return [Send(item.client.key, methods.listing(self, item.client, item.id, item.kind))]
        if isinstance(item, Asked):
            return [Send(item.server, jsonrpc.error(item.id, jsonrpc.TIMED_OUT, "the client did not answer"))]
        server = self.servers[item.server]
        return self._ask(server, server.reread(item.kind)) if server.state == "ready" else []

    def _watch(self, id_: int, item: Call | Held | Asked | _Reread) -> None:
        self._open[id_] = item
        heapq.heappush(self._deadlines, (item.deadline, id_))
        if len(self._deadlines) > 64 + 4 * len(self._open):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._open]
            heapq.heapify(self._deadlines)

    # What the methods use

    def forward(
        self, client: Client, id_: bytes, server: Server, method: str, params: bytes | Raw, now: float,
        token: bytes | None = None, tool: str = "",
    ) -> list[Send]:  # fmt: skip
        """Passes a client's request to a server, or says why that cannot be."""
        if server.state != "ready":
            text = f"server {server.name} is not available: {server.reason}"
            return [Send(client.key, jsonrpc.error(id_, jsonrpc.SERVER_DOWN, text))]
        timeout = client.view.call_timeout
        if server.call_timeout is not None:
            timeout = min(timeout, server.call_timeout)
        minted = next(self._ids)
        self._watch(minted, Call(client, id_, server.key, method, tool, now, timeout, token))
        if token is not None:
            params = era.with_token(params, b"%d" % minted)
        if server.modern and not client.modern:
            params = era.enveloped(params or b"{}")
        return [Send(server.key, jsonrpc.request(minted, method, jsonrpc.one_line(bytes(params))))]

    def catalog_of(self, client: Client) -> Catalog:
        """What this client sees now; names it was shown keep their owners."""
        if client.catalog is None:
            shared = self._merge(client.view.servers)
            moved = client.announced is not None and _moves_a_name(client.announced, shared)
            client.catalog = merge(self._offers(client.view.servers), client.announced) if moved else shared
        return client.catalog

    def hold(self, client: Client, id_: bytes, kind: str, now: float) -> bool:
        """Whether a list request must wait for a server that is about to be ready; if so it is kept."""
        until = max((server.hold_lists_until for server in self._starting(client)), default=now)
        if until <= now:
            return False
        self._watch(next(self._ids), Held(client, id_, kind, until))
        return True

    def find_calls(self, client: Client, raw_id: bytes) -> list[tuple[int, Call | Held]]:
        """The client's open requests with that id."""
        key = jsonrpc.id_key(raw_id)
        return [
            (minted, item)
            for minted, item in self._open.items()
            if isinstance(item, Call | Held) and item.client is client and jsonrpc.id_key(item.id) == key
        ]

    def withdraw(self, minted: int, item: Call | Held, reason: str) -> list[Send]:
        """The client no longer wants an answer."""
        if isinstance(item, Call):
            return self._cancel(minted, item, reason)
        del self._open[minted]
        return []

    def asked_with_token(self, client: Client, token: Raw) -> tuple[str, bytes] | None:
        """The server, and its own token, that a client reports progress to."""
        item = self._open.get(_minted(token) or 0)
        if isinstance(item, Asked) and item.client is client and item.token is not None:
            return item.server, item.token
        return None

    def ask(self, server: Server, method: str, params: bytes) -> list[Send]:
        """A request of our own whose answer does not matter."""
        return self._ask(server, [Ask(method, params, "own")])

    def visible(self, client: Client) -> Iterable[Server]:
        """The servers in a client's view, in the order of the settings file."""
        return (self.servers[key] for key in client.view.servers if key in self.servers)

    def log_line(self, server: Server, where: str, data: bytes, now: float) -> None:
        """Logs something a server wrote that is not for a client; floods are counted, not shown."""
        if not data.strip():
            return
        admitted, held = server.log_quota.admit(now)
        if held:
            LOG.info("%s: (%d more lines)", server.name, held)
        if admitted:
            LOG.info("%s: %s: %s", server.name, where, data[:2000].decode("utf-8", "replace").strip())

    # Inner

    def _ask(self, server: Server, asks: Iterable[Ask]) -> list[Send]:
        sends = []
        for ask in asks:
            if ask.kind:
                minted = next(self._ids)
                self._open[minted] = _Own(server.key, ask)
                sends.append(Send(server.key, jsonrpc.request(minted, ask.method, ask.params)))
            else:
                sends.append(Send(server.key, jsonrpc.notification(ask.method, ask.params)))
        return sends

    def _cancel(self, minted: int, call: Call, reason: str) -> list[Send]:
        del self._open[minted]
        server = self.servers.get(call.server)
        if server is None or server.state != "ready":
            return []
        params = jsonrpc.dump({"requestId": minted, "reason": reason})
        if server.modern:
            params = era.enveloped(params)
        return [Send(call.server, jsonrpc.notification("notifications/cancelled", params))]

    def _offers(self, keys: tuple[str, ...]) -> list[Offer]:
        return [self.servers[key].offer for key in keys if key in self.servers]

    def _merge(self, keys: tuple[str, ...]) -> Catalog:
        if keys not in self._merged:
            self._merged[keys] = merge(self._offers(keys))
        return self._merged[keys]

    def _viewers(self, server: Server) -> Iterable[Client]:
        return (client for client in self.clients.values() if server.key in client.view.servers)

    def _starting(self, client: Client) -> Iterable[Server]:
        return (server for server in self.visible(client) if server.state == "starting")

    def _changed(self, server: Server) -> list[Send]:
        """Shows every client that sees this server what has changed."""
        self._merged.clear()
        return self._announce(self._viewers(server))

    def _announce(self, clients: Iterable[Client]) -> list[Send]:
        sends: list[Send] = []
        for client in clients:
            client.catalog = None
            before = client.notified
            if before is None:
                continue
            after = client.notified = self.catalog_of(client)
            kinds = [kind for kind in ("tools", "prompts", "resources") if _differ(kind, before, after)]
            if kinds and client.view.redial_on_change:
                sends.append(Send(client.key, b""))
            else:
                sends += [send for kind in kinds for send in methods.tell(client, kind)]
        return sends

    def _release(self, now: float) -> list[Send]:
        """Answers the list requests whose servers are all settled."""
        sends = []
        for id_, item in list(self._open.items()):
            if isinstance(item, Held) and not any(s.hold_lists_until > now for s in self._starting(item.client)):
                del self._open[id_]
                sends.append(Send(item.client.key, methods.listing(self, item.client, item.id, item.kind)))
        return sends


def _minted(raw: object) -> int | None:
    """The integer in a raw id; some servers answer with our number as a string or a float."""
    try:
        return int(bytes(raw)) if isinstance(raw, Raw) else None
    except ValueError:
        pass
    try:
        number = float(bytes(raw).strip(b'"'))  # type: ignore[call-overload]
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _failed(call: Call, code: int, text: str) -> Send:
    return Send(call.client.key, jsonrpc.error(call.id, code, text))


def _moves_a_name(announced: Catalog, now: Catalog) -> bool:
    for kind in ("tools", "prompts"):
        then: Callable[[str], object] = getattr(announced, kind).get
        for name, entry in getattr(now, kind).items():
            old = then(name)
            if old is not None and (old.server, old.original) != (entry.server, entry.original):  # type: ignore[attr-defined]
                return True
    return False


def _differ(kind: str, before: Catalog, after: Catalog) -> bool:
    if kind == "resources" and before.templates != after.templates:
        return True
    return bool(getattr(before, kind) != getattr(after, kind))
