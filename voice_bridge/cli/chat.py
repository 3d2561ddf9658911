"""`voice-bridge chat`: a conversation at the terminal, with the tools of the settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from voice_bridge.cli.agent import Deny, Latest, MaxIterations, MaxTokens, Model, Resume, Yes, not_empty, piped
from voice_bridge.cli.alone import settings_alone
from voice_bridge.cli.options import ConfigOption
from voice_bridge.config import Settings
from voice_bridge.ports.servers import process as platforms
from voice_bridge.signals import until_signal

if TYPE_CHECKING:
    from voice_bridge.agent.startup import Options
    from voice_bridge.agent.store import Store


def chat(
    list_: Annotated[bool, typer.Option("--list", help="List earlier conversations and leave.")] = False,
    model: Model = None,
    max_iterations: MaxIterations = 8,
    max_tokens: MaxTokens = 16_000,
    yes: Yes = False,
    deny: Deny = None,
    latest: Latest = False,
    resume: Resume = None,
    config: ConfigOption = None,
) -> None:
    """Talk with a model that uses the tools of every enabled server.

    Conversations are kept; -c goes on with the last one. Text piped to standard input is one message.
    """
    from voice_bridge.agent.screen import listing, put, tolerant
    from voice_bridge.agent.startup import Options, open_store

    options = Options(model, max_iterations, max_tokens, yes, tuple(deny or ()), latest, resume)
    with open_store(needed=list_ or latest or resume is not None) as store:
        if list_:
            put(tolerant(sys.stdout), listing(store.summaries()))
            return
        message = None if sys.stdin.isatty() else not_empty(piped())
        status = platforms.run(until_signal(_chat(message, settings_alone([], config), options, store), "SIGTERM"))
    raise typer.Exit(status)


async def _chat(message: str | None, settings: Settings, options: Options, store: Store) -> int:
    from voice_bridge.agent.interrupts import Interrupted, interruptible
    from voice_bridge.agent.screen import PlainScreen, Screen, TerminalScreen
    from voice_bridge.agent.startup import history_file, running_agent, say, status_of

    async with running_agent(settings, options, store) as agent:
        screen: Screen = TerminalScreen() if sys.stdout.isatty() else PlainScreen(sys.stdout, sys.stderr)
        if message is None:
            from voice_bridge.agent.chat import Chat

            await Chat(agent, store, screen, history_file()).run()
            return 0
        try:
            answer = await interruptible(agent.ask(message, screen.show))
        except Interrupted:
            say("Stopped.")
            return 130
        finally:
            screen.end()
        status, problem = status_of(answer)
        if problem not in ("", answer.incomplete):
            say(problem)
        return status
