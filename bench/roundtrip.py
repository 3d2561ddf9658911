"""What the bridge costs, in one run on one machine: compare the ratios, the absolute figures are the machine's.

    python bench/roundtrip.py [--peer "COMMAND"] [--calls N] [--rounds N] [--json FILE]

A call through the bridge is set against the least it could cost: a bare WebSocket echo by another process plus a
direct call over the pipes of the same server. The three are timed in turns, so that noise meets all of them.
`--peer` measures another bridge command on the same work, with MCP_ENDPOINT and MCP_CONFIG in its environment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop
from websockets.asyncio.server import ServerConnection, serve

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SERVER = [sys.executable, str(HERE / "echo_server.py")]
IN_FLIGHT = 64
WARM_UP = 200
ECHO = """
import asyncio, os, sys, uvloop
from websockets.asyncio.client import connect
async def main():
    async with connect(os.environ["MCP_ENDPOINT"], compression=None) as socket:
        while True:
            await socket.send(await socket.recv(decode=False), text=True)
uvloop.run(main())
"""
Once = Callable[[int], Awaitable[None]]


def call(id_: int) -> bytes:
    """The frame of one tools/call."""
    params = {"name": "echo", "arguments": {"text": "hello"}}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}).encode()


class Cloud:
    """A WebSocket server that hands over each connection."""

    def __init__(self) -> None:
        self._connections: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self._done = asyncio.Event()
        self.url = ""

    async def _accept(self, connection: ServerConnection) -> None:
        self._connections.put_nowait(connection)
        await connection.wait_closed()

    async def connection(self, timeout: float = 60) -> ServerConnection:
        """The next connection."""
        return await asyncio.wait_for(self._connections.get(), timeout)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls) -> AsyncIterator[Cloud]:
        """A cloud on a free port of the loopback."""
        cloud = cls()
        async with serve(cloud._accept, "127.0.0.1", 0, compression=None, max_size=None, ping_interval=None) as server:
            cloud.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp/?token=bench-token-1"
            yield cloud


@contextlib.asynccontextmanager
async def process(command: list[str], **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that is ended with the block."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={**os.environ, **environ}, cwd=ROOT
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


async def greet(connection: ServerConnection) -> None:
    """The handshake and the tool list."""
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    await connection.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
    await connection.recv()
    await connection.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    while True:
        await connection.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}))
        if b'"echo"' in await connection.recv(decode=False):
            return


def over_socket(connection: ServerConnection) -> Once:
    """One request and its answer over a WebSocket."""

    async def once(id_: int) -> None:
        await connection.send(call(id_), text=True)
        await connection.recv(decode=False)

    return once


def over_pipes(child: asyncio.subprocess.Process) -> Once:
    """One request and its answer over a child's pipes."""
    stdin, stdout = child.stdin, child.stdout
    assert stdin is not None
    assert stdout is not None

    async def once(id_: int) -> None:
        stdin.write(call(id_) + b"\n")
        await stdout.readline()

    return once


async def microseconds(once: Once, calls: int) -> list[float]:
    """How long each of so many calls took."""
    taken = []
    for id_ in range(10, 10 + calls):
        began = time.perf_counter()
        await once(id_)
        taken.append((time.perf_counter() - began) * 1e6)
    return taken


async def throughput(connection: ServerConnection, calls: int) -> float:
    """Calls per second with 64 in flight."""
    began = time.perf_counter()
    sent = 0
    for _ in range(min(IN_FLIGHT, calls)):
        sent += 1
        await connection.send(call(sent), text=True)
    for _ in range(calls):
        await connection.recv(decode=False)
        if sent < calls:
            sent += 1
            await connection.send(call(sent), text=True)
    return calls / (time.perf_counter() - began)


@dataclass
class Figures:
    """What one bridge was measured at; times in microseconds but for `dial` (s) and `redial` (ms)."""

    p50: float = 0
    p99: float = 0
    floor: float = 0
    calls_per_second: float = 0
    dial: float = 0
    redial: float = 0
    uss: float = 0

    @property
    def ratio(self) -> float:
        """A call through the bridge over the least it could cost."""
        return self.p50 / self.floor


def p(values: list[float], percent: int) -> float:
    """A percentile."""
    return statistics.quantiles(values, n=100)[percent - 1]


async def measure(command: list[str], calls: int, rounds: int, config: str, **environ: str) -> Figures:
    """One bridge on the whole work."""
    figures = Figures()
    bridged: list[float] = []
    piped: list[float] = []
    echoed: list[float] = []
    async with contextlib.AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(Cloud.open())
        mirror = await stack.enter_async_context(Cloud.open())
        began = time.monotonic()
        bridge = await stack.enter_async_context(process(command, MCP_ENDPOINT=cloud.url, MCP_CONFIG=config, **environ))
        connection = await cloud.connection()
        figures.dial = time.monotonic() - began
        await greet(connection)
        child = await stack.enter_async_context(process(SERVER))
        await stack.enter_async_context(process([sys.executable, "-c", ECHO], MCP_ENDPOINT=mirror.url))
        echo = await mirror.connection()
        ways = [(over_socket(connection), bridged), (over_pipes(child), piped), (over_socket(echo), echoed)]
        for once, _ in ways:
            await microseconds(once, WARM_UP)
        for _ in range(rounds):
            for once, taken in ways:
                taken += await microseconds(once, calls)
        await throughput(connection, 1000)
        figures.calls_per_second = max([await throughput(connection, 4 * calls) for _ in range(3)])
        figures.uss = psutil.Process(bridge.pid).memory_full_info().uss / 2**20
        figures.redial = await redial(connection, cloud)
    figures.p50, figures.p99 = p(bridged, 50), p(bridged, 99)
    figures.floor = p(piped, 50) + p(echoed, 50)
    print(f"  direct stdio call      p50 {p(piped, 50):6.0f} µs   p99 {p(piped, 99):6.0f} µs")
    print(f"  bare WebSocket echo    p50 {p(echoed, 50):6.0f} µs   p99 {p(echoed, 99):6.0f} µs")
    print(f"  through the bridge     p50 {figures.p50:6.0f} µs   p99 {figures.p99:6.0f} µs")
    print(f"  ratio p50 to the sum   {figures.ratio:.2f}")
    print(f"  {IN_FLIGHT} in flight           {figures.calls_per_second:,.0f} calls/s")
    print(f"  start to dial          {figures.dial:.2f} s")
    print(f"  greeted after a redial {figures.redial:.1f} ms")
    print(f"  memory of the bridge   {figures.uss:.1f} MiB USS")
    return figures


async def redial(connection: ServerConnection, cloud: Cloud) -> float:
    """Milliseconds from a new connection to a complete tool list; not a number for a bridge that never redials."""
    await connection.close(1012)
    try:
        again = await cloud.connection(10)
    except TimeoutError:
        return math.nan
    began = time.perf_counter()
    await greet(again)
    return (time.perf_counter() - began) * 1000


async def run(arguments: argparse.Namespace, config: str) -> dict[str, Figures]:
    """All bridges of this run."""
    found: dict[str, Figures] = {}
    ours = [sys.executable, "bridge_connector.py"]
    peers = {
        "this bridge, uvloop": (ours, {}),
        "this bridge, plain asyncio": (ours, {"VOICE_BRIDGE_LOOP": "asyncio"}),
        "the least with these libraries": ([sys.executable, str(HERE / "least_bridge.py"), *SERVER], {}),
        "a thread for each pipe": ([sys.executable, str(HERE / "thread_bridge.py"), *SERVER], {}),
    }
    if arguments.peer:
        peers[f"peer: {arguments.peer}"] = (shlex.split(arguments.peer), {})
    for name, (command, environ) in peers.items():
        print(f"{name}:")
        found[name] = await measure(command, arguments.calls, arguments.rounds, config, **environ)
    best, threads = found["this bridge, uvloop"], found["a thread for each pipe"]
    least = found["the least with these libraries"]
    print(f"p50 against the least with these libraries: {best.p50 / least.p50:.2f}")
    print(f"calls/s against a thread for each pipe: {best.calls_per_second / threads.calls_per_second:.1f} ×")
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer", help="another bridge's command, measured on the same work")
    parser.add_argument("--calls", type=int, default=1000, help="calls in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mcp_settings.json")
        config.write_text(json.dumps({"mcpServers": {"echo": {"command": SERVER[0], "args": SERVER[1:]}}}))
        found = uvloop.run(run(arguments, str(config)))
    if arguments.json:
        arguments.json.write_text(
            json.dumps({name: vars(each) | {"ratio": each.ratio} for name, each in found.items()})
        )


if __name__ == "__main__":
    main()
