"""The log: one reader of the board. Each line has date, time and level; it is text or JSON, known secrets masked."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal, TextIO

from voice_bridge.core.facts import Noise, ServerSaid
from voice_bridge.observe.wording import lines_of
from voice_bridge.quota import Quota
from voice_bridge.runtime.board import Told
from voice_bridge.secrets import mask
from voice_bridge.text import one_line

LOG = logging.getLogger("voice_bridge")
_SHOWN = ("server", "endpoint", "state")
Format = Literal["text", "json"]


class LogReader:
    """Writes what the board tells; what somebody else makes us write is limited for each of them."""

    def __init__(self) -> None:
        self._quotas: dict[str, Quota] = {}

    def __call__(self, told: Told) -> None:
        fact = told.fact
        if isinstance(fact, ServerSaid):
            admitted, held = self._quotas.setdefault(fact.server, Quota()).admit(time.monotonic())
            if held:
                LOG.info("%s: (%d more lines)", fact.server, held)
            if not admitted:
                return
        elif isinstance(fact, Noise) and fact.held:
            LOG.info("%s: (%d more lines)", fact.subject, fact.held)
        for line in lines_of(fact):
            text = f"{line.subject}: {line.text}" if line.subject else line.text
            LOG.log(line.level, "%s", text, extra={"told": told})


class _Text(logging.Formatter):
    """Date, time, level, message on one line: control characters (a child's terminal codes) escaped, long text cut."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return one_line(mask(super().format(record)))  # the cut could leave half a secret that no longer matches


class _Json(logging.Formatter):
    """One object a line: time (ISO 8601, UTC), level, message, and what the fact behind it says."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {"time": f"{when}.{record.msecs:03.0f}Z", "level": record.levelname.lower()}
        told = getattr(record, "told", None)
        if isinstance(told, Told):
            entry["event"] = type(told.fact).__name__
            entry |= {
                key: value for key, value in told.fact._asdict().items() if key in ("server", "endpoint", "state")
            }
        entry["message"] = one_line(mask(super().format(record)))
        return json.dumps(entry, ensure_ascii=False)


def configure(
    stream: TextIO | None = None, *, quiet: bool = False, format: Format = "text", level: str = "info"
) -> None:
    """Sends the log to a stream, stderr by default; `quiet` keeps to errors."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Text())
    # Other packages' warnings go the same way: an address in one of them is masked too.
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.ERROR if quiet else level.upper())
