"""Finding a program and starting it. Whatever prevents that is a sentence, and says whether it may pass by itself."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from voice_bridge.errors import ServerError
from voice_bridge.ports.servers.process.child import Events, Process
from voice_bridge.ports.servers.process.system import start
from voice_bridge.text import one_line

_LONGEST_PATH = 1000
_ONLY_THE_PROGRAM = 'put only the program in "command" and the rest in "args"'
_WORDS = {
    errno.ENOEXEC: "it is neither a program nor a script with a #! line",
    errno.E2BIG: "its arguments and environment are longer than this system allows",
    errno.EMFILE: "this program has too many files open; raise its limit (ulimit -n, or LimitNOFILE= of the service)",
    errno.EAGAIN: "this user has too many processes; raise the limit (ulimit -u, or TasksMax= of the service)",
}
_PASSING = frozenset(
    getattr(errno, name, 0)
    # Used up for now; being written; a disk that is not mounted yet, or whose other end is away.
    for name in (
        "EAGAIN", "EMFILE", "ENFILE", "ENOMEM", "ETXTBSY", "ENOENT", "ENODEV", "ENXIO", "EIO", "ENOTCONN",
        "ESTALE", "ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH",
    )
)  # fmt: skip


def resolve(command: str, path: str, cwd: Path) -> str:
    """The program's full path, as a shell in `cwd` would find it; on Windows that includes `npx.cmd` and its like.

    Raises ServerError, and nothing else; it names the PATH searched, or what is missing.
    """
    _check_folder(cwd)
    if found := _find(command, path, cwd):
        return found
    if not _is_path(command):
        remedy = _ONLY_THE_PROGRAM if " " in command else "give its full path, or set PATH for the service"
        searched = one_line(path, _LONGEST_PATH)
        raise _refused(f"cannot start: command {command!r} was not found; searched {searched}; {remedy}")
    program = str(cwd / command)
    first, space, _ = command.partition(" ")
    if space and first and _find(first, path, cwd):
        raise _refused(f"cannot start: {program} does not exist; {_ONLY_THE_PROGRAM}")
    fault, passing = _fault(program)
    raise _refused(f"cannot start: {program} {fault or _no_program(program)}", passing)


def _is_path(command: str) -> bool:
    return os.sep in command or "/" in command


def _find(command: str, path: str, cwd: Path) -> str | None:
    try:
        return shutil.which(str(cwd / command) if _is_path(command) else command, path=_absolute(path, cwd))
    except (OSError, ValueError):  # a name that no file can have, on some systems
        return None


def _absolute(path: str, cwd: Path) -> str:
    """PATH with its relative entries counted from `cwd`; an empty one means `cwd` itself (POSIX XBD 8.3)."""
    return os.pathsep.join(str(cwd / entry) for entry in path.split(os.pathsep)) if path else ""


def _check_folder(folder: Path) -> None:
    fault, passing = _fault(str(folder))
    if not fault and not os.path.isdir(folder):
        fault = "is not a folder"
    if fault:
        raise _refused(f"cannot start: its working directory {folder} {fault}", passing)


def _no_program(path: str) -> str:
    return "is a folder, not a program" if os.path.isdir(path) else "is not executable"


def _fault(path: str) -> tuple[str, bool]:
    """Why nothing can be found at a path, and whether that may pass; no words when something is there."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode) and not os.access(path, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except FileNotFoundError:
        return f"does not exist{_missing(path)}", True
    except NotADirectoryError:
        return f"does not exist; {_first(path, os.path.isfile) or path} is not a folder", False
    except PermissionError:
        return f"is out of reach: this user may not enter {_first(path, _closed) or path}", False
    except ValueError:
        return "has a name that no file can have", False
    except OSError as error:
        return f"is out of reach: {error.strerror}", error.errno in _PASSING
    return "", False


def _missing(path: str) -> str:
    """What else is missing besides the last part of a path: a folder on the way, or what a link leads to."""
    missing = _first(path, lambda part: not os.path.lexists(part))
    folder, name = os.path.split(path)
    return "" if missing in ("", path, os.path.join(os.path.realpath(folder), name)) else f"; {missing} is missing"


def _closed(folder: str) -> bool:
    return os.path.isdir(folder) and not os.access(folder, os.X_OK)


def _first(path: str, holds: Callable[[str], bool]) -> str:
    """The shortest beginning of a path for which something holds; empty when it holds for none."""
    real = Path(os.path.realpath(path))  # what a link leads to may be what is missing
    return next((str(part) for part in (*reversed(real.parents), real) if holds(str(part))), "")


async def spawn(events: Events, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Process:
    """Starts a program as the leader of a group of its own. `command` begins with what `resolve` found.

    Raises ServerError, and nothing else.
    """
    try:
        return await start(events, command, env, cwd)
    except ValueError as error:
        raise _refused(f"cannot start {command[0]}: {_unfit(command, env) or error}") from None
    except OSError as error:
        _check_folder(cwd)
        why, passing = _why(command[0], error)
        raise _refused(f"cannot start {command[0]}: {why}", passing) from None


def _why(program: str, error: OSError) -> tuple[str, bool]:
    if error.errno == errno.ENOENT and not _fault(program)[0]:
        return _no_interpreter(program)
    words = _WORDS.get(error.errno or 0) or error.strerror or str(error)
    return words, error.errno in _PASSING


def _no_interpreter(program: str) -> tuple[str, bool]:
    """What the system calls a missing file although the program is there (execve(2))."""
    try:
        with open(program, "rb") as file:
            first = file.readline(300).removesuffix(b"\n")
    except OSError as error:
        return error.strerror or str(error), error.errno in _PASSING
    if not first.startswith(b"#!"):
        return "it was built for another system: its loader does not exist", False
    if first.endswith(b"\r"):
        return "its lines end as on Windows (CR LF): save it with LF", False
    interpreter = os.fsdecode(first[2:].strip().split(b" ")[0])
    return f"its first line names {interpreter}, which is missing", True


def _unfit(command: Sequence[str], env: Mapping[str, str]) -> str:
    """The first word or variable that no process can be given; values are not told, for they may be secrets."""
    for number, word in enumerate(command):
        if not _fits(word):
            return f"argument {number} holds a NUL or half a character"
    for name, value in env.items():
        if not _fits(name) or not name or "=" in name:
            return f"{name!r} is no name for a variable"
        if not _fits(value):
            return f"the variable {name} holds a NUL or half a character"
    return ""


def _fits(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _refused(text: str, passing: bool = False) -> ServerError:
    return ServerError(one_line(text), passing=passing)
