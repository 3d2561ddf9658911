"""Which values of the settings are secrets, and which variables of the bridge's environment a child may have. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from voice_bridge.config import expand

ENDPOINT_VARIABLE = "MCP_ENDPOINT"
_SHORTEST_TOKEN = 6
_CREDENTIAL = re.compile(r"token|key|secret|auth|passw|credential|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\s+(?=\S)")
_WORD = r"[A-Z]?(?:[a-z]{1,19}|[A-Z]{1,19})"
_ORDINARY = re.compile(rf"{_WORD}(?:[\s,;/+*_-]+{_WORD})*|[-+]?[\d.,:/\s-]{{1,11}}")

# What programs need to run at all: not the secret of whoever mentions it. The first lines are those that the MCP SDK
# hands to every stdio server (DEFAULT_INHERITED_ENV_VARS).
_EVERYBODYS = re.compile(
    r"""HOME|LOGNAME|PATH|SHELL|TERM|USER
    |APPDATA|HOMEDRIVE|HOMEPATH|LOCALAPPDATA|PATHEXT|PROCESSOR_ARCHITECTURE|SYSTEMDRIVE|SYSTEMROOT|TEMP|USERNAME
    |USERPROFILE|COMSPEC|WINDIR|PROGRAMDATA|PROGRAMFILES.*
    |TMP|TMPDIR|PWD|LANG|LANGUAGE|LC_.*|TZ|HOSTNAME|DISPLAY|WAYLAND_DISPLAY|XDG_.*
    |(?:HTTPS?|ALL|NO|FTP)_PROXY|SSL_CERT_.*|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|VIRTUAL_ENV|PYTHONPATH
    |LD_LIBRARY_PATH|VOICE_BRIDGE_DATA""",
    re.IGNORECASE | re.VERBOSE,
)


def is_everybodys(variable: str) -> bool:
    """Whether a variable belongs to the machine or its user rather than to one server."""
    return _EVERYBODYS.fullmatch(variable) is not None


def in_members(raw: Any, made: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets in an entry's `headers` or `env`, given as written and as made of it.

    They are what a credential's name holds, and what was built from a variable that is not everybody's; words, media
    types and short numbers are none, whatever they are called.
    """
    for name, value in made.items():
        own = {word for word in expand.names_in(raw.get(name)) if not is_everybodys(word)}
        found = [value, *(environ.get(word, "") for word in own)] if own else []
        if _CREDENTIAL.search(name):
            found += _credentials(name, value)
        yield from (text for text in found if not is_ordinary(text))


def _credentials(name: str, value: str) -> list[str]:
    """What is secret in a credential's value: what follows the scheme (RFC 9110 §11.4), each cookie (RFC 6265 §4.2)."""
    if name.lower().endswith("cookie"):
        return [value, *(cookie.partition("=")[2].strip() for cookie in value.split(";"))]
    if name.lower().endswith("authorization"):
        scheme = _SCHEME.match(value)
        return [value[scheme.end() :] if scheme else value]
    return [value]


def in_address(url: str) -> Iterator[str]:
    """The secrets in an address: its password, and its query's values that a credential's name or their look shows."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, errors="replace")
        password = unquote(parts.password or "")
    except ValueError:
        return
    yield password
    as_written = [pair.partition("=")[2] for pair in parts.query.split("&")]
    yield from (value for name, value in query if _CREDENTIAL.search(name) or not is_ordinary(value))
    yield from (value for value in as_written if "%" in value)


def is_ordinary(text: str) -> bool:
    """Whether a value is plain words, a media type or a short number, which lines hold without being a secret."""
    return _ORDINARY.fullmatch(text.strip()) is not None


def without_own(environ: Mapping[str, str], of_endpoints: Collection[str], urls: Iterable[str]) -> dict[str, str]:
    """The environment without the bridge's secrets: those named so, and those an endpoint was built from."""
    addresses = [url for url in urls if url]
    tokens = {value for url in addresses for value in in_address(url) if len(value) >= _SHORTEST_TOKEN}
    return {
        name: value
        for name, value in environ.items()
        if name not in of_endpoints
        and name != ENDPOINT_VARIABLE
        and not name.startswith("ANTHROPIC_")
        and value not in tokens
        and not ("://" in value and any(url in value for url in addresses))
    }


def without_others(environ: Mapping[str, str], mine: Collection[str], others: Collection[str]) -> dict[str, str]:
    """The environment without the variables that only other entries use, nor copies of them under another name.

    `others` are the names that other entries refer to by `${VAR}`. A variable that every program needs (HOME, PATH,
    proxies) is nobody's secret, and a copy counts only where its value could be one.
    """
    theirs = {name for name in others if name not in mine and not is_everybodys(name)}
    ours = {environ.get(name) for name in mine}
    values = {
        value
        for name in theirs
        if len(value := environ.get(name, "")) >= _SHORTEST_TOKEN and not is_ordinary(value) and value not in ours
    }
    return {
        name: value
        for name, value in environ.items()
        if name not in theirs and (name in mine or is_everybodys(name) or value not in values)
    }
