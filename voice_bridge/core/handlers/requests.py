"""What each method of a client gets: an answer from memory, or a place in a server's queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from voice_bridge.core.client import LOG_LEVELS, Client, Send
from voice_bridge.core.handlers.subscriptions import add_subscriber, ask_level, drop_subscriber, listen, to
from voice_bridge.core.server import Server
from voice_bridge.protocol import era, jsonrpc

if TYPE_CHECKING:
    from voice_bridge.core.router import Router

Params = bytes | Raw
Answer = Callable[["Router", Client, bytes, Params, float], list[Send]]
_FEATURES: Final[Mapping[str, object]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


class _CallParams(msgspec.Struct, gc=False):
    name: str
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_call = msgspec.json.Decoder(_CallParams).decode


def _invalid(client: Client, id_: bytes, text: str) -> list[Send]:
    return to(client, jsonrpc.error(id_, jsonrpc.INVALID_PARAMS, text))


def _initialize(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    """A client may initialize again on the same connection (a relay does, once for each device): it starts afresh."""
    facts = jsonrpc.load(params)
    facts = facts if isinstance(facts, dict) else {}
    version = facts.get("protocolVersion")
    capabilities = facts.get("capabilities")
    client.initialized, client.modern = True, False
    client.capabilities = capabilities if isinstance(capabilities, dict) else {}
    client.log_level = 0
    answer = {
        "protocolVersion": version if version in era.HANDSHAKE_VERSIONS else era.LATEST_HANDSHAKE,
        "capabilities": Raw(_capabilities(router, client)),
        "serverInfo": era.INFO,
    }
    raw = jsonrpc.dump(answer)[:-1] + _instructions(router, client) + b"}"
    return to(client, jsonrpc.result(id_, raw))


def _discover(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    version = era.version_of(params)
    if version != era.MODERN:
        return unsupported(client, id_, version)
    raw = era.discovered(_capabilities(router, client), _instructions(router, client))
    return to(client, jsonrpc.result(id_, raw))


def unsupported(client: Client, id_: bytes, version: str | None) -> list[Send]:
    """Says which revisions are spoken here, with or without a handshake, so that the client can choose one."""
    data = jsonrpc.dump({"supported": [era.MODERN, *reversed(era.HANDSHAKE_VERSIONS)], "requested": version})
    text = f"protocol version {version} is not supported here"
    return to(client, jsonrpc.error(id_, jsonrpc.UNSUPPORTED_VERSION, text, data))


def _capabilities(router: Router, client: Client) -> bytes:
    """Tools always; the rest when a server has it, or is still starting and may turn out to have it."""
    servers = list(router.visible(client))
    pending = any(server.state == "starting" and not server.capabilities for server in servers)
    known = {name for server in servers for name in server.capabilities}
    offered = {name: features for name, features in _FEATURES.items() if name == "tools" or pending or name in known}
    return jsonrpc.dump(offered)


def _instructions(router: Router, client: Client) -> bytes:
    said = [f"{server.name}: {server.instructions}" for server in router.visible(client) if server.instructions]
    return b',"instructions":' + jsonrpc.dump("\n\n".join(said)) if said else b""


def _ping(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    return to(client, jsonrpc.result(id_, jsonrpc.EMPTY))


def _list(kind: str) -> Answer:
    def answer(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
        cursor = jsonrpc.members(params).get("cursor") if params else None
        if cursor is not None and bytes(cursor) not in (jsonrpc.NULL, b'""'):
            return _invalid(client, id_, "unknown cursor: the whole list comes on one page")
        if router.hold(client, id_, kind, now):
            return []
        return to(client, listing(router, client, id_, kind))

    return answer


def listing(router: Router, client: Client, id_: bytes, kind: str) -> bytes:
    """The response to a list request, from memory."""
    catalog = router.catalog_of(client)
    client.announced, client.notified = catalog.announced_after(client.announced), catalog
    extra = b"," + era.LISTED_MEMBERS if client.modern else b""
    return jsonrpc.result(id_, b"{" + catalog.listing(kind) + extra + b"}")


def _call_tool(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    try:
        call = _decode_call(params)
    except (msgspec.MsgspecError, RecursionError):
        return _invalid(client, id_, "tools/call needs params with the name of a tool")
    entry = router.catalog_of(client).tools.get(call.name)
    if entry is None:
        return _invalid(client, id_, _unknown_tool(router, client, call.name))
    if entry.original != call.name:
        params = _with_name(params, entry.original)
    token = None
    if call.meta is not UNSET:
        raw = jsonrpc.members(call.meta).get("progressToken")
        token = bytes(raw) if raw is not None and jsonrpc.valid_id(bytes(raw)) else None
    server = router.servers[entry.server]
    return router.forward(client, id_, server, "tools/call", params, now, token, call.name)


def _unknown_tool(router: Router, client: Client, name: str) -> str:
    gone = client.announced.tools.get(name) if client.announced else None
    if gone is not None and gone.server in router.servers:
        server = router.servers[gone.server]
        why = f" ({server.reason})" if server.reason else ""
        return f"server {server.name} no longer offers the tool {name!r}{why}"
    return f"there is no tool {name!r}"


def _with_name(params: Params, name: str) -> bytes:
    members = jsonrpc.members(params)
    members["name"] = Raw(jsonrpc.dump(name))
    return jsonrpc.dump(members)


def _get_prompt(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    name = jsonrpc.load(jsonrpc.members(params).get("name", b"null"))
    entry = router.catalog_of(client).prompts.get(name) if isinstance(name, str) else None
    if entry is None:
        return _invalid(client, id_, f"there is no prompt {name!r}")
    if entry.original != name:
        params = _with_name(params, entry.original)
    return _forward(router, client, id_, router.servers[entry.server], "prompts/get", params, now)


def _forward(
    router: Router, client: Client, id_: bytes, server: Server, method: str, params: Params, now: float
) -> list[Send]:
    return router.forward(client, id_, server, method, params, now, era.progress_token(params))


def _owner_of(router: Router, client: Client, params: Params) -> Server | None:
    uri = jsonrpc.load(jsonrpc.members(params).get("uri", b"null"))
    owner = router.catalog_of(client).owner_of_uri(uri) if isinstance(uri, str) else None
    return router.servers.get(owner) if owner is not None else None


def _no_resource(client: Client, id_: bytes, params: Params) -> list[Send]:
    uri = bytes(jsonrpc.members(params).get("uri", b"null"))
    text = f"no server has a resource {uri.decode()}"
    return to(client, jsonrpc.error(id_, jsonrpc.RESOURCE_NOT_FOUND, text))


def _read_resource(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    server = _owner_of(router, client, params)
    if server is None:
        return _no_resource(client, id_, params)
    return _forward(router, client, id_, server, "resources/read", params, now)


def _subscribe(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    server = _owner_of(router, client, params)
    if server is None:
        return _no_resource(client, id_, params)
    uri = str(jsonrpc.load(jsonrpc.members(params)["uri"]))
    sends = add_subscriber(router, server, uri, client.key)
    return sends + to(client, jsonrpc.result(id_, jsonrpc.EMPTY))


def _unsubscribe(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    uri = jsonrpc.load(jsonrpc.members(params).get("uri", b"null"))
    if not isinstance(uri, str):
        return _no_resource(client, id_, params)
    sends = [
        send
        for server in router.visible(client)
        if client.key in server.subscribers.get(uri, ())
        for send in drop_subscriber(router, server, uri, client.key)
    ]
    return sends + to(client, jsonrpc.result(id_, jsonrpc.EMPTY))


def _complete(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    ref_raw = jsonrpc.members(params).get("ref", Raw(b"{}"))
    ref = jsonrpc.load(ref_raw)
    ref = ref if isinstance(ref, dict) else {}
    catalog = router.catalog_of(client)
    if ref.get("type") == "ref/prompt":
        entry = catalog.prompts.get(str(ref.get("name")))
        if entry is not None and entry.original != ref.get("name"):
            members = jsonrpc.members(params)
            members["ref"] = Raw(_with_name(ref_raw, entry.original))
            params = jsonrpc.dump(members)
        owner = entry.server if entry else None
    else:
        uri = str(ref.get("uri"))
        owner = catalog.templates[uri].server if uri in catalog.templates else catalog.owner_of_uri(uri)
    if owner is None:
        return _invalid(client, id_, "there is no such prompt or resource to complete")
    return _forward(router, client, id_, router.servers[owner], "completion/complete", params, now)


def _set_level(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    level = jsonrpc.load(jsonrpc.members(params).get("level", b"null"))
    if level not in LOG_LEVELS:
        return _invalid(client, id_, f"unknown level; use one of {', '.join(LOG_LEVELS)}")
    client.log_level = LOG_LEVELS.index(level)
    sends = [send for server in router.visible(client) for send in ask_level(router, server)]
    return sends + to(client, jsonrpc.result(id_, jsonrpc.EMPTY))


def _listen(router: Router, client: Client, id_: bytes, params: Params, now: float) -> list[Send]:
    return listen(router, client, id_, params)


REQUESTS: Final[Mapping[str, Answer]] = {
    "initialize": _initialize,
    "server/discover": _discover,
    "ping": _ping,
    "tools/list": _list("tools"),
    "tools/call": _call_tool,
    "prompts/list": _list("prompts"),
    "prompts/get": _get_prompt,
    "resources/list": _list("resources"),
    "resources/templates/list": _list("templates"),
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
    "logging/setLevel": _set_level,
    "subscriptions/listen": _listen,
}
