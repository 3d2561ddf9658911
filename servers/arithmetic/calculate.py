"""From what was sent to a number, its unit and the rules it was read by."""

from __future__ import annotations

from typing import NamedTuple

from servers.arithmetic.numbers import CalculationError, Number
from servers.arithmetic.spoken import read
from servers.arithmetic.text import plain, quoted
from servers.arithmetic.walk import Walk


class Result(NamedTuple):
    """The value, not yet rounded; its unit or nothing; the rules that another reader might have chosen otherwise."""

    value: Number
    unit: str
    notes: list[str]


def calculate(sent: str) -> Result:
    """Return the value of arithmetic in signs or words. Raises CalculationError, which quotes what was sent."""
    try:
        node, notes = read(plain(sent))
        walk = Walk()
        value, unit = walk.value(node)
    except CalculationError as error:
        raise CalculationError(f"{quoted(sent)}: {error}") from None
    return Result(value, unit, [*notes, *walk.notes])
