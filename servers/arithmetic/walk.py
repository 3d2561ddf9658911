"""Evaluates arithmetic by walking its syntax tree: what has no branch here cannot run.

Whole numbers and decimals are exact (`int`, `Fraction`) for as long as they stay small; functions and
numbers written with an exponent (`1e3`) are floating point. Every operation's size is estimated before
it is carried out, because nothing can interrupt Python in the middle of a giant multiplication.
"""

from __future__ import annotations

import ast
from fractions import Fraction

from servers.arithmetic.functions import CONSTANTS, FUNCTIONS, TAKES_LIST, nearest_name
from servers.arithmetic.numbers import CalculationError, Number, check_size, exact, shown
from servers.arithmetic.operations import OPERATIONS, divide, multiply

MAX_DEPTH = 100


def evaluate(source: str) -> Number:
    """Return the value of Python-style arithmetic, not yet rounded.

    `source` is what `text.to_python` returns. Raises CalculationError, a sentence that tells
    the caller what to change.
    """
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise CalculationError(_syntax_sentence(source, error)) from None
    return _Walk(source).value(tree.body, 0)


def _syntax_sentence(source: str, error: Exception) -> str:
    if isinstance(error, MemoryError | RecursionError) or "nested" in str(error):
        return "The expression has too many nested brackets or signs: split it into several calls."
    where = ""
    if isinstance(error, SyntaxError) and error.offset:
        where = f" near {source[max(0, error.offset - 6) : error.offset + 6].strip()!r}"
    return f"The expression cannot be read{where}: send one arithmetic expression such as 2 * (3 + 4) or sqrt(16)."


class _Walk:
    """One pass over one expression; it keeps the source only to read decimals as they were written."""

    def __init__(self, source: str) -> None:
        self._source = source.encode()

    def value(self, node: ast.expr, depth: int) -> Number:
        if depth > MAX_DEPTH:
            raise CalculationError(
                f"The expression is nested more than {MAX_DEPTH} levels deep: split it into several calls."
            )
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand, depth + 1)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return _call("sqrt", [self.value(operand, depth + 1)])
            case ast.BinOp():
                return self._binary(node, depth)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math"), attr=name):
                return _constant(name)
            case ast.Attribute(value=inner, attr="percent"):
                return divide(self.value(inner, depth + 1), 100)
            case ast.Attribute(value=inner, attr="factorial"):
                return _call("factorial", [self.value(inner, depth + 1)])
            case ast.Attribute(value=inner, attr="degrees"):
                return _call("radians", [self.value(inner, depth + 1)])
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(function, arguments, depth)
        raise CalculationError(
            f"{_describe(node)} cannot be calculated: use numbers, + - * / // % **, brackets, and the functions "
            "and constants of Python's math and random modules."
        )

    def _literal(self, node: ast.Constant) -> Number:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise CalculationError(f"{_clip(repr(node.value))} is not a real number: send digits such as 1004 or 0.5.")
        text = self._source[node.col_offset : node.end_col_offset].decode()
        if isinstance(node.value, int) or "e" in text.lower():
            return check_size(node.value)
        return exact(Fraction(text.replace("_", "")))

    def _binary(self, node: ast.BinOp, depth: int) -> Number:
        # A sum of many terms leans to the left in the tree; walking down that side costs no depth.
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        result = self.value(chain[-1].left, depth + 1)
        for step in reversed(chain):
            result = self._apply(step, result, depth)
        return result

    def _apply(self, node: ast.BinOp, left: Number, depth: int) -> Number:
        operation = OPERATIONS.get(type(node.op))
        if operation is None:
            raise CalculationError("Only + - * / // % and ** (or ^) are understood between numbers.")
        right = self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Add | ast.Sub) and _is_percent(node.right) and not _is_percent(node.left):
            # "200 + 15%" is what a shop means by it: 15 % of the 200.
            right = multiply(left, right)
        return operation(left, right)

    def _call(self, function: ast.expr, arguments: list[ast.expr], depth: int) -> Number:
        match function:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math" | "random"), attr=name):
                pass
            case _:
                raise CalculationError(
                    "Only functions of Python's math and random modules can be called, such as sqrt(16)."
                )
        if name in TAKES_LIST and len(arguments) == 1 and isinstance(arguments[0], ast.List | ast.Tuple):
            arguments = arguments[0].elts
        return _call(name, [self.value(argument, depth + 1) for argument in arguments])


def _is_percent(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "percent"


def _whole(number: Number) -> Number:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _describe(node: ast.expr) -> str:
    kind = {ast.Compare: "A comparison", ast.Lambda: "A lambda", ast.List: "A list", ast.Tuple: "A list"}
    return kind.get(type(node), _clip(ast.unparse(node)))


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _constant(name: str) -> Number:
    try:
        return CONSTANTS[name]
    except KeyError:
        pass
    if name in FUNCTIONS:
        raise CalculationError(f"{name} is a function: give it an argument in brackets, such as {name}(2).")
    raise CalculationError(
        f"{_clip(name)!r} is not a known name{nearest_name(name, CONSTANTS)}: send numbers, pi, e, tau or a "
        "function call, and digits instead of number words."
    )


def _call(name: str, arguments: list[Number]) -> Number:
    function = FUNCTIONS.get(name)
    if function is None:
        raise CalculationError(
            f"{_clip(name)!r} is not a known function{nearest_name(name, FUNCTIONS)}: only numeric functions of "
            "Python's math and random modules can be called."
        )
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
