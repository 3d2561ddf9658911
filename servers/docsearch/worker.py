"""The search process: one JSON request a line on stdin, one JSON answer a line on stdout.

Request: {"id": n, "op": "search" | "list", "args": {…}}. Answer: {"id": n, "ok": …} or {"id": n, "error": "…"}.
Several requests are answered at once and out of order. The process leaves as soon as stdin ends, whatever it
is doing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

if not __package__:
    _here = Path(__file__).resolve().parent
    sys.path[:] = [str(_here.parent.parent), *(entry for entry in sys.path if entry != str(_here))]

from servers.docsearch.embedding import quieten
from servers.docsearch.errors import INSTALL_COMMAND, DocumentsError
from servers.docsearch.search import DocumentSearch
from servers.docsearch.settings import DocumentSettings
from servers.docsearch.store import known_schema

THREADS = 4
GRACE = 1.0  # seconds for tidying after stdin ended


class Answers:
    """The one writer of answers."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, answer: dict[str, Any]) -> None:
        """Write one answer; a server that went away is noticed on stdin."""
        with self._lock, suppress(OSError):
            self._stream.write(json.dumps(answer).encode() + b"\n")
            self._stream.flush()


def answer(search: DocumentSearch | DocumentsError, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request."""
    try:
        if isinstance(search, DocumentsError):
            raise search
        operations: dict[str, Callable[..., dict[str, Any]]]
        operations = {"search": search.search, "list": search.documents}
        return {"id": request["id"], "ok": operations[request["op"]](**request["args"])}
    except DocumentsError as error:
        return {"id": request["id"], "error": str(error)}
    except Exception as error:  # noqa: BLE001 — the request ends with what went wrong, the process lives on
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        return {"id": request["id"], "error": f"The document search failed ({reason})."}


def open_search() -> DocumentSearch | DocumentsError:
    """The search that the environment describes, or what every request is answered with instead.

    Chroma is imported here, wholly and alone: two threads importing it and torch at once find each other's
    half-made numpy.
    """
    try:
        known_schema()
        return DocumentSearch(DocumentSettings.from_environment())
    except DocumentsError as error:
        return error
    except (ImportError, OSError) as error:
        return DocumentsError(f"chromadb is installed but broken ({error}). Reinstall it: {INSTALL_COMMAND}")


def warm_up(search: DocumentSearch | DocumentsError) -> None:
    """Load what the first search needs; what is wrong is told by that search."""
    if isinstance(search, DocumentSearch):
        with suppress(DocumentsError):
            search.warm_up()


def main() -> None:
    """Answer until stdin ends."""
    # Keep the pipe for answers only: whatever prints to fd 1, C code included, goes to the log.
    answers = Answers(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    # Ctrl-C in a terminal reaches the whole group; the end of stdin is what ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quieten()
    search = open_search()
    pool = ThreadPoolExecutor(THREADS)
    pool.submit(warm_up, search)
    for line in sys.stdin.buffer:
        pool.submit(lambda request: answers.send(answer(search, request)), json.loads(line))
    # Loading torch or a download cannot be interrupted; the store's copy is all there is to tidy, and the
    # next search process does it where this one is kept from it.
    threading.Timer(GRACE, os._exit, (0,)).start()
    if isinstance(search, DocumentSearch):
        search.close()
    os._exit(0)


if __name__ == "__main__":
    main()
