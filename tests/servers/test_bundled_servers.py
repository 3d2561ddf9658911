"""What every bundled server promises: it starts in every way it may be started, and garbage does not end it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.servers.stdio_client import INITIALIZE, ROOT, StdioClient, names

TOOLS = {
    "math_evaluator": ["calculate"],
    "clock": ["get_datetime"],
    "identifiers": ["get_uuid"],
    "database": ["query_database", "describe_database"],
    "toolserver": ["search_documents", "list_documents", "query_database", "calculate"],
}
GARBAGE = [
    b"42",
    b"null",
    b"[]",
    b"{",
    b'"x"',
    b"\xff\xfe",
    b'{"jsonrpc":"2.0"}',
    b'{"id":8,"method":"ping"}',
    b"[" * 100_000,
]
BATCH = (
    b'[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},'
    b'{"jsonrpc":"2.0","id":6,"method":"tools/list"}]'
)


@pytest.mark.parametrize("name", TOOLS)
def test_runs_as_a_module_and_describes_its_tools_for_a_model(name: str, tmp_path: Path) -> None:
    with StdioClient("-m", f"servers.{name}", env={"VOICE_BRIDGE_DATA": str(tmp_path)}) as client:
        tools = client.request("tools/list")["tools"]

    assert [tool["name"] for tool in tools] == TOOLS[name]
    for tool in tools:
        assert len(tool["description"]) > 60
        assert tool["annotations"]["readOnlyHint"] is True
        assert tool["inputSchema"]["type"] == "object"
        if not tool["name"].endswith("_documents"):
            assert tool["title"]
            assert tool["outputSchema"]["type"] == "object"
    assert list(tmp_path.iterdir()) == [], "a start leaves nothing behind"


@pytest.mark.parametrize("name", TOOLS)
def test_runs_as_a_script_from_any_folder(name: str, tmp_path: Path) -> None:
    # A module of the same name in the working folder must not matter either.
    (tmp_path / "servers.py").write_text("raise SystemExit('the wrong servers')")
    with StdioClient(str(ROOT / "servers" / f"{name}.py"), cwd=tmp_path) as client:
        assert names(client) == TOOLS[name]


@pytest.mark.parametrize("name", TOOLS)
def test_garbage_on_stdin_is_refused_and_the_next_request_answered(name: str) -> None:
    with StdioClient("-m", f"servers.{name}") as client:
        for line in GARBAGE:
            client.write_line(line)
            refusal = client.read()
            assert refusal["id"] is None
            assert refusal["error"]["code"] in (-32700, -32600), line
        client.write_line(b"")
        client.write_line(b"  \r")
        client.write_line(BATCH)
        assert client.read()["error"]["code"] == -32600
        assert names(client) == TOOLS[name]
        assert client.close() == 0


def test_malformed_json_and_malformed_requests_are_told_apart() -> None:
    with StdioClient("-m", "servers.identifiers") as client:
        client.write_line(b"{")
        assert client.read()["error"]["code"] == -32700
        client.write_line(b"42")
        assert client.read()["error"]["code"] == -32600


def test_garbage_before_initialize_does_no_harm() -> None:
    client = StdioClient("-m", "servers.identifiers")
    client.write_line(b"42")
    assert client.read()["error"]["code"] == -32600
    with client:
        assert names(client) == ["get_uuid"]


def test_calls_in_flight_are_answered_when_stdin_ends() -> None:
    client = StdioClient("-m", "servers.math_evaluator")
    client.write({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
    client.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for number in range(1, 51):
        call = {"name": "calculate", "arguments": {"expression": f"{number} + 1"}}
        client.write({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})

    assert client.close() == 0
    results = {answer["id"]: answer["result"] for answer in (client.read(1.0) for _ in range(51))}
    values = {number: results[number]["structuredContent"]["value"] for number in range(1, 51)}
    assert values == {number: number + 1 for number in range(1, 51)}


@pytest.mark.parametrize("name", TOOLS)
async def test_speaks_with_the_sdk_client(name: str) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-m", f"servers.{name}"], cwd=ROOT)
    async with asyncio.timeout(30), stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == TOOLS[name]
        if name == "math_evaluator":
            result = await session.call_tool("calculate", {"expression": "2**128"})
            assert result.structured_content == {"status": "success", "value": 2**128, "text": str(2**128)}
            assert json.loads(getattr(result.content[0], "text", "")) == result.structured_content
