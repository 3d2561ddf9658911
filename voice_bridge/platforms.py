"""Everything that differs between operating systems: finding a command, ending a tree of processes, the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from voice_bridge.errors import ServerError

T = TypeVar("T")


def resolve(command: str, path: str, cwd: Path) -> str:
    """The program's full path, as a shell in `cwd` would find it; on Windows that includes `npx.cmd` and its like.

    Raises ServerError that names the PATH searched.
    """
    if os.sep in command or "/" in command:
        command = str(cwd / command)
    found = shutil.which(command, path=path)
    if found:
        return found
    if os.path.isabs(command):
        why = "is not executable" if Path(command).is_file() else "does not exist"
        raise ServerError(f"cannot start: {command} {why}")
    remedy = "give its full path, or set PATH for the service"
    if " " in command:
        remedy = 'put only the program in "command" and the rest in "args"'
    raise ServerError(f"cannot start: command {command!r} was not found; searched {path}; {remedy}")


def own_group() -> Mapping[str, Any]:
    """Options that start a child as the leader of a process group of its own, so that it never gets our signals."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


if sys.platform == "win32":
    import psutil

    def _tree(pid: int) -> Iterator[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            leader = psutil.Process(pid)
            yield from leader.children(recursive=True)
            yield leader

    def _end_all(pid: int) -> None:
        for process in list(_tree(pid)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def terminate_group(pid: int) -> None:
        """Asks the child's whole tree to end."""
        _end_all(pid)

    def kill_group(pid: int) -> None:
        """Ends the child's whole tree."""
        _end_all(pid)

    def group_lives(pid: int) -> bool:
        """Whether anything of the child's tree is left."""
        return any(True for _ in _tree(pid))

else:

    def _signal_group(pid: int, number: int) -> bool:
        # A group of our own would mean the child never got one: signalling it would end the bridge itself.
        if pid <= 1 or pid == os.getpgrp():
            return False
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def terminate_group(pid: int) -> None:
        """Asks the child's whole group to end."""
        _signal_group(pid, signal.SIGTERM)

    def kill_group(pid: int) -> None:
        """Ends the child's whole group."""
        _signal_group(pid, signal.SIGKILL)

    def group_lives(pid: int) -> bool:
        """Whether anything of the child's group is left."""
        return _signal_group(pid, 0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program to its end on uvloop; plain asyncio on Windows or with `VOICE_BRIDGE_LOOP=asyncio`."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        if os.environ.get("VOICE_BRIDGE_LOOP") != "asyncio":
            import uvloop

            factory = uvloop.new_event_loop
        elif sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
            # The default watcher of 3.11 keeps a thread for each child.
            asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


@contextlib.contextmanager
def ending_signals(call: Callable[[], object]) -> Iterator[None]:
    """Calls back on SIGINT, SIGTERM and SIGHUP's like while the block runs."""
    if sys.platform == "win32":
        loop = asyncio.get_running_loop()
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(call))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
