"""One line per event on stderr, with every known secret masked."""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import dataclass
from typing import TextIO

LOG = logging.getLogger("voice_bridge")
LONGEST_LINE = 2000
_SHORTEST_SECRET = 6
_TOKEN_IN_URL = re.compile(r"((?:token|key|secret|password|auth)[\w-]{0,40}=)[^\s&\"']+", re.IGNORECASE)
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\b\w+://)[^\s/@]+@")
_secrets: set[str] = set()


def keep_secret(*values: str) -> None:
    """Never let these words into the log or a text made by `mask`. Words under six letters are too common to mask."""
    _secrets.update(value for value in values if len(value) >= _SHORTEST_SECRET)


def mask(text: str) -> str:
    """The text with secrets replaced: the kept ones, and what looks like one in a URL or a header."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, "***")
    text = _USER_IN_URL.sub(r"\1***@", text)
    return _BEARER.sub(r"\1***", _TOKEN_IN_URL.sub(r"\1***", text))


class OneLine(logging.Formatter):
    """Time and message on one line; control characters (a child's terminal codes) escaped, long text cut."""

    def format(self, record: logging.LogRecord) -> str:
        text = mask(super().format(record))  # before the cut, which could leave half a secret that no longer matches
        if not text.isprintable():
            text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        if len(text) > LONGEST_LINE:
            text = text[:LONGEST_LINE] + f" … ({len(text) - LONGEST_LINE} more characters)"
        return text


def configure(stream: TextIO | None = None, *, quiet: bool = False) -> None:
    """Send the package's log to a stream, stderr by default; `quiet` keeps to errors."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    # Other packages' warnings go the same way: an address in one of them is masked too.
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.ERROR if quiet else logging.INFO)


@dataclass(slots=True)
class Quota:
    """Lets so many lines through in each window of seconds and counts the rest."""

    lines: int = 20
    window: float = 10.0
    _began: float = float("-inf")
    _passed: int = 0
    _held: int = 0

    def admit(self, now: float) -> tuple[bool, int]:
        """Whether a line may pass, and how many were held back since the last line that did."""
        if now - self._began >= self.window:
            self._began, self._passed = now, 0
        if self._passed >= self.lines:
            self._held += 1
            return False, 0
        self._passed += 1
        held, self._held = self._held, 0
        return True, held


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def plural(number: int, word: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
