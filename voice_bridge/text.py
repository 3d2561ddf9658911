"""How texts for a person are made: amounts, times, and what a terminal must not be steered by. Pure."""

from __future__ import annotations

import unicodedata

LONGEST_LINE = 2000
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_STEERING = ("Cc", "Cs", "Zl", "Zp")


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def plural(number: int, word: str) -> str:
    """`1 tool`, `2 tools`, `1,000 tools`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def printable(text: str, keep: str = "\n\t") -> str:
    """The text with the characters that could steer a terminal written as escapes, but for those kept.

    Control characters, line and paragraph separators, lone surrogates, and what turns the direction of the text that
    follows (Unicode TR9).
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _steers(c) else ascii(c)[1:-1] for c in text)


def _steers(char: str) -> bool:
    return unicodedata.category(char) in _STEERING or char in _DIRECTIONS


def one_line(text: str, limit: int = LONGEST_LINE) -> str:
    """The text on one line: control characters escaped, cut after `limit` characters with a note of how many follow."""
    line = printable(text, keep="")
    return line if len(line) <= limit else f"{line[:limit]} … ({len(line) - limit:,} more characters)"
