"""What the tests of the cloud dial with: a scripted peer on a real WebSocket, and the tiny bridge as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Json = dict[str, Any]

TESTS = Path(__file__).parents[1]
TINY_BRIDGE = [sys.executable, str(TESTS / "simulator" / "tiny_bridge.py")]
CHILD = [sys.executable, str(TESTS / "children.py")]


def answer_politely(request: Json) -> Json:
    """The result of any request, with one tool, `where.am i`, which answers with the params it got."""
    method = request["method"]
    if method == "initialize":
        return {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "peer", "version": "0"}}
    if method == "tools/list":
        return {"tools": [{"name": "where.am i", "description": "d", "inputSchema": {"type": "object"}}]}
    return {
        "content": [
            {"type": "text", "text": json.dumps(request.get("params"))},
            {"type": "text", "text": "and more"},
        ]
    }


@asynccontextmanager
async def peer(
    url: str, answer: Callable[[Json], Json | None] = answer_politely, **options: Any
) -> AsyncIterator[ClientConnection]:
    """A connection whose requests are answered by a function; None leaves a request unanswered."""

    async def converse(ws: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for data in ws:
                request = json.loads(data)
                result = answer(request) if "id" in request and "method" in request else None
                if result is not None:
                    await ws.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))

    async with connect(url, compression=None, max_size=None, **options) as ws, asyncio.TaskGroup() as tasks:
        talk = tasks.create_task(converse(ws))
        try:
            yield ws
        finally:
            talk.cancel()


@asynccontextmanager
async def tiny_bridge(url: str, *modes: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The tiny bridge with a child in these modes; stopped at the end."""
    process = await asyncio.create_subprocess_exec(
        *TINY_BRIDGE, *CHILD, *modes, env={**os.environ, "MCP_ENDPOINT": url}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 10)
