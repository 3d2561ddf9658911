"""A child process that speaks MCP over its pipes.

How it is stopped: its stdin is closed, after 2 s its group gets SIGTERM, after 2 s more SIGKILL; what is left of the
group when the leader has gone is ended the same way. Every wait is bounded.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from voice_bridge.config import ServerSettings
from voice_bridge.ports.servers import process
from voice_bridge.ports.servers.port import Oversized, ServerListener

GRACE = 2.0
AFTER_EXIT = 0.2
LAST_WORDS = 20
MOST_UNREAD = 8 * 2**20
LONGEST_STDERR_LINE = 500
STDERR_WITHOUT_NEWLINE = 8192
_KEPT_OF_OVERSIZED = 512
_numbers = itertools.count(1)
_BOM = b"\xef\xbb\xbf"


class Lines:
    """Cuts a byte stream into messages: only 0x0A ends one; BOM, CR and blank lines are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """The messages that this chunk completes."""
        *ended, rest = chunk.split(b"\n")
        done: list[bytes | Oversized] = []
        for piece in ended:
            line = self._finish(piece) if self._size or self._head else piece
            if isinstance(line, bytes):
                line = line.removeprefix(_BOM).strip()
                if len(line) > self._limit:
                    line = Oversized(line[:_KEPT_OF_OVERSIZED] + line[-_KEPT_OF_OVERSIZED:], len(line))
            if line:
                done.append(line)
        if rest:
            self._keep(rest)
        return done

    def _keep(self, piece: bytes) -> None:
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            whole = b"".join(self._parts)
            self._head = self._head or whole[:_KEPT_OF_OVERSIZED]
            self._parts = [whole[-_KEPT_OF_OVERSIZED:]]

    def _finish(self, piece: bytes) -> bytes | Oversized:
        self._keep(piece)
        whole, size, head = b"".join(self._parts), self._size, self._head
        self._parts, self._size, self._head = [], 0, b""
        return Oversized(head + whole[-_KEPT_OF_OVERSIZED:], size) if head else whole


class Child:
    """A running server process. `ended` resolves to the reason once it can no longer answer."""

    def __init__(self, limit: int, hears: ServerListener) -> None:
        loop = asyncio.get_running_loop()
        self.pid: int | None = None
        self.mark = f"{os.getpid()}.{next(_numbers)}"
        self.ended: asyncio.Future[str] = loop.create_future()
        self._exited: asyncio.Future[int] = loop.create_future()
        self._lines, self._hears = Lines(limit), hears
        self._most_unread = min(limit, MOST_UNREAD)
        self._process: process.Process | None = None
        self._stderr = b""
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)

    @classmethod
    async def spawn(
        cls, server: ServerSettings, environ: Mapping[str, str], limit: int, hears: ServerListener
    ) -> Child:
        """Starts the server's command.

        Raises ServerError when the command cannot be found or started.
        """
        env = child_environment(server, environ)
        program = process.resolve(server.command, env["PATH"], server.cwd)
        child = cls(limit, hears)
        marked = {**env, process.MARK: child.mark}
        child._process = await process.spawn(child, [program, *server.args], marked, server.cwd)
        child.pid = child._process.pid
        return child

    # What the process tells (process.Events)

    def wrote(self, fd: int, data: bytes) -> None:
        """Output: messages on 1, the rest of what it has to say on 2."""
        if fd == 1:
            for line in self._lines.feed(data):
                self._hears.received(line)
        else:
            self._read_stderr(data)

    def closed(self, fd: int) -> None:
        """Without its input or its output it can no longer answer, even if it lives."""
        if fd < 2:
            # Mostly this is the process ending; its exit status makes a better reason than the closed pipe.
            reason = "closed its output" if fd else "closed its input"
            asyncio.get_running_loop().call_later(AFTER_EXIT, self._end, reason)

    def exited(self, code: int) -> None:
        """The process has ended and was waited for."""
        self._exited.set_result(code)
        # What it wrote last may still be in the pipes.
        asyncio.get_running_loop().call_later(AFTER_EXIT / 4, self._end, _exit_text(code))

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason + self._said_last())

    def _said_last(self) -> str:
        return f"; it last said: {self._last_words[-1]}" if self._last_words else ""

    # For the runtime

    def send(self, data: bytes) -> bool:
        """Writes one message; False when the child has left so many bytes unread that it gets no more."""
        if self._process is None or (stdin := self._process.stdin).is_closing():
            return True  # it is ending: its calls are answered when it has ended
        if stdin.get_write_buffer_size() > self._most_unread:
            return False
        stdin.write(data + b"\n")
        return True

    async def stop(self) -> None:
        """Ends the child and everything it started."""
        assert self._process is not None
        tree = process.Tree(self._process.pid, self.mark)
        tree.look()
        self._process.stdin.close()
        await self._gone(tree, GRACE)
        for end in (tree.terminate, tree.kill):
            if not await self._gone(tree, 0):
                end()
                await self._gone(tree, GRACE)
        self._process.close()
        self._end("was stopped")

    async def _gone(self, tree: process.Tree, seconds: float) -> bool:
        """Waits for the process and then for the rest of its tree; True when all of it is gone."""
        deadline = time.monotonic() + seconds
        await asyncio.wait([self._exited], timeout=seconds)
        if not self._exited.done():
            return False
        while tree.lives():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def _read_stderr(self, data: bytes) -> None:
        whole = self._stderr + data
        *ended, self._stderr = whole.replace(b"\r", b"\n").split(b"\n")
        if len(self._stderr) > STDERR_WITHOUT_NEWLINE:
            ended, self._stderr = [*ended, self._stderr], b""
        for line in ended[-LAST_WORDS:] if len(ended) > 4 * LAST_WORDS else ended:
            text = line[: LONGEST_STDERR_LINE * 4].decode("utf-8", "replace").strip()[:LONGEST_STDERR_LINE]
            if text:
                self._last_words.append(text)
                self._hears.said(text)


def child_environment(server: ServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The bridge's environment without its secrets, UTF-8 whatever the locale, with the server's own on top."""
    interpreter = str(Path(sys.executable).parent)
    own = {
        **environ,
        "PATH": os.pathsep.join([interpreter, environ.get("PATH", os.defpath)]),
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONUNBUFFERED": "1",
    }
    return {**own, **server.env}


def _exit_text(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
