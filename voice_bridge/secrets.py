"""What must not be shown: the words kept secret, and what looks like a secret wherever it stands."""

from __future__ import annotations

import re

_SHORTEST_SECRET = 6
_TOKEN_IN_URL = re.compile(r"((?:token|key|secret|password|auth)[\w-]{0,40}=)[^\s&\"']+", re.IGNORECASE)
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\b\w+://)[^\s/@]+@")
_secrets: set[str] = set()


def keep_secret(*values: str) -> None:
    """Never let these words into the log or a text made by `mask`. Words under six letters are too common to mask."""
    _secrets.update(value for value in values if len(value) >= _SHORTEST_SECRET)


def mask(text: str) -> str:
    """The text with secrets replaced: the kept ones, and what looks like one in a URL or a header."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, "***")
    text = _USER_IN_URL.sub(r"\1***@", text)
    return _BEARER.sub(r"\1***", _TOKEN_IN_URL.sub(r"\1***", text))
