"""Cuts plain text into the tokens of the grammar: numbers, words, names and signs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from servers.arithmetic.functions import CONSTANTS, FUNCTIONS, nearest_name
from servers.arithmetic.numbers import CalculationError, Number, check_size, exact
from servers.arithmetic.numerals import Numeral
from servers.arithmetic.numerals_east_asian import NUMBER, east_asian, number
from servers.arithmetic.numerals_english import ORDINALS, english, with_part
from servers.arithmetic.text import Plain
from servers.arithmetic.words import courtesies, phrase


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `value` where it stands for a number, `start` and `end` in the plain text."""

    kind: str
    text: str
    start: int
    end: int
    value: Number = 0
    spaced: bool = False
    """Whether white space stands before it."""
    doubt: bool = False
    """Whether the number may be two: "one hundred and five", or 100,200 in a list."""


SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
_FROM_SUPERSCRIPTS = str.maketrans(SUPERSCRIPTS, "0123456789+-")
_SUPERSCRIPT = re.compile(f"[{SUPERSCRIPTS}]+")
_DATE = re.compile(r"(?<![\d.])(?:\d{4}([-/])\d{1,2}\1\d{1,2}|\d{1,2}([-/])\d{1,2}\2\d{4})(?![\d.])")
_DIGITS = re.compile(
    r"""(?P<radix>0x[0-9a-f]+|0b[01]+|0o[0-7]+)
    | (?P<spaced>(?<![\w.,])\d{1,3}(?:[ ']\d{3})+(?![\d_,']|[ ]\d)(?:\.\d+)?)
    | (?P<grouped>(?<![\w.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d_]|,\d)(?:\.\d+)?)
    | (?P<plain>(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)""",
    re.VERBOSE | re.IGNORECASE,
)
_GROUPED_IN_CALL = re.compile(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d_])")
_SCALE = re.compile(r"(k|mn|bn)(?![a-z\d_])|(M)(?![A-Za-z\d_])", re.IGNORECASE)
_SCALES = {"k": 10**3, "mn": 10**6, "m": 10**6, "bn": 10**9}
_UNCLEAR_SCALE = re.compile(r"[mbt](?![a-z\d_])", re.IGNORECASE)
_ORDINAL = rf"(\d+)(?:st|nd|rd|th)|({'|'.join(ORDINALS)})"
_SPECIAL = (
    ("power", re.compile(rf"(?:raised\s+)?to\s+the\s+(?:{_ORDINAL})(?:\s+power)?\b", re.IGNORECASE)),
    ("root", re.compile(rf"(?:{_ORDINAL})\s+root\s+of\b", re.IGNORECASE)),
    ("power", re.compile(rf"(?:[的の]\s?(?:负|負|マイナス|-)|[的の]?)\s?({NUMBER})\s?(?:次方|次幂|次冪|乗)")),
    ("times", re.compile(rf"[的の]?\s?({NUMBER})\s?倍")),
    ("tenths", re.compile(rf"({NUMBER})\s?割(?![るっりれ])")),
    ("keep", re.compile(rf"(?:的|打)\s?({NUMBER})\s?折")),
    ("percentage", re.compile(rf"(?:百|100)分(?:之|の)\s?({NUMBER})")),
)
_NAME = re.compile(r"(?:(?:math|random)\.)?([a-z_][a-z_\d]*)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d]{1,20}")
_SIGN = re.compile(r"\*\*|//|.", re.DOTALL)
_SIGNS = {
    **{sign: ("op", sign) for sign in "+-*/^"},
    **{
        "**": ("op", "^"),
        "//": ("op", "//"),
        "%": ("sign", "%"),
        "!": ("bang", "factorial"),
        "√": ("function", "sqrt"),
    },
    **{"°": ("unit", "degrees"), "º": ("unit", "degrees"), "(": ("open", "("), "[": ("open", "["), ")": ("close", ")")},
    **{"]": ("close", "]"), ",": ("comma", ","), ";": ("comma", ",")},
    **{sign: ("currency", sign) for sign in "$€£¥₩₹"},
}


_ENDS = frozenset(
    {"number", "close", "constant", "bang", "unit", "power", "sign", "percent", "percentage", "share", "times"}
)
"""Tokens that can end an operand: an x behind them is a multiplication."""


class Lexer:
    """One pass over one text; it keeps what it needs to know whether a comma parts arguments or thousands."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._text = plain.text
        self._start, self._end = courtesies(plain.text)
        self._text = plain.text[: self._end]
        self._calls: list[bool] = []
        self._last = Token("", "", 0, 0)

    def tokens(self) -> list[Token]:
        """Return the tokens, the last of kind `end`. Raises CalculationError for what means nothing here."""
        found = list(self._cut())
        if not found:
            raise self._refuse(0, len(self._text), "holds nothing to calculate: send arithmetic such as 1004 * 328.")
        return [*found, Token("end", "", self._end, self._end)]

    def _cut(self) -> Iterator[Token]:
        position = self._start
        while True:
            start = position
            while position < len(self._text) and self._text[position].isspace():
                position += 1
            if position >= len(self._text):
                return
            token = replace(self._next(position), spaced=position > start)
            position = token.end
            if token.kind == "filler":
                continue
            self._bracket(token)
            self._last = token
            yield token

    def _bracket(self, token: Token) -> None:
        if token.kind == "open":
            self._calls.append(self._last.kind == "function" or token.text == "[" or self._in_call())
        elif token.kind == "close" and self._calls:
            self._calls.pop()

    def _in_call(self) -> bool:
        return bool(self._calls) and self._calls[-1]

    def _next(self, position: int) -> Token:
        date = _DATE.match(self._text, position)
        if date:
            raise self._refuse(
                position,
                date.end(),
                "looks like a date, and dates are not for this tool: ask a clock, or write 2024 - 12 - 25 with spaces "
                "for a subtraction.",
            )
        for kind, pattern in _SPECIAL:
            match = pattern.match(self._text, position)
            if match:
                return self._special(kind, match)
        return self._word(position) or self._number(position) or self._name(position) or self._sign(position)

    def _word(self, position: int) -> Token | None:
        found = phrase(self._text, position)
        if not found:
            return None
        kind, meaning, end = found
        if kind == "and" and meaning == "," and self._last.kind == "possessive":
            return Token("noun", "sum", position, end)  # 10和20的和
        return Token(kind, meaning, position, end, int(meaning) if meaning.isdigit() else 0)

    def _special(self, kind: str, match: re.Match[str]) -> Token:
        found = next(group for group in match.groups() if group)
        value_read: Number = ORDINALS[found.lower()] if found.lower() in ORDINALS else number(found)
        match kind:
            case "power" if re.search("负|負|マイナス|-", match[0]):
                return Token(kind, "", match.start(), match.end(), -value_read)
            case "tenths":
                return Token("percentage", "", match.start(), match.end(), exact(Fraction(value_read) * 10))
            case "keep":
                if not 0 < value_read < 100:
                    raise self._refuse(match.start(), match.end(), "is no discount: write 打八折, or * 0.8.")
                size = 10 if value_read <= 10 else 100
                return Token("times", "", match.start(), match.end(), exact(Fraction(value_read) / size))
        return Token(kind, "", match.start(), match.end(), value_read)

    def _number(self, position: int) -> Token | None:
        words = east_asian(self._text, position) or english(self._text, position)
        if words and not self._splits_name(words):
            return Token("number", "", position, words.end, words.value, doubt=words.joined)
        match = _DIGITS.match(self._text, position)
        if self._in_call():
            return self._number_in_call(position, match)
        if match and match["plain"] is None and match["radix"] is None:
            return self._grouped(match)
        return self._plain_number(match) if match else self._vulgar(position)

    def _splits_name(self, words: Numeral) -> bool:
        return bool(re.match(r"[A-Za-z]$", self._text[words.end - 1])) and bool(
            re.match(r"[\w(]", self._text[words.end : words.end + 1], re.ASCII)
        )

    def _grouped(self, match: re.Match[str]) -> Token:
        value = exact(Fraction(re.sub(r"[, ']", "", match[0])))
        # "100,200" in a spoken list may be two numbers, "1,200" and "120,000" are not.
        doubt = bool(re.fullmatch(r"\d{3}(?:,[1-9]\d\d)+", match[0]))
        return self._scaled(Token("number", "grouped", match.start(), match.end(), value, doubt=doubt))

    def _number_in_call(self, position: int, match: re.Match[str] | None) -> Token | None:
        grouped = _GROUPED_IN_CALL.match(self._text, position)
        if grouped:
            groups = grouped[0].partition(".")[0].split(",")[1:]
            zeros = [group.startswith("0") for group in groups]
            if any(zeros) and not all(zeros):
                raise self._refuse(
                    position, grouped.end(), "may be one number or several: write thousands without a comma."
                )
            if all(zeros):  # 000 and 024 are never arguments
                return self._scaled(
                    Token("number", "grouped", position, grouped.end(), exact(Fraction(grouped[0].replace(",", ""))))
                )
            end = position + len(grouped[0].partition(",")[0])
            return Token("number", "doubt", position, end, int(self._text[position:end]), doubt=True)
        if match and match["grouped"]:
            end = position + len(match[0].partition(",")[0])
            return Token("number", "", position, end, int(self._text[position:end]))
        if match and match["spaced"]:
            return self._grouped(match)
        return self._plain_number(match) if match else self._vulgar(position)

    def _plain_number(self, match: re.Match[str]) -> Token:
        digits, start, end = match[0], match.start(), match.end()
        if match["radix"]:
            return Token("number", "", start, end, check_size(int(digits, 0)))
        if "e" in digits.lower():
            return Token("number", "", start, end, float(digits))
        if digits.endswith("_") or "__" in digits:
            raise self._refuse(start, end, "is not a number: write digits such as 1000 or 1_000.")
        token = Token("number", "", start, end, exact(Fraction(digits.replace("_", "").rstrip(".") or "0")))
        vulgar = self._vulgar(end + (len(self._text) > end and self._text[end] == " "))
        if vulgar and digits.isdigit():
            return replace(token, end=vulgar.end, value=exact(Fraction(token.value) + Fraction(vulgar.value)))
        part = with_part(self._text, token.value, end)
        if part.end > end:
            return replace(token, end=part.end, value=part.value, doubt=part.joined)
        return self._scaled(token)

    def _scaled(self, token: Token) -> Token:
        scale = _SCALE.match(self._text, token.end)
        if scale and scale[2] != "m":
            size = _SCALES[(scale[1] or scale[2]).lower()]
            return replace(token, end=scale.end(), value=exact(Fraction(token.value) * size))
        unclear = _UNCLEAR_SCALE.match(self._text, token.end)
        if unclear:
            raise self._refuse(
                token.start, unclear.end(), f"is unclear: {unclear[0]} may be a unit or millions; write the zeros."
            )
        return token

    def _vulgar(self, position: int) -> Token | None:
        sign = self._text[position : position + 1]
        if not sign or not ("¼" <= sign <= "¾" or "⅐" <= sign <= "⅞"):
            return None
        value = Fraction(unicodedata.normalize("NFKC", sign).replace("⁄", "/"))
        return Token("number", "", position, position + 1, value)

    def _name(self, position: int) -> Token | None:
        if self._is_times(position):
            return Token("op", "*", position, position + 1)
        match = _NAME.match(self._text, position)
        if not match:
            return None
        name = match[1].lower()
        known = name if name in FUNCTIONS or name in CONSTANTS else re.split(r"\d", name)[0]
        end = match.end() - (len(name) - len(known))
        if known in CONSTANTS and known == name:
            return Token("constant", known, position, end)
        if known in FUNCTIONS:
            return Token("function", known, position, end)
        table = {**FUNCTIONS, **CONSTANTS}
        what = "a known function" if self._text[match.end() :].lstrip().startswith("(") else "understood"
        raise self._refuse(
            position,
            match.end(),
            f"is not {what}{nearest_name(name, table)}: send digits, operators such as + - * / ^, the words for them, "
            "and numeric functions such as sqrt(16).",
        )

    def _is_times(self, position: int) -> bool:
        return (
            self._text[position] in "xX"
            and self._last.kind in _ENDS
            and bool(re.match(r"[xX](?=[\s\d(.√$-]|[a-z]+\()", self._text[position:]))
        )

    def _sign(self, position: int) -> Token:
        superscript = _SUPERSCRIPT.match(self._text, position)
        if superscript:
            digits = superscript[0].translate(_FROM_SUPERSCRIPTS)
            if re.fullmatch(r"[+-]?\d+", digits):
                return Token("power", "", position, superscript.end(), check_size(int(digits)))
        match = _SIGN.match(self._text, position)
        sign = match[0] if match else ""
        if sign not in _SIGNS:
            word = _WORD.match(self._text, position)
            raise self._refuse(
                position,
                word.end() if word else position + 1,
                "is not understood: use digits, + - * / % ^, brackets and function names.",
            )
        kind, meaning = _SIGNS[sign]
        return Token(kind, meaning, position, position + len(sign))

    def _refuse(self, start: int, end: int, why: str) -> CalculationError:
        return CalculationError(f"{self._plain.quote(start, end)} {why}")
