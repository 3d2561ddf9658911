"""What every bundled server shares: the form of its answers, and how it listens on stdin."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    TextContent,
)
from pydantic import ValidationError

LINGER = 10.0
"""Seconds in which calls may still be answered after stdin has ended."""


def answer(data: Mapping[str, Any]) -> CallToolResult:
    """Return `data` as a tool's result: structured, and as compact JSON text (a voice has a byte budget).

    Raises ValueError for NaN or Infinity, which JSON cannot hold (RFC 8259 §6).
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=dict(data))


def serve(server: MCPServer) -> None:
    """Serve MCP on stdin and stdout until stdin has ended and the open calls are answered (10 s at most).

    Unlike the SDK's own loop, a line that is no JSON-RPC message is answered with -32700 or -32600 and id null
    (JSON-RPC 2.0 §5), and so is a batch, which MCP has not had since 2025-06-18.
    """
    # The reader blocked on stdin would keep Ctrl-C from ending the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve, server)


async def _serve(server: MCPServer) -> None:
    lowlevel = server._lowlevel_server
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    calls = _OpenCalls()
    async with stdio_server() as (stdin, stdout), anyio.create_task_group() as pumps:

        async def listen() -> None:
            async with to_server:
                async for item in stdin:
                    if isinstance(item, SessionMessage):
                        calls.came(item)
                        await to_server.send(item)
                    elif refusal := _refusal(item):
                        await stdout.send(refusal)
                with anyio.move_on_after(LINGER):
                    await calls.all_answered()

        async def speak() -> None:
            async with stdout:
                async for message in from_server:
                    await stdout.send(message)
                    calls.went(message)

        pumps.start_soon(listen)
        pumps.start_soon(speak)
        await lowlevel.run(from_client, to_client, lowlevel.create_initialization_options())


class _OpenCalls:
    """Which requests still wait for their answer."""

    def __init__(self) -> None:
        self._ids: set[str | int] = set()
        self._answered = anyio.Event()

    def came(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # A cancelled request may stay unanswered for good.
            self._drop((message.params or {}).get("requestId"))

    def went(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._drop(item.message.id)

    def _drop(self, identifier: str | int | None) -> None:
        if identifier is not None:
            self._ids.discard(identifier)
        self._answered.set()

    async def all_answered(self) -> None:
        while self._ids:
            self._answered = anyio.Event()
            await self._answered.wait()


def _refusal(error: Exception) -> SessionMessage | None:
    """Return the answer to a line that could not be read, None for a blank one."""
    code, reason = PARSE_ERROR, "The line is not JSON."
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] != "json_invalid":
            code, reason = (
                INVALID_REQUEST,
                "The line is not a JSON-RPC 2.0 request or notification; batches are not taken.",
            )
        elif not str(first["input"]).strip():
            return None
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=reason)))
