"""What people and systems do to a bridge, and what it must say of each, while it runs and when it starts.

Words that stand before a bridge's command line change what the system grants it: really, not in pretence.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.config.wrong_values import Case
from tests.support import Json

LONG = "n" * 300
RUN_MODULE = ("sh", "-c", 'python=$0; shift; exec "$python" -m voice_bridge run "$@"')
"""Starts a bridge as `python -m voice_bridge run` instead of by its script."""
_NOT_ALL_POWERFUL = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
_WITHOUT_INOTIFY = (
    "unshare", "--user", "--map-root-user",
    "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"',
)  # fmt: skip
_TRY_INOTIFY = "import ctypes; print(ctypes.CDLL(None).inotify_init())"


class Wrong(NamedTuple):
    """An entry that is wrong, and what is said of it: the thing and the cause, and the remedy where there is one."""

    section: str
    entry: Callable[[Path], Json]
    words: str


def _closed(folder: Path) -> str:
    (folder / "closed" / "in").mkdir(parents=True)
    (folder / "closed").chmod(0)
    return str(folder / "closed" / "in")


def _behind_a_file(folder: Path) -> str:
    (folder / "file").write_text("")
    return str(folder / "file" / "in")


def _loop(folder: Path) -> str:
    (folder / "loop").symlink_to(folder / "loop")
    return str(folder / "loop")


def _pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def _no_certificate(folder: Path) -> str:
    (folder / "ca.pem").write_text("no certificate\n")
    return "ca.pem"


def _tls(ca_file: str) -> Json:
    return {"url": "wss://127.0.0.1:9/?token=another-77", "caFile": ca_file}


ENTRIES = {
    "an open bracket in a url": Wrong(
        "mcpServers",
        lambda _: {"url": "http://[::1/mcp"},
        r"mcpServers odd: url: it is not like 'https://HOST/mcp'; look at its brackets",
    ),
    "an open bracket in an sse url": Wrong(
        "mcpServers", lambda _: {"url": "http://[::1/mcp", "type": "sse"}, r"mcpServers odd: url: it is not like"
    ),
    "a url without a host": Wrong(
        "mcpServers",
        lambda _: {"url": "http:///mcp"},
        r"odd: cannot be reached: its url must begin with https:// or http:// and name a host",
    ),
    "a cwd of 300 letters": Wrong(
        "mcpServers",
        lambda _: {"command": "cat", "cwd": LONG},
        r"mcpServers odd: cwd: /.*nnn.* cannot be used: file name too long",
    ),
    "a command of 300 letters": Wrong(
        "mcpServers",
        lambda _: {"command": LONG},
        r"mcpServers odd: command: /.*nnn.* cannot be used: file name too long",
    ),
    "a cwd in a closed folder": Wrong(
        "mcpServers",
        lambda folder: {"command": "cat", "cwd": _closed(folder)},
        r"mcpServers odd: cwd: /.*/closed/in cannot be used: permission denied",
    ),
    "a cwd behind a file": Wrong(
        "mcpServers",
        lambda folder: {"command": "cat", "cwd": _behind_a_file(folder)},
        r"odd: cannot start: its working directory /.*/file/in does not exist; /.*/file is not a folder",
    ),
    "a cwd in a loop of links": Wrong(
        "mcpServers",
        lambda folder: {"command": "cat", "cwd": _loop(folder)},
        r"odd: cannot start: its working directory /.*/loop is out of reach: Too many levels of symbolic links",
    ),
    "a command in a loop of links": Wrong(
        "mcpServers",
        lambda folder: {"command": _loop(folder)},
        r"odd: cannot start: /.*/loop is out of reach: Too many levels of symbolic links",
    ),
    "a list as the type": Wrong(
        "mcpServers",
        lambda _: {"command": "cat", "type": []},
        r"mcpServers odd: a list is not a transport; use one of: stdio, ",
    ),
    "a list as the type of a url": Wrong(
        "mcpServers",
        lambda _: {"url": "http://127.0.0.1:9/mcp", "type": ["http"]},
        r"mcpServers odd: a list is not a transport; use one of: stdio, ",
    ),
    "an open bracket in an endpoint": Wrong(
        "endpoints",
        lambda _: {"url": "wss://[::1/"},
        r"endpoints odd: the address is not like 'wss://HOST/mcp/\?token=.*'; paste it anew from the console",
    ),
    "a caFile of 300 letters": Wrong(
        "endpoints",
        lambda _: _tls(LONG),
        r"endpoints odd: caFile: /.*nnn.* cannot be used: file name too long",
    ),
    "a caFile in a loop of links": Wrong(
        "endpoints",
        lambda folder: _tls(_loop(folder)),
        r"^odd: not connected: caFile /.*/loop cannot be used: Too many",
    ),
    "a caFile that is a pipe": Wrong(
        "endpoints", lambda folder: _tls(_pipe(folder)), r"endpoints odd: caFile: /.*/pipe cannot be used: it is a pipe"
    ),
    "a caFile without end": Wrong(
        "endpoints",
        lambda _: _tls("/dev/zero"),
        r"^odd: not connected: caFile /dev/zero cannot be used: it holds no",
    ),
    "a caFile without a certificate": Wrong(
        "endpoints",
        lambda folder: _tls(_no_certificate(folder)),
        r"^odd: not connected: caFile /.*/ca\.pem cannot be used: it holds no",
    ),
}

BROKEN_PARTS = {
    "missing": "raise ModuleNotFoundError('no module named x', name='x')",
    "unfit": "raise AttributeError('built for another\\nversion')",
    "ends": "raise SystemExit('not on this machine')",
}
"""What the HTTP client's library does while it is loaded."""
CANNOT_BE_LOADED = (
    r"cannot start: the part for remote servers cannot be loaded: \w+: .+; install mcp-voice-bridge anew; next try in"
)


def broken_part(folder: Path, how: str) -> dict[str, str]:
    """An environment in which the HTTP client's library cannot be loaded; without the folder it can."""
    library = folder / "httpx2"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(BROKEN_PARTS[how])
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def before(kind: str) -> tuple[str, ...]:
    """The words that a case's bridge is started with; skips the case where this user cannot have it."""
    if "closed" not in kind:
        return ()
    return without_power_over_files()


def without_power_over_files() -> tuple[str, ...]:
    """Words that start a program for which a closed folder is closed, even where the tests run as root."""
    return _usable(_NOT_ALL_POWERFUL, "true") if _is_all_powerful() else ()


def _is_all_powerful() -> bool:
    return subprocess.run(["sh", "-c", "test -r /proc/1/environ"], check=False).returncode == 0


def without_inotify() -> tuple[str, ...]:
    """Words that start a program whose inotify instances are used up; its own user namespace leaves others theirs."""
    words = _usable(_WITHOUT_INOTIFY, "true")
    tried = subprocess.run([*words, "python3", "-c", _TRY_INOTIFY], capture_output=True, text=True, check=True)
    assert tried.stdout.strip() == "-1"
    return words


def _usable(words: tuple[str, ...], program: str) -> tuple[str, ...]:
    if not shutil.which(words[0]) or subprocess.run([*words, program], capture_output=True, check=False).returncode:
        pytest.skip(f"{words[0]} is not to be had here")
    return words


def sample(cases: Iterable[Case], seed: int) -> list[Case]:
    """Some of the cases, always the same ones: every key, and in every section every kind of value."""
    shuffled = sorted(cases)
    random.Random(seed).shuffle(shuffled)
    chosen: list[Case] = []
    covered: set[Hashable] = set()
    for case in shuffled:
        if not _features(case[0]) <= covered:
            covered |= _features(case[0])
            chosen.append(case)
    return chosen


def _features(what: str) -> set[Hashable]:
    """What a case's name says that it covers."""
    place, _, kind = what.removesuffix(" twice").partition(": ")
    section = next((name for name in ("mcpServers", "endpoints", "bridge") if place.startswith(name)), "whole")
    return {place, (section, kind)}
