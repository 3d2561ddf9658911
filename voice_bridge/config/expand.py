"""`${VAR}`, `${VAR:-default}` and a leading `~/` in the values of a settings file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from voice_bridge.text import printable

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ODD = re.compile("[\0\ud800-\udfff]")
_LONGEST_SHOWN = 60
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def kind(value: object) -> str:
    """What a value of JSON is, in words."""
    return _KINDS.get(type(value), "null")


def shown(value: object) -> str:
    """A value as it may stand in a sentence: short, and a list or an object by its kind alone."""
    if isinstance(value, dict | list) or value is None:
        return kind(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class UnsetVariable(ValueError):
    """A `${VAR}` without a default names a variable that is not set."""


def names_in(value: Any) -> set[str]:
    """The variables that a value refers to."""
    if isinstance(value, str):
        return {found[1] for found in _VARIABLE.finditer(value)}
    if isinstance(value, Mapping):
        return set().union(*(names_in(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(names_in(item) for item in value))
    return set()


def expand(value: Any, environ: Mapping[str, str], field: str) -> Any:
    """The value with variables filled in, through lists and objects. A bare `$NAME` and any other `$` stay as written.

    Raises UnsetVariable naming the field and the variable.
    """
    if isinstance(value, str):
        return _home(_VARIABLE.sub(lambda found: _lookup(found, environ, field), value), environ)
    if isinstance(value, Mapping):
        return {key: expand(item, environ, f"{field}.{shorter(key)}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expand(item, environ, f"{field}[{index}]") for index, item in enumerate(value)]
    return value


def shorter(key: str) -> str:
    """A name as it may stand in a sentence: on one line, and cut when it is very long."""
    return printable(key if len(key) <= _LONGEST_SHOWN else f"{key[:_LONGEST_SHOWN]}…", keep="")


def refuse_odd(value: Any, field: str) -> None:
    """Raises ValueError, naming the field, for a text that no program can be handed, through lists and objects.

    Arguments and environments cannot hold a NUL, and half of a surrogate pair has no UTF-8 (RFC 3629 §3).
    """
    if isinstance(value, str) and (odd := _ODD.search(value)):
        raise ValueError(f"{field} holds the character \\u{ord(odd[0]):04x}, which no text may have; take it out")
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_odd(key, f"a name in {field}")
            refuse_odd(item, f"{field}.{shorter(key)}")
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_odd(item, f"{field}[{index}]")


def _lookup(found: re.Match[str], environ: Mapping[str, str], field: str) -> str:
    name, default = found[1], found[2]
    value = environ.get(name)
    if value or (value is not None and default is None):
        return value
    if default is None:
        name = shorter(name)
        raise UnsetVariable(
            f"{field} needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}"
        )
    return str(default)


def _home(text: str, environ: Mapping[str, str]) -> str:
    if text == "~" or text.startswith(("~/", "~\\")):
        return (environ.get("HOME") or os.path.expanduser("~")) + text[1:]
    return text
