"""From the settings to an agent with running tools, for the commands `agent` and `chat`."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from voice_bridge.agent.access import Access, access
from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.errors import StoreError
from voice_bridge.agent.events import Answer
from voice_bridge.agent.loop import MISSING_EXTRA, Agent
from voice_bridge.agent.permissions import unmatched
from voice_bridge.agent.screen import one_line, put, resumed
from voice_bridge.agent.store import Store
from voice_bridge.agent.tools import ToolSource
from voice_bridge.config import Settings
from voice_bridge.config.loader import environment
from voice_bridge.core.lifecycle import State
from voice_bridge.errors import UsageError, VoiceBridgeError
from voice_bridge.paths import data_dir
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.text import printable

_EXTRA = ("anthropic", "prompt_toolkit", "rich")
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


def open_store(*, needed: bool) -> Store:
    """The user's conversations.

    Where they cannot be kept, that is said and they live as long as the program; raises `UsageError` instead when
    earlier ones are `needed`.
    """
    try:
        store = Store(_data_folder() / "conversations.db")
    except VoiceBridgeError as error:
        if needed:
            raise UsageError(str(error)) from error
        say(f"{printable(str(error))}. This conversation is not kept.")
        return Store(None)
    if store.notice:
        say(store.notice)
    return store


def _data_folder() -> Path:
    try:
        return data_dir()
    except OSError as error:
        raise StoreError(
            f"the folder for conversations cannot be used: {error.strerror}: {error.filename}; "
            "set VOICE_BRIDGE_DATA to a folder you can write to"
        ) from error


def history_file() -> Path | None:
    """Where the lines typed in earlier chats are kept; None where nothing can be."""
    try:
        return _data_folder() / "chat_history"
    except VoiceBridgeError:
        return None


@asynccontextmanager
async def running_agent(settings: Settings, options: Options, store: Store) -> AsyncIterator[Agent]:
    """An agent with every enabled server's tools.

    Raises `UsageError`; before anything starts when no model is set up, afterwards when `--deny` means no tool.
    """
    if any(find_spec(module) is None for module in _EXTRA):
        raise UsageError(MISSING_EXTRA)
    environ = environment(settings.source)
    if access(environ) == Access():
        await Agent(environ=environ).close()  # only the SDK can tell whether there is a profile to use
    conversation = _conversation(options, store)
    for problem in settings.problems.values():
        say(one_line(problem))
    failure: Exception | None = None
    async with Runtime(settings) as runtime:
        try:
            # The SDK takes about as long to import as servers to start.
            await asyncio.gather(asyncio.to_thread(import_module, "voice_bridge.agent.client"), _settle(runtime))
            with runtime.local_client() as tools:
                _check_denials(options.deny, await _named(tools), runtime)
                async with _agent(tools, settings, conversation, environ, options) as agent:
                    yield agent
        except Exception as error:  # noqa: BLE001  Raised below as it is, once the servers have ended.
            failure = error
    if failure is not None:
        raise failure


async def _named(tools: ToolSource) -> list[tuple[str, str]]:
    return [(tools.owner(tool["name"]), tool["name"]) for tool in await tools.tools()]


def _check_denials(patterns: Sequence[str], tools: list[tuple[str, str]], runtime: Runtime) -> None:
    """A pattern that denies nothing is a slip of the pen, and with `--yes` the tool it was meant for would run."""
    down = [status.name for status in runtime.statuses() if status.state is not State.READY]
    for pattern in unmatched(patterns, tools):
        if any(fnmatchcase(name, pattern.partition("/")[0]) for name in down if "/" in pattern):
            say(f"--deny {one_line(pattern)} means no tool yet; it holds for those of the server when it is ready.")
            continue
        known = [name for server, tool in tools for name in (tool, f"{server}/{tool}")]
        near = difflib.get_close_matches(pattern, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`voice-bridge tools` lists the tools"
        if down:
            hint += f" For a tool of {', '.join(down)}, not ready yet, write SERVER/TOOL"
        raise UsageError(one_line(f"--deny {pattern} means no tool, so it would deny nothing; {hint}"))


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


async def _settle(runtime: Runtime) -> None:
    if not await runtime.settled(1.0):
        waiting = [status.name for status in runtime.statuses() if status.state is State.STARTING]
        say(f"Starting {', '.join(waiting)} …")
        await runtime.settled(_GRACE)
    for status in runtime.statuses():
        if status.state is State.STARTING:
            say(f"Server {status.name} is still starting; its tools join when it is ready.")
        elif status.state is not State.READY:
            say(f"Server {status.name} is down: {one_line(status.reason)}. The other servers are usable.")


def status_of(answer: Answer) -> tuple[int, str]:
    """A command's exit status, and what to say when it is not 0: no answer, or one that had to do without a tool."""
    refused = dict.fromkeys(f"{call.tool} of {call.server}" for call in answer.tool_calls if call.refused)
    if refused:
        return 1, f"Refused, and not run: {one_line(', '.join(refused))}."
    return (0, "") if answer.answer else (1, answer.incomplete)
