"""Which Messages API to ask and with which key, as the environment says; it takes no SDK to tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from voice_bridge.errors import UsageError
from voice_bridge.secrets import keep_secret

SET_UP = (
    "the agent needs a model: set ANTHROPIC_API_KEY to a key from platform.claude.com, in the environment or the "
    ".env file, or point ANTHROPIC_BASE_URL at a local server that speaks the Messages API"
)
_NO_ADDRESS = (
    "ANTHROPIC_BASE_URL is not an http:// or https:// address of a server, such as http://127.0.0.1:8080; correct it"
)


@dataclass(frozen=True)
class Access:
    """A key or a token, and a base address without `/v1`; empty where the environment has none."""

    api_key: str = field(default="", repr=False)
    auth_token: str = field(default="", repr=False)
    base_url: str = field(default="", repr=False)


def access(environ: Mapping[str, str]) -> Access:
    """What the variables say, without the spaces and quotes around it.

    Raises `UsageError` for a key that no header can carry and for what is no address. Never shows either.
    """
    found = Access(_key(environ, "ANTHROPIC_API_KEY"), _key(environ, "ANTHROPIC_AUTH_TOKEN"), _base(environ))
    blank = [name for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if environ.get(name)]
    if blank and found == Access():
        raise UsageError(f"{blank[0]} holds nothing but spaces or quotes; {SET_UP}")
    keep_secret(found.api_key, found.auth_token)
    return found


def _key(environ: Mapping[str, str], name: str) -> str:
    """The variable's value as a header can carry it (RFC 9110 §5.5)."""
    value = _bare(environ.get(name, ""))
    if value and not re.fullmatch(r"[\x21-\x7e]+", value):
        keep_secret(value)
        raise UsageError(f"{name} holds a space, a line break or a letter that no key has; copy the key again")
    return value


def _base(environ: Mapping[str, str]) -> str:
    """The address that the SDK's own `/v1/messages` is put behind."""
    value = _bare(environ.get("ANTHROPIC_BASE_URL", ""))
    if not value:
        return ""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        usable = False
    if not usable or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise UsageError(_NO_ADDRESS)
    return re.sub(r"(/v1(/messages)?)?/*$", "", value.rstrip("/"))


def _bare(value: str) -> str:
    value = value.strip()
    while len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1].strip()
    return value if value not in ("'", '"') else ""
