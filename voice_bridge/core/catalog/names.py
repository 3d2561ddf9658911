"""Exposed names: as the server gives them when nothing clashes.

Characters outside `[A-Za-z0-9_-]` and lengths over 64 are mapped, and two names never become one. A clash goes to the
server that comes first in the settings file, the others become `server__tool`. The outcome depends on the file and the
tools, never on who started first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Raw

from voice_bridge.core.catalog.lists import Entry, Offer
from voice_bridge.core.keys import ServerKey
from voice_bridge.names import hashed_name, is_legal, legal_name
from voice_bridge.protocol import jsonrpc


class Wish(NamedTuple):
    """An item with the name it would like to be shown under."""

    offer: Offer
    original: str
    name: str
    raw: bytes

    @property
    def key(self) -> tuple[ServerKey, str]:
        return self.offer.server, self.original


def expose(wanted: Sequence[Wish], pinned: Mapping[str, Entry]) -> dict[str, Entry]:
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
    return name not in taken and is_legal(name)


def _is_legal(name: str, taken: set[str]) -> bool:
    return is_legal(name)


def _is_any(name: str, taken: set[str]) -> bool:
    return True


def _free_name(wish: Wish, taken: set[str]) -> str:
    plain = legal_name(wish.name)
    if plain not in taken:
        return plain
    prefixed = legal_name(f"{wish.offer.name}__{wish.name}")
    if prefixed not in taken:
        return prefixed
    salt = 0
    while (name := hashed_name(prefixed, f"{wish.offer.name}\0{wish.original}\0{salt}")) in taken:
        salt += 1
    return name


def _renamed(raw: bytes, original: str, name: str) -> bytes:
    if name == original:
        return raw
    members = jsonrpc.members(raw)
    members["name"] = Raw(jsonrpc.dump(name))
    return jsonrpc.dump(members)
