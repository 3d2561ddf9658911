"""What most bridges are: one child, one WebSocket, and a thread that waits for each pipe. A point of comparison.

python bench/thread_bridge.py COMMAND …, with MCP_ENDPOINT set.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from websockets.asyncio.client import connect


async def main(child: subprocess.Popen[str]) -> None:
    """Pipes until the WebSocket closes."""
    stdin, stdout = child.stdin, child.stdout
    assert stdin is not None
    assert stdout is not None
    async with connect(os.environ["MCP_ENDPOINT"]) as socket, asyncio.TaskGroup() as group:

        async def up() -> None:
            while line := await asyncio.to_thread(stdout.readline):
                await socket.send(line)

        reading = group.create_task(up())
        async for message in socket:
            stdin.write(str(message) + "\n")
            stdin.flush()
        child.kill()
        await reading


if __name__ == "__main__":
    asyncio.run(main(subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)))
