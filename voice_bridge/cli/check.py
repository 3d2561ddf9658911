"""`voice-bridge check`: what is wrong, and the remedy, before a device finds out."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from typing import Annotated, Any

import typer

from voice_bridge.cli.options import ConfigOption, settings_for
from voice_bridge.config import EndpointSettings, Settings
from voice_bridge.core.keys import ClientKey, EndpointKey
from voice_bridge.core.lifecycle import State
from voice_bridge.errors import EndpointTaken
from voice_bridge.observe import log
from voice_bridge.ownership.lock import EndpointLock
from voice_bridge.ports.clients.endpoint import CloudConnection
from voice_bridge.ports.servers import process
from voice_bridge.runtime import plan
from voice_bridge.runtime.daemon import NO_ENDPOINT
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.secrets import mask
from voice_bridge.text import plural

HANDSHAKE_WITHIN = 15.0
BYTES_A_TOKEN = 4
MANY_TOKENS = 3000
_EXTRAS = {
    "documents": ("chromadb", "document search"),
    "agent": ("anthropic", "voice-bridge agent and chat"),
    "postgres": ("psycopg", "the database server with PostgreSQL"),
}


def check(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|SCRIPT …]", help="Check only these servers or scripts."),
    ] = None,
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not dial the endpoint.")] = False,
) -> None:
    """Start, list and stop every server, dial the endpoint, and say what is wrong. Status 1 when something is."""
    log.configure(quiet=True)
    settings = settings_for(servers or [], config)
    if not process.run(_Report(settings, dial=not offline).run()):
        raise typer.Exit(1)


class _Report:
    def __init__(self, settings: Settings, *, dial: bool) -> None:
        self._settings, self._dial = settings, dial
        self._faults = 0

    async def run(self) -> bool:
        """Prints the report; False when something is wrong."""
        self._say_settings()
        async with Runtime(self._settings, readers=[log.LogReader()]) as runtime:
            await runtime.settled()
            self._say_servers(runtime)
            with runtime.local_client() as client:
                self._say_size([(client.owner(tool["name"]), tool) for tool in await client.tools()])
            if self._dial:
                await self._say_endpoints(runtime)
        self._say_extras()
        print()
        print("All is well." if not self._faults else f"{plural(self._faults, 'thing')} to put right.")
        return not self._faults

    def _good(self, text: str) -> None:
        print(f"  ok    {text}")

    def _bad(self, text: str) -> None:
        self._faults += 1
        print(f"  WRONG {mask(text)}")

    def _say_settings(self) -> None:
        print(f"Settings: {self._settings.source or 'none, a script was named'}")
        for sentence in self._settings.problems.values():
            self._bad(sentence)
        for sentence in self._settings.warnings:
            print(f"  note  {sentence}")
        if not self._settings.problems:
            self._good(
                f"{plural(len(self._settings.servers), 'server')}, {plural(len(self._settings.endpoints), 'endpoint')}"
            )

    def _say_servers(self, runtime: Runtime) -> None:
        print("Servers:")
        for status in runtime.statuses():
            if status.state is State.READY:
                self._good(f"{status.name}: {plural(status.tools, 'tool')}, ready in {status.took:.2f} s")
            else:
                self._bad(f"{status.name}: {status.reason}")
        for server in self._settings.servers.values():
            if server.disabled:
                print(f"  off   {server.name}")
        if not self._settings.enabled_servers:
            self._bad("no server is switched on")

    def _say_size(self, tools: list[tuple[str, dict[str, Any]]]) -> None:
        """Clouds give every request the whole list, so its size costs time and attention in each conversation."""
        if not tools:
            return
        sizes: dict[str, int] = {}
        for owner, tool in tools:
            text = json.dumps(tool, ensure_ascii=False, separators=(",", ":"))
            sizes[owner] = sizes.get(owner, 0) + len(text.encode()) // BYTES_A_TOKEN
        total = sum(sizes.values())
        print("Tool list:")
        self._good(f"{plural(len(tools), 'tool')}, about {total:,} tokens for the model in each conversation")
        if total > MANY_TOKENS:
            largest = max(sizes, key=lambda owner: sizes[owner])
            advice = 'leave some out with "tools": {"include": […]}'
            print(f"  note  voice models work best below {MANY_TOKENS:,}; {largest} takes {sizes[largest]:,}: {advice}")

    async def _say_endpoints(self, runtime: Runtime) -> None:
        print("Endpoints:")
        if not self._settings.enabled_endpoints:
            self._bad(NO_ENDPOINT)
        async with asyncio.TaskGroup() as group:
            for endpoint in self._settings.enabled_endpoints:
                group.create_task(self._say_endpoint(runtime, endpoint))

    async def _say_endpoint(self, runtime: Runtime, endpoint: EndpointSettings) -> None:
        try:
            lock = EndpointLock(endpoint.name, endpoint.url)
        except EndpointTaken as taken:
            print(f"  note  {endpoint.name} was not dialled: {taken}")
            return
        if lock.remark:
            print(f"  note  {endpoint.name}: {lock.remark}")
        with lock:
            began = time.monotonic()
            reason = await _shake_hands(runtime, endpoint)
        if reason:
            self._bad(f"{endpoint.name}: {reason}")
        else:
            self._good(f"{endpoint.name}: connected and greeted in {time.monotonic() - began:.2f} s")

    def _say_extras(self) -> None:
        print("Extras:")
        for extra, (module, what) in _EXTRAS.items():
            if importlib.util.find_spec(module) is not None:
                self._good(f"{extra} ({what})")
            else:
                print(f"  off   {extra} ({what}): pip install 'mcp-voice-bridge[{extra}]'")


class _Probe:
    """A connection's way into the runtime, for one handshake."""

    def __init__(self, runtime: Runtime, key: EndpointKey, endpoint: EndpointSettings) -> None:
        self._runtime, self._key = runtime, key
        self._client: ClientKey | None = None
        self.dial = CloudConnection(endpoint, runtime.settings.bridge, self)

    def opened(self) -> None:
        view = plan.view(self._runtime.settings, self._key)
        self._client = self._runtime.open_client(view, self.dial.deliver)

    def received(self, data: bytes) -> None:
        if self._client is not None:
            self._runtime.client_message(self._client, data)

    def owes(self) -> bool:
        return False

    def answered(self) -> bool:
        client = self._runtime.router.peers.clients.get(self._client) if self._client is not None else None
        return client is not None and client.answered


async def _shake_hands(runtime: Runtime, endpoint: EndpointSettings) -> str:
    """Dials once; empty when the cloud asked for something and was answered, else why not."""
    probe = _Probe(runtime, EndpointKey(endpoint.name), endpoint)
    running = asyncio.ensure_future(probe.dial.run())
    deadline = time.monotonic() + HANDSHAKE_WITHIN
    while not probe.answered() and not running.done() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    probe.dial.hang_up()
    verdict = await running
    if probe.answered():
        return ""
    late = f"connected, but no handshake came within {HANDSHAKE_WITHIN:g} s"
    return verdict.text if time.monotonic() < deadline else late
