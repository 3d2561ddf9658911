"""How large a number may get, and how one is written in a sentence."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from voice_bridge.errors import VoiceBridgeError

MAX_BITS = 33_220
"""The largest whole number kept, in bits: 10,000 digits."""

MAX_FRACTION_BITS = 4_096
"""Beyond this many bits a fraction goes on as a float: nobody hears the difference in the 15th digit."""

Number = int | Fraction | float
_Kept = TypeVar("_Kept", int, float)


class CalculationError(VoiceBridgeError, ValueError):
    """An expression that has no answer; the message tells a model what to change."""


def check_size(value: _Kept) -> _Kept:
    """Return `value` unless it is a whole number of more than 10,000 digits. Raises CalculationError."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise CalculationError("A number in this calculation has more than 10,000 digits: use smaller numbers.")
    return value


def exact(value: Number) -> Number:
    """Return `value` in its plainest type: a whole fraction as int, an unwieldy one as float.

    Raises CalculationError for a whole number of more than 10,000 digits.
    """
    if not isinstance(value, Fraction):
        return check_size(value)
    if value.denominator == 1:
        return check_size(value.numerator)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_FRACTION_BITS:
        return to_float(value)
    return value


def to_float(value: Number) -> float:
    """Return `value` as a float. Raises CalculationError where a float cannot hold it."""
    try:
        return float(value)
    except OverflowError:
        raise CalculationError(
            "A number in this calculation is too large for decimals (over 1e308): use smaller numbers."
        ) from None


def shown(value: Number) -> str:
    """Return `value` short enough for a sentence: at most 15 digits."""
    if isinstance(value, int) and abs(value) < 10**15:
        return str(value)
    try:
        return f"{float(value):.15g}"
    except OverflowError:
        return "a very large number"
