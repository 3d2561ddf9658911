"""One MCP server as its client sees it: its life, the handshake, and its lists read to the last page. Pure.

`Server` asks (`Ask`) and is told the answers; who mints the ids and moves the bytes is the business of `Peers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw

from voice_bridge.backoff import Backoff
from voice_bridge.config import ToolRules
from voice_bridge.core.catalog import Offer
from voice_bridge.core.effects import Effect, Note, Start, Stop
from voice_bridge.core.facts import Remark, ServerState
from voice_bridge.core.keys import ClientKey, ServerKey
from voice_bridge.core.lifecycle import SERVER, Act, Event, Life, State
from voice_bridge.core.retry import ServerRetry
from voice_bridge.protocol import era, jsonrpc
from voice_bridge.quota import Quota

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
_NO_RULES: Final = ToolRules()
_STILL_STARTING: Final = "it is still starting"


@dataclass(frozen=True, slots=True)
class Ask:
    """Something to send to the server: a request whose answer comes back, or a notification (`kind` is empty)."""

    method: str
    params: bytes = b""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server's settings want it to be treated; times are seconds."""

    name: str
    rules: ToolRules = _NO_RULES
    call_timeout: float | None = None
    start_timeout: float = 120.0
    remote: bool = False


@dataclass(slots=True)
class _Reading:
    """A list being read; pages are kept aside until the last one is there."""

    entries: list[bytes] = field(default_factory=list)
    cursors: set[bytes] = field(default_factory=set)


class Server:
    """What the core knows of one server process or remote session."""

    def __init__(self, key: ServerKey, manner: Manner) -> None:
        self.key, self.manner = key, manner
        self.life = Life(SERVER)
        self.retry = ServerRetry(Backoff(), manner.remote)
        self.list_backoff = Backoff(minimum=5.0, maximum=300.0)
        self.listen_backoff = Backoff(minimum=0.5, maximum=60.0)
        self.listened_since = 0.0
        self.hold_lists_until = 0.0
        self.began = 0.0
        self.starts = 0
        self.took = 0.0
        self.settled = False
        self.to_be_told = False
        self.renewing = False
        self.pid: int | None = None
        self.failure: str | None = None
        self.modern = False
        self.declared: Mapping[str, object] = {}
        self.capabilities: Mapping[str, Any] = {}
        self.instructions = ""
        self.lists: dict[str, tuple[bytes, ...]] = {}
        self.subscribers: dict[str, set[ClientKey]] = {}
        self.log_quota = Quota()
        self._reading: dict[str, _Reading] = {}
        self._stale: set[str] = set()
        self._versions: list[str] = []
        self._greeted = False

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.manner.name

    @property
    def ready(self) -> bool:
        """Whether requests may be sent to it."""
        return self.life.state is State.READY

    @property
    def starting(self) -> bool:
        """Whether it may be ready soon."""
        return self.life.state is State.STARTING

    @property
    def reason(self) -> str:
        """Why it is not ready; empty when it is."""
        return _STILL_STARTING if self.starting else self.life.reason

    @property
    def offer(self) -> Offer:
        """What the catalog merges."""
        return Offer(server=self.key, name=self.name, rules=self.manner.rules, **self.lists)

    # Its life

    def advance(self, event: Event, now: float, reason: str = "", delay: float | None = None) -> list[Effect]:
        """Takes an event of its life: what is to be started or ended, and the fact."""
        greeted = event is Event.ANSWERED and self.starting
        act = self.life.take(event, now, reason, None if delay is None else now + delay)
        if act is None:
            return []
        if greeted:
            self.took = now - self.began
        if not self.ready and not self.starting:
            self.pid = None
        # That the old life is over is no news; what is to be opened now was told when it was decided.
        effects: list[Effect] = []
        if event is not Event.GONE:
            effects.append(Note(self.state_fact(delay, self.took if greeted else None)))
        if act is Act.OPEN:
            self.began = now
            self.starts += 1
            effects.append(Start(self.key))
        elif act is Act.CLOSE:
            effects.append(Stop(self.key))
        return effects

    def state_fact(self, next_try_in: float | None = None, took: float | None = None) -> ServerState:
        """Its state as a fact."""
        life = self.life
        return ServerState(
            self.name, self.key, life.state, life.reason, next_try_in, took, len(self.lists.get("tools", ())),
            self.pid, self.manner.remote,
        )  # fmt: skip

    # The handshake

    def begin(self, declared: Mapping[str, object]) -> list[Ask]:
        """The handshake's first request; the newest older era first, because every server of the time speaks it.

        `declared` are the capabilities of the clients that it works for.
        """
        self.failure, self.modern, self.declared, self._greeted = None, False, declared, False
        self._reading.clear()
        self._stale.clear()
        self._versions = list(_TRIED_VERSIONS)
        return self._try_next_version()

    def _try_next_version(self) -> list[Ask]:
        version = self._versions.pop(0)
        if version == era.MODERN:
            return [Ask("server/discover", era.enveloped(b"{}", self.declared), "discover")]
        params = {"protocolVersion": version, "capabilities": self.declared, "clientInfo": era.INFO}
        return [Ask("initialize", jsonrpc.dump(params), "initialize")]

    def answered(self, ask: Ask, result: Raw | None, error: Raw | None) -> list[Ask | Note]:
        """What to ask next. When `listed` the handshake is over; `failure` says why it never will be."""
        if ask.kind in LISTS:
            return self._page(ask.kind, result, error)
        if ask.kind in ("initialize", "discover"):
            return list(self._welcomed(ask, result, error))
        return []

    def _welcomed(self, ask: Ask, result: Raw | None, error: Raw | None) -> list[Ask]:
        facts = jsonrpc.load(result) if result is not None else None
        if not isinstance(facts, dict):
            if self._versions:
                return self._try_next_version()
            self.failure = f"it refused to be initialized: {error_text(error)}"
            return []
        self._greeted, self.modern = True, ask.kind == "discover"
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

    @property
    def listed(self) -> bool:
        """Whether the handshake is over and no list is being read."""
        return self._greeted and not self._reading

    # Lists

    def _read(self, kind: str) -> list[Ask]:
        self._reading[kind] = _Reading()
        return [self._list_ask(kind, {})]

    def _list_ask(self, kind: str, params: dict[str, Raw]) -> Ask:
        raw = jsonrpc.dump(params)
        return Ask(LISTS[kind][0], era.enveloped(raw, self.declared) if self.modern else raw, kind)

    def _page(self, kind: str, result: Raw | None, error: Raw | None) -> list[Ask | Note]:
        reading = self._reading.get(kind)
        if reading is None:
            return []
        members = jsonrpc.members(result) if result is not None else {}
        notes: list[Ask | Note] = []
        if error is not None and (self.ready or kind in self.capabilities):
            notes.append(self._warn(f"could not list its {kind}: {error_text(error)}"))
        if error is not None and self.ready:
            reading.entries = list(self.lists[kind])
        entries, odd = _objects(members.get(LISTS[kind][1]))
        reading.entries += entries
        if odd:
            notes.append(self._warn(f"left out {odd} of its {kind} that are not objects"))
        cursor = bytes(members.get("nextCursor", b"null"))
        if cursor.startswith(b'"') and cursor != b'""':
            if cursor not in reading.cursors and len(reading.cursors) < MOST_PAGES:
                reading.cursors.add(cursor)
                return [*notes, self._list_ask(kind, {"cursor": Raw(cursor)})]
            page = len(reading.cursors) + 1
            notes.append(self._warn(f"its list of {kind} goes round in circles; read up to page {page}"))
        return [*notes, *self._list_read(kind, reading)]

    def _warn(self, text: str) -> Note:
        return Note(Remark(self.name, text, "warning"))

    def _list_read(self, kind: str, reading: _Reading) -> list[Ask]:
        del self._reading[kind]
        self.lists[kind] = tuple(jsonrpc.one_line(entry) for entry in reading.entries)
        if kind in self._stale:
            self._stale.discard(kind)
            return self._read(kind)
        return []

    def unanswered(self, kind: str) -> bool:
        """A list was asked for and never came: the one that is known stays. Whether it is one that was being read."""
        self._stale.discard(kind)
        return self._reading.pop(kind, None) is not None

    def kinds_changed(self, method: str) -> tuple[str, ...]:
        """The lists that a notification says to read anew."""
        return _CHANGED.get(method, ())

    def reread(self, kind: str) -> list[Ask]:
        """Reads a list again; one that is being read just now is read once more after that."""
        if not self._greeted:
            return []  # it will be read for the first time
        if kind in self._reading:
            self._stale.add(kind)
            return []
        return self._read(kind)

    def listen_params(self) -> bytes:
        """The subscription a server of the new era needs before it tells of changes (SEP-2575)."""
        wanted: dict[str, object] = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
        if self.subscribers:
            wanted["resourceSubscriptions"] = sorted(self.subscribers)
        return era.enveloped(jsonrpc.dump({"notifications": wanted}), self.declared)


def _objects(raw: Raw | None) -> tuple[list[bytes], int]:
    """The entries of a list that are objects, and how many are something else."""
    entries = jsonrpc.elements(raw) if raw is not None else []
    objects = [bytes(entry) for entry in entries if bytes(entry).lstrip().startswith(b"{")]
    return objects, len(entries) - len(objects)


def error_text(error: Raw | bytes | None) -> str:
    """A JSON-RPC error's own words."""
    loaded = jsonrpc.load(error) if error is not None else None
    words = loaded.get("message") if isinstance(loaded, dict) else loaded
    return words if isinstance(words, str) else "no reason given"
