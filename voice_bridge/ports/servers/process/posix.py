"""Linux, macOS and their like: a child in a session of its own, its group, its orphans, the limit of open files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from voice_bridge.ports.servers.process.child import Events, Process

assert sys.platform != "win32"

_PR_SET_CHILD_SUBREAPER: Final = 36  # <linux/prctl.h>
_PR_GET_CHILD_SUBREAPER: Final = 37
_own: set[int] = set()


class _Pipe(asyncio.Protocol):
    """Passes on what the event loop tells of a pipe."""

    def __init__(self, events: Events, fd: int) -> None:
        self._events, self._fd = events, fd

    def data_received(self, data: bytes) -> None:
        self._events.wrote(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._events.closed(self._fd)


async def start(events: Events, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Process:
    """Starts a program as the leader of a group of its own, so that it never gets our signals.

    Raises OSError or ValueError. Not by way of the event loop: uvloop leaves copies of the pipes open in the child,
    which hides that a server closed its output and lives on; asyncio of 3.11 keeps a thread for each child.
    """
    process = subprocess.Popen(  # noqa: ASYNC220 - as brief as what asyncio itself does here
        command, env=env, cwd=cwd, bufsize=0, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _call_at_exit(process, events.exited)
        return await _connect(process, events)
    except BaseException:
        process.kill()  # nobody would stop it
        raise


async def _connect(process: subprocess.Popen[bytes], events: Events) -> Process:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as opened:
        stdin, _ = await loop.connect_write_pipe(lambda: _Pipe(events, 0), process.stdin)
        opened.callback(stdin.close)
        stdout, _ = await loop.connect_read_pipe(lambda: _Pipe(events, 1), process.stdout)
        opened.callback(stdout.close)
        stderr, _ = await loop.connect_read_pipe(lambda: _Pipe(events, 2), process.stderr)
        opened.pop_all()
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
        _start_thread(_wait_in_thread, process, loop, ended)
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


def _start_thread(work: Callable[..., None], *arguments: object) -> None:
    try:
        threading.Thread(target=work, args=arguments, daemon=True).start()
    except RuntimeError:  # Python's word for what the system calls EAGAIN (pthread_create)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None


def _wait_in_thread(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, ended: Callable[[], None]
) -> None:
    process.wait()
    with contextlib.suppress(RuntimeError):  # the loop has ended before the child
        loop.call_soon_threadsafe(ended)


def reap_orphans() -> None:
    """Waits for adopted orphans that have ended, so that none stays a zombie; never for a child of `start`.

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
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower one that it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def in_group(pid: int, leader: int) -> bool:
    """Whether a process is in its leader's group, or gone."""
    try:
        return os.getpgid(pid) == leader
    except ProcessLookupError:
        return True


def reap_group(leader: int, strays: Iterable[int]) -> None:
    """Waits for those of the group and of the strays that have ended and are children of this process."""
    group = (-leader,) if leader > 1 else ()  # 0 and -1 would mean every child (waitpid(2))
    for target in (*group, *strays):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(target, os.WNOHANG) != (0, 0):
                pass


def signal_group(leader: int, number: int) -> bool:
    """Signals a group; False when there is none, or when it is not ours to signal. 0 only asks."""
    # A group of our own would mean the child never got one: signalling it would end the bridge itself.
    if leader <= 1 or leader == os.getpgrp():
        return False
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
