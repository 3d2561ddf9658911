"""A number that was said in words."""

from __future__ import annotations

from dataclasses import dataclass

from servers.arithmetic.numbers import Number

ARABIC = r"(?>\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?)"
"""Digits, perhaps with the commas of thousands."""


@dataclass(frozen=True)
class Numeral:
    """A number read from `text[…:end]`; `joined` when an "and" within it could also part two numbers."""

    value: Number
    end: int
    joined: bool = False
