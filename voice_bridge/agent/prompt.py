"""Reading from a terminal: messages of several lines, and yes or no."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from voice_bridge.agent.interrupts import Interrupted
from voice_bridge.agent.permissions import Decision
from voice_bridge.agent.screen import one_line
from voice_bridge.agent.tools import Tool
from voice_bridge.text import encodable

_ANSWERS: dict[str, Decision] = {"y": "once", "a": "always", "n": "no", "v": "never"}
_PERMISSION = "Allow it? [y]es, [a]lways in this conversation, [n]o, ne[v]er: "


class LineCleared(Exception):
    """Ctrl-C at the prompt; `had_text` tells whether there was anything to clear."""

    def __init__(self, *, had_text: bool) -> None:
        super().__init__("the line was cleared")
        self.had_text = had_text


class MessagePrompt:
    """Reads messages; remembers them in `history` across runs, or in this run only where the file cannot be written.

    Enter sends, and so does Ctrl-D after text; Alt-Enter starts a new line. A paste with line breaks stays one
    message. Ctrl-C clears the line; a second one at an empty line leaves, as Ctrl-D does.
    """

    def __init__(self, history: Path | None, commands: list[str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_remembered(history),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation="… ",
            completer=WordCompleter(commands, sentence=True),
            complete_while_typing=False,
        )

    async def read(self) -> str:
        """The next message. Raises `LineCleared` for Ctrl-C and `EOFError` for Ctrl-D at an empty line."""
        return await self._session.prompt_async("> ")


class _Lines(FileHistory):
    """The file of earlier messages. What cannot be written to it is forgotten, never a reason to leave the chat."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(encodable(string))


def _remembered(history: Path | None) -> History:
    try:
        if history is not None:
            history.touch(mode=0o600)
            return _Lines(str(history))
    except OSError:
        pass
    return InMemoryHistory()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text.strip():
            event.current_buffer.validate_and_handle()
        else:
            event.app.exit(exception=EOFError, style="class:exiting")

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        had_text = bool(event.current_buffer.text)
        event.app.exit(exception=LineCleared(had_text=had_text), style="class:aborting")

    return keys


async def ask_permission(tool: Tool, arguments: dict[str, Any]) -> Decision:
    """Asks the person at the terminal whether a tool may run. Raises `Interrupted` for Ctrl-C."""
    output = create_output(stdout=sys.stdout if sys.stdout.isatty() else sys.stderr)
    session: PromptSession[str] = PromptSession(output=output)
    print(f"{one_line(tool.name)} of {tool.server!r} may change things: {one_line(str(arguments))}", file=sys.stderr)
    while True:
        try:
            # Without its own handling of SIGINT, which would switch ours off for the rest of the turn.
            word = await session.prompt_async(_PERMISSION, handle_sigint=False)
        except EOFError:
            return "no"
        except KeyboardInterrupt:
            raise Interrupted from None
        word = word.strip().lower()
        if decision := _ANSWERS.get("v" if word == "never" else word[:1]):
            return decision
