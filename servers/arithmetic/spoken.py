"""Whole sentences of arithmetic: "add 5 to 7", 5に7を足す, 10と20の平均, 3加5再乘以2."""

from __future__ import annotations

from servers.arithmetic.calls import folded
from servers.arithmetic.grammar import Parser
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.text import Plain
from servers.arithmetic.tokens import Lexer
from servers.arithmetic.tree import Binary, Node

_BY_COMMAND = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "increase": "+", "decrease": "-"}
_LINKS = {
    "add": ("to", "and"),
    "subtract": ("from",),
    "multiply": ("by", "and"),
    "divide": ("by",),
    "increase": ("by",),
    "decrease": ("by",),
}
_PARTICLES = {"に": ("+", "*"), "から": ("-",), "と": ("+", "*")}


def read(plain: Plain) -> tuple[Node, list[str]]:
    """Return the tree of `plain`, and what was decided in reading it. Raises CalculationError when it has none."""
    parser = Parser(plain, Lexer(plain).tokens(), sentence)
    node = sentence(parser)
    parser.expect("end")
    return node, parser.notes


def sentence(parser: Parser) -> Node:
    """Return the tree of one sentence, up to its end or the bracket that closes it. Raises CalculationError."""
    parser.accept("lead")
    node = _opening(parser)
    while True:
        following = _continued(parser, node)
        if following is None:
            return node
        node = following


def _opening(parser: Parser) -> Node:
    if parser.token.kind == "command":
        return _command(parser)
    if parser.token.kind == "remainder":
        parser.accept("remainder")
        parser.accept("of")
        return _remainder(parser, parser.expression())
    return parser.expression()


def _continued(parser: Parser, left: Node) -> Node | None:
    """Return `left` with what the next words do to all of it, None when nothing is left to read."""
    match parser.token.kind:
        case "then":
            return _then(parser, left)
        case "and":
            return _list(parser, left)
        case "particle":
            return _verb_last(parser, left)
        case "than":
            return _than(parser, left)
        case "into":
            raise parser.two_readings("a / b", "b / a")
        case "possessive" if parser.ahead().kind == "remainder":
            parser.index += 2
            return _remainder(parser, left)
    return None


def _remainder(parser: Parser, node: Node) -> Node:
    if not isinstance(node, Binary) or node.sign != "/":
        raise CalculationError("A remainder needs a division: write 17 mod 5.")
    return Binary("mod", node.left, node.right)


def _command(parser: Parser) -> Node:
    command = parser.expect("command").text
    first = parser.factor()
    items = [first]
    links: set[str] = set()
    while len(items) == 1 or command == "add":
        comma = parser.accept("comma")
        link = parser.accept("link", "and") or comma
        if not link:
            break
        links.add("and" if link.kind in ("and", "comma") else link.text)
        items.append(parser.factor())
    if len(items) < 2 or len(links) != 1 or not links <= set(_LINKS[command]):
        parser.stop()
    _refuse_joined(parser, links)
    parser.list_end = parser.index
    if parser.token.kind == "op":
        parser.after_list()
    return _carried_out(command, links.pop(), items)


def _refuse_joined(parser: Parser, links: set[str]) -> None:
    if "and" in links and any(token.doubt for token in parser.tokens[: parser.index]):
        raise CalculationError("It is not clear where one number ends: send digits, such as 105 + 20.")


def _carried_out(command: str, link: str, items: list[Node]) -> Node:
    sign = _BY_COMMAND[command]
    if link in ("to", "from"):
        return Binary(sign, items[1], items[0])
    node = items[0]
    for item in items[1:]:
        node = Binary(sign, node, item)
    return node


def _then(parser: Parser, left: Node) -> Node:
    parser.expect("then")
    command = parser.accept("command")
    if command:
        if command.text in ("multiply", "divide"):
            parser.expect("link")
        return Binary(_BY_COMMAND[command.text], left, parser.factor())
    sign = parser.expect("op").text
    return Binary(sign, left, parser.factor())


def _than(parser: Parser, left: Node) -> Node:
    """Return "5 less than 12" as 12 - 5 and "20% more than 80" as 80 + 20%."""
    sign = parser.expect("than").text
    right = parser.factor()
    parser.list_end = parser.index
    if parser.token.kind == "op":
        parser.after_list()
    return Binary(sign, right, left)


def _list(parser: Parser, first: Node) -> Node:
    """Return 10と20の平均, 5和7相加 or 5と7を足す."""
    if isinstance(first, Binary) and first.sign in "+-*/":
        parser.stop()
    items = [first]
    while parser.accept("and"):
        items.append(parser.factor())
    if parser.token.kind == "possessive":
        parser.index += 1
        return parser.expression(folded(parser.expect("noun").text, items, parser))
    noun = parser.accept("noun")
    if noun:
        return parser.expression(folded(noun.text, items, parser))
    together = parser.accept("together")
    if together:
        return _folded_by(together.text, items)
    if parser.token.text == "を":
        parser.index += 1
        verb = parser.expect("op", "te")
        if verb.text not in _PARTICLES["と"]:
            parser.stop()
        return _and_then(parser, _folded_by(verb.text, items), verb.kind)
    raise CalculationError(
        "It lists numbers without saying what to do with them: write 3 + 4, or say the sum of 3 and 4."
    )


def _folded_by(sign: str, items: list[Node]) -> Node:
    node = items[0]
    for item in items[1:]:
        node = Binary(sign, node, item)
    return node


def _verb_last(parser: Parser, left: Node) -> Node:
    """Return 5に7を足す, 20から8を引く, 100を8で割る or 80を20%増やす, with what て and た add to it."""
    particle = parser.expect("particle").text
    right = parser.factor()
    if particle == "を" and parser.token.kind == "change":
        return Binary(parser.expect("change").text, left, right)
    second = _particle(parser)
    verb = parser.expect("op", "te")
    fits = second == "を" and verb.text in _PARTICLES.get(particle, ())
    if not fits and not (particle == "を" and second == "で" and verb.text == "/"):
        parser.index -= 1
        parser.stop()
    return _and_then(parser, Binary(verb.text, left, right), verb.kind)


def _particle(parser: Parser) -> str:
    """Return the particle before a verb; を is often left out, as in 1000円に10%足す."""
    particle = parser.accept("particle")
    return particle.text if particle else "を"


def _and_then(parser: Parser, left: Node, kind: str) -> Node:
    """Return `left` with the further verbs of 5に3を足して2をかける or 100を3で割った余り."""
    while kind == "te" and parser.token.kind not in ("end", "close"):
        parser.accept("and")
        if parser.accept("remainder"):
            return _remainder(parser, left)
        right = parser.factor()
        particle = _particle(parser)
        verb = parser.expect("op", "te")
        if (particle, verb.text) not in (("を", "+"), ("を", "-"), ("を", "*"), ("で", "/")):
            parser.stop()
        left, kind = Binary(verb.text, left, right), verb.kind
    return left
