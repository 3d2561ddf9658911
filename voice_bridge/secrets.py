"""What must not be shown: the words kept secret, and what looks like a secret wherever it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

_SHORTEST_SECRET = 6
_TOKEN_IN_URL = re.compile(r"((?:token|key|secret|password|auth)[\w-]{0,40}=)[^\s&\"']+", re.IGNORECASE)
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\b\w+://)[^\s/@]+@")
_ESCAPE = re.compile("%[0-9A-F]{2}")
_secrets: set[str] = set()

# Every third place of a text is looked up by the four characters that stand there. A secret's last six characters cover
# three such fours, one of which stands at such a place wherever the secret begins. The end of a secret tells it apart
# better than its beginning: addresses and tokens begin alike.
_STEP, _FOUR = 3, 4
_by_four: dict[str, set[str]] = {}


def keep_secret(*values: str) -> None:
    """Never let these words into the log or a text made by `mask`. Words under six letters are too common to mask.

    They are kept as they stand, as in an address (RFC 3986 §2.1) and as in JSON.
    """
    for value in values:
        if len(value) >= _SHORTEST_SECRET and value not in _secrets:
            for spelled in _spellings(value):
                _secrets.add(spelled)
                for at in range(len(spelled) - _SHORTEST_SECRET, len(spelled) - _FOUR + 1):
                    _by_four.setdefault(spelled[at : at + _FOUR], set()).add(spelled)


def _spellings(value: str) -> set[str]:
    encoded = [encode(value, safe=safe, errors="surrogatepass") for encode in (quote, quote_plus) for safe in ("", "/")]
    lower = [_ESCAPE.sub(lambda found: found[0].lower(), text) for text in encoded]
    return {value, json.dumps(value)[1:-1], *encoded, *lower}


def mask(text: str) -> str:
    """The text with secrets replaced: the kept ones, and what looks like one in a URL or a header."""
    text = _without_kept(text)
    if "://" in text:
        text = _USER_IN_URL.sub(r"\1***@", text)
    if "=" in text:
        text = _TOKEN_IN_URL.sub(r"\1***", text)
    return _BEARER.sub(r"\1***", text)


def _without_kept(text: str) -> str:
    """The text with each stretch that secrets cover, one inside or across another too, replaced as one."""
    fours = {text[at : at + _FOUR] for at in range(0, len(text), _STEP)}
    if _by_four.keys().isdisjoint(fours):
        return text
    candidates = {secret for four in fours for secret in _by_four.get(four, ())}
    spans = sorted(span for secret in candidates for span in _places(text, secret))
    parts, end = [], 0
    for start, stop in spans:
        if start >= end:
            parts += [text[end:start], "***"]
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _places(text: str, secret: str) -> Iterator[tuple[int, int]]:
    at = text.find(secret)
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + 1)
