"""How a client learns who we are and what we offer, in each era's way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from voice_bridge.core.client import Client
from voice_bridge.core.effects import Effect
from voice_bridge.core.peers import Peers
from voice_bridge.core.request import Request
from voice_bridge.protocol import capabilities, era, jsonrpc, methods

_FEATURES: Final[Mapping[str, object]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


def initialize(peers: Peers, request: Request) -> list[Effect]:
    """A client may initialize again on the same connection (a relay does, once for each device): it starts afresh."""
    client, facts = request.client, jsonrpc.load(request.params)
    facts = facts if isinstance(facts, dict) else {}
    version, info = facts.get("protocolVersion"), facts.get("clientInfo")
    client.initialized, client.modern, client.log_level = True, False, None
    client.capabilities = capabilities.spoken(
        facts.get("capabilities"), info.get("name") if isinstance(info, dict) else None
    )
    answer = {
        "protocolVersion": version if version in era.HANDSHAKE_VERSIONS else era.LATEST_HANDSHAKE,
        "capabilities": Raw(_offered(peers, client)),
        "serverInfo": era.INFO,
    }
    return peers.answer(request, jsonrpc.dump(answer)[:-1] + _instructions(peers, client) + b"}")


def discover(peers: Peers, request: Request) -> list[Effect]:
    """What is spoken and offered here, for a client of the new era."""
    version = era.version_of(request.params)
    if version != era.MODERN:
        return unsupported(peers, request, version)
    client = request.client
    return peers.answer(request, era.discovered(_offered(peers, client), _instructions(peers, client)))


def unsupported(peers: Peers, request: Request, version: str | None) -> list[Effect]:
    """Says which revisions are spoken here, with or without a handshake, so that the client can choose one."""
    data = jsonrpc.dump({"supported": [era.MODERN, *reversed(era.HANDSHAKE_VERSIONS)], "requested": version})
    text = f"protocol version {version} is not supported here"
    return peers.refuse(request, jsonrpc.UNSUPPORTED_VERSION, text, data)


def ping(peers: Peers, request: Request) -> list[Effect]:
    """A sign of life."""
    return peers.answer(request, methods.empty_result(modern=request.client.modern))


def _offered(peers: Peers, client: Client) -> bytes:
    """Tools always; the rest when a server has it, or is still starting and may turn out to have it."""
    servers = list(peers.visible(client))
    unknown = any(server.starting and not server.capabilities for server in servers)
    known = {name for server in servers for name in server.capabilities}
    offered = {name: features for name, features in _FEATURES.items() if name == "tools" or unknown or name in known}
    return jsonrpc.dump(offered)


def _instructions(peers: Peers, client: Client) -> bytes:
    said = [f"{server.name}: {server.instructions}" for server in peers.visible(client) if server.instructions]
    return b',"instructions":' + jsonrpc.dump("\n\n".join(said)) if said else b""
