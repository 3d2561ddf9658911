"""What units a calculation may mix: degrees, radians and currencies are kept, never silently dropped or converted."""

from __future__ import annotations

from typing import NamedTuple

from servers.arithmetic.numbers import CalculationError, Number

ANGLES = frozenset({"degrees", "radians"})


class Quantity(NamedTuple):
    """A number and its unit: `degrees`, `radians`, a currency, or nothing."""

    value: Number
    unit: str = ""


def unit_of(sign: str, left: Quantity, right: Quantity) -> str:
    """Return the unit of `left sign right`. Raises CalculationError where the units do not fit."""
    if sign in ("+", "-", "mod", "//") and left.unit != right.unit:
        return _shared(left, right)
    if sign in ("+", "-", "mod"):
        return left.unit
    if sign == "*":
        if left.unit and right.unit:
            raise CalculationError(f"{_named(left)} times {_named(right)} has no unit here: leave one unit out.")
        return left.unit or right.unit
    if sign in ("/", "//"):
        return _quotient(left, right)
    if left.unit in ANGLES or right.unit in ANGLES:
        raise CalculationError("An angle cannot be raised to a power: leave the unit out.")
    return ""


def _shared(left: Quantity, right: Quantity) -> str:
    """Return the one unit of a sum; `$5 + 3` is a sum of money, `90° + 30` may be degrees or radians."""
    if left.unit and right.unit:
        raise CalculationError(f"{_named(left)} and {_named(right)} do not fit together: send both in one unit.")
    unit = left.unit or right.unit
    if unit in ANGLES:
        raise CalculationError(f"One angle is in {unit} and the other has no unit: write both, such as 90° - 30°.")
    return unit


def _quotient(left: Quantity, right: Quantity) -> str:
    if left.unit == right.unit:
        return ""
    if right.unit and (left.unit or right.unit in ANGLES):
        raise CalculationError(f"{_named(left)} cannot be divided by {_named(right)}: send both in one unit.")
    return "" if right.unit else left.unit


def _named(quantity: Quantity) -> str:
    return quantity.unit or "a plain number"
