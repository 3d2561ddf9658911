"""Evaluates the tree of an expression: what has no branch here cannot run.

Whole numbers and decimals are exact (`int`, `Fraction`) for as long as they stay small; functions and
numbers written with an exponent (`1e3`) are floating point. Every operation's size is estimated before
it is carried out, because nothing can interrupt Python in the middle of a giant multiplication.
"""

from __future__ import annotations

from math import radians

from servers.arithmetic.functions import CONSTANTS, FUNCTIONS
from servers.arithmetic.numbers import CalculationError, Number, check_size, exact, shown, to_float
from servers.arithmetic.operations import OPERATIONS, divide, multiply
from servers.arithmetic.tree import Binary, Call, Constant, Literal, Measure, Negative, Node, Percent
from servers.arithmetic.units import ANGLES, Quantity, unit_of

_OF_ANGLES = frozenset({"sin", "cos", "tan"})
_TO_ANGLES = frozenset({"asin", "acos", "atan", "atan2"})
_KEEP_UNIT = frozenset({"abs", "max", "min", "sum", "fsum", "mean", "average", "round", "floor", "ceil", "trunc"})


class Walk:
    """One pass over one tree; `notes` says by which rules it went where there is more than one."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def value(self, node: Node) -> Quantity:
        """Return the value of `node`. Raises CalculationError, a sentence that says what to change."""
        match node:
            case Literal(value=number):
                return Quantity(check_size(number) if isinstance(number, int) else number)
            case Constant(name=name):
                return Quantity(CONSTANTS[name])
            case Negative(operand=operand):
                number, unit = self.value(operand)
                return Quantity(-number, unit)
            case Percent(operand=operand):
                number, unit = self.value(operand)
                return Quantity(divide(number, 100), unit)
            case Measure(operand=operand, unit=unit):
                return self._measured(self.value(operand), unit)
            case Call(name=name, arguments=arguments):
                return self._call(name, [self.value(argument) for argument in arguments])
            case Binary():
                return self._binary(node)

    def _measured(self, quantity: Quantity, unit: str) -> Quantity:
        if quantity.unit and quantity.unit != unit:
            raise CalculationError(f"A number cannot be in {quantity.unit} and in {unit}: send one unit.")
        return Quantity(quantity.value, unit)

    def _binary(self, node: Binary) -> Quantity:
        # A sum of many terms leans to the left in the tree; walking down that side costs no depth.
        chain = [node]
        while isinstance(chain[-1].left, Binary):
            chain.append(chain[-1].left)
        result = self.value(chain[-1].left)
        for step in reversed(chain):
            result = self._apply(step, result)
        return result

    def _apply(self, node: Binary, left: Quantity) -> Quantity:
        right = self.value(node.right)
        if node.sign in "+-" and isinstance(node.right, Percent) and not isinstance(node.left, Percent):
            # "200 + 15%" is what a shop means by it: 15 % of the 200.
            right = Quantity(multiply(left.value, right.value), left.unit)
        unit = unit_of(node.sign, left, right)
        return Quantity(OPERATIONS[node.sign](left.value, right.value), unit)

    def _call(self, name: str, arguments: list[Quantity]) -> Quantity:
        units = {argument.unit for argument in arguments}
        numbers = [argument.value for argument in arguments]
        if name in _OF_ANGLES and len(arguments) == 1:
            return Quantity(_of_angle(name, arguments[0].value, self._angle_unit(name, arguments[0])))
        if units & ANGLES and name in ("radians", "degrees"):
            return self._converted(name, arguments)
        kept = ""
        if name in _KEEP_UNIT:
            kept = self._one_unit(name, arguments)
        elif units & ANGLES:
            raise CalculationError(f"{name} does not take an angle: leave the unit out.")
        self._rule(name, numbers)
        return Quantity(call(name, numbers), kept)

    def _angle_unit(self, name: str, angle: Quantity) -> str:
        if angle.unit and angle.unit not in ANGLES:
            raise CalculationError(f"{name} takes an angle, such as {name}(30°).")
        if not angle.unit:
            self._note(f"{name} took its angle in radians; for degrees write {name}(30°).")
        return angle.unit

    def _converted(self, name: str, arguments: list[Quantity]) -> Quantity:
        if len(arguments) != 1 or arguments[0].unit == name:
            raise CalculationError(f"{name} does not take {arguments[0].unit}: leave the unit or {name} out.")
        return Quantity(call(name, [arguments[0].value]), name)

    def _one_unit(self, name: str, arguments: list[Quantity]) -> str:
        units = {argument.unit for argument in arguments[: 1 if name == "round" else None]}
        if len(units) > 1:
            raise CalculationError(f"{name} takes numbers of one unit only: send all of them in one.")
        return units.pop() if units else ""

    def _rule(self, name: str, numbers: list[Number]) -> None:
        """Say by which of several customs a function goes."""
        if name == "log" and len(numbers) == 1:
            self._note("log is the natural logarithm, to base e; for base 10 write log10(100).")
        elif name in _TO_ANGLES:
            self._note(f"The result of {name} is in radians; for degrees write degrees({name}(…)).")
        elif name == "round":
            self._note("A half is rounded to the even neighbour: round(2.5) is 2, round(3.5) is 4.")

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes and len(self.notes) < 5:
            self.notes.append(sentence)


def _whole(number: Number) -> Number:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _of_angle(name: str, angle: Number, unit: str) -> Number:
    """Return sin, cos or tan; what would be zero or infinite but for the last digit of π is so."""
    turned = to_float(angle % 360 if unit == "degrees" else angle)
    value = to_float(call(name, [radians(turned) if unit == "degrees" else turned]))
    if abs(value) < 1e-15 < abs(turned):
        return 0
    if name == "tan" and abs(value) > 1e15:
        raise CalculationError(f"tan is undefined for {shown(angle)} {unit or 'radians'}: change the angle.")
    return value


def call(name: str, arguments: list[Number]) -> Number:
    """Return what a function of the table answers. Raises CalculationError."""
    function = FUNCTIONS[name]
    written = f"{name}({', '.join(shown(argument) for argument in arguments)})"
    try:
        try:
            return exact(function(*arguments))
        except TypeError:
            # factorial(sqrt(16)): what is whole may be used where only whole numbers are.
            return exact(function(*(_whole(argument) for argument in arguments)))
    except CalculationError:
        raise
    except OverflowError:
        raise CalculationError(f"The result of {written} is too large.") from None
    except (ValueError, ZeroDivisionError, IndexError):
        raise CalculationError(f"{written} is undefined for real numbers: change what is in the brackets.") from None
    except TypeError:
        raise CalculationError(
            f"{written} does not work: check how many numbers {name} takes and whether they must be whole. Inside "
            "a function a comma separates its arguments, so write 1234 and not 1,234 there."
        ) from None
