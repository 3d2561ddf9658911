"""One connection's own watch: a dial that fails leaves nothing behind, and a cloud that does not read is held back."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.support import Bridge, child, eventually, write_settings
from voice_bridge.config import BridgeSettings, EndpointSettings
from voice_bridge.ports.clients.endpoint import CloudConnection
from voice_bridge.ports.clients.websocket import WITHOUT_PONGS
from voice_bridge.simulator import VoiceCloud

INTERVAL = 0.1
FLOOD = 400
HUGE = 1_000_000
"""Together they would be 400 MB in the bridge, were they all answered at once."""
PACE = 0.008
"""Seconds between two requests: about as many as one server answers."""


class Nobody:
    """Hears of a connection and owes nothing."""

    def opened(self) -> None:
        pass

    def received(self, data: bytes) -> None:
        pass

    def owes(self) -> bool:
        return False

    def answered(self) -> bool:
        return False


async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that is not what was dialled: it hears, says something else, and closes."""
    await reader.read(64)
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    writer.close()


async def deaf_ear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that hears and never answers, until the other side goes."""
    while await reader.read(4096):
        pass
    writer.close()


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@pytest.mark.parametrize("answers", [True, False], ids=["says something else", "never answers"])
async def test_a_dial_that_fails_leaves_nothing_that_wakes_later(scheme: str, answers: bool) -> None:
    """TLS to a port without TLS among others: the handshake fails before the connection's own set-up is over."""
    loop, broken = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: broken.append(context))
    server = await asyncio.start_server(goodbye if answers else deaf_ear, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        endpoint = EndpointSettings(name="home", url=f"{scheme}://127.0.0.1:{port}/mcp/?token=t")
        dial = CloudConnection(endpoint, BridgeSettings(ping_interval=INTERVAL, ping_timeout=INTERVAL), Nobody())
        running = asyncio.ensure_future(dial.run())
        if not answers:
            await asyncio.sleep(2 * INTERVAL)  # longer than a ping's interval, while the handshake is under way
            dial.hang_up()
        verdict = await asyncio.wait_for(running, 10)
        assert verdict.kind == "transient"
        await asyncio.sleep(2 * WITHOUT_PONGS * INTERVAL)  # what is to be shown is that nothing happens
    assert broken == []
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


class Greedy:
    """A cloud that asks and asks and reads no answer until it is told to."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.asked = asyncio.Event()
        self.answers: set[int] = set()
        self.done = asyncio.Event()

    async def serve(self, connection: ServerConnection) -> None:
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        asking = asyncio.ensure_future(self._ask(connection))
        await self.reads.wait()
        async for frame in connection:
            message = json.loads(frame)
            assert "error" not in message, message
            if "id" in message:
                self.answers.add(message["id"])
            if len(self.answers) == FLOOD:
                self.done.set()
        await asking

    async def _ask(self, connection: ServerConnection) -> None:
        for number in range(FLOOD):
            params = {"name": "t", "arguments": {}}
            request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            await connection.send(json.dumps(request))
            await asyncio.sleep(PACE)
        self.asked.set()


async def test_a_cloud_that_reads_nothing_is_held_back_loses_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    greedy = Greedy()
    async with (
        serve(greedy.serve, "127.0.0.1", 0, max_queue=1, ping_interval=None, compression=None) as server,
        VoiceCloud() as cloud,
    ):
        port = server.sockets[0].getsockname()[1]
        endpoints = {
            "greedy": {"url": f"ws://127.0.0.1:{port}/?token=a", "servers": ["huge"]},
            "polite": {"url": cloud.url, "servers": ["small"]},
        }
        servers = {"huge": child(f"big={HUGE}"), "small": child()}
        async with Bridge(write_settings(tmp_path, servers, endpoints, callTimeout=120)) as bridge:
            session = await cloud.session()
            await session.ready(15)
            process = psutil.Process(bridge.pid)
            before = process.memory_info().rss
            for number in range(200):
                assert (await session.call("echo", {"text": str(number)}, timeout=5)).text == str(number)
            await asyncio.wait_for(greedy.asked.wait(), 30)
            assert greedy.answers == set()
            assert process.memory_info().rss - before < 60 * 2**20
            greedy.reads.set()
            await asyncio.wait_for(greedy.done.wait(), 60)
            assert greedy.answers == set(range(FLOOD))
            await eventually(lambda: process.memory_info().rss - before < 120 * 2**20, 5)
            assert bridge.matching("^greedy: disconnected") == []
