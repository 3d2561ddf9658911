"""The house's one rule: imports point downward only, and the pure floors touch no IO.

Nothing here lists the floors: they are the folders of the package, and what they import says which lies above which.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "voice_bridge"
GROUND = "(ground)"


class Import(NamedTuple):
    """One import, also one that only a type checker sees or that waits inside a function."""

    importer: str
    name: str
    line: int


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            base = node.module or ""
            names = [name if (name := f"{base}.{alias.name}") in MODULES else base for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(module_name(path), name, node.lineno)


EVERY_IMPORT = [found for path in MODULES.values() for found in imports(path)]
OURS = [found for found in EVERY_IMPORT if found.name.split(".")[0] == "voice_bridge"]


def room(module: str) -> str:
    """The folder directly under the package, or the ground for the modules that lie beside the folders."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else GROUND


ROOMS = sorted({room(module) for module in MODULES})


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """The first way found that leads back to its start; empty when there is none."""
    done: set[str] = set()

    def walk(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        done.add(node)
        for following in sorted(edges.get(node, ())):
            if found := walk(following, [*way, node]):
                return found
        return []

    return next((found for node in sorted(edges) if (found := walk(node, []))), [])


def test_the_folders_are_floors() -> None:
    """Whatever one folder imports lies below it, so no way leads back up."""
    edges: dict[str, set[str]] = {}
    for found in OURS:
        if (low := room(found.name)) != (high := room(found.importer)) and found.importer != "voice_bridge.__main__":
            edges.setdefault(high, set()).add(low)
    assert circle(edges) == []
    assert edges.get(GROUND, set()) == set(), "what lies beside the folders is the ground they stand on"


def test_imports_of_the_package_are_written_out_in_full() -> None:
    """A relative import would slip past the tests here."""
    relative = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_no_module_leads_back_to_itself() -> None:
    """Not even for the type checker, or inside a function: who reads one of a circle must read them all."""
    edges: dict[str, set[str]] = {}
    for found in OURS:
        edges.setdefault(found.importer, set()).add(found.name)
    assert circle(edges) == []


IO = {
    "aiohappyeyeballs", "anyio", "asyncio", "httpx", "httpx2", "logging", "mcp", "multiprocessing", "psutil", "select",
    "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
    "urllib.request", "uvloop", "watchfiles", "websockets",
}  # fmt: skip


def pure(name: str) -> bool:
    """Whether a folder says of itself that it is pure."""
    init = PACKAGE / name / "__init__.py"
    return init.is_file() and "Pure:" in (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "")


def below(modules: set[str]) -> set[str]:
    """These modules of ours, and all that they stand on."""
    found: set[str] = set()
    while fresh := modules - found:
        found |= fresh
        modules = {name for one in OURS if one.importer in fresh and (name := one.name) in MODULES}
    return found


def test_there_are_pure_floors() -> None:
    assert {"protocol", "core"} <= {name for name in ROOMS if pure(name)}


def test_pure_floors_touch_no_io_and_no_log() -> None:
    """Neither they nor anything of ours that they stand on."""
    floors = {name for name in MODULES if pure(room(name))}
    touched = [
        f"{found.importer}:{found.line} imports {found.name}"
        for found in EVERY_IMPORT
        if found.importer in below(floors) and {found.name, found.name.split(".")[0]} & IO
    ]
    assert touched == []


def test_the_core_runs_where_no_io_can_be_imported() -> None:
    """The rule as the interpreter sees it."""
    script = """
import sys
for name in ("asyncio", "websockets", "subprocess", "mcp", "anyio"):
    sys.modules[name] = None
from voice_bridge.core.client import View
from voice_bridge.core.router import Router
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
    foreign = {found.name for found in OURS if room(found.importer) == "simulator" and room(found.name) != "simulator"}
    assert foreign <= {"voice_bridge", "voice_bridge.protocol", "voice_bridge.protocol.jsonrpc"}


def test_the_bundled_servers_borrow_from_the_ground_only() -> None:
    """They are servers like anybody else's: the bridge runs them, they do not know it."""
    borrowed = {found.name for path in sorted((ROOT / "servers").rglob("*.py")) for found in imports(path)}
    ours = {name for name in borrowed if name.split(".")[0] == "voice_bridge"}
    assert {name for name in ours if room(name) != GROUND} == set()
