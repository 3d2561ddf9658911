"""What two neighbours mean: `7 % 3` and `15% - 3`, `2(3)`, `20% of 80`, the comma of `max(1,200)`."""

from __future__ import annotations

from fractions import Fraction

from servers.arithmetic.cursor import Cursor
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.tokens import Token
from servers.arithmetic.tree import Binary, Literal, Node, Percent

_STARTS = frozenset({"number", "constant", "function", "open"})
_OPTIONAL_SECOND = frozenset({"log", "round", "perm", "randrange"})
"""Functions for which 1,234 may be one number as well as two."""


def is_product(cursor: Cursor) -> bool:
    """Return whether two neighbours such as `2 π`, `2 (3)`, `(1) (2)` or `(10)2.5` mean a product.

    Raises CalculationError where they may mean something else.
    """
    if cursor.token.kind == "number":
        return cursor.before.kind == "close"
    if cursor.token.kind not in ("constant", "function", "open"):
        return False
    if cursor.before.kind in ("sign", "percent", "percentage"):
        raise cursor.two_readings("20% of (50 + 30)", "20 mod (50 + 30)")
    return cursor.before.kind in ("number", "constant", "close", "bang", "power", "unit")


def check_share(cursor: Cursor, node: Node, last: Node, divided: bool) -> None:
    """Raise CalculationError unless what stands before "of" is a share: 20%, half, 2/3, 0.25."""
    match last:
        case Percent() | Literal(value=Fraction() | float()) if not divided:
            return
    match node:
        case Binary(sign="/", left=Literal(), right=Literal()):
            return
    raise CalculationError(
        f"{cursor.quote(cursor.before, cursor.token)} is not clear: write 20% of 80, half of 80, 2/3 of 80, or 3 * 80."
    )


def is_modulo(cursor: Cursor) -> bool:
    """Return whether `%` stands between two operands: `7 % 3` and `7 % -3`, but `15% - 3` is a percentage.

    Raises CalculationError where it may be either: `20% 50`, `7%-3`.
    """
    if cursor.token.kind != "sign":
        return False
    percent, after, operand = cursor.token, cursor.ahead(), cursor.ahead(2)
    if after.kind in _STARTS:
        if after.spaced and not percent.spaced:
            raise _percentage_or_remainder(cursor)
        return True
    if after.kind != "op" or cursor.plain.text[after.start] not in "+-":
        return False
    if percent.spaced:
        if after.spaced and operand.spaced and after.text == "-":
            raise _percentage_or_remainder(cursor)
        return after.spaced and not operand.spaced
    if after.text == "+" or operand.spaced or cursor.ahead(3).kind in ("sign", "percent"):
        return False
    raise _percentage_or_remainder(cursor)


def _percentage_or_remainder(cursor: Cursor) -> CalculationError:
    return CalculationError(
        f"{cursor.quote(cursor.before, cursor.ahead())} has two readings, a percentage and a remainder: write "
        "20% of 50, (15%) - 3, or 7 mod 3."
    )


def check_exclamation(cursor: Cursor) -> None:
    """Raise CalculationError for the last sign of "three plus 4!", which may be no factorial at all."""
    spoken = any(token.kind == "op" and cursor.plain.text[token.start].isalpha() for token in cursor.tokens)
    if spoken and cursor.ahead().kind == "end" and cursor.plain.text[cursor.token.start] == "!":
        raise CalculationError(
            "The ! at its end may be a factorial or an exclamation: write factorial(4), or leave it out."
        )


def comma_note(cursor: Cursor, name: str, tokens: list[Token]) -> str:
    """Return how a comma such as that of `max(1,200)` was read among `name`'s arguments.

    Raises CalculationError where 1,200 may be one number: `max(1,200, 5)`, `log(1,234)`.
    """
    commas = [index for index, token in enumerate(tokens) if token.kind == "comma"]
    doubtful = [index for index in commas if tokens[index - 1].doubt]
    spaced = any(tokens[index + 1].spaced for index in commas)
    if spaced or name in _OPTIONAL_SECOND or any(token.text == "grouped" for token in tokens):
        first, second = tokens[doubtful[0] - 1], tokens[doubtful[0] + 1]
        whole = cursor.plain.text[first.start : second.end].replace(",", "")
        raise CalculationError(
            f"{cursor.quote(first, second)} has two readings, the number {whole} and two arguments: write thousands "
            f"without a comma, {whole}, and put a space behind a comma between arguments."
        )
    return "The comma in brackets was read as parting two numbers, not as one of thousands."
