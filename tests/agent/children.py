"""A `ToolSource` over one real stdio server, without the runtime: the loop's tests need no more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from voice_bridge.errors import CallError

Json = dict[str, Any]
TROUBLE = ("-m", "tests.agent.trouble_server")
ROOT = Path(__file__).parents[2]


class ChildTools:
    """Speaks JSON-RPC with a child process; validates nothing, so that faulty servers stay faulty."""

    def __init__(self, child: asyncio.subprocess.Process, server: str) -> None:
        self._child = child
        self.server = server
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._count = 0

    async def tools(self) -> list[Json]:
        listed = await self._request("tools/list", {})
        return list(listed["tools"])

    async def call(self, name: str, arguments: Json, *, timeout: float | None = None) -> Json:
        async with asyncio.timeout(timeout or 30):
            return await self._request("tools/call", {"name": name, "arguments": arguments})

    def owner(self, name: str) -> str:
        return self.server

    async def start(self) -> None:
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        await self._request("initialize", parameters)
        self._send({"method": "notifications/initialized"})

    async def _request(self, method: str, params: Json) -> Json:
        if self._child.returncode is not None:
            raise CallError(-32000, f"server {self.server} is down: exit code {self._child.returncode}")
        self._count += 1
        number = self._count
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        try:
            message = await future
        except asyncio.CancelledError:
            self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        if "error" in message:
            raise CallError(message["error"]["code"], message["error"]["message"])
        result: Json = message["result"]
        return result

    def _send(self, message: Json) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def read(self) -> None:
        """Gives answers to those who wait, until the child is gone."""
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            message = json.loads(line)
            future = self._waiting.pop(message["id"], None)
            if future is not None and not future.done():
                future.set_result(message)
        code = await self._child.wait()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(CallError(-32000, f"server {self.server} is down: exit code {code}"))


@asynccontextmanager
async def child_tools(*arguments: str, server: str = "trouble", **environment: str) -> AsyncIterator[ChildTools]:
    """The tools of `python ARGUMENTS`, for as long as the block lasts."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
        cwd=ROOT,
        limit=2**26,
    )
    source = ChildTools(child, server)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(source.read())
        try:
            async with asyncio.timeout(40):
                await source.start()
            yield source
        finally:
            if child.returncode is None:
                child.kill()
            async with asyncio.timeout(10):
                await asyncio.wait([reading])
