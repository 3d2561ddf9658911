"""The seven operators, each refused before it is computed when its result would be too large."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from servers.arithmetic.numbers import (
    MAX_BITS,
    MAX_FRACTION_BITS,
    CalculationError,
    Number,
    exact,
    shown,
    to_float,
)


def _floats(left: Number, right: Number) -> tuple[float, float] | None:
    """Return both as floats when one of them is, None when both are exact."""
    if isinstance(left, float) or isinstance(right, float):
        return to_float(left), to_float(right)
    return None


def add(left: Number, right: Number) -> Number:
    floats = _floats(left, right)
    return floats[0] + floats[1] if floats else exact(left + right)


def subtract(left: Number, right: Number) -> Number:
    return add(left, -right)


def multiply(left: Number, right: Number) -> Number:
    floats = _floats(left, right)
    return floats[0] * floats[1] if floats else exact(left * right)


def _dividing(operation: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    def apply(left: Number, right: Number) -> Number:
        if right == 0:
            raise CalculationError(f"{shown(left)} cannot be divided by zero: change the divisor.")
        floats = _floats(left, right)
        return operation(*floats) if floats else exact(operation(left, right))

    return apply


divide = _dividing(lambda left, right: left / right if isinstance(left, float) else Fraction(left) / Fraction(right))
floor_divide = _dividing(lambda left, right: left // right)
remainder = _dividing(lambda left, right: left % right)


def power(base: Number, exponent: Number) -> Number:
    """Return `base ** exponent`, refused before it is computed when it would be too large.

    Raises CalculationError.
    """
    if base == 0 and exponent < 0:
        raise CalculationError("Zero cannot be raised to a negative power: change the base or the exponent.")
    if isinstance(base, float) or not isinstance(exponent, int):
        return _float_power(base, exponent)
    if exponent == 0 or base in (0, 1):
        return 1 if exponent == 0 else base
    if base == -1:
        return -1 if exponent % 2 else 1
    whole = isinstance(base, int) and exponent > 0
    # Each factor has at least one bit; an exponent beyond 1e308 could not become a float.
    bits = math.log2(max(abs(base.numerator), base.denominator)) * min(abs(exponent), MAX_BITS + 1)
    if bits > (MAX_BITS if whole else MAX_FRACTION_BITS):
        if whole:
            raise CalculationError(
                f"{shown(base)} to the power of {shown(exponent)} is too large to calculate: use smaller numbers."
            )
        return _float_power(base, exponent)
    return exact(Fraction(base) ** exponent)


def _float_power(base: Number, exponent: Number) -> float:
    floats = to_float(base), to_float(exponent)
    try:
        return math.pow(*floats)
    except OverflowError:
        raise CalculationError(
            f"{shown(base)} to the power of {shown(exponent)} is too large to calculate: use smaller numbers."
        ) from None
    except ValueError:
        raise CalculationError(
            f"{shown(base)} to the power of {shown(exponent)} is undefined for real numbers: use a whole exponent or a "
            "positive base."
        ) from None


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "mod": remainder,
    "^": power,
}
