"""From what was sent to a number, its unit and the rules it was read by."""

from __future__ import annotations

from typing import NamedTuple

from servers.arithmetic.numbers import CalculationError, Number
from servers.arithmetic.spoken import read
from servers.arithmetic.text import plain
from servers.arithmetic.walk import Walk


class Result(NamedTuple):
    """The value, not yet rounded; its unit or nothing; the rules that another reader might have chosen otherwise."""

    value: Number
    unit: str
    notes: list[str]


def calculate(sent: str) -> Result:
    """Return the value of arithmetic in signs or words, not yet rounded. Raises CalculationError."""
    walk = Walk()
    try:
        node, notes = read(plain(sent))
        value, unit = walk.value(node)
    except RecursionError:
        raise CalculationError("The expression is nested too deeply: split it into several calls.") from None
    return Result(value, unit, [*notes, *walk.notes])
