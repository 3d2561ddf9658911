"""What servers offer and what a client is shown of it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from voice_bridge.config import ToolRules
from voice_bridge.core.catalog.uris import first_fit
from voice_bridge.core.keys import ServerKey

_NO_RULES = ToolRules()


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
    """What was left out of the lists: the server's name in the settings, and a sentence for the log."""

    server: str
    text: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything one view of the servers shows, and a remark on each thing left out."""

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
        if (template := first_fit(self.templates, uri)) is not None:
            return self.templates[template].server
        scheme = uri.partition(":")[0] + ":"
        known = [*self.resources.items(), *self.templates.items()]
        owners = {entry.server for own, entry in known if own.startswith(scheme)}
        return owners.pop() if len(owners) == 1 else None
