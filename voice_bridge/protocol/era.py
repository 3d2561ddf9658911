"""The two eras of MCP on the wire, and what a message needs to cross from one to the other.

Until 2025-11-25 a session begins with `initialize`. From 2026-07-28 on there is none: every request carries its
protocol version and the client's capabilities in `params._meta`, results carry `resultType`, and a client learns of
changes through `subscriptions/listen`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from voice_bridge import __version__
from voice_bridge.protocol import jsonrpc

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
MODERN: Final = "2026-07-28"

_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY: Final = _PREFIX + "protocolVersion"
SUBSCRIPTION_KEY: Final = _PREFIX + "subscriptionId"
INFO: Final = {"name": "mcp-voice-bridge", "version": __version__}
_VERSION_MEMBER = jsonrpc.dump(VERSION_KEY)
_OUR_ENVELOPE: Final[Mapping[str, Raw]] = {
    VERSION_KEY: Raw(jsonrpc.dump(MODERN)),
    _PREFIX + "clientInfo": Raw(jsonrpc.dump(INFO)),
}
_CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
_CAPABILITIES_MEMBER = jsonrpc.dump(_CAPABILITIES_KEY)
LOG_LEVEL_KEY: Final = _PREFIX + "logLevel"
_LOG_LEVEL_MEMBER = jsonrpc.dump(LOG_LEVEL_KEY)
_ENVELOPE_KEYS = {*_OUR_ENVELOPE, _CAPABILITIES_KEY, LOG_LEVEL_KEY}
_SERVER_INFO_META = b'"_meta":' + jsonrpc.dump({_PREFIX + "serverInfo": INFO})
COMPLETE: Final = b'"resultType":"complete"'
_UNCACHED: Final = b'"ttlMs":0,"cacheScope":"private"'
LISTED_MEMBERS: Final = COMPLETE + b"," + _UNCACHED + b"," + _SERVER_INFO_META


def _text_in_meta(params: bytes | Raw, key: str, member: bytes) -> str | None:
    """A text in a request's `_meta`; params that do not hold the member's bytes at all are not parsed."""
    if member not in bytes(params):
        return None
    value = jsonrpc.load(jsonrpc.members(jsonrpc.members(params).get("_meta", b"")).get(key, b"null"))
    return value if isinstance(value, str) else None


def _with_meta(params: bytes | Raw, added: Mapping[str, Raw]) -> bytes:
    """The params with members laid over those of `_meta`."""
    members = jsonrpc.members(params)
    members["_meta"] = Raw(jsonrpc.dump({**jsonrpc.members(members.get("_meta", b"")), **added}))
    return jsonrpc.dump(members)


def version_of(params: bytes | Raw) -> str | None:
    """The protocol version in a request's envelope; None for a request of the older era."""
    return _text_in_meta(params, VERSION_KEY, _VERSION_MEMBER)


def enveloped(params: bytes | Raw, capabilities: Mapping[str, object], log_level: str | None = None) -> bytes:
    """The params of an older client's request, fit for a server of the new era."""
    level = {} if log_level is None else {LOG_LEVEL_KEY: Raw(jsonrpc.dump(log_level))}
    declared = {_CAPABILITIES_KEY: Raw(jsonrpc.dump(capabilities))}
    return _with_meta(params, {**_OUR_ENVELOPE, **declared, **level})


def declared_in(params: bytes | Raw) -> tuple[object, object]:
    """The capabilities and the client's name in a request's envelope; None for what it does not say."""
    if _CAPABILITIES_MEMBER not in bytes(params):
        return None, None
    meta = jsonrpc.members(jsonrpc.members(params).get("_meta", b""))
    info = jsonrpc.load(meta.get(_PREFIX + "clientInfo", b"null"))
    return jsonrpc.load(meta.get(_CAPABILITIES_KEY, b"null")), info.get("name") if isinstance(info, dict) else None


def unenveloped(params: bytes | Raw) -> bytes:
    """The params of a newer client's request, fit for a server with a handshake: such servers refuse the envelope."""
    members = jsonrpc.members(params)
    meta = {key: raw for key, raw in jsonrpc.members(members.pop("_meta", b"")).items() if key not in _ENVELOPE_KEYS}
    if meta:
        members["_meta"] = Raw(jsonrpc.dump(meta))
    return jsonrpc.dump(members)


def log_level(params: bytes | Raw) -> str | None:
    """The level from which on a request of the new era wants to hear log messages (SEP-2577)."""
    return _text_in_meta(params, LOG_LEVEL_KEY, _LOG_LEVEL_MEMBER)


def completed(result: bytes | Raw, method: str) -> bytes:
    """The result of an older server, fit for a client of the new era; the server's own bytes stay as they are."""
    raw = bytes(result).lstrip()
    if not raw.startswith(b"{") or (b'"resultType"' in raw and "resultType" in jsonrpc.members(raw)):
        return raw
    extra = COMPLETE + (b"," + _UNCACHED if method == "resources/read" else b"")
    rest = raw[1:].lstrip()
    return b"{" + extra + (b"}" if rest == b"}" else b"," + rest)


def discovered(capabilities: bytes, instructions: bytes) -> bytes:
    """The result of `server/discover`: what we speak and offer."""
    versions = jsonrpc.dump([MODERN])
    return (
        b"{" + LISTED_MEMBERS + b',"supportedVersions":' + versions + b',"capabilities":' + capabilities
        + instructions + b"}"
    )  # fmt: skip


def stamped(params: bytes, subscription: bytes) -> bytes:
    """The params of a notification, marked as belonging to a subscription (SEP-2575)."""
    return _with_meta(params, {SUBSCRIPTION_KEY: Raw(subscription)})


_META_IN_ESCAPES: Final = re.compile(rb"\\u00(?:5[fF]|6[15dD]|74)")  # a letter of `_meta` written as an escape


def with_token(params: bytes | Raw, token: bytes) -> bytes:
    """The params with our progress token in `_meta`; what else stands in them stays as written."""
    raw = bytes(params)
    if raw.startswith(b"{") and b'"_meta"' not in raw and not _META_IN_ESCAPES.search(raw):
        rest = raw[1:].lstrip()
        return b'{"_meta":{"progressToken":' + token + (b"}}" if rest == b"}" else b"}," + rest)
    return _with_meta(raw or jsonrpc.EMPTY, {"progressToken": Raw(token)})


NEEDS_INPUT: Final = "needs input that this client cannot give"


def needs_input(result: bytes | Raw) -> bool:
    """Whether a server of the new era answered with a question instead of a result (SEP-2322)."""
    raw = bytes(result)
    return b'"input_required"' in raw and jsonrpc.load(jsonrpc.members(raw).get("resultType", b"")) == "input_required"


def progress_token(params: bytes | Raw) -> bytes | None:
    """The raw progress token of a request's params, if it has one."""
    if b'"progressToken"' not in bytes(params):
        return None
    token = jsonrpc.members(jsonrpc.members(params).get("_meta", b"")).get("progressToken")
    return bytes(token) if token is not None and jsonrpc.valid_id(bytes(token)) else None
