"""Child processes: finding a command, starting it, ending all that it started.

What differs between operating systems is in `posix` and `windows`, with the same names in both; `system` chooses.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from voice_bridge import loop
from voice_bridge.ports.servers.process.child import Events, Process
from voice_bridge.ports.servers.process.starting import resolve, spawn
from voice_bridge.ports.servers.process.system import adopt_orphans, allow_files, reap_orphans
from voice_bridge.ports.servers.process.tree import MARK, Tree
from voice_bridge.signals import on_signals

__all__ = [
    "MARK",
    "Events",
    "Process",
    "Tree",
    "adopt_orphans",
    "allow_files",
    "on_signals",
    "reap_orphans",
    "resolve",
    "run",
    "spawn",
]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program that starts servers (`voice_bridge.loop.run`); their orphans become its own."""
    adopt_orphans()
    return loop.run(main)
