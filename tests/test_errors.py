"""The drawing of all errors is true: what is raised is drawn, what is drawn exists, and hangs where it is drawn."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.support import ROOT
from voice_bridge import errors

PACKAGES = ("voice_bridge", "servers")
# What a class of another library is called when it is an error; our own are known by their bases.
FOREIGN = re.compile(r"(Error|Exception|Warning|Exit|Interrupt|ExceptionGroup)$")
DRAWN = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>\w+)(?: +(?P<module>[\w.]+) +(?P<words>\S.*))?$")


class Class(NamedTuple):
    """A class: its name and its module."""

    name: str
    module: str


def classes() -> Iterator[tuple[Class, list[str]]]:
    """Every class of the packages, with the last names of its bases."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                    yield Class(node.name, module), [ast.unparse(base).rpartition(".")[2] for base in bases]


def is_foreign_error(name: str) -> bool:
    known = getattr(builtins, name, None)
    return issubclass(known, BaseException) if isinstance(known, type) else bool(FOREIGN.search(name))


def raised() -> dict[Class, list[str]]:
    """Every class of the packages that is an error, with its bases."""
    everything = dict(classes())
    found: dict[Class, list[str]] = {}
    while True:
        names = {each.name for each in found}
        more = {
            each: bases
            for each, bases in everything.items()
            if each not in found and any(base in names or is_foreign_error(base) for base in bases)
        }
        if not more:
            return found
        found |= more


def drawn() -> dict[Class, str]:
    """Every class of the drawing, with the name of the one above it; that is empty at a root without a module."""
    above: list[str] = []
    found: dict[Class, str] = {}
    for line in (errors.__doc__ or "").partition("::\n")[2].splitlines():
        if (match := DRAWN.match(line)) is None:
            continue
        depth = len(match["indent"]) // 4
        above[depth:] = [match["name"]]
        if match["module"]:
            found[Class(match["name"], match["module"])] = above[depth - 1] if depth else "Exception"
    return found


def test_every_error_is_drawn() -> None:
    assert set(raised()) - set(drawn()) == set(), "draw these in voice_bridge/errors.py"


def test_every_drawn_error_exists() -> None:
    assert set(drawn()) - set(raised()) == set(), "take these out of voice_bridge/errors.py"


def test_every_error_hangs_below_its_own_base() -> None:
    found = raised()
    wrong = {each.name: (above, found[each]) for each, above in drawn().items() if above not in found.get(each, above)}
    assert wrong == {}


def test_what_the_bundled_servers_and_the_commands_raise_is_meant_for_a_person() -> None:
    above = {each.name: base for each, base in drawn().items()}

    def root(name: str) -> str:
        return root(above[name]) if name in above and name != "VoiceBridgeError" else name

    theirs = [each.name for each in raised() if each.module.startswith(("servers.", "voice_bridge.cli."))]
    assert {"DemoFailed", "CalculationError", "DocumentsError", "QueryError", "ZoneError"} <= set(theirs)
    assert [name for name in theirs if root(name) != "VoiceBridgeError"] == []


def test_the_walk_finds_what_hides() -> None:
    """Errors below an error of another module, with two bases, or named like none."""
    found = {each.name for each in raised()}
    assert {"TooLong", "NoAnswer", "Unnamed", "_DuplicateKey", "BadMessage", "DocumentsError"} <= found
    assert len(found) < len(dict(classes())) / 2, "most classes are none"
    assert not {"Router", "Runtime", "Settings"} & found
