"""The cloud's prompt: tells what happens, and obeys what is typed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from voice_bridge.simulator.cloud import VoiceCloud
from voice_bridge.simulator.commands import (
    HELP,
    CallTool,
    Command,
    CommandError,
    Drop,
    Help,
    ListTools,
    Quit,
    ShowFrames,
    is_command,
    needs_bridge,
    parse,
)
from voice_bridge.simulator.events import Event, Framed, Ready
from voice_bridge.simulator.messages import SessionError
from voice_bridge.simulator.session import CloudSession
from voice_bridge.simulator.terminal import CloudScreen
from voice_bridge.simulator.wording import count, describe, describe_frame, describe_reply, describe_tools

Answerer = Callable[[CloudSession, str], Awaitable[str]]


class Console:
    """Shows a cloud's events and obeys typed commands.

    `assistant` answers what is no command: a sentence, as spoken to a device.

    `interactive`: somebody sits at a terminal, so a slow call does not hold up the next command, and without a
    bridge there is an answer at once. Otherwise commands run one after the other and wait for a bridge, `patience`
    seconds at most and only until that was once in vain. `show` is made to be a cloud's `on_event`.
    """

    def __init__(
        self,
        screen: CloudScreen,
        *,
        interactive: bool,
        frames: bool = False,
        patience: float = 60,
        assistant: Answerer | None = None,
    ) -> None:
        self.narrating = True
        self._screen = screen
        self._assistant = assistant
        self._interactive = interactive
        self._frames = frames
        self._patience = 0 if interactive else patience
        self._somebody = asyncio.Event()
        self._all_went_well = True

    def show(self, event: Event) -> None:
        """Print an event: frames if they are wanted, the rest while `narrating`."""
        if isinstance(event, Ready):
            self._somebody.set()
        if isinstance(event, Framed) and self._frames:
            self._screen.say(describe_frame(event.frame))
        elif self.narrating and (sentence := describe(event)):
            self._screen.say(sentence)

    async def run(self, cloud: VoiceCloud, typed: AsyncIterator[str]) -> bool:
        """Obey until `quit` or the end of the input. False when a command failed."""
        async with asyncio.TaskGroup() as group:
            running: list[asyncio.Task[None]] = []
            self._screen.prompt()
            async for line in typed:
                self._screen.prompt_answered(by_enter=True)
                if line.strip() in ("quit", "exit"):
                    break
                if line.strip() and self._interactive:
                    running.append(group.create_task(self._obey(cloud, line)))
                elif line.strip():
                    await self._obey(cloud, line)
                self._screen.prompt()
            else:
                self._screen.prompt_answered(by_enter=False)
            self.narrating = self._frames = False  # the goodbyes of our own leaving are no news
            for task in running:
                task.cancel()
        return self._all_went_well

    async def _obey(self, cloud: VoiceCloud, line: str) -> None:
        try:
            session = await self._bridge(cloud) if needs_bridge(line) else None
            tools = session.tools if session else ()
            if self._assistant is not None and session is not None and not is_command(line, tools):
                self._screen.say(await self._assistant(session, line.strip()))
            else:
                self._screen.say(await self._do(parse(line, tools), session))
        except (CommandError, SessionError) as error:
            self._all_went_well = False
            self._screen.say(str(error))

    async def _bridge(self, cloud: VoiceCloud) -> CloudSession:
        """The newest bridge that can be asked. Raises CommandError."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while not any(session.is_usable for session in cloud.sessions):
                    self._somebody.clear()
                    await self._somebody.wait()
        usable = [session for session in cloud.sessions if session.is_usable]
        if usable:
            return usable[-1]
        if cloud.sessions:
            raise CommandError("a bridge is connected, but cannot be asked: its handshake is not through, or it failed")
        waited, self._patience = f" within {self._patience:g} s" if self._patience else "", 0
        raise CommandError(f"no bridge is connected{waited}: start one with the line above")

    async def _do(self, command: Command, session: CloudSession | None) -> str:
        match command:
            case Help() | Quit():
                return HELP
            case ShowFrames(on):
                self._frames = on
                return "frames are shown" if on else "frames are no longer shown"
        assert session is not None
        match command:
            case ListTools():
                tools = await session.list_tools()
                return "\n".join(filter(None, [count(len(tools), "tool"), describe_tools(tools, whole=True)]))
            case CallTool(tool, arguments):
                reply = await session.call(tool.name, arguments)
                self._all_went_well &= reply.ok
                return describe_reply(reply)
            case Drop(code):
                await session.close(code)
                return f"dropped with {code}"
