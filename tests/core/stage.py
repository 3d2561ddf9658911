"""A router with clients and servers played by the test: every message written out, nothing of the router's own used.

A test reads like a transcript: `stage.says("c", frame)` is one frame of a client, `stage.writes("s", line)` one line of
a server; both return what the router sent because of it. What else it decided is kept: facts in `facts`, the rest in
`acts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.wire import read
from voice_bridge.config import ToolRules
from voice_bridge.core.client import View
from voice_bridge.core.effects import Effect, Note, Redial, ToClient, ToServer
from voice_bridge.core.facts import Fact
from voice_bridge.core.keys import ClientKey, ServerKey
from voice_bridge.core.router import Router
from voice_bridge.core.server import Manner

Json = dict[str, Any]
Send = ToClient | ToServer
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "cloud", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def frame(method: str, id: object = None, params: object = None, *, raw_id: bytes = b"", raw: bytes = b"") -> bytes:
    """A request, or a notification when it has no id; `raw_id` and `raw` (params) are put in as they are."""
    parts = [b'"jsonrpc":"2.0"']
    if raw_id or id is not None:
        parts.append(b'"id":' + (raw_id or dumps(id)))
    parts.append(b'"method":' + dumps(method))
    if raw or params is not None:
        parts.append(b'"params":' + (raw or dumps(params)))
    return b"{" + b",".join(parts) + b"}"


def answer(id: object, result: object = None, *, raw: bytes = b"", error: bytes = b"") -> bytes:
    """A response; `raw` is the result, `error` the error, as they are."""
    member = b'"error":' + error if error else b'"result":' + (raw or dumps({} if result is None else result))
    return b'{"jsonrpc":"2.0","id":' + dumps(id) + b"," + member + b"}"


def tool(name: str, **more: object) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


class Stage:
    """The router, a clock that only the test moves, and what each server offers."""

    def __init__(self, list_grace: float = 5.0) -> None:
        self.router = Router(list_grace=list_grace)
        self.now = 100.0
        self.offers: dict[str, Json] = {}
        self.order: list[str] = []
        self.facts: list[Fact] = []
        self.acts: list[Effect] = []
        self.everything: list[Send] = []

    def sent(self, effects: Iterable[Effect]) -> list[Send]:
        """The messages among what the router decided; the rest is kept."""
        sends: list[Send] = []
        for effect in effects:
            if isinstance(effect, ToClient | ToServer):
                sends.append(effect)
                self.everything.append(effect)
            elif isinstance(effect, Note):
                self.facts.append(effect.fact)
            else:
                self.acts.append(effect)
        return sends

    def told(self, kind: type[Any]) -> list[Any]:
        """The facts of one kind, oldest first."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def asked(self, key: str, *methods: str) -> list[Any]:
        """The params of all that a server or client was ever sent under these methods."""
        sent = [read(send.data) for send in self.everything if send.to == key]
        return [message.get("params") for message in sent if message.get("method") in methods]

    def redials(self) -> list[str]:
        """The clients that were to be dialled anew."""
        return [act.client for act in self.acts if isinstance(act, Redial)]

    # Servers

    def server(
        self,
        key: str,
        *tools: Json | str,
        prompts: Iterable[Json] | None = None,
        resources: Iterable[Json] | None = None,
        templates: Iterable[Json] = (),
        capabilities: Mapping[str, object] | None = None,
        rules: ToolRules | None = None,
        timeout: float | None = None,
        modern: bool = False,
        ready: bool = True,
        start_timeout: float = 1e6,
    ) -> list[Send]:
        """A server in the settings; `ready` starts it and lets its handshake end."""
        offer: Json = {"tools": [tool(one) if isinstance(one, str) else one for one in tools], "modern": modern}
        offer["capabilities"] = {"tools": {"listChanged": True}, **(capabilities or {})}
        if prompts is not None:
            offer["prompts"], offer["capabilities"]["prompts"] = list(prompts), {}
        if resources is not None:
            offer["resources"], offer["resourceTemplates"] = list(resources), list(templates)
            offer["capabilities"]["resources"] = {"subscribe": True}
        self.offers[key] = offer
        self.order.append(key)
        manner = Manner(key, rules or ToolRules(), timeout, start_timeout=start_timeout)
        self.sent(self.router.supervisor.wanted(ServerKey(key), manner, self.now))
        return self.start(key) if ready else []

    def start(self, key: str) -> list[Send]:
        """Starts a server and plays its side of the handshake to the end; what went to clients meanwhile."""
        self.revive(key)
        return self.play(key, self.begins(key))

    def revive(self, key: str) -> None:
        """Nothing is left of an earlier process, and the wait for the next one is over."""
        server = self.router.peers.servers[ServerKey(key)]
        if not server.starting:
            self.sent(self.router.supervisor.gone(server.key, self.now))
            server.life.next_try = self.now
            self.sent(self.router.supervisor.retry(server.key, self.now))

    def play(self, key: str, sends: list[Send]) -> list[Send]:
        """Answers what the router asks this server as it should, until it asks no more; the rest of the sends."""
        others: list[Send] = []
        while sends:
            send = sends.pop(0)
            reply = self._reply(key, read(send.data)) if send.to == key else None
            if reply is None:
                others.append(send)
            else:
                sends += self.writes(key, reply)
        return [send for send in others if send.to != key or b'"tools/call"' in send.data]

    def _reply(self, key: str, asked: Json) -> bytes | None:
        offer, method = self.offers[key], asked.get("method")
        if "id" not in asked or method is None:
            return None
        id_ = int(asked["id"])
        if method == "initialize" and offer["modern"]:
            data = {"supported": [MODERN], "requested": asked["params"]["protocolVersion"]}
            return answer(id_, error=dumps({"code": -32022, "message": "unsupported", "data": data}))
        if method == "initialize":
            version = asked["params"]["protocolVersion"]
            hello = {"protocolVersion": version, "capabilities": offer["capabilities"], "serverInfo": {"name": key}}
            return answer(id_, {**hello, **({"instructions": offer["says"]} if "says" in offer else {})})
        if method == "server/discover" and offer["modern"]:
            found = {"supportedVersions": [MODERN], "capabilities": offer["capabilities"], "resultType": "complete"}
            return answer(id_, found)
        lists = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
        member = lists.get(str(method)) or ("resourceTemplates" if method == "resources/templates/list" else None)
        return answer(id_, {member: offer.get(member, [])}) if member else None

    def writes(self, key: str, line: bytes) -> list[Send]:
        """One line of a server."""
        return self.sent(self.router.server_message(ServerKey(key), line, self.now))

    def exits(self, key: str, reason: str = "exited with code 3", *, gone: bool = False) -> list[Send]:
        """A server ends; `gone`: for the last of many times, so that it will not be back soon."""
        if gone:
            self.router.peers.servers[ServerKey(key)].retry.quick_deaths = 100
        return self.sent(self.router.supervisor.ended(ServerKey(key), reason, self.now))

    # Clients

    def client(
        self,
        key: str,
        servers: Iterable[str] | None = None,
        *,
        version: str = "2025-11-25",
        capabilities: Mapping[str, object] | None = None,
        greet: bool = True,
        timeout: float = 60.0,
        redial: bool = False,
    ) -> list[Send]:
        """A connection; `greet` shakes hands (in the era of `version`)."""
        self.router.client_opened(ClientKey(key), self.view(key, servers, timeout=timeout, redial=redial))
        if not greet:
            return []
        if version == MODERN:
            return self.says(key, frame("server/discover", "hello", {"_meta": ENVELOPE}))
        hello = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": {"name": key}}
        sends = self.says(key, frame("initialize", 0, hello))
        sends += self.says(key, frame("notifications/initialized"))
        return sends + self.renew()

    def renew(self) -> list[Send]:
        """Servers that are to be told more than they were begin anew, and are ready again."""
        renewing = [server.key for server in self.router.peers.servers.values() if server.renewing]
        sends: list[Send] = []
        for key in renewing:
            self.sent(self.router.supervisor.gone(key, self.now))
            sends += self.play(key, self.begins(key))
        return sends

    def begins(self, key: str) -> list[Send]:
        """A server's process is up; what it is asked first."""
        return self.sent(self.router.supervisor.opened(ServerKey(key), 1, self.now))

    def removes(self, key: str) -> list[Send]:
        """The settings lose a server, and its process ends."""
        sends = self.sent(self.router.supervisor.unwanted(ServerKey(key), self.now, "was removed from the settings"))
        if ServerKey(key) in self.router.peers.servers:
            sends += self.sent(self.router.supervisor.gone(ServerKey(key), self.now))
        return sends

    def undelivered(self, key: str, data: bytes) -> list[Send]:
        """A message that a server did not take."""
        return self.sent(self.router.undelivered(ServerKey(key), data, self.now))

    def oversized(self, key: str, ends: bytes, size: int, limit: int) -> list[Send]:
        """A line of a server that is over the limit."""
        return self.sent(self.router.server_oversized(ServerKey(key), ends, size, limit, self.now))

    def sees(self, key: str, servers: Iterable[str], *, timeout: float = 60.0) -> list[Send]:
        """The settings change what a client sees."""
        view = self.view(key, servers, timeout=timeout)
        return self.sent(self.router.client_view(ClientKey(key), view, self.now))

    def view(
        self, key: str, servers: Iterable[str] | None = None, *, timeout: float = 60.0, redial: bool = False
    ) -> View:
        """What a client sees."""
        keys = tuple(ServerKey(server) for server in (self.order if servers is None else servers))
        return View(key, keys, timeout, redial_on_change=redial)

    def says(self, key: str, data: bytes) -> list[Send]:
        """One frame of a client."""
        return self.sent(self.router.client_message(ClientKey(key), data, self.now))

    def leaves(self, key: str) -> list[Send]:
        """A client's connection ends."""
        return self.sent(self.router.client_closed(ClientKey(key), self.now))

    def calls(self, key: str, name: str, id: object = 2, **arguments: object) -> list[Send]:
        return self.says(key, frame("tools/call", id, {"name": name, "arguments": arguments}))

    def lists(self, key: str, kind: str = "tools", id: object = 1) -> list[Any]:
        """The list as this client is told it."""
        params = {"_meta": ENVELOPE} if self.router.peers.clients[ClientKey(key)].modern else {}
        (send,) = self.says(key, frame(f"{kind}/list", id, params))
        member = "resourceTemplates" if kind == "resources/templates" else kind
        listed: list[Any] = read(send.data)["result"][member]
        return listed

    def names(self, key: str, kind: str = "tools") -> list[str]:
        return [entry["name"] for entry in self.lists(key, kind)]

    # Time

    def wait(self, seconds: float) -> list[Send]:
        """Lets time pass and what is due happen, each thing at its time."""
        until, sends = self.now + seconds, list[Send]()
        while (due := self.router.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            sends += self.sent(self.router.expire(self.now))
        self.now = until
        return sends


def seen(sends: Iterable[Send]) -> list[tuple[str, Any]]:
    """Sends as (to whom, message read)."""
    return [(send.to, read(send.data)) for send in sends]


def only(sends: Iterable[Send], to: str) -> Any:
    """The one message to somebody."""
    (found,) = [message for receiver, message in seen(sends) if receiver == to]
    return found


def id_of(sends: Iterable[Send], to: str) -> int:
    """The id in the one request that went to a server."""
    return int(only(sends, to)["id"])
