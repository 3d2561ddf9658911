"""Log messages of servers: who wants to hear which, and whose call they belong to."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from voice_bridge.core.client import LOG_LEVELS, Client
from voice_bridge.core.effects import Effect, ToClient
from voice_bridge.core.handlers.belonging import callers_of
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Call
from voice_bridge.core.request import Params, Request
from voice_bridge.core.server import Server
from voice_bridge.protocol import jsonrpc

_NO_LEVEL: Final = Raw(jsonrpc.NULL)
_USUAL: Final = LOG_LEVELS.index("info")


def set_level(peers: Peers, request: Request) -> list[Effect]:
    """The client says from which level on it wants to hear log messages."""
    level = jsonrpc.load(jsonrpc.members(request.params).get("level", _NO_LEVEL))
    if level not in LOG_LEVELS:
        return peers.invalid(request, f"unknown level; use one of {', '.join(LOG_LEVELS)}")
    request.client.log_level = LOG_LEVELS.index(level)
    effects = [effect for server in peers.visible(request.client) for effect in ask_level(peers, server, request.now)]
    return effects + peers.answer(request, jsonrpc.EMPTY)


def ask_level(peers: Peers, server: Server, now: float) -> list[Effect]:
    """Asks the server for the most talkative level that one of its clients wants, if one of them ever asked."""
    wanted = [client.log_level for client in peers.viewers(server) if client.log_level is not None]
    if not wanted or "logging" not in server.capabilities or server.modern or not server.ready:
        return []
    return peers.ask(server, "logging/setLevel", jsonrpc.dump({"level": LOG_LEVELS[min(wanted)]}), now)


def logged(peers: Peers, server: Server, params: Params, related: int | None) -> list[Effect]:
    """A log message goes to the client whose call it belongs to; without an open call, to all that want to hear it."""
    level = jsonrpc.load(jsonrpc.members(params).get("level", _NO_LEVEL))
    rank = LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
    callers = callers_of(peers, server, related)
    if len(callers) > 1:
        return []  # it would show one what another's call is about
    hearers = callers or list(peers.viewers(server))
    asked_for = any(client.log_level is not None for client in peers.viewers(server))
    message = jsonrpc.notification("notifications/message", params)
    return [
        ToClient(client.key, message)
        for client in hearers
        if (_asked(peers, server, client, rank) if client.modern else _hears(client, rank, asked_for=asked_for))
    ]


def _hears(client: Client, rank: int, *, asked_for: bool) -> bool:
    """Who never asked hears what a server says by itself, but not what another client made it say."""
    if not client.initialized:
        return False
    if client.log_level is None:
        return not asked_for or rank >= _USUAL
    return rank >= client.log_level


def _asked(peers: Peers, server: Server, client: Client, rank: int) -> bool:
    """In the new era log messages are asked for call by call (SEP-2577)."""
    return any(
        isinstance(call, Call)
        and call.client is client
        and call.log_level in LOG_LEVELS
        and rank >= LOG_LEVELS.index(call.log_level)
        for _, call in peers.pending.of_server(server.key)
    )
