"""The grammar of `calculate`: tokens → a tree. Where an expression has two readings it refuses and names both."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from servers.arithmetic.functions import TAKES_LIST
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.text import Plain
from servers.arithmetic.tokens import Token
from servers.arithmetic.tree import Binary, Call, Constant, Literal, Measure, Negative, Node, Percent

MAX_DEPTH = 100
_OPTIONAL_SECOND = frozenset({"log", "round", "perm", "randrange"})
"""Functions for which 1,234 may be one number as well as two."""
_STARTS = frozenset({"number", "constant", "function", "open"})


class Parser:
    """Reads one expression; `index` is the token it has come to."""

    def __init__(self, plain: Plain, tokens: list[Token], sentence: Callable[[Parser], Node]) -> None:
        self.plain = plain
        self.tokens = tokens
        self._sentence = sentence
        self.index = 0
        self.depth = 0
        self.list_end = -1
        """Where a spoken list such as "the sum of 5 and 7" has just ended: an operator here has two readings."""
        self.notes: list[str] = []
        self._operators = [False]
        """For each open bracket, whether an operator with no 的 or の before it has been read there."""

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def following(self) -> Token:
        return self.tokens[min(self.index + 1, len(self.tokens) - 1)]

    def accept(self, *kinds: str) -> Token | None:
        """Return the token and step over it when it is one of `kinds`."""
        if self.token.kind not in kinds:
            return None
        self.index += 1
        return self.tokens[self.index - 1]

    def expect(self, *kinds: str) -> Token:
        return self.accept(*kinds) or self.stop()

    def stop(self) -> Token:
        """Raise CalculationError: the grammar has no place for the token it has come to."""
        if self.token.kind == "end":
            raise CalculationError("It ends too early and cannot be read: send one whole expression such as 2 * (3 + 4).")
        before = self.tokens[max(0, self.index - 1)]
        near = self.plain.quote(before.start, self.token.end)
        comma = (
            "write decimals with a point (1.5) and thousands as 1,234"
            if self.token.kind == "comma"
            else "send one arithmetic expression such as 2 * (3 + 4) or sqrt(16)"
        )
        raise CalculationError(f"It cannot be read near {near}: {comma}.")

    def two_readings(self, first: str, second: str) -> CalculationError:
        return CalculationError(f"It has two readings, {first} and {second}: send the one you mean, with brackets.")

    def nested(self, read: Callable[[], Node]) -> Node:
        """Return what `read` returns, one level deeper. Raises CalculationError beyond 100 levels."""
        if self.depth >= MAX_DEPTH:
            raise CalculationError(
                f"The expression is nested more than {MAX_DEPTH} levels deep: split it into several calls."
            )
        self.depth += 1
        node = read()
        self.depth -= 1
        return node

    # From the loosest to the tightest.

    def expression(self, left: Node | None = None) -> Node:
        left = self.term(left)
        while self.token.kind == "op" and self.token.text in "+-":
            self._after_list()
            sign = self.expect("op").text
            self._operator()
            left = Binary(sign, left, self.term())
        return left

    def term(self, left: Node | None = None) -> Node:
        only = left or self.factor()
        node = only
        divided = False
        while True:
            if self.token.kind == "op" and self.token.text in ("*", "/", "//", "mod"):
                self._after_list()
                sign = self.expect("op").text
                self._operator()
                divided = divided or sign != "*"
            elif self._is_modulo():
                self.expect("sign")
                sign, divided = "mod", True
            elif self.token.kind == "of":
                self._check_share(node, divided)
                self.expect("of")
                sign = "*"
            elif self._is_product():
                if divided:
                    raise self.two_readings("a / (b * c)", "(a / b) * c, as the sign of the product is left out")
                sign = "*"
            else:
                return node
            if self.token.kind == "into":
                raise CalculationError("Two operators follow each other: remove one.")
            node = Binary(sign, node, self.factor())

    def factor(self) -> Node:
        return self.nested(self._factor)

    def _factor(self) -> Node:
        if self.token.kind == "neg" or (self.token.kind == "op" and self.token.text in "+-"):
            sign = self.expect("neg", "op")
            bracketed = self.token.kind == "open"
            operand = self.factor()
            spoken = self.plain.text[sign.start] not in "+-"
            if spoken and not bracketed and isinstance(operand, Binary) and operand.sign == "^":
                raise self.two_readings("-(5^2)", "(-5)^2")
            return operand if sign.text == "+" else Negative(operand)
        multiple = self.accept("multiple")
        if multiple:
            self.accept("of")
            return Binary("*", Literal(multiple.value), self.factor())
        base = self.postfix()
        if self.token.kind == "op" and self.token.text == "^":
            self.expect("op")
            return Binary("^", base, self.factor())
        if self.accept("choose"):
            return Call("comb", (base, self.postfix()))
        return base

    def postfix(self) -> Node:
        node = self.nested(self.primary)
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
                self.index += 1
                return Call("factorial", (node,))
            case "sign" if not self._is_modulo():
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
                self.index += 1
                return Binary("*", node, Literal(token.value))
            case "dozen":
                self.index += 1
                return Binary("*", node, Literal(12))
            case "possessive":
                return self._possessive(node)
        return None

    def _off(self, percent: Node) -> Node:
        """Return "20% off 80" as 80 - 20%."""
        off = self.accept("off")
        return Binary(off.text, self.factor(), percent) if off else percent

    def _possessive(self, owner: Node) -> Node | None:
        """Return what 的 or の belongs to: 9的平方根, 80の15%, 3の2乗. None when a list or a remainder follows."""
        kind = self.following.kind
        if kind not in ("function", "power", "number", "percentage", "share", "times"):
            return None
        if self._operators[-1] and kind != "power":
            where = self.plain.quote(self.following.start, self.following.end)
            raise self.two_readings(f"{where} of the last number", f"{where} of everything before it")
        self.index += 1
        token = self.token
        if kind == "function":
            self.index += 1
            return Call(token.text, (owner,))
        if kind == "power":
            self.index += 1
            return Binary("^", owner, Literal(token.value))
        return self._share(owner)

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
                return Binary(change.text, owner, part)
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
                return self._function()
            case "root":
                self.index += 1
                return Binary("^", self.factor(), Literal(Fraction(1) / Fraction(token.value)))
            case "fold":
                return self._fold()
            case "base":
                return self._chinese_logarithm()
        self.stop()
        raise AssertionError

    def _bracket(self) -> Node:
        opened = self.expect("open")
        if opened.text == "[":
            raise CalculationError("A list cannot be calculated by itself: write sum([1, 2]), or brackets as ( ).")
        self._operators.append(False)
        node = self.nested(lambda: self._sentence(self))
        self._operators.pop()
        self._close(opened)
        return node

    def _close(self, opened: Token) -> None:
        closed = self.expect("close")
        if (opened.text == "[") != (closed.text == "]"):
            self.index -= 1
            self.stop()

    def _function(self) -> Node:
        name = self.expect("function").text
        if self.token.kind == "open":
            return self._call(name)
        base = self._log_base()
        self.accept("of", "possessive")
        if self.token.kind not in (*_STARTS, "neg", "op", "currency", "root", "fold", "share", "base"):
            raise CalculationError(f"{name} is a function: give it an argument in brackets, such as {name}(2).")
        operand = self._argument(name)
        base = base or self._log_base()
        return Call(name, (operand, base) if base else (operand,))

    def _log_base(self) -> Node | None:
        if self.token.kind == "base" and self.token.text == "base":
            self.index += 1
            return self.nested(self.primary)
        return None

    def _argument(self, name: str) -> Node:
        """Return the operand of a function without brackets: `sin 30 degrees`, `sqrt 16`, `sin 2pi`, `√x`."""
        if self.tokens[self.index - 1].text == "sqrt" and self.plain.text[self.tokens[self.index - 1].start] == "√":
            return self.factor()
        if self.token.kind in ("neg", "op"):
            return self.factor()
        node = self.postfix()
        if self.token.kind == "constant" and not self.token.spaced:
            node = Binary("*", node, self.postfix())
        if self.token.kind == "op" and self.token.text == "^":
            raise self.two_readings(f"{name}(a)^b", f"{name}(a^b)")
        return node

    def _call(self, name: str) -> Node:
        opened = self.expect("open")
        self._operators.append(False)
        listed = self.accept("open") if self.token.text == "[" and name in TAKES_LIST else None
        arguments = self._arguments(name)
        if listed:
            self._close(listed)
        self._operators.pop()
        self._close(opened)
        return Call(name, tuple(arguments))

    def _arguments(self, name: str) -> list[Node]:
        start = self.index
        if self.token.kind == "close":
            return []
        arguments = [self.expression()]
        while self.accept("comma", "and"):
            arguments.append(self.expression())
        tokens = self.tokens[start : self.index]
        if any(token.text == "doubt" for token in tokens):
            self._check_commas(name, tokens)
        return arguments

    def _check_commas(self, name: str, tokens: list[Token]) -> None:
        """Raise CalculationError where 1,234 among `name`'s arguments may be one number; else say how it was read."""
        commas = [index for index, token in enumerate(tokens) if token.kind == "comma"]
        doubtful = [index for index in commas if tokens[index - 1].text == "doubt"]
        spaced = [index for index in commas if tokens[index + 1].spaced]
        grouped = any(token.text == "grouped" for token in tokens)
        if spaced or grouped or name in _OPTIONAL_SECOND:
            first, second = tokens[doubtful[0] - 1], tokens[doubtful[0] + 1]
            raise CalculationError(
                f"{self.plain.quote(first.start, second.end)} has two readings, the number "
                f"{self.plain.text[first.start : first.end]}{self.plain.text[second.start : second.end]} and two "
                "arguments: write thousands without a comma, as 1234, and put a space behind a comma between arguments."
            )
        self.notes.append("The comma in brackets was read as parting two numbers, not as one of thousands.")

    def _fold(self) -> Node:
        fold = self.expect("fold")
        if self.token.kind == "open":
            inner = self.tokens[self.index :]
            if any(token.kind == "comma" for token in inner):
                return self._call(folded_name(fold.text))
        start = self.index
        items = [self.factor()]
        while self.accept("and", "comma"):
            self.accept("and")
            items.append(self.factor())
        tokens = self.tokens[start : self.index]
        if len(items) < 2 or any(token.doubt for token in tokens):
            raise CalculationError(
                f"It is not clear which numbers {self.plain.quote(start_of(tokens), tokens[-1].end)} lists: it may be one "
                "number or several. Send digits with a comma and a space between them, such as mean(100, 5)."
            )
        self.list_end = self.index
        return folded(fold.text, items, self)

    def _chinese_logarithm(self) -> Node:
        """Return 以2为底1024的对数."""
        self.expect("base")
        base = self.nested(self.primary)
        self.expect("base")
        self.accept("possessive")
        operand = self.nested(self.primary)
        self.expect("possessive")
        if self.expect("function").text not in ("log", "ln"):
            self.stop()
        return Call("log", (operand, base))

    # Rules about neighbours.

    def _operator(self) -> None:
        seen = any(token.kind == "possessive" for token in self.tokens[: self.index])
        self._operators[-1] = self._operators[-1] or not seen

    def _after_list(self) -> None:
        if self.index == self.list_end:
            operator = self.plain.quote(self.token.start, self.token.end)
            raise self.two_readings(f"{operator} after the whole list", f"{operator} after its last number only")

    def _is_product(self) -> bool:
        """Return whether two neighbours such as `2 π`, `2 (3)`, `(1) (2)` or `(10)2.5` mean a product."""
        before = self.tokens[self.index - 1]
        if self.token.kind == "number":
            return before.kind == "close"
        if self.token.kind not in ("constant", "function", "open"):
            return False
        if before.kind in ("sign", "percent", "percentage"):
            raise self.two_readings("20% of (50 + 30)", "20 mod (50 + 30)")
        return before.kind in ("number", "constant", "close", "bang", "power", "unit")

    def _check_share(self, node: Node, divided: bool) -> None:
        """Raise CalculationError unless what stands before "of" is a share: 20%, half, 2/3, 0.25."""
        match node:
            case Percent() | Literal(value=Fraction() | float()):
                return
            case Binary(sign="/", left=Literal(), right=Literal()):
                return
            case Binary(sign="*") if not divided:
                return
        where = self.plain.quote(self.tokens[self.index - 1].start, self.token.end)
        raise CalculationError(f"{where} is not clear: write 20% of 80, half of 80, 2/3 of 80, or 3 * 80.")

    def _is_modulo(self) -> bool:
        """Return whether `%` stands between two operands: `7 % 3` and `7 % -3`, but `15% - 3` is a percentage.

        Raises CalculationError where it may be either.
        """
        if self.token.kind != "sign":
            return False
        percent, after = self.token, self.following
        two = CalculationError(
            f"{self.plain.quote(self.tokens[self.index - 1].start, after.end)} has two readings, a percentage and a "
            "remainder: write 20% of 50, 20% * 50, (15%) - 3, or 7 mod 3."
        )
        if after.kind in _STARTS:
            if after.spaced and not percent.spaced:
                raise two
            return True
        if after.kind != "op" or after.text not in "+-":
            return False
        operand = self.tokens[min(self.index + 2, len(self.tokens) - 1)]
        beyond = self.tokens[min(self.index + 3, len(self.tokens) - 1)]
        if percent.spaced and after.spaced and not operand.spaced:
            return True
        if after.text == "+" or operand.spaced or beyond.kind in ("sign", "percent"):
            if percent.spaced and after.spaced and after.text == "-":
                raise two
            return False
        raise two


def start_of(tokens: list[Token]) -> int:
    return tokens[0].start if tokens else 0


def folded_name(name: str) -> str:
    return {"diff": "sum", "quotient": "sum"}.get(name, name)


def folded(name: str, items: list[Node], parser: Parser) -> Node:
    """Return the list function `name` of `items`: the difference is the larger less the smaller."""
    if name not in ("diff", "quotient"):
        return Call(name, tuple(items))
    if len(items) != 2:
        parser.stop()
    left, right = items
    return Call("abs", (Binary("-", left, right),)) if name == "diff" else Binary("/", left, right)
