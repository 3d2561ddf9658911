"""Prompts, and the completion of their arguments and of resource templates."""

from __future__ import annotations

from msgspec import Raw

from voice_bridge.core.effects import Effect
from voice_bridge.core.handlers.naming import Unnamed, name_in, with_name
from voice_bridge.core.peers import Peers
from voice_bridge.core.request import Request
from voice_bridge.protocol import jsonrpc


def get(peers: Peers, request: Request) -> list[Effect]:
    """Asks the prompt's owner for it."""
    try:
        name = name_in(request.params, "prompt")
    except Unnamed as unnamed:
        return peers.invalid(request, f"prompts/get: {unnamed}")
    entry = peers.catalog_of(request.client).prompts.get(name)
    if entry is None:
        return peers.invalid(request, f"there is no prompt {name!r}")
    if entry.original != name:
        request = request._replace(params=with_name(request.params, entry.original))
    return peers.forward(request, peers.servers[entry.server])


def complete(peers: Peers, request: Request) -> list[Effect]:
    """Asks the owner of what is completed."""
    ref_raw = jsonrpc.members(request.params).get("ref", Raw(b"{}"))
    ref = jsonrpc.load(ref_raw)
    ref = ref if isinstance(ref, dict) else {}
    catalog = peers.catalog_of(request.client)
    if ref.get("type") == "ref/prompt":
        entry = catalog.prompts.get(str(ref.get("name")))
        if entry is not None and entry.original != ref.get("name"):
            members = jsonrpc.members(request.params)
            members["ref"] = Raw(with_name(ref_raw, entry.original))
            request = request._replace(params=jsonrpc.dump(members))
        owner = entry.server if entry else None
    else:
        uri = str(ref.get("uri"))
        owner = catalog.templates[uri].server if uri in catalog.templates else catalog.owner_of_uri(uri)
    if owner is None:
        return peers.invalid(request, "there is no such prompt or resource to complete")
    return peers.forward(request, peers.servers[owner])
