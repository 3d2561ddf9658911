"""The grammar of `calculate`: tokens → a tree. Where an expression has two readings it refuses and names both."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from servers.arithmetic.calls import chinese_logarithm, fold, function
from servers.arithmetic.cursor import Cursor
from servers.arithmetic.neighbours import check_exclamation, check_share, is_modulo, is_product
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.text import Plain
from servers.arithmetic.tokens import SUPERSCRIPTS, Token
from servers.arithmetic.tree import Binary, Call, Constant, Literal, Measure, Negative, Node, Percent

MAX_DEPTH = 64
"""Each level takes nine frames of Python's thousand."""

NONE, PARALLEL, ANY = range(3)
"""No operator yet; only behind another 的 or の, as in 4的平方加3的平方; any other."""


class Parser(Cursor):
    """Reads one expression, from the loosest operators to the tightest."""

    def __init__(self, plain: Plain, tokens: list[Token], sentence: Callable[[Parser], Node]) -> None:
        super().__init__(plain, tokens)
        self.notes: list[str] = []
        self.list_end = -1
        """Where a spoken list such as "the sum of 5 and 7" has just ended: an operator here has two readings."""
        self._sentence = sentence
        self._depth = 0
        self.operators = [NONE]
        """For each open bracket, what operators have been read there: it decides what 的 and の may belong to."""

    def expression(self, left: Node | None = None) -> Node:
        left = self.term(left)
        while self.is_sign("+", "-"):
            self.after_list()
            sign = self.expect("op").text
            self._operator()
            left = Binary(sign, left, self.term())
        return left

    def term(self, left: Node | None = None) -> Node:
        node = last = left or self.factor()
        divided = False
        while True:
            sign = self._multiplying(node, last, divided)
            if not sign:
                return node
            divided = divided or sign != "*"
            last = self.factor()
            node = Binary(sign, node, last)

    def _multiplying(self, node: Node, last: Node, divided: bool) -> str:
        """Return the sign that multiplies or divides `node` next, stepping over it; nothing where there is none."""
        if self.is_sign("*", "/", "//", "mod"):
            self.after_list()
            self._operator()
            return self.expect("op").text
        if is_modulo(self):
            self.expect("sign")
            return "mod"
        if self.token.kind == "of":
            check_share(self, node, last, divided)
            self.expect("of")
            return "*"
        if not is_product(self):
            return ""
        if divided:
            raise self.two_readings("a / (b * c)", "(a / b) * c, as the sign of the product is left out")
        return "*"

    def factor(self) -> Node:
        if self._depth >= MAX_DEPTH:
            raise CalculationError(
                f"The expression is nested more than {MAX_DEPTH} levels deep: split it into several calls."
            )
        self._depth += 1
        node = self._factor()
        self._depth -= 1
        return node

    def _factor(self) -> Node:
        if self.token.kind == "neg" or self.is_sign("+", "-"):
            return self._signed()
        multiple = self.accept("multiple")
        if multiple:
            self.accept("of")
            return Binary("*", Literal(multiple.value), self.factor())
        square = self.accept("squaring")
        if square:
            return Binary("^", self.factor(), Literal(square.value))
        base = self.postfix()
        if self.is_sign("^"):
            self.expect("op")
            return Binary("^", base, self.factor())
        if self.accept("choose"):
            return Call("comb", (base, self.postfix()))
        return base

    def _signed(self) -> Node:
        """Return -5. Raises CalculationError for minus five squared, -5的平方 and -16的平方根."""
        sign = self.expect("neg", "op")
        bracketed = self.token.kind == "open"
        start = self.index
        operand = self.factor()
        if sign.text == "+":
            return operand
        spoken = self.plain.text[sign.start] != "-" or (
            self.before.kind == "power" and self.plain.text[self.before.start] not in SUPERSCRIPTS
        )
        if spoken and not bracketed and isinstance(operand, Binary) and operand.sign == "^":
            raise self.two_readings("-(5^2)", "(-5)^2")
        if isinstance(operand, Call) and any(token.kind == "possessive" for token in self.tokens[start : self.index]):
            if operand.name != "abs":
                raise self.two_readings(f"-{operand.name}(a)", f"{operand.name}(-a)")
            return Call("abs", (Negative(operand.arguments[0]),))
        return Negative(operand)

    def postfix(self) -> Node:
        node = self.primary()
        for _ in range(MAX_DEPTH):
            step = self._postfix_step(node)
            if step is None:
                return node
            node = step
        raise CalculationError("Too many signs follow one number: split it into several calls.")

    def _postfix_step(self, node: Node) -> Node | None:
        token = self.token
        match token.kind:
            case "bang":
                check_exclamation(self)
                self.index += 1
                return Call("factorial", (node,))
            case "sign" if not is_modulo(self):
                self.index += 1
                return self._off(Percent(node))
            case "percent":
                self.index += 1
                return self._off(Percent(node))
            case "unit":
                self.index += 1
                return Measure(node, token.text)
            case "power":
                self.index += 1
                return Binary("^", node, Literal(token.value))
            case "times":
                self._check_owner(node)
                self.index += 1
                return Binary("*", node, Literal(token.value))
            case "dozen":
                self.index += 1
                return Binary("*", node, Literal(12))
            case "possessive":
                return self._possessive(node)
        return None

    def _off(self, percent: Node) -> Node:
        """Return "20% off 80" as (1 - 20%) * 80."""
        return Binary("*", Binary("-", Literal(1), percent), self.factor()) if self.accept("off") else percent

    def _possessive(self, owner: Node) -> Node | None:
        """Return what 的 or の belongs to: 9的平方根, 80の15%, 3の2乗. None when a list or a remainder follows."""
        kind = self.ahead().kind
        if kind not in ("function", "power", "number", "percentage", "share", "times"):
            return None
        self.index += 1
        if kind != "power":
            self._check_owner(owner)
        token = self.token
        if kind == "function":
            self.index += 1
            return Call(token.text, (owner,))
        if kind == "power":
            self.index += 1
            return Binary("^", owner, Literal(token.value))
        return self._share(owner)

    def _check_owner(self, owner: Node) -> None:
        """Raise CalculationError for 100加50的一半: half of 50, or of the sum."""
        plain = isinstance(owner, Literal | Measure | Constant)
        if self.operators[-1] == ANY or (self.operators[-1] == PARALLEL and not plain):
            where = self.quote(self.token, self.token)
            raise self.two_readings(f"{where} of the last number", f"{where} of everything before it")

    def _share(self, owner: Node) -> Node:
        """Return 80の15%, 80的四分之三, 80の3割引 or 90的一半."""
        token = self.expect("number", "percentage", "share", "times")
        if token.kind == "share":
            return Binary("/", owner, Literal(2))
        if token.kind == "times":
            return Binary("*", owner, Literal(token.value))
        part: Node = Literal(token.value)
        if token.kind == "percentage" or self.accept("sign", "percent"):
            part = Percent(part)
            change = self.accept("percentoff")
            if change:
                return Binary("*", owner, Binary(change.text, Literal(1), part))
        elif not isinstance(token.value, Fraction):
            self.index -= 1
            self.stop()
        return Binary("*", owner, part)

    # What an operand is.

    def primary(self) -> Node:
        token = self.token
        match token.kind:
            case "number":
                self.index += 1
                return Literal(token.value)
            case "percentage":
                self.index += 1
                return self._off(Percent(Literal(token.value)))
            case "share":
                self.index += 1
                return Literal(Fraction(1, 2))
            case "constant":
                self.index += 1
                return Constant(token.text)
            case "currency":
                self.index += 1
                return Measure(Literal(self.expect("number").value), token.text)
            case "open":
                return self._bracket()
            case "function":
                return function(self)
            case "root":
                self.index += 1
                return Binary("^", self.factor(), Literal(Fraction(1) / Fraction(token.value)))
            case "fold":
                return fold(self)
            case "base":
                return chinese_logarithm(self)
        return self.stop()

    def _bracket(self) -> Node:
        opened = self.enter()
        if opened.text == "[":
            raise CalculationError("A list cannot be calculated by itself: write sum([1, 2]), or brackets as ( ).")
        node = self._sentence(self)
        self.leave(opened)
        return node

    def enter(self) -> Token:
        """Step over an opening bracket: what 的 and の belong to is decided anew within it."""
        self.operators.append(NONE)
        return self.expect("open")

    def leave(self, opened: Token) -> None:
        """Step over the bracket that closes `opened`. Raises CalculationError when it is of the other kind."""
        self.operators.pop()
        closed = self.expect("close")
        if (opened.text == "[") != (closed.text == "]"):
            self.index -= 1
            self.stop()

    def _operator(self) -> None:
        parallel = any(token.kind in ("possessive", "power") for token in self.tokens[: self.index])
        self.operators[-1] = max(self.operators[-1], PARALLEL if parallel else ANY)

    def after_list(self) -> None:
        if self.index == self.list_end:
            operator = self.quote(self.token, self.token)
            raise self.two_readings(f"{operator} after the whole list", f"{operator} after its last number only")
