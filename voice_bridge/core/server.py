"""One MCP server as its client sees it: the handshake, and its lists read to the last page. Pure.

`Server` asks (`Ask`) and is told the answers; who mints the ids and moves the bytes is the router's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Raw

from voice_bridge.config import ToolRules
from voice_bridge.core.catalog import Offer
from voice_bridge.log import LOG
from voice_bridge.protocol import era, jsonrpc
from voice_bridge.quota import Quota

State = Literal["starting", "ready", "down"]
MOST_PAGES = 1000
_TRIED_VERSIONS: Final = (era.LATEST_HANDSHAKE, era.MODERN, era.HANDSHAKE_VERSIONS[0])
LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
_CHANGED: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "templates"),
}


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to send to the server: a request whose answer comes back, or a notification (`kind` is empty)."""

    method: str
    params: bytes = b""
    kind: str = ""


@dataclass(slots=True)
class _Reading:
    """A list being read; pages are kept aside until the last one is there."""

    entries: list[bytes] = field(default_factory=list)
    cursors: set[bytes] = field(default_factory=set)


class Server:
    """What the router knows of one server process or remote session."""

    def __init__(
        self, key: str, name: str, rules: ToolRules, call_timeout: float | None, hold_lists_until: float
    ) -> None:
        self.key, self.name, self.rules, self.call_timeout = key, name, rules, call_timeout
        self.hold_lists_until = hold_lists_until
        self.state: State = "starting"
        self.reason = "it is still starting"
        self.failure: str | None = None
        self.modern = False
        self.capabilities: Mapping[str, Any] = {}
        self.instructions = ""
        self.lists: dict[str, tuple[bytes, ...]] = {}
        self.subscribers: dict[str, set[str]] = {}
        self.log_quota = Quota()
        self._reading: dict[str, _Reading] = {}
        self._stale: set[str] = set()
        self._versions: list[str] = []

    @property
    def offer(self) -> Offer:
        """What the catalog merges."""
        return Offer(server=self.key, name=self.name, rules=self.rules, **self.lists)

    def begin(self) -> list[Ask]:
        """The handshake's first request; the newest older era first, because every server of the time speaks it."""
        self.state, self.reason, self.failure, self.modern = "starting", "it is still starting", None, False
        self._reading.clear()
        self._stale.clear()
        self._versions = list(_TRIED_VERSIONS)
        return self._try_next_version()

    def _try_next_version(self) -> list[Ask]:
        version = self._versions.pop(0)
        if version == era.MODERN:
            return [Ask("server/discover", era.enveloped(b"{}"), "discover")]
        params = {"protocolVersion": version, "capabilities": era.CAPABILITIES, "clientInfo": era.INFO}
        return [Ask("initialize", jsonrpc.dump(params), "initialize")]

    def answered(self, ask: Ask, result: Raw | None, error: Raw | None) -> list[Ask]:
        """What to ask next. The server becomes ready when its last list is in; `failure` says why it never will."""
        if ask.kind in LISTS:
            return self._page(ask.kind, result, error)
        if ask.kind in ("initialize", "discover"):
            return self._greeted(ask, result, error)
        return []

    def _greeted(self, ask: Ask, result: Raw | None, error: Raw | None) -> list[Ask]:
        facts = jsonrpc.load(result) if result is not None else None
        if not isinstance(facts, dict):
            if self._versions:
                return self._try_next_version()
            self.failure = f"it refused to be initialized: {error_text(error)}"
            return []
        self.modern = ask.kind == "discover"
        capabilities = facts.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        instructions = facts.get("instructions")
        self.instructions = instructions if isinstance(instructions, str) else ""
        kinds = ["tools"] + [kind for kind in ("prompts", "resources") if kind in self.capabilities]
        kinds += ["templates"] if "resources" in kinds else []
        asks = [] if self.modern else [Ask("notifications/initialized")]
        for kind in LISTS:
            if kind not in kinds:
                self.lists[kind] = ()
        return asks + [ask for kind in kinds for ask in self._read(kind)]

    def _read(self, kind: str) -> list[Ask]:
        self._reading[kind] = _Reading()
        return [self._list_ask(kind, {})]

    def _list_ask(self, kind: str, params: dict[str, Raw]) -> Ask:
        raw = jsonrpc.dump(params)
        return Ask(LISTS[kind][0], era.enveloped(raw) if self.modern else raw, kind)

    def _page(self, kind: str, result: Raw | None, error: Raw | None) -> list[Ask]:
        reading = self._reading.get(kind)
        if reading is None:
            return []
        members = jsonrpc.members(result) if result is not None else {}
        if error is not None and (self.state == "ready" or kind in self.capabilities):
            LOG.warning("%s: could not list its %s: %s", self.name, kind, error_text(error))
        if error is not None and self.state == "ready":
            reading.entries = list(self.lists[kind])
        reading.entries += self._objects(kind, members.get(LISTS[kind][1]))
        cursor = bytes(members.get("nextCursor", b"null"))
        if cursor.startswith(b'"') and cursor != b'""':
            if cursor in reading.cursors or len(reading.cursors) >= MOST_PAGES:
                LOG.warning("%s: its list of %s goes round in circles; read up to page %d", self.name, kind,
                            len(reading.cursors) + 1)  # fmt: skip
            else:
                reading.cursors.add(cursor)
                return [self._list_ask(kind, {"cursor": Raw(cursor)})]
        return self._listed(kind, reading)

    def _objects(self, kind: str, raw: Raw | None) -> list[bytes]:
        entries = jsonrpc.elements(raw) if raw is not None else []
        objects = [bytes(entry) for entry in entries if bytes(entry).lstrip().startswith(b"{")]
        if len(objects) < len(entries):
            LOG.warning("%s: left out %d of its %s that are not objects", self.name, len(entries) - len(objects), kind)
        return objects

    def _listed(self, kind: str, reading: _Reading) -> list[Ask]:
        del self._reading[kind]
        self.lists[kind] = tuple(jsonrpc.one_line(entry) for entry in reading.entries)
        if kind in self._stale:
            self._stale.discard(kind)
            return self._read(kind)
        if not self._reading and self.state == "starting":
            self.state, self.reason = "ready", ""
        return []

    def kinds_changed(self, method: str) -> tuple[str, ...]:
        """The lists that a notification says to read anew."""
        return _CHANGED.get(method, ())

    def reread(self, kind: str) -> list[Ask]:
        """Reads a list again; one that is being read just now is read once more after that."""
        if kind in self._reading:
            self._stale.add(kind)
            return []
        return self._read(kind)

    def listen_params(self) -> bytes:
        """The subscription a server of the new era needs before it tells of changes (SEP-2575)."""
        wanted: dict[str, object] = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
        if self.subscribers:
            wanted["resourceSubscriptions"] = sorted(self.subscribers)
        return era.enveloped(jsonrpc.dump({"notifications": wanted}))


def error_text(error: Raw | bytes | None) -> str:
    """A JSON-RPC error's own words."""
    loaded = jsonrpc.load(error) if error is not None else None
    words = loaded.get("message") if isinstance(loaded, dict) else loaded
    return words if isinstance(words, str) else "no reason given"
