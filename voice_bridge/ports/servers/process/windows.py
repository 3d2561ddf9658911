"""Windows: a child and its pipes by way of the event loop; no groups, no orphans, no limit of open files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from voice_bridge.ports.servers.process.child import Events, Process

assert sys.platform == "win32"


class _Told(asyncio.SubprocessProtocol):
    """Passes on what the event loop tells of a process."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._events.wrote(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._events.closed(fd)

    def process_exited(self) -> None:
        self._events.exited(self._transport.get_returncode() or 0)


async def start(events: Events, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Process:
    """Starts a program as the leader of a group. Raises OSError or ValueError."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.subprocess_exec(
        lambda: _Told(events), *command, env=env, cwd=str(cwd), creationflags=subprocess.CREATE_NEW_PROCESS_GROUP
    )
    stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
    return Process(transport.get_pid() or 0, stdin, (transport,))


def reap_orphans() -> None:
    """Nothing to do: Windows keeps no zombies."""


def adopt_orphans() -> None:
    """Nothing to do: Windows keeps no zombies."""


def allow_files(number: int) -> None:
    """Nothing to do: Windows has no such limit."""


def in_group(pid: int, leader: int) -> bool:
    """Never: Windows has no groups that a process could leave, so each member is named by itself."""
    return False


def reap_group(leader: int, strays: Iterable[int]) -> None:
    """Nothing to do: Windows keeps no zombies."""


def signal_group(leader: int, number: int) -> bool:
    """Ends the leader alone, whatever the signal; 0 only asks. False: there is no group that could be left."""
    if number:
        with contextlib.suppress(OSError):
            os.kill(leader, signal.SIGTERM)
    return False
