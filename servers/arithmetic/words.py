"""Arithmetic in words: English and Chinese/Japanese/Korean operators, and Chinese number words."""

from __future__ import annotations

import re

_ENGLISH = {
    r"multiplied by|times": "*",
    r"divided by|over": "/",
    r"(?:raised )?to the power(?: of)?": "^",
    r"the square root of|square root of": "√",
    r"the cube root of|cube root of": "∛",
    r"squared": "^2",
    r"cubed": "^3",
    r"plus": "+",
    r"minus": "-",
    r"modulo|mod": "% ",
    r"percent|per cent": "%",
    r"of": "*",
}
_EAST_ASIAN = {
    "乘以": "*",
    "除以": "/",
    "加上": "+",
    "减去": "-",
    "減去": "-",
    "平方根": "√",
    "根号": "√",
    "根號": "√",
    "的平方": "^2",
    "平方": "^2",
    "더하기": "+",
    "빼기": "-",
    "곱하기": "*",
    "나누기": "/",
    "足す": "+",
    "引く": "-",
    "掛ける": "*",
    "かける": "*",
    "割る": "/",
    "わる": "/",
    "加": "+",
    "减": "-",
    "減": "-",
    "乘": "*",
    "乗": "*",
    "除": "/",
}
_DIGITS = {
    **{"零": 0, "〇": 0, "一": 1, "二": 2, "两": 2, "兩": 2, "三": 3},
    **{"四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9},
}
_TENS = {"十": 10, "百": 100, "千": 1_000}
_MYRIADS = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_ALL_DIGITS = "".join(_DIGITS)
_ALL_NUMERALS = "".join([*_DIGITS, *_TENS, *_MYRIADS])
_NUMERAL = re.compile(f"[{_ALL_DIGITS}十百千][{_ALL_NUMERALS}]*(?:[点點][{_ALL_DIGITS}]+)?")
_PERCENTAGE = re.compile(rf"百分之({_NUMERAL.pattern}|[\d.]+)")
_ENGLISH_WORD = re.compile("|".join(rf"(?<![a-z])({words})(?![a-z])" for words in _ENGLISH), re.IGNORECASE)
_EAST_ASIAN_WORD = re.compile("|".join(_EAST_ASIAN))


def without_words(text: str) -> str:
    """Return `text` with the operators and Chinese numerals that are written as words replaced by signs."""
    signs = list(_ENGLISH.values())
    text = _ENGLISH_WORD.sub(lambda match: f" {signs[(match.lastindex or 1) - 1]} ", text)
    text = _EAST_ASIAN_WORD.sub(lambda match: _EAST_ASIAN[match[0]], text)
    text = _PERCENTAGE.sub(r"(\1)%", text)
    return _NUMERAL.sub(lambda match: _number(match[0]), text)


def _number(numeral: str) -> str:
    """Return 二百零三 as 203 and 三点一四 as 3.14."""
    whole, _, decimals = re.sub("點", "点", numeral).partition("点")
    if not any(character in _TENS or character in _MYRIADS for character in whole):
        digits = "".join(str(_DIGITS[character]) for character in whole)
    else:
        digits = str(_positional(whole))
    return digits + ("." + "".join(str(_DIGITS[character]) for character in decimals) if decimals else "")


def _positional(numeral: str) -> int:
    total = section = digit = 0
    for character in numeral:
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in _TENS:
            section += (digit or 1) * _TENS[character]
            digit = 0
        else:
            total += (section + digit) * _MYRIADS[character]
            section = digit = 0
    return total + section + digit
