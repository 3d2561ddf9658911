"""The search's own process, seen from the MCP server.

torch, sentence-transformers and chromadb take seconds to import and print where they like. In a process of
their own they cannot delay `tools/list`, cannot reach the protocol's stdout, and a download that hangs can be
left behind. One request is one JSON line, one answer another; the process leaves when its stdin ends, so a
killed server leaves no orphan.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import DocumentsError

PROGRESS_EVERY = 2.0  # seconds between two progress notices
PATIENCE = 55.0  # seconds; below the bridge's default callTimeout of 60

WORKER = Path(__file__).with_name("worker.py")


class SearchProcess:
    """A child that holds the model and the store; started on first use and again after its death."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pending: dict[int, Future[Any]] = {}
        self._ids = itertools.count(1)

    def start(self) -> None:
        """Start the child if none is running; it begins loading at once. Returns immediately."""
        with self._lock:
            self._running_child()

    async def ask(self, operation: str, arguments: dict[str, Any], progress: Callable[[float], Awaitable[None]]) -> Any:
        """Send one request and wait for its answer, calling `progress(seconds)` every two seconds.

        Raises DocumentsError with the child's own sentence, when the child dies, or after `patience` seconds.
        """
        future = asyncio.wrap_future(self._submit(operation, arguments))
        loop = asyncio.get_running_loop()
        started = loop.time()
        while not future.done():
            left = started + self._patience - loop.time()
            if left <= 0:
                future.cancel()
                raise DocumentsError(
                    f"The document search gave no answer within {self._patience:.0f} s; it is still at work. "
                    "Try again in a moment."
                )
            await asyncio.wait([future], timeout=min(PROGRESS_EVERY, left))
            if not future.done():
                await progress(loop.time() - started)
        return future.result()

    def _submit(self, operation: str, arguments: dict[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            child = self._running_child()
            number = next(self._ids)
            self._pending[number] = future
            line = json.dumps({"id": number, "op": operation, "args": arguments}).encode() + b"\n"
            assert child.stdin is not None
            # A child that died this moment: its reader fails the future with the reason.
            with suppress(OSError):
                child.stdin.write(line)
                child.stdin.flush()
        return future

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._child = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            threading.Thread(target=self._read, args=(self._child,), daemon=True, name="search-answers").start()
        return self._child

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            answer = json.loads(line)
            future = self._pending.pop(answer["id"], None)
            # A future that was cancelled has nobody waiting.
            if future is None or not future.set_running_or_notify_cancel():
                continue
            if "error" in answer:
                future.set_exception(DocumentsError(answer["error"]))
            else:
                future.set_result(answer["ok"])
        code = child.wait()
        with self._lock:
            self._child = None
            lost, self._pending = self._pending, {}
        for future in lost.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    DocumentsError(
                        f"The document search process ended unexpectedly (exit code {code}); "
                        "the next search starts it again. Its last words are in the server's log."
                    )
                )
