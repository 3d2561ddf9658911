"""A real terminal for a command under test: what it prints is waited for, keys are pressed."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "voice_bridge"]
CTRL_C, CTRL_D = "\x03", "\x04"
PATIENCE = 120.0


class Terminal:
    """The screen and keyboard of a running command."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self.process = process
        self.seen = ""
        self._keyboard = keyboard
        self._looked_at = 0
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def wait_for(self, words: str) -> str:
        """Everything printed since the last wait, up to and with the words."""
        deadline = time.monotonic() + PATIENCE
        while (at := self.seen.find(words, self._looked_at)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} was not printed; the screen shows:\n{self.seen}")
        part = self.seen[self._looked_at : at + len(words)]
        self._looked_at = at + len(words)
        return part

    def end(self) -> int:
        """The exit status, once the command has ended."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, deadline: float) -> bool:
        """Take in what is printed next; False at the end of the command, or of our patience."""
        readable, _, _ = select.select([self._keyboard], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return False
        chunk = b""
        with suppress(OSError):  # Linux: the other side of the terminal is closed
            chunk = os.read(self._keyboard, 65_536)
        self.seen += self._decode(chunk)
        return bool(chunk)


@contextmanager
def terminal(command: Sequence[str], cwd: Path = ROOT, **environment: str) -> Iterator[Terminal]:
    """A command whose stdin, stdout and stderr are a terminal that it controls."""
    keyboard, screen = os.openpty()
    process = subprocess.Popen(
        command,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        cwd=cwd,
        env={**os.environ, **environment},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(screen)
    try:
        yield Terminal(process, keyboard)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(keyboard)
