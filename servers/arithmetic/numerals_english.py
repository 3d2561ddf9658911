"""English numbers: twenty five, one point two million, two and a half, three quarters.

Written here because the one kept library, text2num, silently takes "twenty and five" for 25 where two numbers are
listed, and "three hundredths" for 300ths.
"""

from __future__ import annotations

import re
from fractions import Fraction

from servers.arithmetic.numbers import Number, exact
from servers.arithmetic.numerals import ARABIC, Numeral


def _words(text: str) -> list[str]:
    return text.split()


_SMALL = {
    word: value
    for value, word in enumerate(
        _words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
}
_DECADES = dict(zip(_words("twenty thirty forty fifty sixty seventy eighty ninety"), range(20, 100, 10), strict=True))
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MULTIPLIERS = {"hundred": 100, "dozen": 12} | _SCALES
ORDINALS = {
    word: value
    for value, word in enumerate(
        _words(
            "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
            "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
        )
    )
}
_PARTS = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4, "hundredth": 100, "hundredths": 100}
_PARTS |= {"thousandth": 1000, "thousandths": 1000}
_PARTS |= {word + ending: ORDINALS[word] for word in ORDINALS if ORDINALS[word] >= 3 for ending in ("", "s")}
_ATOM = "|".join([*_SMALL, *_DECADES, *_MULTIPLIERS])
_LEADING = "|".join([*_SMALL, *_DECADES])
_RUN = re.compile(
    rf"(?:(?:{ARABIC})(?=[\s-]?(?:{'|'.join(_MULTIPLIERS)})\b)|an?(?=\s+(?:{'|'.join(_MULTIPLIERS)})\b)"
    rf"|(?:{_LEADING}|hundred)\b)(?:(?:[\s-]+|(?<=\d))(?:and\s+)?(?:{_ATOM}|{ARABIC}(?=[\s-]?(?:{'|'.join(_SCALES)})\b))\b)*",
    re.IGNORECASE,
)
_POINT = re.compile(rf"(?:\s+|\b)point\s+((?:(?:{'|'.join(list(_SMALL)[:10])}|oh)\b\s*)+|\d+)", re.IGNORECASE)
_POINT_DIGITS = re.compile(r"\s+point\s+(\d+)\b", re.IGNORECASE)
_PART = re.compile(
    rf"(an?|\d+|{'|'.join(list(_SMALL)[1:])})[\s-]+({'|'.join(sorted(_PARTS, key=len, reverse=True))})\b", re.IGNORECASE
)
_AND_PART = re.compile(rf"\s+and\s+(?={_PART.pattern})", re.IGNORECASE)
_HALF = re.compile(r"(half|quarter)\b(?:\s+an?\s+(hundred|dozen|thousand|million|billion|trillion)\b)?", re.IGNORECASE)
_SCALE = re.compile(rf"\s*({'|'.join(_SCALES)})\b", re.IGNORECASE)


def english(text: str, position: int) -> Numeral | None:
    """Return the English number words, or digits with a word such as million, at `position`."""
    part = _part(text, position)
    if part:
        return part
    whole = _whole(text, position)
    pointed = _POINT.match(text, whole.end if whole else position)
    if pointed:
        digits = "".join(str(_SMALL.get("zero" if word == "oh" else word, word)) for word in pointed[1].lower().split())
        value = (whole.value if whole else 0) + Fraction(int(digits), 10 ** len(digits))
        return _scaled(text, Numeral(value, len(text[: pointed.end()].rstrip())))
    return _with_part(text, whole) if whole else None


def with_part(text: str, value: Number, end: int) -> Numeral:
    """Return the number `value` that ends at `end`, with the "point 5" or "and a half" that may follow it."""
    pointed = _POINT_DIGITS.match(text, end)
    if pointed and isinstance(value, int):
        return _scaled(text, Numeral(exact(value + Fraction(int(pointed[1]), 10 ** len(pointed[1]))), pointed.end()))
    return _with_part(text, Numeral(value, end))


def _with_part(text: str, whole: Numeral) -> Numeral:
    joint = _AND_PART.match(text, whole.end)
    part = _part(text, joint.end()) if joint else None
    return _scaled(text, Numeral(exact(whole.value + part.value), part.end, joined=True)) if part else whole


def _part(text: str, position: int) -> Numeral | None:
    match = _PART.match(text, position)
    if match:
        above = int(match[1]) if match[1].isdigit() else _SMALL.get(match[1].lower(), 1)
        name = match[2].lower()
        if (above == 1) != (name.endswith("s") or name == "halves"):
            return Numeral(exact(Fraction(above, _PARTS[name])), match.end())
        return None
    half = _HALF.match(text, position)
    if half and not re.match(r"[a-z]", text[position - 1 : position], re.IGNORECASE):
        times = _MULTIPLIERS[half[2].lower()] if half[2] else 1
        return Numeral(exact(Fraction(times, _PARTS[half[1].lower()])), half.end())
    return None


def _scaled(text: str, numeral: Numeral) -> Numeral:
    scale = _SCALE.match(text, numeral.end)
    return Numeral(exact(numeral.value * _SCALES[scale[1].lower()]), scale.end(), numeral.joined) if scale else numeral


def _whole(text: str, position: int) -> Numeral | None:
    run = _RUN.match(text, position)
    if not run:
        return None
    words = [(match[0].lower(), match.end()) for match in re.finditer(rf"{ARABIC}|[a-z]+", run[0], re.IGNORECASE)]
    value, used = _groups(words)
    return Numeral(value, position + words[used - 1][1], any(word == "and" for word, _ in words[:used]))


def _groups(words: list[tuple[str, int]]) -> tuple[Number, int]:
    """Return the number that the longest beginning of `words` is, and how many words that takes."""
    total: Number = 0
    used = 0
    limit = 10**15
    while True:
        start = used + (used > 0 and words[used : used + 1] != [] and words[used][0] == "and")
        group, following = _below_thousand(words, start)
        if following == start:
            return total, used
        scale = _SCALES.get(words[following][0], 1) if following < len(words) else 1
        if scale >= limit or group >= limit:
            return total, used
        total, used, limit = exact(total + group * scale), following + (scale > 1), scale
        if scale == 1:
            return total, used


def _below_thousand(words: list[tuple[str, int]], start: int) -> tuple[Number, int]:
    value, used = _below_hundred(words, start)
    multiplier = words[used][0] if used < len(words) else ""
    if used == start and multiplier not in ("hundred",):
        return value, used
    if multiplier == "dozen":
        return value * 12, used + 1
    if multiplier != "hundred":
        return value, used
    value, used = (value if used > start else 1) * 100, used + 1
    joint = used + (used < len(words) and words[used][0] == "and")
    rest, end = _below_hundred(words, joint, digits=False)
    return (value + rest, end) if end > joint else (value, used)


def _below_hundred(words: list[tuple[str, int]], start: int, digits: bool = True) -> tuple[Number, int]:
    word = words[start][0] if start < len(words) else ""
    if word in ("a", "an"):
        return 1, start + 1
    if digits and word[:1].isdigit():
        return exact(Fraction(word.replace(",", ""))), start + 1
    if word in _SMALL:
        return _SMALL[word], start + 1
    if word not in _DECADES:
        return 0, start
    unit = _SMALL.get(words[start + 1][0], 0) if start + 1 < len(words) else 0
    return (_DECADES[word] + unit, start + 2) if 0 < unit < 10 else (_DECADES[word], start + 1)
