"""A router with clients and servers played by the test: every message written out, nothing of the router's own used.

A test reads like a transcript: `stage.says("c", frame)` is one frame of a client, `stage.writes("s", line)` one line of
a server; both return what the router sent because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.wire import read
from voice_bridge.config import ToolRules
from voice_bridge.core.client import Send, View
from voice_bridge.core.router import Router

Json = dict[str, Any]
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
        self.inbox: dict[str, list[Any]] = {}

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
        self.router.server_added(key, key, rules or ToolRules(), timeout, self.now)
        return self.start(key) if ready else []

    def start(self, key: str) -> list[Send]:
        """Starts a server and plays its side of the handshake to the end; what went to clients meanwhile."""
        return self.play(key, self.router.server_started(key))

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
        return self.router.server_message(key, line, self.now)

    def exits(self, key: str, reason: str = "exited with code 3", *, gone: bool = False) -> list[Send]:
        return self.router.server_exited(key, reason, gone=gone, now=self.now)

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
        view = View(key, tuple(self.order if servers is None else servers), timeout, redial_on_change=redial)
        self.router.client_opened(key, view)
        if not greet:
            return []
        if version == MODERN:
            return self.says(key, frame("server/discover", "hello", {"_meta": ENVELOPE}))
        hello = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": {"name": key}}
        sends = self.says(key, frame("initialize", 0, hello))
        return sends + self.says(key, frame("notifications/initialized"))

    def says(self, key: str, data: bytes) -> list[Send]:
        """One frame of a client."""
        return self.router.client_message(key, data, self.now)

    def calls(self, key: str, name: str, id: object = 2, **arguments: object) -> list[Send]:
        return self.says(key, frame("tools/call", id, {"name": name, "arguments": arguments}))

    def lists(self, key: str, kind: str = "tools", id: object = 1) -> list[Any]:
        """The list as this client is told it."""
        params = {"_meta": ENVELOPE} if self.router.clients[key].modern else {}
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
            sends += self.router.expire(self.now)
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
