"""How texts for a person are made: amounts, times, whole characters, and nothing that steers a terminal. Pure."""

from __future__ import annotations

import re
import unicodedata

LONGEST_LINE = 2000
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_STEERING = ("Cc", "Cs", "Zl", "Zp")
_SILENT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_END = re.compile("\r+\n|[\x0b\x0c\x85\u2028\u2029]")
# ECMA-48 §5.3 to §5.6. The one-character forms also stand in text that was decoded wrongly: only whole ones count.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?|\x9b[0-?]+[ -/]*[@-~]"  # colours, moves
    r"|\x1b[\]PX^_][^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|[\x90\x98\x9d-\x9f][^\x00-\x1f\x7f-\x9f]*[\x07\x9c]"
    r"|\x1b[ -/]*[0-~]?"
)


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


def encodable(text: str) -> str:
    """The text with U+FFFD for each half of an emoji, which no JSON body can carry (RFC 8259 §8.2).

    Two halves that follow each other, as a stream may cut them, become the character they are.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def spoken(text: str) -> str:
    """The text as a terminal would show it in the end, without what steers one: for a voice, which spells all it gets.

    Whole escape sequences go (ECMA-48), control characters but newline and tab, turned directions (Unicode TR9) and
    lone surrogates. Of a line that was written anew again and again the last state stays. Joiners stay.
    """
    if not _SILENT.search(text):
        return text
    lines = _LINE_END.sub("\n", _SEQUENCE.sub("", text)).split("\n")
    return _SILENT.sub("", "\n".join(_last_state(line) for line in lines))


def _last_state(line: str) -> str:
    """A line after its carriage returns, each of which begins it anew, and its backspaces."""
    line = next((state for state in reversed(line.split("\r")) if state.strip()), "")
    return _overtyped(line) if "\b" in line else line


def _overtyped(line: str) -> str:
    shown: list[str] = []
    place = 0
    for char in line:
        if char == "\b":
            place = max(0, place - 1)
        else:
            shown[place : place + 1] = char
            place += 1
    return "".join(shown)
