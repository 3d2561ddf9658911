"""From the settings to an agent with running tools, for the commands `agent` and `chat`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from voice_bridge import log
from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.loop import MISSING_EXTRA, Agent
from voice_bridge.agent.screen import one_line, put, resumed
from voice_bridge.agent.store import Store
from voice_bridge.agent.tools import ToolSource
from voice_bridge.config import Settings
from voice_bridge.config.loader import environment
from voice_bridge.errors import UsageError
from voice_bridge.paths import data_dir
from voice_bridge.runtime.runtime import Hub
from voice_bridge.runtime.supervisor import State

_EXTRA = ("anthropic", "prompt_toolkit", "rich")
# With none of these only the SDK can tell whether there is a profile to use.
_SET_UP = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
_GRACE = 20.0  # seconds that a slow server may hold up the first question


@dataclass(frozen=True)
class Options:
    """What both commands take."""

    model: str | None = None
    max_iterations: int = 8
    max_tokens: int = 16_000
    allow_all: bool = False
    deny: Sequence[str] = ()
    latest: bool = False
    resume: str | None = None


def say(text: str) -> None:
    """A line for the person; stdout is kept for answers."""
    put(sys.stderr, text)


def open_store() -> Store:
    """The user's conversations. Raises `StoreError`."""
    return Store(data_dir() / "conversations.db")


@asynccontextmanager
async def running_agent(settings: Settings, options: Options, store: Store) -> AsyncIterator[Agent]:
    """An agent with every enabled server's tools. Raises `UsageError`, and starts nothing when no model is set up."""
    if any(find_spec(module) is None for module in _EXTRA):
        raise UsageError(MISSING_EXTRA)
    log.LOG.setLevel(logging.ERROR)  # this function tells of servers itself, in a sentence each
    environ = environment(settings.source)
    if not any(environ.get(name) for name in _SET_UP):
        await Agent(environ=environ).close()
    conversation = _conversation(options, store)
    for problem in settings.problems.values():
        say(one_line(problem))
    failure: Exception | None = None
    async with Hub(settings) as hub:
        try:
            # The SDK takes about as long to import as servers to start.
            await asyncio.gather(asyncio.to_thread(import_module, "voice_bridge.agent.client"), _settle(hub))
            with hub.local_client() as tools:
                async with _agent(tools, settings, conversation, environ, options) as agent:
                    yield agent
        except Exception as error:  # noqa: BLE001  Raised below as it is: the hub's TaskGroup would wrap it.
            failure = error
    if failure is not None:
        raise failure


def _agent(
    tools: ToolSource,
    settings: Settings,
    conversation: Conversation,
    environ: Mapping[str, str],
    options: Options,
) -> Agent:
    from voice_bridge.agent.prompt import ask_permission

    return Agent(
        tools,
        model=options.model,
        max_iterations=options.max_iterations,
        max_tokens=options.max_tokens,
        allow_all=options.allow_all,
        deny=options.deny,
        trusted=[server.name for server in settings.enabled_servers if getattr(server, "trust", False)],
        approve=ask_permission if sys.stdin.isatty() and sys.stderr.isatty() else None,
        conversation=conversation,
        environ=environ,
    )


def _conversation(options: Options, store: Store) -> Conversation:
    id_ = options.resume or (store.latest() if options.latest else None)
    if options.latest and id_ is None:
        say("There is no earlier conversation; this is the first.")
    if id_ is None:
        return store.new()
    conversation, notes = store.load(id_)
    say(resumed(conversation, notes))
    return conversation


async def _settle(hub: Hub) -> None:
    if not await hub.settled(1.0):
        waiting = [status.name for status in hub.statuses() if status.state is State.STARTING]
        say(f"Starting {', '.join(waiting)} …")
        await hub.settled(_GRACE)
    for status in hub.statuses():
        if status.state is State.STARTING:
            say(f"Server {status.name} is still starting; its tools join when it is ready.")
        elif status.state is not State.READY:
            say(f"Server {status.name} is down: {one_line(status.reason)}. The other servers are usable.")


async def until_terminated(work: Coroutine[None, None, int]) -> int:
    """A command's exit status; SIGTERM ends it in good order with 0."""
    task = asyncio.current_task()
    assert task is not None
    terminated = False

    def stop() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    with suppress(NotImplementedError):  # Windows ends the program by itself
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if not terminated:
            raise
        task.uncancel()
        return 0
