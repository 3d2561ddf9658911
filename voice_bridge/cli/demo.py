"""`voice-bridge demo`: the whole voice path on this machine, with no token and no network."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from voice_bridge.cli.cloud import run_until_stopped
from voice_bridge.cli.questions import DATA_VARIABLES, QUESTIONS, ask, find, prepare_documents
from voice_bridge.errors import ConfigError, VoiceBridgeError
from voice_bridge.simulator.cloud import HOST, VoiceCloud
from voice_bridge.simulator.console import Console
from voice_bridge.simulator.kinds import OFFICIAL
from voice_bridge.simulator.messages import Disconnected, ListedTool, NoAnswer, SessionError
from voice_bridge.simulator.process import BridgeEnded, BridgeProcess
from voice_bridge.simulator.session import CloudSession
from voice_bridge.simulator.terminal import CloudScreen, lines
from voice_bridge.simulator.wording import count, describe_server

DIAL_WITHIN = 30.0
CALL_WITHIN = 15.0
LAST_LINES = 12
# A server that is slow to start announces its tools late: so long a needed one is waited for, and any other.
NEEDED_WITHIN, WANTED_WITHIN = 20.0, 5.0
_STAND_IN = "ws://127.0.0.1:9/demo"


class DemoFailed(VoiceBridgeError):
    """The demonstration did not come to its end; the sentence says why."""


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the calls, with status 1 if one failed.")] = False,
) -> None:
    """Start a local cloud and the bridge, play the voice path with real calls, then stay at a prompt.

    Without a terminal on stdin it ends after the calls, as with --once.
    """
    # The settings are looked at as the bridge will see them; a real address must not reach it by mistake.
    os.environ["MCP_ENDPOINT"] = _STAND_IN
    settings, note = _settings()
    if note:
        typer.echo(note)
    command = [sys.executable, "-m", "voice_bridge", "run"]
    stay = not once and sys.stdin.isatty()
    raise typer.Exit(run_until_stopped(play(command, settings, stay=stay)))


async def play(command: Sequence[str], settings: Path, *, stay: bool) -> int:
    """The demonstration with any bridge command; returns the exit status."""
    screen = CloudScreen(sys.stdout, prompting=stay and sys.stdout.isatty())
    console = Console(screen, interactive=stay)
    console.narrating = False
    # An empty list is no reason for this cloud to hang up: on a slow machine the tools come late.
    kind = replace(OFFICIAL, needs_tools=False, call_timeout=CALL_WITHIN)
    async with VoiceCloud(kind, token=secrets.token_hex(8), keep=1000, on_event=console.show) as cloud:
        screen.say(f"A voice cloud of our own listens on {HOST}:{cloud.port}.")
        environment = {**_environment(cloud.url, settings), **await prepare_documents(screen.say)}
        bridge = BridgeProcess(command, environment)
        failures, trouble = 0, ""
        try:
            async with bridge, asyncio.TaskGroup() as tasks:
                screen.say(
                    f"The bridge is started on it, with the servers of {_short(settings)} (process {bridge.pid})."
                )
                death = tasks.create_task(bridge.ended())
                failures = await _or_death(_voice_path(cloud, bridge, screen.say, shipped=_is_shipped(settings)), death)
                if failures:
                    screen.say(f"\n{failures} of {count(len(QUESTIONS), 'question')} failed.")
                    _show_log(bridge, screen.say)
                else:
                    screen.say(_next_steps(settings))
                if stay:
                    screen.say("\nThe cloud stays for you to try things. Type help for the commands.")
                    console.narrating = True
                    await console.run(cloud, lines(sys.stdin))
                death.cancel()
        except* (BridgeEnded, DemoFailed, SessionError, OSError) as errors:
            trouble = _first(errors)
        if trouble:
            screen.say(f"\nThe demonstration failed: {trouble}.")
            _show_log(bridge, screen.say)
        return 1 if trouble or failures else 0


async def _or_death(work: Coroutine[Any, Any, int], death: asyncio.Task[NoReturn]) -> int:
    """The work; when its connection ends and the bridge's own end explains that, this is what is raised."""
    try:
        return await work
    except SessionError:
        await asyncio.wait([death], timeout=1)
        raise


async def _voice_path(cloud: VoiceCloud, bridge: BridgeProcess, say: Callable[[str], None], *, shipped: bool) -> int:
    """Dialling, handshake, list, calls. Returns how many calls failed. Raises DemoFailed or SessionError."""
    session = await _dialled(cloud)
    dialled_after = time.monotonic() - bridge.started_at
    try:
        tools = await _tools_in_time(session)
    except Disconnected:  # it may be set to dial anew when its tools change
        session = await _dialled(cloud)
        tools = await _tools_in_time(session)
    say(f"It dialled after {dialled_after:.1f} s and says that it is {describe_server(session.server_info)}.")
    for server in bridge.servers():
        say(f"  {server.name:<20} {count(server.tools, 'tool'):>8}   ready in {server.seconds:.2f} s")
    names = ", ".join(tool.spoken for tool in tools) or "none at all"
    say(f"Together they offer {count(len(tools), 'tool')}: {names}.")
    return sum([not await ask(session, question, say, shipped=shipped) for question in QUESTIONS])


async def _dialled(cloud: VoiceCloud) -> CloudSession:
    try:
        return await cloud.session(DIAL_WITHIN)
    except NoAnswer:
        raise DemoFailed(f"the bridge did not dial within {DIAL_WITHIN:g} s") from None


async def _tools_in_time(session: CloudSession) -> list[ListedTool]:
    """The tools, listed anew when the bridge announces more while one of the questions lacks its tool."""
    tools = await session.ready()
    started_at = time.monotonic()
    announced = True
    while announced and (missing := [question for question in QUESTIONS if find(tools, question.tool) is None]):
        patience = NEEDED_WITHIN if any(question.needed for question in missing) else WANTED_WITHIN
        announced = await _announcement(session, started_at + patience - time.monotonic())
        tools = await session.list_tools()
    return tools


async def _announcement(session: CloudSession, patience: float) -> bool:
    before = len(session.notifications)
    try:
        await session.until(lambda: len(session.notifications) > before, patience, "nothing was announced")
    except NoAnswer:
        return False
    return True


def _settings() -> tuple[Path, str]:
    """Whose servers are shown, and a remark where one is due.

    Those of $MCP_CONFIG, else of the working directory, else the shipped ones; the shipped ones too where a settings
    file names addresses of its own, because the bridge would dial those.
    """
    from voice_bridge.config import find, load, shipped_settings  # here, because it loads pydantic

    own = find(None)
    if own is None:
        return shipped_settings(), ""
    try:
        endpoints = load(own).endpoints.values()
    except ConfigError:
        return own, ""  # the bridge says what is wrong with it
    abroad = [endpoint.name for endpoint in endpoints if endpoint.url != _STAND_IN and not endpoint.disabled]
    if not abroad:
        return own, ""
    return shipped_settings(), (
        f"{own} has addresses of its own ({', '.join(abroad)}), which a demonstration must not dial: "
        "it shows the servers that come with the bridge instead."
    )


def _environment(url: str, settings: Path) -> dict[str, str]:
    return {**os.environ, "MCP_ENDPOINT": url, "MCP_CONFIG": str(settings.absolute())}


def _is_shipped(settings: Path) -> bool:
    """Whether servers and data are those that come with the bridge."""
    from voice_bridge.config import shipped_settings  # here, because it loads pydantic

    same = settings.is_file() and settings.read_bytes() == shipped_settings().read_bytes()
    return same and not DATA_VARIABLES & os.environ.keys()


def _short(path: Path) -> str:
    with suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)


def _next_steps(settings: Path) -> str:
    from voice_bridge.config import shipped_settings  # here, because it loads pydantic

    script = "python bridge_connector.py" if Path("bridge_connector.py").is_file() else "voice-bridge run"
    servers = f"Servers are added in {_short(settings)}."
    if settings == shipped_settings():
        servers = "Servers of your own go into mcp_settings.json: `voice-bridge init` writes one to start from."
    return f"""
That was the whole path, without a token. For your own device, paste the address that its console shows:

  MCP_ENDPOINT='wss://…' {script}

(or put MCP_ENDPOINT=… into a file called .env). The address holds your token: keep it to yourself.
{servers}"""


def _show_log(bridge: BridgeProcess, say: Callable[[str], None]) -> None:
    last = bridge.log()[-LAST_LINES:]
    if last:
        say("The bridge's last words:\n" + "\n".join(f"  {line}" for line in last))
    else:
        say("The bridge said nothing.")


def _first(errors: BaseExceptionGroup[Exception]) -> str:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first)
