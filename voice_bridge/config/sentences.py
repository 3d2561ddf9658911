"""What is said of a mistake in the settings, without the jargon of the library that found it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from voice_bridge.config.expand import shorter, shown

_MOST_MISTAKES = 10
_OPEN_FIELDS = {"disabled", "enabled", "isolate", "trust", "connection", "refresh", "log.format", "log.level"}
_PLAIN = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"a valid tuple"), "a list in square brackets"),
    (re.compile(r"a valid (dictionary or instance of \w+|mapping|dictionary)"), "an object in braces"),
    (re.compile(r"a valid string"), "text in quotes"),
    (re.compile(r"a valid boolean"), "true or false"),
    (re.compile(r"a valid number\b.*", re.DOTALL), "a number"),
    (re.compile(r"a valid integer\b.*", re.DOTALL), "a whole number"),
    (re.compile(r"Unable to parse input string as an integer.*", re.DOTALL), "Input should be a whole number"),
    (re.compile(r"is not a valid path for <class .*"), "should be a path, as text in quotes"),
)


def mistakes(error: ValidationError) -> str:
    """What is wrong with an entry; a value is shown only where it cannot be a secret."""
    found = error.errors(include_url=False, include_context=False)
    said = "; ".join(_sentence(mistake) for mistake in islice(found, _MOST_MISTAKES))
    return said if len(found) <= _MOST_MISTAKES else f"{said}; and {len(found) - _MOST_MISTAKES:,} more mistakes"


def _sentence(mistake: Any) -> str:
    place = ".".join(shorter(str(part)) for part in mistake["loc"])
    text = mistake["msg"]
    for jargon, plain in _PLAIN:
        text = jargon.sub(plain, text)
    given = mistake["input"]
    if place and (isinstance(given, bool | int | float) or place in _OPEN_FIELDS):
        text += f" (it is {shown(given)})"
    return f"{place}: {text}" if place else text


def near(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, as the end of a sentence; empty when none is like it."""
    found = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{found[0]}"?' if found else ""


def unknown(raw: Iterable[str], known: set[str]) -> Iterator[str]:
    """The keys of an object that have no meaning; those that begin like a comment are none."""
    return (key for key in raw if key not in known and not key.startswith(("//", "_", "#")))


def keys(model: type[BaseModel]) -> set[str]:
    """The keys that a model reads, in both spellings."""
    names = set(model.model_fields) - {"name"}
    return names | {to_camel(name) for name in names}
