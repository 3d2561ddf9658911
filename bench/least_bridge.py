"""The least a bridge can be with the same libraries: uvloop, websockets, one pipe, no ids, no router. Not a bridge.

It tells what a call costs before any work is done on it. python bench/least_bridge.py COMMAND …, with MCP_ENDPOINT set.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from typing import cast

import uvloop
from websockets.asyncio.client import connect


class Child(asyncio.SubprocessProtocol):
    """Queues the lines of a child's output."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()
        self.news = asyncio.Event()
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += lines
        self.news.set()


async def main() -> None:
    """Pipes until the WebSocket closes."""
    loop = asyncio.get_running_loop()
    transport, child = await loop.subprocess_exec(Child, *sys.argv[1:], stderr=None)
    stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
    async with connect(os.environ["MCP_ENDPOINT"], compression=None, max_size=None, ping_interval=None) as socket:

        async def up() -> None:
            while True:
                await child.news.wait()
                child.news.clear()
                while child.lines:
                    await socket.send(child.lines.popleft(), text=True)

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(up())
            async for message in socket:
                stdin.write((message.encode() if isinstance(message, str) else message) + b"\n")
            writing.cancel()
    transport.close()


if __name__ == "__main__":
    uvloop.run(main())
