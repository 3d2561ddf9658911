"""A bridge as a process of its own, started as a user starts one; its log is kept, and it is always stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

_FACTS_VARIABLE = "VOICE_BRIDGE_FACTS"
_LONGEST_LINE = 500
_STOP_WITHIN = 8.0  # seconds: the bridge's own ladder for its children takes four


class BridgeEnded(Exception):
    """The bridge process ended by itself; the message tells its exit status."""


@dataclass(frozen=True, slots=True)
class ServerReady:
    """What a bridge tells of a server: seconds it took to start, and how many tools it has."""

    name: str
    seconds: float
    tools: int


class BridgeProcess:
    """A running bridge, used as an async context manager. Its stdout and stderr are its log.

    The log goes to a temporary file: nothing has to drain it, and no grandchild that holds it open can keep us
    waiting, as it could with a pipe. The process gets a session of its own, so that a Ctrl-C at the terminal
    reaches only whoever started it, who then stops it in order. Opening raises OSError when the command cannot be run.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.started_at = time.monotonic()
        self._command = list(command)
        self._folder = tempfile.TemporaryDirectory(prefix="voice-bridge-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name, "bridge.log")
        self._facts = Path(self._folder.name, "facts.jsonl")
        self._environment = {**environment, _FACTS_VARIABLE: str(self._facts)}
        self._lines: list[str] = []
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> list[str]:
        """The lines it has logged so far, each cut to 500 characters; after the end, all that there were."""
        if self._log.is_file():
            text = self._log.read_bytes().decode("utf-8", "replace")
            self._lines = [line[:_LONGEST_LINE].rstrip() for line in text.split("\n") if line.strip()]
        return self._lines

    def servers(self) -> list[ServerReady]:
        """The servers that the bridge said are ready, each once; none of a bridge that keeps no stream of facts."""
        ready = {}
        for fact in self._told():
            if fact.get("kind") == "ServerState" and fact.get("state") == "ready":
                ready[fact["key"]] = ServerReady(fact["server"], fact["took"], fact["tools"])
        return list(ready.values())

    def _told(self) -> list[dict[str, Any]]:
        if not self._facts.is_file():
            return []
        lines = self._facts.read_bytes().split(b"\n")[:-1]  # the last one may be half written
        return [json.loads(line) for line in lines]

    async def ended(self) -> NoReturn:
        """Wait for the end of the process; it comes as BridgeEnded."""
        assert self._process is not None
        status = await self._process.wait()
        raise BridgeEnded(f"the bridge ended with {f'signal {-status}' if status < 0 else f'status {status}'}")

    async def __aenter__(self) -> Self:
        self.started_at = time.monotonic()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                _kill(process)
            await process.wait()
        self.log()
        self._folder.cleanup()


def _kill(process: asyncio.subprocess.Process) -> None:
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
