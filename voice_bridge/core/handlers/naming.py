"""The name in a request's params: what it is, whether it is beyond doubt, and how another takes its place."""

from __future__ import annotations

import json

import msgspec
from msgspec import Raw

from voice_bridge.core.request import Params
from voice_bridge.protocol import jsonrpc


class _Named(msgspec.Struct, gc=False):
    name: str


_decode = msgspec.json.Decoder(_Named).decode


class Unnamed(ValueError):
    """The params name nothing, or more than one thing; the text says so."""


def name_in(params: Params, what: str) -> str:
    """The name of the tool or prompt that params ask for.

    Raises Unnamed where there is none, and where a reader that is less exact than ours could find another one: some
    take the first of two equal keys, and Go's takes `Name` for `name`. A rule on names must not be passed that way.
    """
    try:
        name = _decode(params).name
    except (msgspec.MsgspecError, RecursionError):
        raise Unnamed(f"params need the name of a {what}, a text") from None
    raw = bytes(params)
    if (raw.lower().count(b'"name"') > 1 or b"\\u" in raw) and _names(raw) != 1:
        raise Unnamed(f"the name of the {what} stands twice in the params, or in another spelling too; give it once")
    return name


def _names(raw: bytes) -> int:
    """How many keys of the outermost object read as `name` when letters' case does not count."""
    outermost: list[str] = []

    def keep(pairs: list[tuple[str, object]]) -> None:
        outermost[:] = [key for key, _ in pairs]  # the outermost object is done last

    try:
        json.loads(raw.decode("utf-8", "replace"), object_pairs_hook=keep, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return 0
    return sum(key.casefold() == "name" for key in outermost)


def with_name(params: Params, name: str) -> bytes:
    """The params with another name."""
    members = jsonrpc.members(params)
    members["name"] = Raw(jsonrpc.dump(name))
    return jsonrpc.dump(members)
