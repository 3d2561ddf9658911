"""Shows a turn's events: the answer on stdout, everything else on stderr.

At a terminal text appears as it arrives, rendered as Markdown; into a pipe goes the plain answer.
"""

from __future__ import annotations

import io
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

from voice_bridge.agent.events import (
    Answer,
    Event,
    Finished,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Waiting,
)
from voice_bridge.text import one_line as fitted
from voice_bridge.text import printable

if TYPE_CHECKING:
    from rich.live import Live

    from voice_bridge.agent.conversation import Conversation
    from voice_bridge.agent.store import Summary

_LONGEST_LINE = 300
_FRAME_SECONDS = 0.08


class Screen(Protocol):
    """Where a turn is shown."""

    def show(self, event: Event) -> None:
        """Shows one event."""

    def end(self) -> None:
        """Leaves the screen tidy when a turn ends early."""


def put(out: TextIO, text: str) -> None:
    """Writes a line, at once. A reader that has left (`| head`) ends the output, not the work."""
    try:
        print(text, file=out, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def tolerant(out: TextIO) -> TextIO:
    """The stream, which from now on writes characters it cannot encode as escapes."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")
    return out


def one_line(text: str, limit: int = _LONGEST_LINE) -> str:
    """The text on one line of at most `limit` characters."""
    return fitted(" ".join(printable(text).split()), limit)


class PlainScreen:
    """For pipes: the whole answer on `out` when it is there, progress on `log`."""

    def __init__(self, out: TextIO | None, log: TextIO) -> None:
        self._out = tolerant(out) if out else None
        self._log = tolerant(log)
        self._shown: set[int] = set()

    def show(self, event: Event) -> None:
        match event:
            case TextEnded(text, final) if text:
                put(self._out if final and self._out else self._log, printable(text))
            case _:
                for line in progress(event, self._shown):
                    put(self._log, line)

    def end(self) -> None:
        """Nothing is ever half shown."""


class TerminalScreen:
    """For people: Markdown that grows as it arrives, a finished paragraph at a time below it."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=tolerant(sys.stdout), highlight=False)
        self._log = Console(file=tolerant(sys.stderr), highlight=False)
        self._live: Live | None = None
        self._tail = ""
        self._drawn = 0.0
        self._shown: set[int] = set()

    def show(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._grow(printable(text))
            case TextEnded():
                self._print_rest()
            case TextDiscarded():
                self._stop()
                self._tail = ""
                self._log.print("(the reply broke off and starts anew)", style="dim")
            case _:
                if not isinstance(event, Finished):
                    self._print_rest()
                style = "yellow" if isinstance(event, Notice | Waiting) else "dim"
                for line in progress(event, self._shown):
                    self._log.print(line, style=style, markup=False, soft_wrap=True)

    def end(self) -> None:
        self._print_rest()

    def _grow(self, text: str) -> None:
        from rich.live import Live
        from rich.markdown import Markdown

        self._tail += text
        whole, self._tail = split_paragraphs(self._tail)
        if whole.strip():
            self._stop()
            self._console.print(Markdown(whole))
            self._console.print()
        now = time.monotonic()
        if self._tail.strip() and now - self._drawn >= _FRAME_SECONDS:
            if self._live is None:
                self._live = Live(console=self._console, transient=True, auto_refresh=False)
                self._live.start()
            # Only what fits: a taller live part could not be taken back from the screen.
            height = max(3, self._console.height - 3)
            self._live.update(Markdown("\n".join(self._tail.splitlines()[-height:])), refresh=True)
            self._drawn = now

    def _print_rest(self) -> None:
        from rich.markdown import Markdown

        self._stop()
        if self._tail.strip():
            self._console.print(Markdown(self._tail))
        self._tail = ""

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def split_paragraphs(text: str) -> tuple[str, str]:
    """The paragraphs that are whole, and the rest; a fenced block of code is one paragraph (CommonMark §4.5)."""
    fenced = False
    end = 0
    position = 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if not fenced and not line.strip() and line.endswith("\n"):
            end = position
    return text[:end], text[end:]


def progress(event: Event, shown: set[int]) -> list[str]:
    """The lines that tell of an event; `shown` remembers which calls were announced."""
    match event:
        case ToolStarted(call):
            shown.add(id(call))
            return [_calling(call)]
        case ToolFinished(call, together):
            name = f" of {call.tool}" if together > 1 else ""
            kind = "Failed" if call.is_error else "Result"
            line = f"{kind}{name}: {one_line(call.output)}"
            return [line] if id(call) in shown else [_calling(call), line]
        case Waiting(reason, seconds, attempt, attempts):
            return [f"{one_line(reason)}; trying again in {seconds:.0f} s ({attempt} of {attempts}, Ctrl-C stops)"]
        case Notice(text):
            return [one_line(text)]
        case TextDiscarded():
            return ["(the reply broke off and starts anew)"]
        case Finished(answer):
            lines = [f"Incomplete: {one_line(answer.incomplete)}."] if answer.incomplete else []
            return [*lines, f"Tokens: {answer.usage}"]
        case _:
            return []


def _calling(call: ToolCall) -> str:
    return f"Calling {one_line(call.tool)} {one_line(str(call.input))}"


def summary(answer: Answer) -> str:
    """What is missing, the rounds and the numbered tool calls of an answer."""
    lines = [f"Incomplete: {one_line(answer.incomplete)}."] if answer.incomplete else []
    lines.append(f"Iterations: {answer.iterations}")
    if answer.tool_calls:
        lines.append("Tool calls:")
    for number, call in enumerate(answer.tool_calls, 1):
        lines.append(f"  {number}. {one_line(call.tool)} {one_line(str(call.input))}")
        lines.append(f"     -> {'(error) ' if call.is_error else ''}{one_line(call.output)}")
    return "\n".join(lines)


def listing(summaries: list[Summary]) -> str:
    """Conversations, one a line: id, when it was used last, number of questions, beginning."""
    if not summaries:
        return "No conversations yet."
    return "\n".join(
        f"{summary.id}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(summary.updated))}  "
        f"{summary.questions:>3} question{' ' if summary.questions == 1 else 's'}  {one_line(summary.title, 60)}"
        for summary in summaries
    )


def resumed(conversation: Conversation, notes: list[str]) -> str:
    """What to say when an earlier conversation goes on, and what had to be repaired in it."""
    lines = [f"Conversation {conversation.id} goes on, with {len(conversation.messages)} messages."]
    lines += [f"It was damaged and is repaired: {note}." for note in notes]
    return "\n".join(lines)
