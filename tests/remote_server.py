"""A remote MCP server made with the SDK, on loopback, to be run as a process of its own.

Modes: `json`: answers are JSON bodies instead of event streams. `modern`: refuses `initialize`, as a server of
2026-07-28 alone does. `token=WORD`: what each request must bring as a bearer token.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LIFETIME = 300.0


class Sum(BaseModel):
    """A structured result."""

    total: int
    exact: bool


class Wish(BaseModel):
    """What the `ask` tool asks for."""

    colour: str


def build() -> MCPServer[Any]:
    """The server: one tool for each thing that a result can be or do."""
    server = MCPServer("remote", instructions="Ask me anything.", version="1.2.3")

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def add(a: int, b: int) -> Sum:
        return Sum(total=a + b, exact=True)

    @server.tool()
    async def steps(number: int, ctx: Context[Any]) -> str:
        for step in range(1, number + 1):
            await ctx.report_progress(step, number)
        return f"{number} steps"

    @server.tool()
    async def wait(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "waited"

    @server.tool()
    async def pid() -> str:
        return str(os.getpid())

    @server.tool()
    async def ask(ctx: Context[Any]) -> str:
        answer = await ctx.elicit("Which colour?", Wish)
        return f"{answer.action}: {answer.data.colour if answer.action == 'accept' else None}"

    @server.tool()
    async def grow(ctx: Context[Any]) -> str:
        async def grown() -> str:
            return "I am new"

        server.add_tool(grown, name="grown")
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        return "grew"

    @server.prompt()
    def greet(who: str) -> str:
        return f"Greet {who}."

    @server.resource("memo://one")
    def memo() -> str:
        return "a memo"

    return server


class Gate:
    """Middleware that asks for the token, and can refuse the older era's handshake."""

    def __init__(self, app: ASGIApp, token: str, modern: bool) -> None:
        self._app, self._token, self._modern = app, token, modern

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if self._token and headers.get("authorization") != f"Bearer {self._token}":
            await _answer(send, 401, {"error": "unauthorized"})
            return
        if self._modern and scope["method"] == "POST":
            first = await receive()
            body = first.get("body", b"")
            asked = json.loads(body) if body and not first.get("more_body") else {}
            if asked.get("method") == "initialize":
                error = {"code": -32022, "message": "initialize is not spoken here"}
                await _answer(send, 400, {"jsonrpc": "2.0", "id": asked["id"], "error": error})
                return
            receive = _replaying(first, receive)
        await self._app(scope, receive, send)


def _replaying(first: Message, receive: Receive) -> Receive:
    waiting = [first]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def _answer(send: Send, status: int, body: Mapping[str, object]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def serve(told: Connection, transport: str, port: int, *modes: str) -> None:
    """Tells its port (0: any free one) and serves until it is killed, or for LIFETIME seconds."""
    clock = threading.Timer(LIFETIME, lambda: os._exit(70))
    clock.daemon = True
    clock.start()
    server = build()
    app: ASGIApp = server.sse_app() if transport == "sse" else server.streamable_http_app(json_response="json" in modes)
    token = next((mode.removeprefix("token=") for mode in modes if mode.startswith("token=")), "")
    listener = socket.create_server(("127.0.0.1", port))
    told.send(listener.getsockname()[1])
    config = uvicorn.Config(Gate(app, token, "modern" in modes), log_level="error", lifespan="on")
    uvicorn.Server(config).run([listener])
