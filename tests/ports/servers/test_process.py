"""What differs between operating systems, on this one: commands, groups, orphans, loops, signals."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import CHILDREN, ROOT
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers import process as platforms

LOOP = """
import asyncio, sys, threading
from pathlib import Path
from voice_bridge.ports.servers import process as platforms
if "no pidfd" in sys.argv:
    import os
    del os.pidfd_open  # as on macOS

class Events:
    def __init__(self): self.over = asyncio.get_running_loop().create_future(); self.heard = b""
    def wrote(self, fd, data): self.heard += data
    def closed(self, fd): pass
    def exited(self, code): self.over.set_result(code)

async def main():
    events = [Events() for _ in range(20)]
    children = [await platforms.spawn(e, ["sh", "-c", "echo hi; read x; exit 5"], {}, Path("/")) for e in events]
    threads = threading.active_count()
    for child in children:
        child.stdin.close()
    codes = {await asyncio.wait_for(each.over, 10) for each in events}
    print(type(asyncio.get_running_loop()).__module__.split(".")[0], threads, codes, {each.heard for each in events})

platforms.run(main())
"""
ORPHANS = """
import asyncio, os, subprocess, sys, time, psutil
from pathlib import Path
from voice_bridge.ports.servers import process as platforms

FAMILY = "import os\\nif os.fork() == 0:\\n    os.setsid()\\n    os.fork()\\nos._exit(0)"

class Events:
    code = None
    def wrote(self, fd, data): pass
    def closed(self, fd): pass
    def exited(self, code): self.code = code

def zombies():
    return [p.pid for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE]

def wait_until(happened):
    deadline = time.monotonic() + 10
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)  # the event loop stands still meanwhile, and so waits for nobody

async def main():
    for _ in range(5):
        subprocess.run([sys.executable, "-c", FAMILY])
    wait_until(lambda: len(zombies()) >= 10)
    orphans = len(zombies())
    platforms.reap_orphans()
    left = zombies()
    mine = Events()
    process = await platforms.spawn(mine, ["sh", "-c", "read x"], {}, Path("/"))
    os.kill(process.pid, 9)
    wait_until(lambda: process.pid in zombies())
    platforms.reap_orphans()
    kept = zombies() == [process.pid]
    while mine.code is None:
        await asyncio.sleep(0.01)
    print(orphans, left, kept, mine.code, zombies())

platforms.run(main())
"""


def script(code: str, *args: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- commands


def test_a_command_is_found_on_path_or_relative_to_the_folder(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert platforms.resolve("tool", f"/nowhere:{tool.parent}", Path("/")) == str(tool)
    assert platforms.resolve("bin/tool", "/nowhere", tmp_path) == str(tool)
    assert platforms.resolve(str(tool), "", Path("/")) == str(tool)


@pytest.mark.parametrize("name", ["tool", "folder", "plain"])
def test_what_is_no_program_is_not_found_and_the_path_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("text")
    with pytest.raises(ServerError, match=f"command '{name}' was not found; searched {tmp_path}"):
        platforms.resolve(name, str(tmp_path), Path("/"))


# ---- groups


def test_our_own_group_is_never_signalled() -> None:
    code = (
        "import os, voice_bridge.ports.servers.process as p\n"
        "t = p.Tree(os.getpgrp()); t.look(); t.kill(); t.terminate(); print(1)"
    )
    assert script(code) == "1"
    for pid in (0, 1):
        tree = platforms.Tree(pid)
        tree.terminate()
        tree.kill()
        assert not tree.lives()


class Events:
    """Hears a process's end."""

    def __init__(self) -> None:
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def wrote(self, fd: int, data: bytes) -> None:
        assert fd in (1, 2)

    def closed(self, fd: int) -> None:
        assert fd in (0, 1, 2)

    def exited(self, code: int) -> None:
        self.over.set_result(code)


@pytest.fixture
def inheritable() -> Iterator[None]:
    with open(CHILDREN, "rb") as ours:
        os.set_inheritable(ours.fileno(), True)
        yield


@pytest.mark.usefixtures("inheritable")
async def test_a_child_leads_a_session_of_its_own_and_inherits_no_descriptor() -> None:
    events = Events()
    process = await platforms.spawn(events, [sys.executable, CHILDREN], dict(os.environ), Path("/"))
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    assert CHILDREN not in [file.path for file in psutil.Process(process.pid).open_files()]
    process.stdin.close()
    assert await asyncio.wait_for(events.over, 10) == 0
    process.close()


# ---- loops and orphans


@pytest.mark.parametrize(
    ("choice", "argument", "loop", "most_threads"),
    [("", "", "uvloop", 1), ("asyncio", "", "asyncio", 1), ("asyncio", "no pidfd", "asyncio", 21)],
)
def test_twenty_children_need_no_threads_where_the_system_tells_of_their_end(
    choice: str, argument: str, loop: str, most_threads: int
) -> None:
    name, threads, codes = script(LOOP, argument, VOICE_BRIDGE_LOOP=choice).split(" ", 2)
    assert name == loop
    assert int(threads) <= most_threads
    assert codes == "{5} {b'hi\\n'}"


def test_without_adoption_other_peoples_children_are_left_alone() -> None:
    code = (
        "import os, subprocess; from voice_bridge.ports.servers import process as platforms\n"
        "child = subprocess.Popen(['sh', '-c', 'exit 4'])\n"
        "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)\n"
        "platforms.reap_orphans(); print(child.wait())"
    )
    assert script(code) == "4"


def test_adopted_orphans_are_reaped_and_our_own_children_are_not() -> None:
    assert script(ORPHANS) == "10 [] True -9 []"
