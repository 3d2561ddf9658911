"""What tests of the upper floors share: settings files, a real runtime, a real bridge process, a cable to be cut.

Nothing here stands in for a part of the bridge: children are real processes, clouds and cables real loopback sockets.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import struct
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from voice_bridge import config
from voice_bridge.config import Settings
from voice_bridge.observe import log
from voice_bridge.ports.clients.local import LocalClient
from voice_bridge.runtime.runtime import Runtime

Json = dict[str, Any]

TESTS = Path(__file__).parent
ROOT = TESTS.parent
CHILDREN = str(TESTS / "children.py")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ ")
TOKEN = "Tok3n-that-must-never-show-4711"
QUICK: Json = {"minBackoff": 0.1, "maxBackoff": 0.4, "stableAfter": 0.5}
"""Settings of the bridge that make a test short; the waits they set are real."""


def child(*modes: str, **more: Any) -> Json:
    """A server entry: the misbehaving child in these modes, with other keys of the settings."""
    return {"command": sys.executable, "args": [CHILDREN, *modes], **more}


def python(code: str, *args: str, **more: Any) -> Json:
    """A server entry: a few lines of Python."""
    return {"command": sys.executable, "args": ["-c", code, *args], **more}


def write_settings(
    folder: Path, servers: Mapping[str, Json], endpoints: Mapping[str, Json] | None = None, **bridge: Any
) -> Path:
    """A settings file; the bridge's times are QUICK unless given."""
    folder.mkdir(exist_ok=True)
    path = folder / "mcp_settings.json"
    data: Json = {"mcpServers": servers, "bridge": {**QUICK, **bridge}}
    if endpoints is not None:
        data["endpoints"] = endpoints
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return path


def load(
    folder: Path, servers: Mapping[str, Json], endpoints: Mapping[str, Json] | None = None, **bridge: Any
) -> Settings:
    """Settings as the loader reads them from such a file."""
    return config.load(write_settings(folder, servers, endpoints, **bridge))


@asynccontextmanager
async def running(
    folder: Path, servers: Mapping[str, Json], **bridge: Any
) -> AsyncIterator[tuple[Runtime, LocalClient]]:
    """A runtime with these servers, settled once, and a client of all of them."""
    async with Runtime(load(folder, servers, **bridge), readers=[log.LogReader()]) as runtime:
        assert await runtime.settled(20)
        with runtime.local_client() as client:
            yield runtime, client


def said(result: Json) -> str:
    """The text of a tool's result."""
    return "".join(block.get("text", "") for block in result["content"])


async def eventually(happened: Callable[[], object], within: float = 10.0) -> float:
    """Looks again and again at what announces itself by no event (the process table, a log); the seconds it took."""
    began = time.monotonic()
    while not happened():
        assert time.monotonic() - began < within, f"did not happen within {within:g} s: {happened}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def zombies(pid: int) -> list[int]:
    """The dead children that a process has not waited for."""
    found = []
    for process in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


class Bridge:
    """`bridge_connector.py` as a process of its own, as a user starts it; used as an async context manager.

    Every process it starts, however far removed, carries a mark in its environment, so that `left_behind` finds all.
    At the end no test may find the token or a traceback in the log.
    """

    def __init__(
        self, settings: Path | None, *arguments: str, endpoint: str = "", before: Sequence[str] = (), **environment: str
    ) -> None:
        self.lines: list[str] = []
        self.mark = uuid.uuid4().hex
        self._command = [*before, sys.executable, str(ROOT / "bridge_connector.py"), *arguments]
        inherited = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        self._environ = {
            **inherited,
            "VOICE_BRIDGE_TEST": self.mark,
            **environment,
        }
        self._environ.update({"MCP_CONFIG": str(settings)} if settings else {})
        self._environ.update({"MCP_ENDPOINT": endpoint} if endpoint else {})
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=ROOT,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            limit=2**24,
            start_new_session=True,
        )
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._reading = self._group.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.left_behind(), *([self.pid] if self.process.returncode is None else [])]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        await asyncio.wait_for(self.process.wait(), 10)
        await asyncio.wait_for(self._reading, 10)
        await self._group.__aexit__(None, None, None)
        if error is not None:
            print(self.log)  # pytest shows it with the failure
            return
        assert TOKEN not in self.log
        assert "Traceback" not in self.log

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            async with self._news:
                self._news.notify_all()

    @property
    def pid(self) -> int:
        """The bridge's own process id."""
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything it wrote so far."""
        return "\n".join(self.lines)

    @property
    def messages(self) -> list[str]:
        """The lines of the log without date, time and level in front."""
        return [_STAMP.sub("", line) for line in self.lines]

    def matching(self, pattern: str) -> list[re.Match[str]]:
        """The lines of the log that a pattern fits, without date, time and level in front."""
        return [found for line in self.messages if (found := re.search(pattern, line))]

    async def says(self, pattern: str, times: int = 1, within: float = 15.0) -> re.Match[str]:
        """Waits until a pattern has fitted so many lines; the last of them."""
        try:
            async with asyncio.timeout(within), self._news:
                await self._news.wait_for(lambda: len(self.matching(pattern)) >= times)
        except TimeoutError:
            raise AssertionError(f"not in the log {times} time(s): {pattern}\n{self.log}") from None
        return self.matching(pattern)[times - 1]

    def left_behind(self) -> list[int]:
        """The living processes that this bridge started, directly or not."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = process.environ().get("VOICE_BRIDGE_TEST") == self.mark
                if ours and process.pid != self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    async def end(self, number: int = signal.SIGTERM, within: float = 15.0) -> tuple[int, float]:
        """Sends a signal and waits for the end: the exit status, and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), within), time.monotonic() - began


class Cable:
    """A TCP connection's way through a network that can fail: `cut` resets, `hang` lets nothing arrive.

    With `tls` it is the cloud's TLS front: encrypted on the bridge's side, plain on the cloud's.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._to, self._tls = port, tls
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._flowing.set()
        self._server.close()

    def through(self, url: str) -> str:
        """An address of the far end, led through this cable."""
        url = url.replace("ws://", "wss://") if self._tls else url
        return url.replace(f":{self._to}/", f":{self.port}/")

    def cut(self) -> None:
        """Resets every connection, both ends."""
        for pair in self._pairs:
            for writer in pair:
                reset(writer)
        self._pairs.clear()

    def hang(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._flowing.clear()

    def mend(self) -> None:
        """What was held back arrives late, as after a while without signal."""
        self._flowing.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._flowing.wait()
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
            self._pairs.append((writer, far_writer))
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer))
                both.create_task(self._copy(far_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a TCP connection with RST instead of FIN."""
    if writer.is_closing():
        return
    sock: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def listening(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], **options: Any
) -> AsyncIterator[int]:
    """A raw TCP server on loopback that does as told with each connection; its port."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(converse, options.pop("host", "127.0.0.1"), 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
