"""What is declared to whom: to a server, what the clients it works for can do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

NEEDED: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The capability that a client must have declared to be asked this (MCP 2025-11-25, Client Features)."""

_PASSED_ON: Final = frozenset(NEEDED.values())
# The client of the self-hosted voice server declares roots and sampling and answers neither.
_DECLARES_AND_IS_SILENT: Final = frozenset({"XiaozhiMCPEndpointClient", "XiaozhiMCPClient"})


def spoken(declared: object, client_name: object) -> dict[str, Any]:
    """Of what a client declares, what a server's question may rely on."""
    if not isinstance(declared, Mapping) or client_name in _DECLARES_AND_IS_SILENT:
        return {}
    return {name: value for name, value in declared.items() if name in _PASSED_ON and isinstance(value, Mapping)}


def union(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What at least one of several clients can do."""
    merged: dict[str, Any] = {}
    for one in several:
        for name, value in one.items():
            known = merged.get(name, value)
            both = isinstance(known, Mapping) and isinstance(value, Mapping)
            merged[name] = union([known, value]) if both and known is not value else known
    return merged


def covers(declared: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether everything wanted was declared."""
    return all(
        name in declared
        and (not isinstance(value, Mapping) or (isinstance(declared[name], Mapping) and covers(declared[name], value)))
        for name, value in wanted.items()
    )
