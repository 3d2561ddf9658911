"""Functions and what is given to them: `sqrt(16)`, `sin 30 degrees`, "the average of 10 and 20", 以2为底1024的对数."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servers.arithmetic.cursor import Cursor
from servers.arithmetic.functions import TAKES_LIST
from servers.arithmetic.neighbours import comma_note
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.tree import Binary, Call, Node

if TYPE_CHECKING:
    from servers.arithmetic.grammar import Parser


_OPERANDS = frozenset(
    {"number", "constant", "function", "open", "neg", "op", "currency", "root", "fold", "share", "base"}
)


def function(parser: Parser) -> Node:
    """Return `sqrt(16)`, `sqrt 16`, "the sine of 30 degrees", √16 or "log base 2 of 1024"."""
    name = parser.expect("function").text
    if parser.token.kind == "open":
        return _call(parser, name)
    base = _log_base(parser)
    words = parser.plain.text[parser.before.start : parser.before.end]
    spoken = parser.accept("of", "possessive") or " " in words
    if parser.token.kind not in _OPERANDS:
        raise CalculationError(f"{name} is a function: give it an argument in brackets, such as {name}(2).")
    operand = _argument(parser, name)
    if spoken and parser.is_sign("*", "/") and parser.before.kind in ("number", "constant"):
        raise parser.two_readings(f"{name}(a) {parser.token.text} b", f"{name}(a {parser.token.text} b)")
    base = base or _log_base(parser)
    return Call(name, (operand, base) if base else (operand,))


def _log_base(parser: Parser) -> Node | None:
    if parser.token.kind == "base" and parser.token.text == "base":
        parser.index += 1
        return parser.primary()
    return None


def _argument(parser: Parser, name: str) -> Node:
    """Return the operand of a function without brackets: `sin 30 degrees`, `sqrt 16`, `sin 2pi`, `√x`."""
    if parser.plain.text[parser.before.start] == "√" or parser.token.kind in ("neg", "op"):
        return parser.factor()
    node = parser.postfix()
    if parser.token.kind == "constant" and not parser.token.spaced:
        node = Binary("*", node, parser.postfix())
    if parser.is_sign("^") or (parser.is_sign("/", "*") and parser.before.kind == "constant"):
        raise parser.two_readings(f"{name}(a) {parser.token.text} b", f"{name}(a {parser.token.text} b)")
    return node


def _call(parser: Parser, name: str) -> Node:
    opened = parser.enter()
    listed = parser.enter() if parser.token.text == "[" and name in TAKES_LIST else None
    arguments = _arguments(parser, name)
    if listed:
        parser.leave(listed)
    parser.leave(opened)
    return Call(name, tuple(arguments))


def _arguments(parser: Parser, name: str) -> list[Node]:
    start = parser.index
    if parser.token.kind == "close":
        return []
    arguments = [parser.expression()]
    while parser.accept("comma", "and"):
        arguments.append(parser.expression())
    tokens = parser.tokens[start : parser.index]
    if any(token.text == "doubt" for token in tokens):
        parser.notes.append(comma_note(parser, name, tokens))
    return arguments


def fold(parser: Parser) -> Node:
    """Return "the average of 10, 20 and 30"."""
    name = parser.expect("fold").text
    start = parser.index
    items = [parser.factor()]
    while parser.accept("and", "comma"):
        parser.accept("and")
        items.append(parser.factor())
    tokens = parser.tokens[start : parser.index]
    if len(items) < 2 or any(token.doubt for token in tokens):
        raise CalculationError(
            f"It is not clear which numbers {parser.quote(tokens[0], tokens[-1])} lists: it may be one number or "
            "several. Send digits with a comma and a space between them, such as mean(100, 5)."
        )
    parser.list_end = parser.index
    return folded(name, items, parser)


def chinese_logarithm(parser: Parser) -> Node:
    """Return 以2为底1024的对数."""
    parser.expect("base")
    base = parser.primary()
    parser.expect("base")
    parser.accept("possessive")
    operand = parser.primary()
    parser.expect("possessive")
    if parser.expect("function").text not in ("log", "ln"):
        parser.stop()
    return Call("log", (operand, base))


def folded(name: str, items: list[Node], cursor: Cursor) -> Node:
    """Return the list function `name` of `items`: the difference is the larger less the smaller."""
    if name not in ("diff", "quotient"):
        return Call(name, tuple(items))
    if len(items) != 2:
        cursor.stop()
    left, right = items
    return Call("abs", (Binary("-", left, right),)) if name == "diff" else Binary("/", left, right)
