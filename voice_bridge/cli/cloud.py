"""`voice-bridge cloud`: the local voice cloud alone, as a tool for authors of bridges and servers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from voice_bridge.errors import UsageError
from voice_bridge.signals import until_signal
from voice_bridge.simulator.cloud import HOST, VoiceCloud
from voice_bridge.simulator.console import Answerer, Console
from voice_bridge.simulator.kinds import KINDS
from voice_bridge.simulator.terminal import CloudScreen, lines

_KEEP = 200  # frames each session remembers: the prompt shows them as they pass


class KindName(StrEnum):
    """Which cloud is played."""

    OFFICIAL = "official"
    RELAY = "relay"


def cloud(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    kind: Annotated[KindName, typer.Option(help="The official cloud, or the relay people host.")] = KindName.OFFICIAL,
    token: Annotated[str | None, typer.Option(help="Turn away bridges with any other token.")] = None,
    frames: Annotated[bool, typer.Option("--frames", help="Show each frame that goes over the wire.")] = False,
    assistant: Annotated[
        bool, typer.Option("--assistant", help="Answer typed sentences with a model that uses the bridge's tools.")
    ] = False,
) -> None:
    """Play the voice cloud on this machine: any bridge can dial it, and you call its tools.

    With a pipe or a file on stdin it obeys the lines one by one, waits up to 60 s for a bridge, and ends with
    status 1 when one of them failed.
    """
    if token == "":
        raise UsageError("--token is empty: give it a word, or leave it out to let any bridge in")
    raise typer.Exit(run_until_stopped(_serve(port, kind, token, frames, assistant)))


async def _serve(port: int, kind: KindName, token: str | None, frames: bool, assistant: bool) -> int:
    interactive = sys.stdin.isatty()
    screen = CloudScreen(sys.stdout, prompting=interactive and sys.stdout.isatty())
    async with contextlib.AsyncExitStack() as stack:
        answer = await _model(stack, screen) if assistant else None
        console = Console(screen, interactive=interactive, frames=frames, assistant=answer)
        here = VoiceCloud(KINDS[kind], port=port, token=token, keep=_KEEP, on_event=console.show)
        try:
            await stack.enter_async_context(here)
        except OSError as error:
            raise UsageError(_no_port(port, error)) from None
        screen.say(f"The local voice cloud ({kind}) listens on {HOST}:{here.port}. Start a bridge in another terminal:")
        screen.say(f"\n  {start_line(here.url)}\n")
        speak = "Type a sentence, as if to the device, or help" if assistant else "Type help"
        screen.say(f"Waiting for a bridge. {speak} for the commands.")
        return 0 if await console.run(here, lines(sys.stdin)) or interactive else 1


async def _model(stack: contextlib.AsyncExitStack, screen: CloudScreen) -> Answerer:
    """The assistant, closed with the stack. Raises UsageError when no model is set up."""
    from voice_bridge.cli.assistant import Assistant  # only who asks for it pays for the SDK
    from voice_bridge.config.loader import environment

    made = Assistant(screen.say, environ=environment())
    stack.push_async_callback(made.close)
    return made.answer


def start_line(url: str) -> str:
    """What to paste into a shell to start a bridge on this address."""
    script = "python bridge_connector.py" if Path("bridge_connector.py").is_file() else "voice-bridge run"
    return f"$env:MCP_ENDPOINT='{url}'; {script}" if os.name == "nt" else f"MCP_ENDPOINT={url} {script}"


def run_until_stopped(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and return the exit status; Ctrl-C, SIGTERM or a closed terminal end it cleanly with status 0.

    A second Ctrl-C does not cut the clean-up short, which is bounded by the work itself.
    """
    try:
        return asyncio.run(until_signal(work, "SIGINT", "SIGTERM", "SIGHUP"))
    except KeyboardInterrupt:  # before the loop watches for it, or when all is done
        return 0


def _no_port(port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {HOST} is in use: choose another with --port, or leave it out to get a free one"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system: choose one above 1023 with --port"
    return f"port {port} on {HOST} cannot be opened: {error.strerror or error}"
