"""A bridge in its smallest form, as a peer for the tests of the cloud: one stdio child, one WebSocket, a pipe between.

    MCP_ENDPOINT=ws://… python tiny_bridge.py [--redial] CHILD ARGS …

It dials once (with `--redial` again and again, 0.1 s apart) and ends with its child.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed


async def pipe(ws: ClientConnection, child: asyncio.subprocess.Process) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    async def up() -> None:
        async for line in stdout:
            await ws.send(line.decode().rstrip("\n"))
        await ws.close()

    async def down() -> None:
        async for frame in ws:
            stdin.write((frame if isinstance(frame, bytes) else frame.encode()) + b"\n")
            await stdin.drain()

    async with asyncio.TaskGroup() as tasks:
        lines = tasks.create_task(up())
        await down()
        lines.cancel()


async def main(command: list[str], redial: bool) -> None:
    url = os.environ["MCP_ENDPOINT"]
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
    )
    name = command[-1].rsplit("/", 1)[-1]
    print(f"{name}: ready in 0.01 s, 3 tools", file=sys.stderr, flush=True)
    if facts := os.environ.get("VOICE_BRIDGE_FACTS"):
        fact = {"kind": "ServerState", "server": name, "key": name, "state": "ready", "took": 0.01, "tools": 3}
        Path(facts).write_text(json.dumps(fact) + "\n", encoding="utf-8")  # noqa: ASYNC240
    try:
        while True:
            try:
                async with connect(url, max_size=None) as ws:
                    await pipe(ws, child)
            except* (ConnectionClosed, OSError) as errors:
                print(f"connection lost: {errors.exceptions[0]!r}", file=sys.stderr)
            if not redial or child.returncode is not None:
                return
            await asyncio.sleep(0.1)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    again = arguments[0] == "--redial"
    try:
        asyncio.run(main(arguments[again:], again))
    except KeyboardInterrupt:
        sys.exit(0)
