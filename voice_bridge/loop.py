"""The event loop that programs of this package run on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program to its end on uvloop; plain asyncio on Windows or with `VOICE_BRIDGE_LOOP=asyncio`."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        if os.environ.get("VOICE_BRIDGE_LOOP") != "asyncio":
            import uvloop

            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
