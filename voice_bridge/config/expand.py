"""`${VAR}`, `${VAR:-default}` and a leading `~/` in the values of a settings file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


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
        return {key: expand(item, environ, f"{field}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [expand(item, environ, f"{field}[{index}]") for index, item in enumerate(value)]
    return value


def _lookup(found: re.Match[str], environ: Mapping[str, str], field: str) -> str:
    name, default = found[1], found[2]
    value = environ.get(name)
    if value or (value is not None and default is None):
        return value
    if default is None:
        raise UnsetVariable(
            f"{field} needs the variable {name}, which is not set; set it, or write ${{{name}:-default}}"
        )
    return str(default)


def _home(text: str, environ: Mapping[str, str]) -> str:
    if text == "~" or text.startswith(("~/", "~\\")):
        return (environ.get("HOME") or str(Path.home())) + text[1:]
    return text
