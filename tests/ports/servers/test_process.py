"""Child processes on this system: commands, starts, groups, orphans, loops."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
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


def program(path: Path, text: bytes = b"#!/bin/sh\n") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    path.chmod(0o755)
    return path


# ---- commands


def test_a_command_is_found_on_path_or_relative_to_the_folder(tmp_path: Path) -> None:
    tool = program(tmp_path / "bin" / "tool")
    assert platforms.resolve("tool", f"/nowhere:{tool.parent}", Path("/")) == str(tool)
    assert platforms.resolve("bin/tool", "/nowhere", tmp_path) == str(tool)
    assert platforms.resolve(str(tool), "", Path("/")) == str(tool)


@pytest.mark.parametrize("name", ["tool", "folder", "plain"])
def test_what_is_no_program_is_not_found_and_the_path_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("text")
    with pytest.raises(ServerError, match=f"command '{name}' was not found; searched {tmp_path}"):
        platforms.resolve(name, str(tmp_path), Path("/"))


ARGS = 'put only the program in "command" and the rest in "args"'


def refusal(command: str, path: str = "/bin", cwd: Path = Path("/")) -> tuple[str, bool]:
    with pytest.raises(ServerError) as refused:
        platforms.resolve(command, path, cwd)
    return str(refused.value), refused.value.passing


def test_relative_entries_of_path_count_from_the_folder(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "tool")
    for path in ("bin", "/nowhere:./bin", f"\0:\ud83d:/etc/passwd:{'x' * 300}:~:bin:"):
        assert platforms.resolve("tool", path, tmp_path) == str(tmp_path / "bin" / "tool")
    assert platforms.resolve("tool", "/nowhere:", tmp_path / "bin") == str(tmp_path / "bin" / "tool")
    assert refusal("tool", "", tmp_path / "bin")[1] is False


@pytest.mark.parametrize("name", ["a" * 300, "nul\0", "half\ud83d", "", ".", "..", "no-such"])
@pytest.mark.parametrize("path", ["", ":", "/bin:\0:\ud83d", "relative", "/etc/passwd", "x" * 5000])
def test_no_name_and_no_path_ends_in_anything_but_a_lasting_refusal(tmp_path: Path, name: str, path: str) -> None:
    text, passing = refusal(name, path, tmp_path)
    assert text.startswith(f"cannot start: command {name!r} was not found; searched ")
    assert text.endswith("; give its full path, or set PATH for the service")
    assert not passing
    text.encode()


@pytest.mark.parametrize(
    ("command", "text", "passing"),
    [
        ("{}/gone", "{}/gone does not exist", True),
        ("gone", "", False),
        ("{}/mount/bin/tool", "{}/mount/bin/tool does not exist; {}/mount is missing", True),
        ("./mount/tool", "{}/mount/tool does not exist; {}/mount is missing", True),
        ("{}/link", "{}/link does not exist; {}/elsewhere is missing", True),
        ("{}/plain/tool", "{}/plain/tool does not exist; {}/plain is not a folder", False),
        ("{}/plain", "{}/plain is not executable", False),
        ("{}", "{} is a folder, not a program", False),
        ("{}/nul\0", "{}/nul\\x00 has a name that no file can have", False),
        ("{}/half\ud83d", "{}/half\\ud83d has a name that no file can have", False),
        ("{}/" + "a" * 300, "{}/" + "a" * 300 + " is out of reach: File name too long", False),
        ("{}/round", "{}/round is out of reach: Too many levels of symbolic links", False),
        ("./tool --fast", "{}/tool --fast does not exist; " + ARGS, False),
        ("sh ./x", "{}/sh ./x does not exist; " + ARGS, False),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_and_whether_it_may_come(
    tmp_path: Path, command: str, text: str, passing: bool
) -> None:
    program(tmp_path / "tool")
    (tmp_path / "plain").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "tool")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    said, passes = refusal(command.replace("{}", str(tmp_path)), cwd=tmp_path)
    assert passes is passing
    if text:
        assert said == "cannot start: " + text.replace("{}", str(tmp_path))


@pytest.mark.parametrize(
    ("folder", "text", "passing"),
    [
        ("gone", "does not exist", True),
        ("mount/data", "does not exist; {}/mount is missing", True),
        ("plain", "is not a folder", False),
        ("plain/x", "does not exist; {}/plain is not a folder", False),
        ("a" * 300, "is out of reach: File name too long", False),
        ("nul\0", "has a name that no file can have", False),
    ],
)
def test_a_working_directory_that_cannot_be_had_is_named(tmp_path: Path, folder: str, text: str, passing: bool) -> None:
    (tmp_path / "plain").write_text("text")
    said, passes = refusal("sh", cwd=tmp_path / folder)
    named = f"{tmp_path}/{folder}".replace("\0", "\\x00")
    assert said == f"cannot start: its working directory {named} {text.replace('{}', str(tmp_path))}"
    assert passes is passing


def test_a_folder_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers import process as platforms
if os.getuid() == 0:
    os.setuid(65534)
for command, cwd in ((sys.argv[1] + "/tool", "/"), ("sh", sys.argv[1])):
    try:
        platforms.resolve(command, "/bin:" + sys.argv[1], Path(cwd))
    except ServerError as error:
        print(error.passing, error)
"""
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        closed = Path(open_to_all, "closed")
        program(closed / "tool")
        closed.chmod(0o000)
        said = script(code, str(closed)).splitlines()
        closed.chmod(0o700)
    assert said == [
        f"False cannot start: {closed}/tool is out of reach: this user may not enter {closed}",
        f"False cannot start: its working directory {closed} is out of reach: this user may not enter {closed}",
    ]


# ---- starting


async def start(command: list[str], env: dict[str, str] | None = None, cwd: Path = Path("/")) -> tuple[str, bool]:
    """How a start is refused."""
    with pytest.raises(ServerError) as refused:
        await platforms.spawn(Events(), command, env or {}, cwd)
    return str(refused.value), refused.value.passing


@pytest.mark.parametrize(
    ("first", "why", "passing"),
    [
        (b"#!/mnt/nas/python -u\n", "its first line names /mnt/nas/python, which is missing", True),
        (b"#!/bin/sh\r\nexit\r\n", "its lines end as on Windows (CR LF): save it with LF", False),
        (b"exit 7\n", "it is neither a program nor a script with a #! line", False),
    ],
)
async def test_a_script_that_nothing_can_run_is_explained(
    tmp_path: Path, first: bytes, why: str, passing: bool
) -> None:
    tool = program(tmp_path / "tool", first)
    assert await start([str(tool)]) == (f"cannot start {tool}: {why}", passing)


async def test_a_program_that_is_still_being_written_may_be_whole_soon(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    shutil.copy("/bin/sh", tool)
    with tool.open("ab"):
        assert await start([str(tool)]) == (f"cannot start {tool}: Text file busy", True)


async def test_what_goes_away_between_finding_and_starting_is_named(tmp_path: Path) -> None:
    assert await start([str(tmp_path / "gone")]) == (f"cannot start {tmp_path}/gone: No such file or directory", True)
    gone = f"cannot start: its working directory {tmp_path}/gone does not exist"
    assert await start(["/bin/sh"], cwd=tmp_path / "gone") == (gone, True)


@pytest.mark.parametrize(
    ("argument", "env", "why"),
    [
        ("a\0b", {}, "argument 1 holds a NUL or half a character"),
        ("\ud83d", {}, "argument 1 holds a NUL or half a character"),
        ("", {"TOKEN": "s3cret\0"}, "the variable TOKEN holds a NUL or half a character"),
        ("", {"TOKEN": "s3cret\ud83d"}, "the variable TOKEN holds a NUL or half a character"),
        ("", {"A=B": "s3cret"}, "'A=B' is no name for a variable"),
        ("x" * 3_000_000, {}, "its arguments and environment are longer than this system allows"),
    ],
    ids=["NUL", "half a character", "NUL in env", "half a character in env", "no name", "too long"],
)
async def test_what_no_process_can_be_given_is_named_and_a_secret_is_not(
    argument: str, env: dict[str, str], why: str
) -> None:
    assert await start(["/bin/sh", argument], env) == (f"cannot start /bin/sh: {why}", False)


SCARCE = """
import asyncio, os, resource, sys
from pathlib import Path
from voice_bridge.errors import ServerError
from voice_bridge.ports.servers import process as platforms

class Events:
    def wrote(self, fd, data): pass
    def closed(self, fd): pass
    def exited(self, code): print("exited", code)

async def main():
    if sys.argv[1] == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(64 - len(os.listdir("/proc/self/fd")) - 2)]
    else:
        os.setuid(65534 - os.getpid() % 1000)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        await platforms.spawn(Events(), ["/bin/sh", "-c", "read x"], {}, Path("/"))
    except ServerError as error:
        print(error.passing, error)

platforms.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts its open files by way of /proc")
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("files", "this program has too many files open; raise its limit (ulimit -n, or LimitNOFILE= of the service)"),
        ("processes", "this user has too many processes; raise the limit"),
    ],
)
@pytest.mark.parametrize("loop", ["", "asyncio"])
def test_what_is_used_up_for_now_passes(what: str, why: str, loop: str) -> None:
    if what == "processes" and os.getuid() != 0:
        pytest.skip("only root can become a user without processes")
    assert script(SCARCE, what, VOICE_BRIDGE_LOOP=loop).startswith(f"True cannot start /bin/sh: {why}")


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


def test_a_tree_without_a_leader_takes_no_other_childs_end_away() -> None:
    child = subprocess.Popen(["sh", "-c", "exit 4"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    for pid in (0, 1):
        assert not platforms.Tree(pid).lives()
    assert child.wait() == 4


class Events:
    """ServerListener a process's end."""

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
