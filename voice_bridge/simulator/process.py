"""A bridge as a process of its own, started as a user starts one; its log is read, and it is always stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_READY = re.compile(
    r"(?P<name>[^\s:\[\]]+)\]?: ready in (?P<seconds>\d+(?:\.\d+)?) ?s\b(?:.*?(?P<tools>\d+) tools?\b)?"
)
_LONGEST_LINE = 500
_STOP_WITHIN = 8.0  # seconds: the bridge's own ladder for its children takes four


class BridgeEnded(Exception):
    """The bridge process ended by itself; the message tells its exit status."""


@dataclass(frozen=True, slots=True)
class ServerReady:
    """What a bridge's log tells of a server: seconds it took to start, and its tools where they are counted."""

    name: str
    seconds: float
    tools: int | None


class BridgeProcess:
    """A running bridge, used as an async context manager. Its stdout and stderr are its log.

    It gets a session of its own, so that a Ctrl-C at the terminal reaches only whoever started it, who then stops
    it in order. Opening raises OSError when the command cannot be run.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.command = list(command)
        self.started_at = time.monotonic()
        self.servers: list[ServerReady] = []
        self.last_lines: deque[str] = deque(maxlen=12)
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Future[None] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running.pid

    async def ended(self) -> None:
        """Wait for the end of the process; it comes as BridgeEnded. The log has been read to its end by then."""
        status = await self._running.wait()
        with suppress(TimeoutError):  # a child that lives on may hold the log open
            await asyncio.wait_for(asyncio.shield(self._reading), 1)
        raise BridgeEnded(f"the bridge ended with {_status(status)}")

    async def __aenter__(self) -> Self:
        self.started_at = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = asyncio.ensure_future(self._read_log())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_WITHIN)
        except TimeoutError:
            with suppress(ProcessLookupError):
                _kill(process)
            await process.wait()
        finally:
            self._reading.cancel()

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    @property
    def _reading(self) -> asyncio.Future[None]:
        assert self._reader is not None
        return self._reader

    async def _read_log(self) -> None:
        stdout = self._running.stdout
        assert stdout is not None
        rest = b""
        while chunk := await stdout.read(65_536):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                self._take(line.decode("utf-8", "replace").rstrip())
            rest = rest[-65_536:]
        if rest:
            self._take(rest.decode("utf-8", "replace").rstrip())

    def _take(self, line: str) -> None:
        line = line[:_LONGEST_LINE]
        if line:
            self.last_lines.append(line)
        if found := _READY.search(line):
            tools = found["tools"]
            self.servers.append(ServerReady(found["name"], float(found["seconds"]), int(tools) if tools else None))


def _kill(process: asyncio.subprocess.Process) -> None:
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _status(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
