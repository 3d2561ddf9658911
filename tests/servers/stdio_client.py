"""A plain MCP client on a real child's pipes: what it reads are the bytes of the wire, and no wait is unbounded."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
INITIALIZE = {
    "protocolVersion": "2024-11-05",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "0"},
}


@dataclass(frozen=True)
class Answer:
    """What a tool call came back with."""

    failed: bool
    text: str
    data: Any


class StdioClient:
    """One child, from start to the end of its stdin."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        command: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, "PYTHONUTF8": "1", **(env or {})},
        )
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.stderr: list[bytes] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        threading.Thread(target=self._drain, args=(self.process.stdout, self.lines.put), daemon=True).start()
        threading.Thread(target=self._drain, args=(self.process.stderr, self.stderr.append), daemon=True).start()
        self._next_id = 0

    @staticmethod
    def _drain(stream: Any, take: Any) -> None:
        for line in stream:
            take(line)

    def __enter__(self) -> Self:
        try:
            self.request("initialize", INITIALIZE)
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """End stdin and return the child's exit status, which must come within 10 s."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
            raise

    def write(self, message: Any) -> None:
        """Send one message."""
        self.write_line(json.dumps(message).encode())

    def write_line(self, line: bytes) -> None:
        """Send one line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read_line(self, timeout: float = 20.0) -> bytes:
        """Return the next line of the child's stdout."""
        try:
            return self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(
                f"no answer within {timeout} s; exit status {self.process.poll()}, stderr: "
                f"{b''.join(self.stderr[-20:]).decode(errors='replace')}"
            ) from None

    def read(self, timeout: float = 20.0) -> Any:
        """Return the next message; bare NaN and Infinity are no JSON."""
        return json.loads(self.read_line(timeout), parse_constant=_no_constant)

    def request(self, method: str, params: Mapping[str, Any] | None = None, timeout: float = 20.0) -> Any:
        """Send a request and return its result."""
        self._next_id += 1
        self.write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params or {}})
        message = self.read(timeout)
        assert message["id"] == self._next_id, message
        assert "result" in message, message
        return message["result"]

    def call(self, tool: str, timeout: float = 20.0, /, **arguments: Any) -> Answer:
        """Call a tool."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments}, timeout)
        return Answer(bool(result.get("isError")), result["content"][0]["text"], result.get("structuredContent"))

    def fail(self, tool: str, timeout: float = 20.0, /, **arguments: Any) -> str:
        """Call a tool that must refuse, and return its sentence."""
        answer = self.call(tool, timeout, **arguments)
        assert answer.failed, f"{arguments} was not refused: {answer.text[:200]}"
        assert len(answer.text) < 1_000, answer.text
        return answer.text

    @property
    def memory(self) -> int:
        """The child's resident memory in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} on the wire")


def names(client: StdioClient) -> Sequence[str]:
    """Return the names of the child's tools, in its order."""
    return [tool["name"] for tool in client.request("tools/list")["tools"]]
