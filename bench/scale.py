"""What many endpoints, many servers and doing nothing cost.

python bench/scale.py [--endpoints 1000] [--servers 50] [--idle 30]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop

from bench.roundtrip import SERVER, Cloud, greet, process

ECHO = {"command": SERVER[0], "args": SERVER[1:]}
BRIDGE = [sys.executable, "bridge_connector.py"]


def settings(folder: str, servers: int, urls: list[str]) -> str:
    """A settings file; its path."""
    data: dict[str, Any] = {"mcpServers": {f"s{number}": ECHO for number in range(servers)}}
    data["endpoints"] = {f"e{number}": {"url": url} for number, url in enumerate(urls)}
    path = Path(folder, f"settings-{servers}-{len(urls)}.json")
    path.write_text(json.dumps(data))
    return str(path)


def uss(pid: int) -> float:
    """Memory that is the process's alone, KiB."""
    return float(psutil.Process(pid).memory_full_info().uss / 1024)


async def with_endpoints(folder: str, number: int, servers: int = 1) -> tuple[float, int]:
    """The bridge's memory (KiB) and threads with so many greeted endpoints."""
    async with Cloud.open() as cloud:
        urls = [f"{cloud.url}-{index}" for index in range(number)]
        async with process(BRIDGE, MCP_CONFIG=settings(folder, servers, urls), VOICE_BRIDGE_DATA=folder) as bridge:
            for _ in range(number):
                await greet(await cloud.connection())
            await asyncio.sleep(1)
            return uss(bridge.pid), psutil.Process(bridge.pid).num_threads()


async def idle(folder: str, seconds: float) -> float:
    """Percent of a core that the bridge uses when nothing happens, with five servers and one endpoint."""
    async with (
        Cloud.open() as cloud,
        process(BRIDGE, MCP_CONFIG=settings(folder, 5, [cloud.url]), VOICE_BRIDGE_DATA=folder) as bridge,
    ):
        await greet(await cloud.connection())
        await asyncio.sleep(2)
        times = psutil.Process(bridge.pid).cpu_times
        before, began = times(), time.monotonic()
        await asyncio.sleep(seconds)
        after = times()
        used = after.user + after.system - before.user - before.system
        return 100 * used / (time.monotonic() - began)


async def run(arguments: argparse.Namespace, folder: str) -> None:
    """Prints the figures."""
    few, _ = await with_endpoints(folder, 1)
    many, _ = await with_endpoints(folder, arguments.endpoints)
    each = (many - few) / (arguments.endpoints - 1)
    print(f"{arguments.endpoints} endpoints: {many / 1024:.0f} MiB USS, {each:.0f} KiB for each")
    memory, threads = await with_endpoints(folder, 1, arguments.servers)
    print(f"{arguments.servers} servers: {memory / 1024:.0f} MiB USS of the bridge itself, {threads} threads")
    print(f"idle: {await idle(folder, arguments.idle):.2f} % of a core")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--idle", type=float, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(run(arguments, folder))


if __name__ == "__main__":
    main()
