"""Lines in and lines out, without ever holding up the event loop or the end of the program."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import sys
import threading
import unicodedata
from collections.abc import AsyncIterator, Iterator
from typing import TextIO

PROMPT = "> "
# Those that turn the direction of what follows (Unicode TR9), so that a tool's text cannot disguise itself.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class CloudScreen:
    """Where the cloud speaks. On a terminal a prompt stays below what is printed."""

    def __init__(self, out: TextIO, *, prompting: bool) -> None:
        self._out = out
        self._prompting = prompting
        self._prompt_is_up = False
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="backslashreplace")  # a narrow console must not end the program

    def say(self, text: str = "") -> None:
        """Print a line or several, above the prompt. Control characters are shown, not obeyed."""
        clear = "\r" + " " * len(PROMPT) + "\r" if self._prompt_is_up else ""
        self._write(clear + printable(text) + "\n" + (PROMPT if self._prompt_is_up else ""))

    def prompt(self) -> None:
        """Ask for the next line."""
        if self._prompting:
            self._prompt_is_up = True
            self._write(PROMPT)

    def prompt_answered(self, *, by_enter: bool) -> None:
        """The cursor stands on a line of its own again: Enter does that, Ctrl-C and Ctrl-D do not."""
        if self._prompt_is_up and not by_enter:
            self._write("\n")
        self._prompt_is_up = False

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            # Whoever read our output has left (`| head`). The work goes on, and Python must not fail at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


def printable(text: str) -> str:
    """The text with control characters written as escapes; line ends and tabs stay."""
    return "".join(char if char in "\n\t" or not _is_control(char) else ascii(char)[1:-1] for char in text)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _DIRECTIONS


async def lines(source: TextIO = sys.stdin) -> AsyncIterator[str]:
    """The lines of a terminal, a pipe or a file, until it ends.

    A daemon thread reads the bare descriptor: a thread inside sys.stdin would hold its lock when the interpreter
    shuts down, and an event loop cannot watch files, nor anything on Windows.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def hand_over(line: str | None) -> bool:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, line)
        except RuntimeError:  # the loop is closed: nobody listens any more
            return False
        return True

    def read() -> None:
        if all(hand_over(line) for line in _read_lines(source.fileno())):
            hand_over(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line


def _read_lines(descriptor: int) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest = ""
    with open(descriptor, "rb", buffering=0, closefd=False) as raw:
        while chunk := _read(raw):
            *whole, rest = (rest + decode(chunk)).split("\n")
            yield from whole
    if rest:
        yield rest


def _read(raw: io.FileIO) -> bytes:
    try:
        return raw.read(65_536) or b""
    except OSError:  # the terminal is gone: the same as its end
        return b""
