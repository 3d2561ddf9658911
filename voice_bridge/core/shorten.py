"""Long texts cut where a listener would not mind: after a row, a line or a sentence, between characters. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

from voice_bridge.protocol import jsonrpc

_SENTENCE_ENDS: Final = ".!?。！？…"
_NEAR: Final = 0.8
_FEW_LINES: Final = 5


def shortened(text: str, budget: int) -> str:
    """The text cut to so many bytes of JSON, with a note that says how much of it that is."""
    return _fewer_rows(text, budget) or _fewer_lines(text, budget) or cut_text(text, budget)


def _fewer_rows(text: str, budget: int) -> str | None:
    """For JSON that is, or holds, one long list: as many whole rows as fit."""
    raw = text.strip().encode("utf-8", "replace")
    members = jsonrpc.members(raw)
    lists = {name: jsonrpc.elements(value) for name, value in members.items()}
    longest = max(lists, key=lambda name: len(bytes(members[name])), default="")
    rows = jsonrpc.elements(raw) if raw.startswith(b"[") else lists.get(longest, [])
    if not rows:
        return None

    def shown(count: int) -> str:
        kept = rows[:count]
        whole = jsonrpc.dump({**members, longest: kept} if members else kept).decode()
        return f"{whole}\n(shortened, {count:,} of {len(rows):,} rows)"

    kept = _most(min(len(rows), budget), lambda n: size(shown(n)) <= budget)
    return shown(kept) if kept else None


def _fewer_lines(text: str, budget: int) -> str | None:
    """For text of many lines: as many whole lines as fit."""
    lines = text.split("\n")
    if len(lines) < _FEW_LINES:
        return None
    note = f"\n(shortened, {{}} of {len(lines):,} lines)"

    def shown(count: int) -> str:
        return "\n".join(lines[:count]) + note.format(f"{count:,}")

    kept = _most(min(len(lines), budget), lambda n: size(shown(n)) <= budget)
    return shown(kept) if kept and size(shown(kept)) >= budget * (1 - _NEAR) else None


def cut_text(text: str, budget: int) -> str:
    """As many characters as fit, ended at a sentence or a word where one is near."""
    note = f" … (shortened, {{}} of {len(text):,} characters)"
    room = budget - len(note) - len(f"{len(text):,}")
    if room <= 0:
        return text[: _most(max(0, budget), lambda n: size(text[:n]) <= budget)]
    kept = _most(min(len(text), room), lambda n: size(text[:n]) <= room)
    head = text[: _good_end(text, kept)]
    return head + note.format(f"{len(head):,}")


def _good_end(text: str, most: int) -> int:
    """The best place to stop at or before `most` characters: after a sentence, before a word, between characters."""
    least = int(most * _NEAR)
    for end in range(most, least, -1):
        if text[end - 1] in _SENTENCE_ENDS and (end == len(text) or text[end - 1] not in ".!?" or text[end].isspace()):
            return end
    for end in range(most, least, -1):
        if text[end : end + 1].isspace():
            return end
    while 0 < most < len(text) and (_joins(text[most]) or text[most - 1] == "\u200d"):
        most -= 1
    return most


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it: accents, joiners, variation selectors, skin tones."""
    return (
        unicodedata.combining(character) > 0
        or character in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _most(highest: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `highest` that fits; fitting must get no easier as numbers grow."""
    low, high = 0, highest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def size(text: str) -> int:
    """The bytes that a text takes inside a JSON string."""
    return len(jsonrpc.dump(text)) - 2
