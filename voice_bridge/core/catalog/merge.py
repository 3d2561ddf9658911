"""One catalog of what all servers offer; what cannot be shown is left out with a remark, never the rest of a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Raw

from voice_bridge.core.catalog.lists import Catalog, CatalogRemark, Entry, Offer
from voice_bridge.core.catalog.names import Wish, expose
from voice_bridge.core.catalog.schema import completed, only_as_a_task
from voice_bridge.protocol import jsonrpc

Remarks = list[CatalogRemark]


def merge(offers: Sequence[Offer], pinned: Catalog | None = None) -> Catalog:
    """One catalog of all offers, in the order of the settings file.

    A name that `pinned` announced is its owner's for good, whether or not that owner still offers the tool.
    """
    remarks: Remarks = []
    tools = [wish for offer in offers for wish in _tools(offer, remarks)]
    prompts = [
        Wish(offer, name, name, raw)
        for offer in offers
        for name, raw in _named(offer, "prompt", offer.prompts, remarks)
    ]
    return Catalog(
        tools=expose(tools, pinned.tools if pinned else {}),
        prompts=expose(prompts, pinned.prompts if pinned else {}),
        resources=_by_uri(offers, "resource", "uri", remarks),
        templates=_by_uri(offers, "resource template", "uriTemplate", remarks),
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _tools(offer: Offer, remarks: Remarks) -> Iterator[Wish]:
    """The tools that the rules let through and that can be called."""
    rules = offer.rules
    for name, raw in _named(offer, "tool", offer.tools, remarks):
        if not any(fnmatchcase(name, glob) for glob in rules.include):
            continue
        if any(fnmatchcase(name, glob) for glob in rules.exclude):
            continue
        if only_as_a_task(raw):
            why = "it runs only as a task (taskSupport), which the bridge cannot ask for"
            remarks.append(CatalogRemark(offer.name, f"left out the tool {_shown(name)}: {why}"))
            continue
        yield Wish(offer, name, rules.rename.get(name, name), completed(raw, rules.describe.get(name)))


def _named(offer: Offer, kind: str, entries: Sequence[bytes], remarks: Remarks) -> Iterator[tuple[str, bytes]]:
    """Entries with their names."""
    seen: set[str] = set()
    for raw in entries:
        name = jsonrpc.load(jsonrpc.members(raw).get("name", jsonrpc.NULL))
        if not isinstance(name, str):
            remarks.append(CatalogRemark(offer.name, f"left out a {kind} that has no name: {_beginning(raw)}"))
        elif (spellings := _spellings_of_name(raw)) != ["name"]:
            why = f"readers differ on which of its members {' and '.join(map(repr, spellings))} is its name"
            remarks.append(CatalogRemark(offer.name, f"left out the {kind} {_shown(name)}: {why}"))
        elif name in seen:
            remarks.append(CatalogRemark(offer.name, f"left out a second {kind} called {_shown(name)}"))
        else:
            seen.add(name)
            yield name, raw


def _by_uri(offers: Sequence[Offer], kind: str, key: str, remarks: Remarks) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for offer in offers:
        for raw in offer.resources if kind == "resource" else offer.templates:
            uri = jsonrpc.load(jsonrpc.members(raw).get(key, jsonrpc.NULL))
            if not isinstance(uri, str):
                remarks.append(CatalogRemark(offer.name, f"left out a {kind} that has no {key}: {_beginning(raw)}"))
            elif uri in found:
                remarks.append(CatalogRemark(offer.name, f"left out a second {kind} with the {key} {_shown(uri)}"))
            else:
                found[uri] = Entry(offer.server, uri, raw)
    return found


class _Member(str):
    """A member's name that equals no other, so that a dict keeps what JSON says twice."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def _member(kind: type, value: Any) -> Any:
    return kind(value)


_every_member = msgspec.json.Decoder(dict[_Member, Raw], dec_hook=_member).decode


def _spellings_of_name(raw: bytes) -> list[str]:
    """The members that one reader or another takes for the name: written twice, or in other case (as Go reads it)."""
    return [str(member) for member in _every_member(raw) if member.casefold() == "name"]


def _shown(name: str) -> str:
    return f"{name!r:.200}"


def _beginning(raw: bytes) -> str:
    return raw[:320].decode("utf-8", "replace")[:80]
