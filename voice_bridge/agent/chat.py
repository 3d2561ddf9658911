"""A conversation at the terminal."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from voice_bridge.agent.interrupts import Interrupted, interruptible
from voice_bridge.agent.loop import Agent
from voice_bridge.agent.prompt import LineCleared, MessagePrompt
from voice_bridge.agent.screen import Screen, listing, one_line, put, resumed
from voice_bridge.agent.store import Store
from voice_bridge.errors import VoiceBridgeError

HELP = """\
/tools         the tools, by server
/model [NAME]  show or change the model
/new           a new conversation
/resume [ID]   go on with an earlier conversation; without ID, a list
/usage         tokens used in this conversation
/help          this
/quit          leave (also Ctrl-D at an empty line, or Ctrl-C twice)
Enter sends, and so does Ctrl-D after text. Alt-Enter (or Esc, Enter) starts a new line; pasted lines stay together.
Ctrl-C stops an answer in the making, and clears the line at the prompt."""


class Chat:
    """Reads, asks, shows, until the person leaves. `show` prints the chat's own lines."""

    def __init__(self, agent: Agent, store: Store, screen: Screen, history: Path | None) -> None:
        self._agent = agent
        self._store = store
        self._screen = screen
        self._leaving = False
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/tools": self._tools,
            "/model": self._model,
            "/new": self._new,
            "/resume": self._resume,
            "/usage": self._usage,
            "/help": self._help,
            "/quit": self._quit,
        }
        self._prompt = MessagePrompt(history, list(self._commands))

    async def run(self) -> None:
        """Returns when the person leaves."""
        _say(f"Model {self._agent.model}, conversation {self._agent.conversation.id}. /help lists the commands.")
        armed = False
        while not self._leaving:
            try:
                message = (await self._prompt.read()).strip()
            except EOFError:
                return
            except LineCleared as cleared:
                if armed and not cleared.had_text:
                    return
                armed = True
                _say("Press Ctrl-C again to leave.")
                continue
            armed = False
            if message:
                await self._take(message)

    async def _take(self, message: str) -> None:
        word, _, rest = message.partition(" ")
        try:
            if message.startswith("/") and "\n" not in message:
                command = self._commands.get(word)
                if command is None:
                    _say(f"There is no command {one_line(word)}; /help lists them.")
                else:
                    await command(rest.strip())
            else:
                await interruptible(self._agent.ask(message, self._screen.show))
        except Interrupted:
            self._screen.end()
            _say("Stopped.")
        except VoiceBridgeError as error:
            self._screen.end()
            _say(str(error))

    async def _tools(self, _: str) -> None:
        for tool in sorted(await self._agent.tools.tools(), key=lambda tool: self._agent.tools.owner(tool["name"])):
            description = one_line(str(tool.get("description") or tool.get("title") or ""), 90)
            _say(f"{self._agent.tools.owner(tool['name'])}: {one_line(tool['name'])} — {description}")

    async def _model(self, name: str) -> None:
        if name:
            self._agent.model = name
        _say(f"The model is {self._agent.model}.")

    async def _new(self, _: str) -> None:
        self._agent.conversation = self._store.new()
        _say(f"New conversation {self._agent.conversation.id}.")

    async def _resume(self, id_: str) -> None:
        if not id_:
            _say(listing(self._store.summaries(20)))
            return
        conversation, notes = self._store.load(id_)
        self._agent.conversation = conversation
        _say(resumed(conversation, notes))

    async def _usage(self, _: str) -> None:
        _say(f"Tokens in this conversation: {self._agent.conversation.usage}")

    async def _help(self, _: str) -> None:
        _say(HELP)

    async def _quit(self, _: str) -> None:
        self._leaving = True


def _say(text: str) -> None:
    put(sys.stderr, text)
