"""One spelling for every sign and digit, with the way back to what was sent."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from servers.arithmetic.numbers import CalculationError

MAX_LENGTH = 2_000
QUOTED_LENGTH = 80

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("×∙⋅·•∗✕✖⨯", "*"),
        **dict.fromkeys("÷∕⁄", "/"),
        **dict.fromkeys("−‐‑‒–—﹣", "-"),
        **dict.fromkeys("’‘´`", "'"),
        "π": " pi ",
        "τ": " tau ",
        "∛": " cbrt ",
        "【": "(",
        "】": ")",
        "٫": ".",
        "٬": ",",
        "￥": "¥",
        "萬": "万",
    }
)
_KEPT = frozenset("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞º")
"""What compatibility normalisation would make a part of its neighbours: 5² is not 52."""


@dataclass(frozen=True)
class Plain:
    """`text` to read, and for each of its characters the place it came from in `sent`."""

    sent: str
    text: str
    origins: tuple[int, ...]

    def quote(self, start: int, end: int) -> str:
        """Return what was sent for `text[start:end]`, in quotation marks."""
        if start >= len(self.origins):
            return quoted(self.sent)
        return quoted(self.sent[self.origins[start] : self.origins[max(start, end - 1)] + 1].strip())


def quoted(text: str) -> str:
    """Return `text` in quotation marks, at most 80 characters of it, nothing in it able to disturb a terminal."""
    return repr(text if len(text) <= QUOTED_LENGTH else text[:QUOTED_LENGTH] + "…")


def plain(text: str) -> Plain:
    """Return `text` with one spelling for every sign and digit.

    Raises CalculationError when it is empty or longer than 2,000 characters.
    """
    if len(text) > MAX_LENGTH:
        raise CalculationError(
            f"The expression has {len(text):,} characters and {MAX_LENGTH:,} are allowed: split it into several calls."
        )
    sent = unicodedata.normalize("NFC", text)
    pieces = [_spelled(sent, position) for position in range(len(sent))]
    read = "".join(pieces)
    if not read.strip():
        raise CalculationError("The expression is empty: send arithmetic such as 1004 * 328.")
    return Plain(sent, read, tuple(place for place, piece in enumerate(pieces) for _ in piece))


def _spelled(text: str, position: int) -> str:
    sign = text[position]
    if sign in _KEPT:
        return sign
    if sign == "，":
        return "," if _is_wide_digit(text, position - 1) and _is_wide_digit(text, position + 1) else "、"
    folded = unicodedata.normalize("NFKC", sign.translate(_SIGNS)).translate(_SIGNS)
    return "".join(str(unicodedata.decimal(one)) if one.isdecimal() else one for one in folded)


def _is_wide_digit(text: str, position: int) -> bool:
    return 0 <= position < len(text) and "０" <= text[position] <= "９"
