"""The toolserver over stdio and over real HTTP, with the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.servers import test_database_sqlite as on_sqlite
from tests.servers import test_math_evaluator as arithmetic
from tests.servers.stdio_client import INITIALIZE, ROOT, StdioClient

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
TOKEN = "a-token-for-tests"


def _settings(data: Path) -> dict[str, str]:
    return {"VOICE_BRIDGE_DATA": str(data), "DATABASE_URL": "", "DATABASE_TIMEOUT": "4"}


@contextmanager
def http_server(data: Path, *arguments: str, token: str = "", env: dict[str, str] | None = None) -> Iterator[str]:
    """Run the toolserver and yield the URL it tells; it must then leave on SIGTERM with status 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "servers.toolserver", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={
            **os.environ,
            "VOICE_BRIDGE_DATA": str(data),
            "TOOLSERVER_TOKEN": token,
            "DATABASE_URL": "",
            **(env or {}),
        },
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline().decode()
        assert told.startswith("Serving MCP at http://"), told
        yield told.split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with http_server(tmp_path_factory.mktemp("data"), "--transport", "streamable-http") as found:
        yield found


@asynccontextmanager
async def session(url: str, token: str = "") -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(60),
        httpx2.AsyncClient(headers=headers, timeout=20) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as opened,
    ):
        await opened.initialize()
        yield opened


def status(url: str, **headers: str) -> int:
    return httpx2.post(url, json=HELLO, headers={**HEADERS, **headers}, timeout=20).status_code


async def test_offers_the_four_tools_over_http(url: str) -> None:
    async with session(url) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {"search_documents", "query_database", "calculate", "list_documents"}
        result = await client.call_tool("calculate", {"expression": "200 + 15%"})
        assert result.structured_content == {"status": "success", "value": 230}
        sql = "SELECT sum(salary) FROM employees WHERE department = 'Engineering'"
        result = await client.call_tool("query_database", {"sql": sql})
        assert result.structured_content is not None
        assert result.structured_content["rows"] == [[708000]]
        result = await client.call_tool("query_database", {"sql": "DELETE FROM employees"})
        assert result.is_error


async def test_the_calculators_cases_hold_over_http(url: str) -> None:
    async with session(url) as client:
        for expression, value in arithmetic.ANSWERS:
            result = await client.call_tool("calculate", {"expression": expression})
            assert result.structured_content is not None, expression
            assert result.structured_content["value"] == pytest.approx(value, rel=1e-14, abs=0), expression
        for expression in [*(refusal[0] for refusal in arithmetic.REFUSALS), *arithmetic.GIANTS]:
            assert (await client.call_tool("calculate", {"expression": expression})).is_error, expression[:40]
        assert not (await client.call_tool("calculate", {"expression": "1+1"})).is_error


async def test_the_databases_cases_hold_over_http(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(on_sqlite.SCHEMA)
    before = path.read_bytes()
    with http_server(tmp_path, "--transport", "http", env={"DATABASE_URL": str(path)}) as url:
        async with session(url) as client:
            for sql, rows in on_sqlite.HARMLESS:
                result = await client.call_tool("query_database", {"sql": sql})
                assert result.structured_content is not None, sql
                assert result.structured_content["rows"] == rows, sql
            attacks = [attack.format(folder=tmp_path) for attack in on_sqlite.ATTACKS if "\\" not in attack]
            for sql in [*(refusal[0] for refusal in on_sqlite.REFUSALS), *attacks]:
                assert (await client.call_tool("query_database", {"sql": sql})).is_error, sql[:60]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["shop.db"]


async def test_two_clients_at_once_do_not_wait_for_each_other(url: str) -> None:
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    async with session(url) as one, session(url) as other:
        slow = asyncio.ensure_future(one.call_tool("query_database", {"sql": endless}))
        result = await other.call_tool("calculate", {"expression": "1+1"})
        assert result.structured_content == {"status": "success", "value": 2}
        assert not slow.done()
        assert (await slow).is_error


def test_on_loopback_a_foreign_host_or_origin_is_refused(url: str) -> None:
    assert status(url) == 200
    assert status(url, Host="evil.example") == 421
    assert status(url, Host="evil.example:8765") == 421
    assert status(url, Origin="https://evil.example") == 403
    assert status(url, Origin="null") == 403
    assert status(url, Origin=url.removesuffix("/mcp")) == 200


def test_listens_on_loopback_only_by_default(url: str) -> None:
    port = int(url.removesuffix("/mcp").rpartition(":")[2])
    connections: list[Any] = psutil.net_connections("tcp")
    addresses = {
        connection.laddr.ip
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    assert addresses == {"127.0.0.1"}


async def test_elsewhere_only_the_right_token_works(tmp_path: Path) -> None:
    arguments = ("--transport", "streamable-http", "--host", "0.0.0.0")
    with http_server(tmp_path, *arguments, token=TOKEN) as told:
        url = told.replace("0.0.0.0", "127.0.0.1")
        assert status(url) == 401
        assert status(url, Authorization="Bearer wrong") == 401
        assert status(url, Authorization=f"Basic {TOKEN}") == 401
        assert status(url, Authorization=f"Bearer {TOKEN}x") == 401
        assert status(url, Authorization=f"Bearer {TOKEN}") == 200
        async with session(url, TOKEN) as client:
            result = await client.call_tool("calculate", {"expression": "6 × 7"})
            assert result.structured_content == {"status": "success", "value": 42}


def test_a_token_counts_on_loopback_too(tmp_path: Path) -> None:
    with http_server(tmp_path, token=TOKEN, env={"MCP_TRANSPORT": "streamable-http"}) as url:
        assert status(url) == 401
        assert status(url, Authorization=f"Bearer {TOKEN}") == 200
        assert status(url, Authorization=f"Bearer {TOKEN}", Host="evil.example") == 421


def _run(arguments: Sequence[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "servers.toolserver", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        cwd=ROOT,
        env={**os.environ, **env},
        check=False,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "myhost.example"])
def test_refuses_to_start_elsewhere_without_a_token(host: str) -> None:
    done = _run(["--transport", "http", "--port", "0", "--host", host], TOOLSERVER_TOKEN="")

    assert done.returncode == 2
    assert "TOOLSERVER_TOKEN" in done.stderr


def test_a_taken_port_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = _run(["--transport", "http", "--port", str(taken.getsockname()[1])])

    assert done.returncode == 1
    assert "choose another --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_transport_is_refused() -> None:
    done = _run([], MCP_TRANSPORT="carrier-pigeon")

    assert done.returncode == 2
    assert "carrier-pigeon" in done.stderr


def test_the_tools_answer_over_stdio_too(tmp_path: Path) -> None:
    with StdioClient(
        "-m", "servers.toolserver", env={"VOICE_BRIDGE_DATA": str(tmp_path), "DATABASE_URL": ""}
    ) as client:
        assert client.call("calculate", expression="2^8").data["value"] == 256
        assert client.call("query_database", sql="SELECT count(*) FROM employees").data["rows"] == [[12]]
