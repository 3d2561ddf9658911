"""Turns arithmetic as people, keyboards and speech write it into Python's spelling.

Three things have no spelling in Python and are marked for the walk: `15%` becomes `15 .percent`, `5!` becomes
`5 .factorial`, `30°` becomes `30 .degrees`, and `√` becomes the prefix `~`, which binds just as tightly.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from servers.arithmetic.functions import CONSTANTS, FUNCTIONS
from servers.arithmetic.numbers import CalculationError
from servers.arithmetic.words import without_words

MAX_LENGTH = 2_000

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("×∙⋅·•∗✕✖⨯", "*"),
        **dict.fromkeys("÷∕⁄", "/"),
        **dict.fromkeys("−‐‑‒–—﹣", "-"),
        "π": " pi ",
        "τ": " tau ",
        "“": '"',
        "【": "(",
        "】": ")",
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_POSTFIX = {"%": ".percent", "!": ".factorial", "°": ".degrees"}
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>0[xob][0-9a-f]+
        |(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)
    | (?P<times>x(?=[\s\d(.√-]))
    | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<root>√)
    | (?P<operator>\*\*|//|[-+*/^])
    | (?P<postfix>[%!°])
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<comma>,)
    | (?P<unknown>\S)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{2,3})*,\d{3}(?![\d_]|,\d)")
_SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?:[ '’]\d{3})+(?![\d_,])")
_OPERANDS = frozenset({"number", "name", "function", "root", "open"})
"""The tokens that begin an operand."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    spaced: bool
    """Whether white space stands before it."""


def to_python(text: str) -> str:
    """Return `text` as a Python expression of numbers, operators and names.

    Raises CalculationError when it is empty, longer than 2,000 characters, or holds a sign that means nothing here.
    """
    if len(text) > MAX_LENGTH:
        raise CalculationError(
            f"The expression has {len(text):,} characters and {MAX_LENGTH:,} are allowed: split it into several calls."
        )
    plain = _plain(text)
    if not plain:
        raise CalculationError("The expression is empty: send arithmetic such as 1004 * 328.")
    return " ".join(_spell(_tokens(plain)))


def _plain(text: str) -> str:
    """Return `text` with one spelling for every sign, digit and word."""
    text = re.sub(r"[⁰¹²³⁴-⁹⁺⁻]+", lambda match: f"^({match[0].translate(_SUPERSCRIPTS)})", text)
    text = re.sub(r"(\d*)\s*([¼-¾⅐-⅞])", _vulgar, text)
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)).translate(_SIGNS)
    text = "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text)
    text = _SPACED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    text = without_words(text).strip()
    return text.removeprefix("=").rstrip("?= ").strip()


def _vulgar(match: re.Match[str]) -> str:
    return f"({match[1] or 0}+{unicodedata.normalize('NFKC', match[2]).replace('⁄', '/')})"


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    for match in _TOKEN.finditer(_without_grouping(text)):
        kind = match.lastgroup or "unknown"
        sign = match[kind]
        if kind == "unknown":
            raise CalculationError(
                f"The sign {sign!r} is not understood: use digits, + - * / % ^, brackets and function names."
            )
        if kind == "name" and not sign.isascii():
            raise CalculationError(
                f"The words {sign[:20]!r} are not understood: send digits and operators, such as 3 + 4 * 2."
            )
        tokens.append(_Token(kind, sign, match.start(kind) > match.start()))
    return tokens


def _without_grouping(text: str) -> str:
    """Return `text` without the commas of thousands; inside a function's brackets a comma separates arguments."""
    calls = _call_spans(text)
    return _GROUPED.sub(
        lambda match: match[0] if calls[match.start()] else match[0].replace(",", ""),
        text,
    )


def _call_spans(text: str) -> list[bool]:
    """Return for each position whether it lies within the brackets of a function's call."""
    inside: list[bool] = []
    stack: list[bool] = []
    for position, sign in enumerate(text):
        if sign in "([":
            called = re.search(r"([^\W\d]\w*)\s*$", text[max(0, position - 30) : position])
            is_call = called is not None and called[1].lower() not in CONSTANTS
            stack.append(is_call or sign == "[" or bool(stack and stack[-1]))
        elif sign in ")]" and stack:
            stack.pop()
        inside.append(bool(stack and stack[-1]))
    return inside


def _spell(tokens: list[_Token]) -> list[str]:
    spelled: list[str] = []
    before = ""
    depth = 0
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        kind, text = _python(token, following, tokens[index + 2 : index + 3])
        depth += (kind == "open") - (kind == "close")
        if kind == "comma" and depth <= 0:
            raise CalculationError(
                "A comma here is not understood: write decimals with a point (1.5) and thousands as 1,234."
            )
        if _multiplies(before, kind):
            spelled.append("*")
        spelled.append(text)
        before = kind
    return spelled


def _multiplies(before: str, kind: str) -> bool:
    """Return whether two neighbours such as `2 π`, `2 (3)` or `(1) (2)` mean a product."""
    if before == "number":
        return kind in _OPERANDS - {"number"}
    return before in ("name", "close", "postfix") and kind in _OPERANDS


def _python(token: _Token, following: _Token | None, after: list[_Token]) -> tuple[str, str]:
    """Return the token's kind, now that its neighbours are known, and its Python spelling."""
    match token.kind, token.text:
        case "number", text:
            # Python refuses the leading zeros that people write.
            return "number", re.sub(r"^0+(?=\d)", "", text) if not re.match(r"0[xob]", text, re.I) else text
        case "times", _:
            return "operator", "*"
        case "operator", "^":
            return "operator", "**"
        case "root", _:
            return "root", "~"
        case "name", text:
            lower = text.lower()
            known = lower.rpartition(".")[2]
            is_call = following is not None and following.text == "(" and known not in CONSTANTS
            return "function" if is_call else "name", lower if known in CONSTANTS or known in FUNCTIONS else text
        case "postfix", "%" if _is_modulo(token, following, after):
            return "operator", "%"
        case "postfix", text:
            return "postfix", _POSTFIX[text]
    return token.kind, token.text


def _is_modulo(percent: _Token, following: _Token | None, after: list[_Token]) -> bool:
    """Return whether `%` stands between two operands: `7 % 3` and `7 % -3`, but `15% - 3` is a percentage."""
    if following is None:
        return False
    if following.text in "+-":
        return percent.spaced and following.spaced and bool(after) and not after[0].spaced
    return following.kind in _OPERANDS
