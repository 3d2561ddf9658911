"""Where a reader has come to among the tokens, and how it refuses."""

from __future__ import annotations

from typing import NoReturn

from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.text import Plain
from servers.arithmetic.tokens import Token


class Cursor:
    """The tokens of one expression; `index` is the one it has come to."""

    def __init__(self, plain: Plain, tokens: list[Token]) -> None:
        self.plain = plain
        self.tokens = tokens
        self.index = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def before(self) -> Token:
        return self.tokens[max(0, self.index - 1)]

    def ahead(self, steps: int = 1) -> Token:
        return self.tokens[min(self.index + steps, len(self.tokens) - 1)]

    def is_sign(self, *signs: str) -> bool:
        return self.token.kind == "op" and self.token.text in signs

    def accept(self, *kinds: str) -> Token | None:
        """Return the token and step over it when it is one of `kinds`."""
        if self.token.kind not in kinds:
            return None
        self.index += 1
        return self.before

    def expect(self, *kinds: str) -> Token:
        return self.accept(*kinds) or self.stop()

    def quote(self, first: Token, last: Token) -> str:
        """Return what was sent from `first` to `last`, in quotation marks."""
        return self.plain.quote(first.start, last.end)

    def stop(self) -> NoReturn:
        """Raise CalculationError: the grammar has no place for the token it has come to."""
        if self.token.kind == "end":
            raise CalculationError(
                "It ends too early and cannot be read: send one whole expression such as 2 * (3 + 4)."
            )
        remedy = "send one arithmetic expression such as 2 * (3 + 4) or sqrt(16)"
        if self.token.kind == "comma":
            remedy = "write decimals with a point (1.5) and thousands as 1,234"
        raise CalculationError(f"It cannot be read near {self.quote(self.before, self.token)}: {remedy}.")

    def two_readings(self, first: str, second: str) -> CalculationError:
        """Return the refusal of what may mean `first` as well as `second`."""
        return CalculationError(f"It has two readings, {first} and {second}: send the one you mean, with brackets.")
