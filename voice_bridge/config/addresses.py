"""Whether what an entry names (a host, a file, a header) can exist at all; whether it does, its user finds out."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from voice_bridge.config import source
from voice_bridge.config.expand import shorter, shown
from voice_bridge.text import one_line

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.1
_LONGEST_PATH_SHOWN = 200
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def check_websocket(url: str) -> None:
    """Raises ValueError, without the address, for what cannot be a WebSocket's address (RFC 6455 §3)."""
    parts = _split(url)
    if parts is not None and parts.scheme in ("http", "https"):
        scheme = parts.scheme.replace("http", "ws")
        raise ValueError(f"the address begins with {parts.scheme}://; a WebSocket's begins with {scheme}://")
    if parts is None or parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError("the address is not like 'wss://HOST/mcp/?token=…'; paste it anew from the console")


def check_http(url: str) -> None:
    """Raises ValueError, without the address, for one that cannot be taken apart (RFC 3986 §3)."""
    if _split(url) is None:
        raise ValueError("url: it is not like 'https://HOST/mcp'; look at its brackets, its host and its port")


def _split(url: str) -> SplitResult | None:
    """The parts of an address; None when it cannot be one.

    Brackets must close, the port be a number of 16 bits, and each part of a host's name have 63 letters (RFC 1035).
    """
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises ValueError, without the value, for a header that cannot be sent as it stands (RFC 9110 §5)."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers: {shown(name)} cannot be a header's name, which has no spaces or colons")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"headers: {shorter(name)} must be one line of plain ASCII characters")


def check_path(field: str, path: Path) -> None:
    """Raises ValueError for a path that the system cannot even look at: a name too long, a folder that is closed to us.

    So does a pipe, which would keep its reader waiting. One that does not exist yet is none: it is told of when it is
    needed.
    """
    try:
        fault = "it is a pipe" if stat.S_ISFIFO(os.stat(path).st_mode) else ""
    except (OSError, ValueError) as error:
        fault = "" if getattr(error, "errno", None) in _ABSENT else source.reason(error)
    if fault:
        raise ValueError(f"{field}: {one_line(str(path), _LONGEST_PATH_SHOWN)} cannot be used: {fault}")
