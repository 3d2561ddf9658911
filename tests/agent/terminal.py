"""A program in a real pseudo-terminal: keys go in as bytes, Ctrl-C becomes SIGINT in the kernel."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from types import TracebackType
from typing import Self

from tests.agent.children import ROOT

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]|\x1b\][^\x07]*\x07|[\r\x08]")
_UNFINISHED = re.compile(r"\x1b[^\x1b]{0,20}$")
PROMPT = r">\s*$"
ENTER, CTRL_C, CTRL_D, ALT_ENTER, UP = "\r", "\x03", "\x04", "\x1b\r", "\x1b[A"


class Terminal:
    """Runs `python -m voice_bridge …` with 100 columns and 30 lines; every wait is bounded."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._arguments = arguments
        self._environment = environment
        self._seen = ""
        self._mark = 0
        self._ended = False

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        # A prompt of prompt_toolkit asks where the cursor is, and this terminal does not answer.
        environment = {**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **self._environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "voice_bridge", *self._arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._master)
        if error is not None:
            print(self.text, file=sys.__stderr__)

    @property
    def text(self) -> str:
        """Everything shown so far, without colours and cursor movements."""
        return _UNFINISHED.sub("", _ESCAPES.sub("", self._seen))

    def press(self, keys: str) -> None:
        """Types the keys."""
        self.press_bytes(keys.encode())

    def press_bytes(self, keys: bytes) -> None:
        """Types bytes that need be no UTF-8."""
        os.write(self._master, keys)

    def press_until(self, keys: str, pattern: str, seconds: float = 40.0) -> None:
        """Types the keys again and again until the pattern appears. Fails when it does not come in time."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text[self._mark :]):
            assert time.monotonic() < deadline, f"{pattern!r} did not appear"
            self.press(keys)
            self._read(0.3)
        self.wait_for(pattern)

    def say(self, line: str) -> None:
        """Waits for the prompt, types a line and sends it."""
        self.wait_for(PROMPT)
        self.press(line + ENTER)

    def wait_for(self, pattern: str, seconds: float = 40.0) -> str:
        """The text since the last match, up to and with this one. Fails when it does not come in time."""
        deadline = time.monotonic() + seconds
        while True:
            new = self.text[self._mark :]
            if found := re.search(pattern, new):
                self._mark += found.end()
                return new[: found.end()]
            left = deadline - time.monotonic()
            if self._ended:
                left = 0
            assert left > 0, f"{pattern!r} did not appear; there was:\n{new}"
            self._read(left)

    def status(self, seconds: float = 40.0) -> int:
        """The exit status, once everything was read."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running; it showed:\n{self.text}"
            self._read(0.1)
        self._read(0)
        return self.process.returncode

    def interrupt(self) -> None:
        """Ctrl-C from outside the terminal."""
        self.process.send_signal(signal.SIGINT)

    def _read(self, seconds: float) -> None:
        if select.select([self._master], [], [], min(seconds, 0.5))[0]:
            try:
                self._seen += os.read(self._master, 65536).decode("utf-8", "replace")
            except OSError:  # Linux: EIO once the program has closed its side
                self._ended = True
