"""The agent's, the simulator's and the commands' modules can be read one after another: none waits for another."""

from __future__ import annotations

import pytest

from tests.test_layers import OURS, circle


@pytest.mark.parametrize("package", ["voice_bridge.agent", "voice_bridge.simulator", "voice_bridge.cli"])
def test_no_modules_import_each_other(package: str) -> None:
    """Also not where only a type checker looks."""
    edges: dict[str, set[str]] = {}
    for found in OURS:
        if found.importer.startswith(package) and found.name.startswith(package):
            edges.setdefault(found.importer, set()).add(found.name)
    assert edges
    assert circle(edges) == []
