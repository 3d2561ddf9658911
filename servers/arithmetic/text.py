"""Turns arithmetic as people, keyboards and speech write it into Python's spelling."""

from __future__ import annotations

import unicodedata

from servers.arithmetic.numbers import CalculationError

MAX_LENGTH = 2_000

_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "·": "*", "^": "**", "π": " pi "})


def to_python(text: str) -> str:
    """Return `text` as a Python expression. Raises CalculationError when it is empty or too long."""
    if not text.strip():
        raise CalculationError("The expression is empty: send arithmetic such as 1004 * 328.")
    if len(text) > MAX_LENGTH:
        raise CalculationError(
            f"The expression has {len(text):,} characters and {MAX_LENGTH:,} are allowed: split it into several calls."
        )
    return unicodedata.normalize("NFKC", text.translate(_SIGNS)).strip()
