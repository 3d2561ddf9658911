"""The house's one rule: imports point downward only, and the floors below the first stair touch no IO."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "voice_bridge"
FLOORS = {
    0: "errors jsonrpc backoff config log paths",
    1: "catalog shaping closes era upstream downstream ledger subscriptions methods notices router",
    2: "platforms stdio remote remote_http remote_headers connection link reach watch lock",
    3: "supervisor",
    4: "hub local",
    5: "bridge agent dashboard",
    6: "cli __main__",
}
FLOOR = {part: floor for floor, parts in FLOORS.items() for part in parts.split()}
OUTSIDE = {"simulator"}
IO = {"asyncio", "websockets", "subprocess", "socket", "threading", "anyio", "httpx2", "uvloop", "mcp"}
ALLOWED_IO = {("closes", "websockets"), ("closes", "socket")}  # names of exceptions, nothing that opens one


class Import(NamedTuple):
    """One import of a module: who, what, where, and whether only a type checker sees it."""

    importer: str
    name: str
    line: int
    types_only: bool


def part_of(module: str) -> str:
    """The floor plan's name for a module: `voice_bridge.cli.run` is `cli`; the package itself is empty."""
    return [*module.split("."), "", ""][1]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    importer = module_name(path)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            base = node.module or ""
            inside = base == "voice_bridge"
            names = [f"{base}.{alias.name}" for alias in node.names] if inside else [base]
        else:
            continue
        for name in names:
            yield Import(importer, name, node.lineno, id(node) in guarded)


EVERY_IMPORT = [found for path in modules() for found in imports(path)]
OURS = [found for found in EVERY_IMPORT if found.name.split(".")[0] == "voice_bridge"]


def test_every_module_has_a_place_in_the_house() -> None:
    parts = {part_of(module_name(path)) for path in modules()}
    assert parts - set(FLOOR) - OUTSIDE - {""} == set(), "a new module needs a floor in DESIGN §2 and here"


def test_imports_of_the_package_are_written_out_in_full() -> None:
    """A relative import would slip past the tests below."""
    relative = [
        f"{module_name(path)}:{node.lineno}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


@pytest.mark.parametrize("part", sorted(FLOOR))
def test_imports_point_downward_only(part: str) -> None:
    wrong = []
    for found in OURS:
        importer, imported = part_of(found.importer), part_of(found.name)
        if importer != part or imported in ("", "__version__") or imported == importer:
            continue
        ceiling = FLOOR["agent"] if imported in OUTSIDE else FLOOR[imported]
        if ceiling > FLOOR[importer]:
            wrong.append(f"{found.importer}:{found.line} imports {found.name}")
    assert wrong == []


def test_modules_of_one_floor_do_not_import_each_other_in_circles() -> None:
    """At run time; what only a type checker reads may point both ways."""
    edges: dict[str, set[str]] = {}
    for found in OURS:
        if not found.types_only and part_of(found.name) in FLOOR:
            edges.setdefault(part_of(found.importer), set()).add(part_of(found.name))

    def reaches_itself(start: str) -> bool:
        seen: set[str] = set()
        open_ends = [end for end in edges.get(start, ()) if end != start]
        while open_ends:
            end = open_ends.pop()
            if end == start:
                return True
            if end not in seen:
                seen.add(end)
                open_ends += edges.get(end, ())
        return False

    assert [part for part in edges if part != "config" and reaches_itself(part)] == []


@pytest.mark.parametrize("part", sorted(part for part, floor in FLOOR.items() if floor <= 1))
def test_the_pure_floors_name_no_io(part: str) -> None:
    named = {
        (part, found.name.split(".")[0])
        for found in EVERY_IMPORT
        if part_of(found.importer) == part and not found.types_only
    }
    assert {(who, what) for who, what in named if what in IO} <= ALLOWED_IO


def test_the_router_runs_where_asyncio_cannot_be_imported() -> None:
    """The rule as the interpreter sees it: floors 0 and 1 load and route with every IO module forbidden."""
    script = """
import sys
for name in ("asyncio", "websockets", "subprocess", "mcp", "anyio"):
    sys.modules[name] = None
from voice_bridge import backoff, catalog, errors, jsonrpc, methods, notices, subscriptions, upstream
from voice_bridge.downstream import View
from voice_bridge.router import Router
router = Router()
router.client_opened("c", View("c", ()))
print(router.client_message("c", b'{"jsonrpc":"2.0","id":7,"method":"ping"}', 0.0)[0].data.decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == '{"jsonrpc":"2.0","id":7,"result":{}}'


def test_the_simulator_is_an_independent_witness() -> None:
    ours = {found.name for found in OURS if part_of(found.importer) == "simulator"}
    foreign = {name for name in ours if part_of(name) not in ("simulator", "jsonrpc", "__version__", "")}
    assert foreign == set()


def test_the_bundled_servers_borrow_from_the_ground_floor_only() -> None:
    """They are servers like anybody else's: the bridge runs them, they do not know it."""
    borrowed = {found.name for path in sorted((ROOT / "servers").rglob("*.py")) for found in imports(path)}
    ours = {part_of(name) for name in borrowed if name.split(".")[0] == "voice_bridge"}
    assert {part for part in ours if FLOOR.get(part, 9) > 0} == set()
