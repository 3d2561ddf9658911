"""The merged lists a client sees: which server owns which name, and what the client is told about it.

Names (DESIGN §4): as the server gives them when nothing clashes. Characters outside `[A-Za-z0-9_-]` and lengths over
64 are mapped, and two names never become one. A clash goes to the server that comes first in the settings file, the
others become `server__tool`. The outcome depends on the file and the tools, never on who started first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from msgspec import Raw

from voice_bridge.config import ToolRules
from voice_bridge.core.keys import ServerKey
from voice_bridge.protocol import jsonrpc

LONGEST_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_RULES = ToolRules()
_NO_SCHEMA: Final = Raw(b'{"type":"object"}')
_TOOL_MEMBERS: Final[Mapping[str, bytes]] = {
    "title": b'"', "description": b'"', "inputSchema": b"{", "outputSchema": b"{", "annotations": b"{", "icons": b"[",
    "execution": b"{", "_meta": b"{",
}  # fmt: skip
_SCHEMA_MEMBERS: Final[Mapping[str, bytes]] = {"properties": b"{", "required": b"["}


@dataclass(frozen=True, slots=True)
class Offer:
    """What one server offers, as it wrote it: raw JSON objects in its own order."""

    server: ServerKey
    name: str
    rules: ToolRules = _NO_RULES
    tools: Sequence[bytes] = ()
    prompts: Sequence[bytes] = ()
    resources: Sequence[bytes] = ()
    templates: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One exposed tool or prompt: its owner, the owner's own name for it, and the JSON a client gets."""

    server: ServerKey
    original: str
    raw: bytes


class CatalogRemark(NamedTuple):
    """A sentence on an entry of a server that is left out or changed."""

    server: str
    text: str


class _Wish(NamedTuple):
    """An item with the name it would like to be shown under."""

    offer: Offer
    original: str
    name: str
    raw: bytes

    @property
    def key(self) -> tuple[ServerKey, str]:
        return self.offer.server, self.original


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything one view of the servers shows."""

    tools: Mapping[str, Entry] = field(default_factory=dict)
    prompts: Mapping[str, Entry] = field(default_factory=dict)
    resources: Mapping[str, Entry] = field(default_factory=dict)
    templates: Mapping[str, Entry] = field(default_factory=dict)
    remarks: tuple[CatalogRemark, ...] = field(default=(), compare=False)

    def listing(self, kind: str) -> bytes:
        """The members of a list result of that kind, without braces."""
        member = b'"resourceTemplates":[' if kind == "templates" else b'"' + kind.encode() + b'":['
        entries: Mapping[str, Entry] = getattr(self, kind)
        return member + b",".join(entry.raw for entry in entries.values()) + b"]"

    def announced_after(self, earlier: Catalog | None) -> Catalog:
        """All names a client was ever shown: these, and those of earlier lists, which stay their owners'."""
        if earlier is None or earlier is self:
            return self
        tools, prompts = {**earlier.tools, **self.tools}, {**earlier.prompts, **self.prompts}
        return replace(self, tools=tools, prompts=prompts)

    def without(self, server: str, originals: Container[str]) -> Catalog:
        """This catalog without some of a server's tools: the owner's new name counts more than the announced one."""
        kept = {
            name: entry
            for name, entry in self.tools.items()
            if entry.server != server or entry.original not in originals
        }
        return replace(self, tools=kept)

    def moves_a_name(self, later: Catalog) -> bool:
        """Whether a later catalog gives a name shown here to another owner."""
        return any(
            name in after and (after[name].server, after[name].original) != (entry.server, entry.original)
            for before, after in ((self.tools, later.tools), (self.prompts, later.prompts))
            for name, entry in before.items()
        )

    def differences(self, earlier: Catalog) -> list[str]:
        """The kinds of list in which this catalog differs from an earlier one; templates count as resources."""
        if self is earlier:
            return []
        kinds = [kind for kind in ("tools", "prompts") if getattr(self, kind) != getattr(earlier, kind)]
        if (self.resources, self.templates) != (earlier.resources, earlier.templates):
            kinds.append("resources")
        return kinds

    def owner_of_uri(self, uri: str) -> ServerKey | None:
        """The server that answers for a resource: by its list, by a template, or the only one with that scheme."""
        if uri in self.resources:
            return self.resources[uri].server
        for template, entry in self.templates.items():
            if _template_pattern(template).fullmatch(uri):
                return entry.server
        scheme = uri.partition(":")[0] + ":"
        known = [*self.resources.items(), *self.templates.items()]
        owners = {entry.server for own, entry in known if own.startswith(scheme)}
        return owners.pop() if len(owners) == 1 else None


def merge(offers: Sequence[Offer], pinned: Catalog | None = None) -> Catalog:
    """One catalog of all offers, in the order of the settings file.

    A name that `pinned` announced is its owner's for good, whether or not that owner still offers the tool.
    """
    remarks: list[CatalogRemark] = []
    tools = [_Wish(offer, *chosen) for offer in offers for chosen in _chosen(offer, remarks)]
    prompts = [
        _Wish(offer, name, name, raw)
        for offer in offers
        for name, raw in _named(offer.prompts, offer.name, "prompt", remarks)
    ]
    return Catalog(
        tools=_expose(tools, pinned.tools if pinned else {}),
        prompts=_expose(prompts, pinned.prompts if pinned else {}),
        resources=_by_uri(offers, "resources", "uri"),
        templates=_by_uri(offers, "templates", "uriTemplate"),
        remarks=tuple(remarks),
    )


def _named(
    entries: Iterable[bytes], server: str, kind: str, remarks: list[CatalogRemark]
) -> Iterable[tuple[str, bytes]]:
    """Entries with their names; an odd one is left out and never costs the rest of the list."""
    seen: set[str] = set()
    for raw in entries:
        name = jsonrpc.load(jsonrpc.members(raw).get("name", b"null"))
        if not isinstance(name, str):
            shown = raw.decode("utf-8", "replace")[:80]
            remarks.append(CatalogRemark(server, f"left out a {kind} that has no name: {shown}"))
        elif name in seen:
            remarks.append(CatalogRemark(server, f"left out a second {kind} called {name!r}"))
        else:
            seen.add(name)
            yield name, raw


def _chosen(offer: Offer, remarks: list[CatalogRemark]) -> Iterable[tuple[str, str, bytes]]:
    """The tools that the rules let through: own name, wished name, JSON."""
    rules = offer.rules
    for name, raw in _named(offer.tools, offer.name, "tool", remarks):
        if not any(fnmatchcase(name, glob) for glob in rules.include):
            continue
        if any(fnmatchcase(name, glob) for glob in rules.exclude):
            continue
        yield name, rules.rename.get(name, name), _completed(raw, rules.describe.get(name))


def _completed(raw: bytes, description: str | None) -> bytes:
    """The tool as the server wrote it, unless the owner describes it anew or a member has a type it must not have.

    Clients that check what they get refuse the whole list for one such member.
    """
    members = _well_typed(jsonrpc.members(raw), _TOOL_MEMBERS)
    if description is not None:
        members["description"] = Raw(jsonrpc.dump(description))
    members["inputSchema"] = _object_schema(members.get("inputSchema", _NO_SCHEMA))
    return raw if members == jsonrpc.members(raw) else jsonrpc.dump(members)


def _well_typed(members: dict[str, Raw], types: Mapping[str, bytes]) -> dict[str, Raw]:
    """The members without those whose value does not begin as its type in `types` does."""
    return {
        name: value
        for name, value in members.items()
        if name not in types or bytes(value).lstrip().startswith(types[name])
    }


def _object_schema(schema: Raw) -> Raw:
    """A schema of an object, as MCP wants it; a good one stays as it was written."""
    members = _well_typed(jsonrpc.members(schema), _SCHEMA_MEMBERS)
    if jsonrpc.load(members.get("type", b"null")) != "object":
        members["type"] = Raw(b'"object"')
    return schema if members == jsonrpc.members(schema) else Raw(jsonrpc.dump(members))


def _expose(wanted: Sequence[_Wish], pinned: Mapping[str, Entry]) -> dict[str, Entry]:
    """A distinct legal name for each item: what was announced stays, then legal names nobody earlier asks for.

    Those that clash come next and the mapped ones last, so that no made-up name takes one that a server chose.
    """
    owners = {(entry.server, entry.original): name for name, entry in pinned.items()}
    names = {wish.key: owners[wish.key] for wish in wanted if wish.key in owners}
    taken = set(pinned)
    for fits in (_is_free, _is_legal, _is_any):
        for wish in wanted:
            if wish.key not in names and fits(wish.name, taken):
                names[wish.key] = name = _free_name(wish, taken)
                taken.add(name)
    return {
        (name := names[wish.key]): Entry(wish.offer.server, wish.original, _renamed(wish.raw, wish.original, name))
        for wish in wanted
    }


def _is_free(name: str, taken: set[str]) -> bool:
    return name not in taken and _LEGAL.fullmatch(name) is not None


def _is_legal(name: str, taken: set[str]) -> bool:
    return _LEGAL.fullmatch(name) is not None


def _is_any(name: str, taken: set[str]) -> bool:
    return True


def _free_name(wish: _Wish, taken: set[str]) -> str:
    plain = legal_name(wish.name)
    if plain not in taken:
        return plain
    prefixed = legal_name(f"{wish.offer.name}__{wish.name}")
    if prefixed not in taken:
        return prefixed
    salt = 0
    while (name := _cut(prefixed, f"{wish.offer.name}\0{wish.original}\0{salt}")) in taken:
        salt += 1
    return name


def legal_name(name: str) -> str:
    """The name in the alphabet that language models' APIs accept: `^[A-Za-z0-9_-]{1,64}$`."""
    if _LEGAL.fullmatch(name):
        return name
    mapped = _ILLEGAL.sub("_", name)
    if not mapped.strip("_-"):
        return _cut("tool", name)
    return mapped if len(mapped) <= LONGEST_NAME else _cut(mapped, name)


def _cut(name: str, told_apart_by: str) -> str:
    digest = hashlib.sha256(told_apart_by.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{digest}"


def _renamed(raw: bytes, original: str, name: str) -> bytes:
    if name == original:
        return raw
    members = jsonrpc.members(raw)
    members["name"] = Raw(jsonrpc.dump(name))
    return jsonrpc.dump(members)


def _by_uri(offers: Sequence[Offer], kind: str, key: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for offer in offers:
        for raw in getattr(offer, kind):
            uri = jsonrpc.load(jsonrpc.members(raw).get(key, b"null"))
            if isinstance(uri, str) and uri not in found:
                found[uri] = Entry(offer.server, uri, raw)
    return found


def _template_pattern(template: str) -> re.Pattern[str]:
    """What an RFC 6570 template can expand to, loosely: `{+x}` and `{#x}` may hold slashes, others may not."""
    parts = re.split(r"((?:\{[^{}]*\})+)", template)  # neighbours as one: apart they would match in exponential ways
    return re.compile("".join(_part_pattern(part) for part in parts))


def _part_pattern(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    return ".*" if re.search(r"\{[+#/?&;.]", part) else "[^/]*"
