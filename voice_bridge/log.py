"""One line per event on stderr, with every known secret masked."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from voice_bridge.secrets import mask
from voice_bridge.text import one_line

LOG = logging.getLogger("voice_bridge")


class OneLine(logging.Formatter):
    """Time and message on one line; control characters (a child's terminal codes) escaped, long text cut."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(mask(super().format(record)))  # the cut could leave half a secret that no longer matches


def configure(stream: TextIO | None = None, *, quiet: bool = False) -> None:
    """Send the package's log to a stream, stderr by default; `quiet` keeps to errors."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    # Other packages' warnings go the same way: an address in one of them is masked too.
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.ERROR if quiet else logging.INFO)
