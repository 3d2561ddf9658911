"""Who is there, and what is open between them. The handlers stand on this; it knows none of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Raw

from voice_bridge.core import budget
from voice_bridge.core.catalog import Catalog, Offer, merge
from voice_bridge.core.client import LOG_LEVELS, Client
from voice_bridge.core.effects import Effect, Note, Redial, ToClient, ToServer
from voice_bridge.core.endpoint import Endpoint
from voice_bridge.core.facts import CallEnded, CallStarted, ListsChanged, Outcome, Remark
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.lifecycle import Event
from voice_bridge.core.pending import Call, Delayed, Held, Own, Pending
from voice_bridge.core.request import Request
from voice_bridge.core.server import LISTS, Ask, Server
from voice_bridge.protocol import capabilities, era, jsonrpc

DEFAULT_CALL_TIMEOUT: Final = 60.0
OWN_TIMEOUT: Final = 30.0
Params = bytes | Raw


class Peers:
    """Clients, servers and endpoints. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.servers: dict[ServerKey, Server] = {}
        self.clients: dict[ClientKey, Client] = {}
        self.endpoints: dict[EndpointKey, Endpoint] = {}
        self.pending = Pending()
        self._merged: dict[tuple[ServerKey, ...], Catalog] = {}

    # Who sees whom

    def visible(self, client: Client) -> Iterable[Server]:
        """The servers in a client's view, in the order of the settings file."""
        return (self.servers[key] for key in client.view.servers if key in self.servers)

    def viewers(self, server: Server) -> Iterable[Client]:
        """The clients whose view includes a server."""
        return (client for client in self.clients.values() if server.key in client.view.servers)

    def declared_to(self, server: Server) -> Mapping[str, Any]:
        """What the present clients of a server can do, and what it was told that they can."""
        return capabilities.union([server.declared, *(client.capabilities for client in self.viewers(server))])

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

    def _offers(self, keys: tuple[ServerKey, ...]) -> list[Offer]:
        return [self.servers[key].offer for key in keys if key in self.servers]

    def forget_catalogs(self) -> None:
        """What servers offer has changed."""
        self._merged.clear()

    # Answers

    def answer(self, request: Request, raw: Params) -> list[Effect]:
        """A result from memory."""
        return self.result_to(request.client, request.id, raw, request.now)

    def refuse(self, request: Request, code: int, text: str, data: bytes = b"") -> list[Effect]:
        """An error of our own."""
        return [ToClient(request.client.key, jsonrpc.error(request.id, code, text, data))]

    def invalid(self, request: Request, text: str) -> list[Effect]:
        """The params do not fit the method."""
        return self.refuse(request, jsonrpc.INVALID_PARAMS, text)

    def result_to(self, client: Client, id_: bytes, raw: Params, now: float) -> list[Effect]:
        """A result; the first one shows that the connection is of use."""
        effects: list[Effect] = [ToClient(client.key, jsonrpc.result(id_, raw))]
        if not client.answered:
            client.answered = True
            endpoint = self.endpoints.get(client.endpoint) if client.endpoint is not None else None
            if endpoint is not None and endpoint.client == client.key:
                endpoint.answered = True
                effects += endpoint.advance(Event.ANSWERED, now)
        return effects

    def listing(self, client: Client, id_: bytes, kind: str, now: float) -> list[Effect]:
        """The answer to a list request, from memory."""
        catalog = self.catalog_of(client)
        client.announced, client.notified = catalog.announced_after(client.announced), catalog
        extra = b"," + era.LISTED_MEMBERS if client.modern else b""
        return self.result_to(client, id_, b"{" + catalog.listing(kind) + extra + b"}", now)

    # Requests of clients

    def hold(self, request: Request, kind: str) -> bool:
        """Whether a list request must wait for a server that is about to be ready; if so it is kept."""
        until = self.awaited(request.client, request.now)
        if until is not None:
            self.pending.add(Held(request.client, request.id, kind, until))
        return until is not None

    def awaited(self, client: Client, now: float) -> float | None:
        """Until when a client's lists wait for servers that are about to be ready; None when they need not."""
        until = max((server.hold_lists_until for server in self.visible(client) if server.starting), default=now)
        return until if until > now else None

    def forward(self, request: Request, server: Server, tool: str = "") -> list[Effect]:
        """Passes a client's request to a server, or says why that cannot be."""
        client, params = request.client, request.params
        limits = [limit for limit in (client.view.call_timeout, server.manner.call_timeout) if limit is not None]
        timeout = min(limits, default=DEFAULT_CALL_TIMEOUT)
        if not server.ready:
            if server.renewing:
                self.pending.add(Delayed(client, request.id, server.key, request, tool, request.now + timeout))
                return []
            text = f"server {server.name} is not available: {server.reason}"
            return [ToClient(client.key, jsonrpc.error(request.id, jsonrpc.SERVER_DOWN, text))]
        own_id = self.pending.mint()
        call = Call(request, server.key, tool, timeout, era.progress_token(params))
        self.pending.open(own_id, call)
        if client.modern:
            call.log_level = era.log_level(params)
        # Always ours: progress extends the time, whether or not the client wants to hear of it.
        params = era.with_token(params, b"%d" % own_id)
        if server.modern and not client.modern:
            rank = client.log_level if "logging" in server.capabilities else None
            params = era.enveloped(params, client.capabilities, None if rank is None else LOG_LEVELS[rank])
        elif client.modern and not server.modern:
            params = era.unenveloped(params)
        started = CallStarted(own_id, client.view.name, server.name, request.method, tool, call.bytes_in)
        data = jsonrpc.request(own_id, request.method, jsonrpc.one_line(params))
        return [Note(started), ToServer(server.key, data)]

    def ended(
        self, id_: int, call: Call, outcome: Outcome, now: float, size: int = 0, error: str = "", *, cut: bool = False
    ) -> Note:
        """The fact that a call is over."""
        server = self.servers.get(call.server)
        return Note(
            CallEnded(
                id_, call.client.view.name, server.name if server else call.server, call.method, call.tool, outcome,
                (now - call.started) * 1000, call.bytes_in, size, cut, error,
            )
        )  # fmt: skip

    def fail(self, id_: int, call: Call, code: int, text: str, outcome: Outcome, now: float) -> list[Effect]:
        """Answers a call, closed already, with an error of our own."""
        raw = jsonrpc.dump({"code": code, "message": text})
        return self.error_to(id_, call, raw, outcome, now, text)

    def error_to(self, id_: int, call: Call, raw: Params, outcome: Outcome, now: float, text: str) -> list[Effect]:
        """Answers a call, closed already, with an error as it is given."""
        limit = call.client.view.max_result_bytes
        if limit is not None:
            raw = budget.fit_error(bytes(raw), limit - len(call.id) - budget.FRAME)
        data = jsonrpc.error_raw(call.id, raw)
        return [ToClient(call.client.key, data), self.ended(id_, call, outcome, now, len(raw), text)]

    def cancel(self, id_: int, call: Call, reason: str) -> list[Effect]:
        """Forgets a call and tells its server so."""
        self.pending.close(id_)
        server = self.servers.get(call.server)
        if server is None or not server.ready:
            return []
        params = jsonrpc.dump({"requestId": id_, "reason": reason})
        if server.modern:
            params = era.enveloped(params, server.declared)
        return [ToServer(call.server, jsonrpc.notification("notifications/cancelled", params))]

    # Requests of our own

    def ask(self, server: Server, method: str, params: bytes, now: float | None) -> list[Effect]:
        """A request of our own whose answer does not matter; it stays open for good when `now` is None."""
        return self.ask_all(server, [Ask(method, params, "own")], now)

    def ask_all(self, server: Server, asks: Iterable[Ask | Note], now: float | None) -> list[Effect]:
        """Sends what a server is to be asked. While it starts, its time to start is the limit."""
        deadline = None if now is None or server.starting else now + OWN_TIMEOUT
        effects: list[Effect] = []
        for ask in asks:
            if isinstance(ask, Note):
                effects.append(ask)
            elif ask.kind:
                own_id = self.pending.add(Own(server.key, ask, deadline))
                effects.append(ToServer(server.key, jsonrpc.request(own_id, ask.method, ask.params)))
            else:
                effects.append(ToServer(server.key, jsonrpc.notification(ask.method, ask.params)))
        return effects

    # Changes

    def changed(self, server: Server) -> list[Effect]:
        """Shows every client that sees this server what has changed."""
        self.forget_catalogs()
        return self.announce(self.viewers(server))

    def announce(self, clients: Iterable[Client]) -> list[Effect]:
        """Tells clients how their lists differ from what they were told last."""
        effects: list[Effect] = []
        for client in clients:
            client.catalog = None
            before = client.notified
            if before is None:
                continue
            after = client.notified = self.catalog_of(client)
            kinds = after.differences(before)
            if kinds and client.view.redial_on_change:
                effects.append(Redial(client.key))
            else:
                effects += [effect for kind in kinds for effect in tell(client, kind)]
        return effects

    def lists_changed(self, server: Server) -> Note:
        """The fact that a server's lists are in."""
        return Note(ListsChanged(server.name, tuple(kind for kind in LISTS if server.lists.get(kind))))

    def remarks(self, server: Server) -> list[Effect]:
        """What the catalog has to say about a server's entries."""
        said = merge([server.offer]).remarks
        return [Note(Remark(remark.server, remark.text, "warning")) for remark in said]


def tell(client: Client, kind: str) -> list[Effect]:
    """The notification that a list changed, to those who want it, in each era's way."""
    method = f"notifications/{kind}/list_changed"
    if client.modern:
        heard = [listen for listen in client.listens.values() if method in listen.methods]
        return [ToClient(client.key, jsonrpc.notification(method, era.stamped(b"", listen.id))) for listen in heard]
    return [ToClient(client.key, jsonrpc.notification(method))] if client.initialized else []
