"""Chinese and Japanese numbers: 一万二千三百, 1億2000万, 三点一四, 三分之二, 二分の一.

Written here because no kept library refuses what has two readings: cn2an takes 三千五 for 3500, kanjize takes it
for 3005, and each knows only half of 億, 亿, 点 and 百二十.
"""

from __future__ import annotations

import re
from fractions import Fraction

from servers.arithmetic.numbers import CalculationError, Number, exact
from servers.arithmetic.numerals import ARABIC, Numeral
from servers.arithmetic.text import quoted

_FORMAL = str.maketrans(
    "壹壱贰貳弐叁參参肆伍陆陸柒捌玖拾佰仟亿點两兩〇幺", "一一二二二三三三四五六六七八九十百千億点二二零一"
)
_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")}
_TENS = {"十": 10, "百": 100, "千": 1_000}
_MYRIADS = {"万": 10**4, "億": 10**8, "兆": 10**12}
_UNITS = _TENS | _MYRIADS
_ANY_DIGIT = "零〇一二三四五六七八九两兩壹壱贰貳弐叁參参肆伍陆陸柒捌玖幺"
_ANY_UNIT = "十百千万億亿兆拾佰仟"
_NUMERAL = (
    rf"(?:(?:{ARABIC})\s?[{_ANY_UNIT}]|[{_ANY_DIGIT}十百千拾佰仟])"
    rf"(?:[{_ANY_DIGIT}{_ANY_UNIT}]|[点點](?=[\d{_ANY_DIGIT}])|{ARABIC})*+"
)
NUMBER = rf"(?:{_NUMERAL}|{ARABIC})"
"""An East Asian numeral or Arabic digits."""
_EAST_ASIAN = re.compile(_NUMERAL)
_FRACTION = re.compile(rf"(?:({NUMBER})又)?({NUMBER}|万)\s?分(?:之|の)\s?({NUMBER})")
_AFTER_POINT = re.compile(r"(.*?)点([零一二三四五六七八九]+|\d+)([十百千万億兆]*)")


def east_asian(text: str, position: int) -> Numeral | None:
    """Return the East Asian numeral or fraction at `position`. Raises CalculationError for one with two readings."""
    fraction = _FRACTION.match(text, position)
    if fraction and fraction[2] not in ("百", "100"):
        whole, below, above = (number("一万" if part == "万" else part or "零") for part in fraction.groups())
        if below == 0:
            raise CalculationError(f"{quoted(fraction[0])} divides by zero: change the divisor.")
        return Numeral(exact(Fraction(whole) + Fraction(above) / Fraction(below)), fraction.end())
    match = _EAST_ASIAN.match(text, position)
    return Numeral(number(match[0]), match.end()) if match else None


def number(numeral: str) -> Number:
    """Return 二百零三 as 203, 三点一四 as 3.14 and 1.5千 as 1500. Raises CalculationError when it is none or two."""
    plain = re.sub(r"[,\s]", "", numeral.translate(_FORMAL))
    pointed = _AFTER_POINT.fullmatch(plain)
    if not pointed:
        return exact(_value(plain, numeral))
    whole, decimals, units = pointed.groups()
    digits = "".join(str(_DIGITS.get(digit, digit)) for digit in decimals)
    value = _value(whole, numeral) + Fraction(int(digits), 10 ** len(digits))
    for unit in units:
        value *= _UNITS[unit]
    return exact(value)


def _value(numeral: str, whole: str) -> Fraction:
    if re.fullmatch(r"[\d.]+", numeral):
        return Fraction(numeral)
    if all(character in _DIGITS for character in numeral):
        return Fraction(int("".join(str(_DIGITS[character]) for character in numeral) or "0"))
    unit = max(set(numeral) & set(_UNITS), key=lambda character: _UNITS[character], default="")
    if not unit:
        raise _no_numeral(whole)
    before, _, after = numeral.rpartition(unit)
    return _times(before, unit, whole) + _rest(after, before, unit, whole)


def _times(before: str, unit: str, whole: str) -> Fraction:
    """Return the coefficient before `unit` times the unit: 三 千, 2.5 万, and the 三万 of 三万億."""
    size = _UNITS[unit]
    if not before:
        if unit in _MYRIADS:
            raise _no_numeral(whole)
        return Fraction(size)
    coefficient = _value(before, whole)
    written = before.replace(".", "").isdigit() and before.isascii()
    if not written and unit in _TENS and (len(before) > 1 or _DIGITS.get(before, 0) == 0):
        raise _no_numeral(whole)
    if not 0 < coefficient < max(size, 10_000):
        raise _no_numeral(whole)
    return coefficient * size


def _rest(after: str, before: str, unit: str, whole: str) -> Fraction:
    """Return what follows `unit`; a lone digit after 百 or more means one thing in Chinese, another in Japanese."""
    if not after:
        return Fraction(0)
    if "." in before or re.search(r"\.", after):
        raise _no_numeral(whole)
    if len(after) == 1 and unit != "十" and after not in "零0":
        raise _two_readings(whole, unit, after)
    value = _value(after.removeprefix("零") if len(after) > 1 else after, whole)
    if value >= _UNITS[unit]:
        raise _no_numeral(whole)
    return value


def _two_readings(numeral: str, unit: str, last: str) -> CalculationError:
    if last in _TENS:  # 百十 is 110 to everybody, but nobody writes 万十
        return _no_numeral(numeral)
    size = _UNITS[unit]
    head = number(numeral.translate(_FORMAL)[:-1])
    digit = _DIGITS.get(last) or int(last)
    next_unit = size // 10 if size <= 10_000 else size // 10_000 * 1_000
    return CalculationError(
        f"{quoted(numeral)} has two readings, {head + digit * next_unit} (Chinese) and {head + digit} (Japanese): "
        "send the digits you mean."
    )


def _no_numeral(numeral: str) -> CalculationError:
    return CalculationError(f"{quoted(numeral)} is not one number: send it in digits, such as 12300 for 一万二千三百.")
