"""What must not be shown: the words kept secret, and what looks like a secret wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

_SHORTEST_SECRET = 6
_TOKEN_IN_URL = re.compile(r"((?:token|key|secret|password|auth)[\w-]{0,40}=)[^\s&\"']+", re.IGNORECASE)
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\b\w+://)[^\s/@]+@")
_ESCAPE = re.compile("%[0-9A-F]{2}")
_secrets: set[str] = set()
# The lengths of the secrets that end in these letters. Ends differ more than beginnings, which are `wss://` or `sk-`.
_lengths: dict[str, set[int]] = {}


def keep_secret(*values: str) -> None:
    """Never let these words into the log or a text made by `mask`. Words under six letters are too common to mask.

    They are masked too as they stand in a URL, percent-encoded (RFC 3986 §2.1).
    """
    for value in values:
        if len(value) >= _SHORTEST_SECRET and value not in _secrets:
            for spelling in {value, *_in_url(value)}:
                _secrets.add(spelling)
                _lengths.setdefault(spelling[-_SHORTEST_SECRET:], set()).add(len(spelling))


def mask(text: str) -> str:
    """The text with secrets replaced: the kept ones, and what looks like one in a URL or a header."""
    text = _without_kept(text)
    if "://" in text:
        text = _USER_IN_URL.sub(r"\1***@", text)
    if "=" in text:
        text = _TOKEN_IN_URL.sub(r"\1***", text)
    return _BEARER.sub(r"\1***", text)


def _in_url(value: str) -> Iterator[str]:
    for encode in (quote, quote_plus):
        for safe in ("", "/"):
            encoded = encode(value, safe=safe, errors="surrogatepass")
            yield encoded
            yield _ESCAPE.sub(lambda found: found[0].lower(), encoded)


def _without_kept(text: str) -> str:
    spans = sorted(_spans(text))
    done, parts = 0, []
    for index, (start, end) in enumerate(spans):
        if start >= done or index == 0:
            parts += [text[done:start], "***"]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where kept secrets stand. The cost grows with the text, not with the number of secrets."""
    known, width = _lengths, _SHORTEST_SECRET
    for start in [start for start in range(len(text) - width + 1) if text[start : start + width] in known]:
        end = start + width
        for length in known[text[start:end]]:
            if length <= end and text[end - length : end] in _secrets:
                yield end - length, end
