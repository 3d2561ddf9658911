"""Everything that differs between operating systems: finding a command, ending a tree of processes, the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from voice_bridge.errors import ServerError

if TYPE_CHECKING:
    import psutil

T = TypeVar("T")
MARK: Final = "VOICE_BRIDGE_SERVER"
_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>
_PR_GET_CHILD_SUBREAPER: Final = 37


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


class Events(Protocol):
    """What a child process tells; `fd` is 0, 1 or 2 as the child sees it."""

    def wrote(self, fd: int, data: bytes) -> None:
        """It wrote to one of its pipes."""

    def closed(self, fd: int) -> None:
        """It closed one of its pipes, mostly by ending."""

    def exited(self, code: int) -> None:
        """It ended; negative for a signal."""


@dataclass(frozen=True, slots=True)
class Process:
    """A started program, its standard input, and all that must be closed in the end."""

    pid: int
    stdin: asyncio.WriteTransport
    transports: tuple[asyncio.BaseTransport, ...]

    def close(self) -> None:
        """Lets go of the pipes, also of one that something out of reach holds open."""
        for transport in self.transports:
            transport.close()


class Tree:
    """Everything a child started: its process group, and what left the group but descends from it or bears its mark."""

    def __init__(self, pid: int, mark: str = "") -> None:
        self._pid, self._mark = pid, mark
        self._strays: list[psutil.Process] = []
        self._gone: type[Exception] = OSError

    def look(self) -> None:
        """Notes the members outside the group; once their parents are gone nobody could name them.

        The mark finds those whose parent has crashed already: the system made them children of this process.
        """
        import psutil

        self._gone = psutil.Error
        members: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error, OSError):
            members.update(psutil.Process(self._pid).children(recursive=True))
        with contextlib.suppress(psutil.Error, OSError):
            members.update(process for process in psutil.Process().children(recursive=True) if self._marks(process))
        self._strays = [
            process for process in members if process.pid != self._pid and not _in_group(process.pid, self._pid)
        ]

    def _marks(self, process: psutil.Process) -> bool:
        with contextlib.suppress(self._gone, OSError):
            return bool(self._mark) and process.environ().get(MARK) == self._mark
        return False

    def terminate(self) -> None:
        """Asks all of it to end."""
        self._signal("SIGTERM")

    def kill(self) -> None:
        """Ends all of it."""
        self._signal("SIGKILL")

    def lives(self) -> bool:
        """Whether anything is left. Only to be asked when the leader itself has been waited for."""
        _reap_group(self._pid, [process.pid for process in self._strays])
        return _signal_group(self._pid, 0) or any(process.is_running() for process in self._strays)

    def _signal(self, name: str) -> None:
        _signal_group(self._pid, getattr(signal, name, signal.SIGTERM))
        for process in self._strays:
            with contextlib.suppress(self._gone):
                process.kill() if name == "SIGKILL" else process.terminate()


if sys.platform == "win32":

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

    async def spawn(events: Events, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Process:
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

    def lock(file: IO[str]) -> bool:
        """Locks an open file for this process; False when another process has it."""
        import msvcrt

        file.seek(1 << 20)  # past the text, which others may read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _in_group(pid: int, leader: int) -> bool:
        return False

    def _reap_group(leader: int, strays: Iterable[int]) -> None:
        pass

    def _signal_group(leader: int, number: int) -> bool:
        if number:
            with contextlib.suppress(OSError):
                os.kill(leader, signal.SIGTERM)
        return False

else:
    _own: set[int] = set()

    class _Pipe(asyncio.Protocol):
        """Passes on what the event loop tells of a pipe."""

        def __init__(self, events: Events, fd: int) -> None:
            self._events, self._fd = events, fd

        def data_received(self, data: bytes) -> None:
            self._events.wrote(self._fd, data)

        def connection_lost(self, exc: Exception | None) -> None:
            self._events.closed(self._fd)

    async def spawn(events: Events, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Process:
        """Starts a program as the leader of a group of its own, so that it never gets our signals.

        Raises OSError or ValueError. Not by way of the event loop: uvloop leaves copies of the pipes open in the
        child, which hides that a server closed its output and lives on; asyncio of 3.11 keeps a thread for each child.
        """
        process = subprocess.Popen(  # noqa: ASYNC220 - as brief as what asyncio itself does here
            command, env=env, cwd=cwd, bufsize=0, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        _call_at_exit(process, events.exited)
        try:
            return await _connect(process, events)
        except BaseException:
            process.kill()  # nobody would stop it
            raise

    async def _connect(process: subprocess.Popen[bytes], events: Events) -> Process:
        loop = asyncio.get_running_loop()
        stdin, _ = await loop.connect_write_pipe(lambda: _Pipe(events, 0), process.stdin)
        stdout, _ = await loop.connect_read_pipe(lambda: _Pipe(events, 1), process.stdout)
        stderr, _ = await loop.connect_read_pipe(lambda: _Pipe(events, 2), process.stderr)
        return Process(process.pid, stdin, (stdin, stdout, stderr))

    def _call_at_exit(process: subprocess.Popen[bytes], exited: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        _own.add(process.pid)

        def ended() -> None:
            code = process.wait()
            _own.discard(process.pid)
            exited(code)

        fd = _exit_descriptor(process.pid)
        if fd is None:
            threading.Thread(target=_wait_in_thread, args=(process, loop, ended), daemon=True).start()
            return

        def readable() -> None:
            loop.remove_reader(fd)
            os.close(fd)
            ended()

        loop.add_reader(fd, readable)

    def _exit_descriptor(pid: int) -> int | None:
        """Readable once the process has ended; None where the system is not Linux, or old, or locked down."""
        if sys.platform == "linux":
            with contextlib.suppress(AttributeError, OSError):
                return os.pidfd_open(pid)
        return None

    def _wait_in_thread(
        process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: Callable[[], None]
    ) -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended before the child
            loop.call_soon_threadsafe(ended)

    def reap_orphans() -> None:
        """Waits for adopted orphans that have ended, so that none stays a zombie; never for a child of `spawn`.

        Only after `adopt_orphans`, and then a program that other code of this process started counts as an orphan.
        """
        if sys.platform != "linux" or not _adopts_orphans():
            return
        with contextlib.suppress(ChildProcessError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and dead.si_pid not in _own:
                os.waitpid(dead.si_pid, os.WNOHANG)

    def adopt_orphans() -> None:
        """On Linux, makes this process the parent of its children's orphans, so that it can wait for them.

        Without it a killed grandchild stays a zombie wherever process 1 does not reap, as in most containers.
        """
        if sys.platform == "linux":
            import ctypes

            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def _adopts_orphans() -> bool:
        if sys.platform != "linux":
            return False
        import ctypes

        answer = ctypes.c_int(0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
        return bool(answer.value)

    def allow_files(number: int) -> None:
        """Raises the limit of open files to this many, as far as the system lets us."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = number if hard == resource.RLIM_INFINITY else min(number, hard)
        if wanted > soft:  # only when needed: children inherit it, and some old programs walk through all of them
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def lock(file: IO[str]) -> bool:
        """Locks an open file for this process; False when another process has it."""
        import fcntl

        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _in_group(pid: int, leader: int) -> bool:
        try:
            return os.getpgid(pid) == leader
        except ProcessLookupError:
            return True

    def _reap_group(leader: int, strays: Iterable[int]) -> None:
        for target in (-leader, *strays):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(target, os.WNOHANG) != (0, 0):
                    pass

    def _signal_group(leader: int, number: int) -> bool:
        # A group of our own would mean the child never got one: signalling it would end the bridge itself.
        if leader <= 1 or leader == os.getpgrp():
            return False
        try:
            os.killpg(leader, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a program to its end on uvloop; plain asyncio on Windows or with `VOICE_BRIDGE_LOOP=asyncio`."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        if os.environ.get("VOICE_BRIDGE_LOOP") != "asyncio":
            import uvloop

            factory = uvloop.new_event_loop
    adopt_orphans()
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


@contextlib.contextmanager
def on_signals(stop: Callable[[], object], reload: Callable[[], object]) -> Iterator[None]:
    """Calls back on SIGINT and SIGTERM, and on SIGHUP where there is one, while the block runs."""
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(stop))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        return
    calls = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: reload}
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in calls:
            loop.remove_signal_handler(number)
