"""A stdio server made with the SDK, which speaks both eras of the protocol, with one tool for each thing it can ask."""

from __future__ import annotations

import warnings

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import Completion, CompletionArgument, SamplingMessage, TextContent
from pydantic import BaseModel

warnings.simplefilter("ignore")
server = MCPServer("dual")
cancelled: list[str] = []


class Name(BaseModel):
    """What `elicit` asks for."""

    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
async def slow(ctx: Context) -> str:
    """Tells of its progress once and waits until it is cancelled."""
    await ctx.report_progress(1, 2, "half")
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.append("slow")
    return "never"


@server.tool()
def cancellations() -> int:
    """How many calls were cancelled."""
    return len(cancelled)


@server.tool()
async def sample(ctx: Context) -> str:
    """Asks the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    said = await ctx.session.create_message([question], max_tokens=5)
    assert isinstance(said.content, TextContent)
    return said.content.text


@server.tool()
async def elicit(ctx: Context) -> str:
    """Asks the user."""
    told = await ctx.elicit("who?", Name)
    return told.data.name if told.action == "accept" else told.action


@server.tool()
async def roots(ctx: Context) -> list[str]:
    """Asks for the client's folders."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@server.tool()
async def log(ctx: Context) -> str:
    """Logs at two levels."""
    await ctx.debug("small")
    await ctx.error("large")
    return "logged"


@server.prompt()
def greet(who: str) -> str:
    """Greets."""
    return f"Greet {who}."


@server.resource("memo://{name}")
def memo(name: str) -> str:
    """A memo."""
    return f"memo {name}"


@server.completion()  # type: ignore[no-untyped-call,untyped-decorator]
async def complete(ref: object, argument: CompletionArgument, context: object) -> Completion:
    return Completion(values=[argument.value + "lice"])


if __name__ == "__main__":
    server.run()
