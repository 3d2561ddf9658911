"""The bridge as `voice-bridge run` runs it, telling what it holds: a line of JSON on stdout four times a second.

python bench/observed.py SETTINGS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import psutil

from voice_bridge import config
from voice_bridge.observe import log
from voice_bridge.ports.servers import process
from voice_bridge.runtime.daemon import Bridge

INTERVAL = 0.25


async def observe() -> None:
    """Tells until cancelled; memory is what this process alone holds (USS), in bytes."""
    me = psutil.Process()
    while True:
        holds = {
            "at": time.monotonic(),
            "tasks": len(asyncio.all_tasks()),
            "threads": me.num_threads(),
            "descriptors": me.num_fds(),
            "memory": me.memory_full_info().uss,
        }
        sys.stdout.write(json.dumps(holds) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(INTERVAL)


async def main(path: Path) -> None:
    """Runs the bridge on a settings file until a signal ends it."""
    bridge = Bridge(config.load(path), lambda: config.load(path), [log.LogReader()])
    async with asyncio.TaskGroup() as tasks:
        observer = tasks.create_task(observe())
        await bridge.run()
        observer.cancel()


if __name__ == "__main__":
    log.configure()
    process.run(main(Path(sys.argv[1])))
