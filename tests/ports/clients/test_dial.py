"""Names and addresses in the field, in namespaces of their own: IPv6 that leads nowhere, DNS that comes late."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support import ROOT, TOKEN, Bridge, child, eventually, listening, write_settings
from voice_bridge.ports.clients import dial
from voice_bridge.ports.clients.dial import HEAD_START, reach
from voice_bridge.simulator import OFFICIAL, VoiceCloud

HOSTS = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && '
BLACK_HOLE = (  # a tunnel that nobody reads from swallows every packet
    "ip link set lo up && ip tuntap add mode tun black && ip link set black up && "
    "ip -6 address add fd00:b1ac::2/64 dev black nodad && "
)
REACH = """
import asyncio, os, sys, time
from voice_bridge import loop
from voice_bridge.ports.clients import dial
from voice_bridge.ports.clients.dial import reach

async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1] if sys.argv[2] == "open" else 9
    dial.WITHIN = 1.0
    before = len(os.listdir("/proc/self/fd"))
    began = time.monotonic()
    try:
        with await reach(sys.argv[1], port) as sock:
            name = sock.family.name
    except OSError as error:
        name = f"{type(error).__name__}:{error.errno}"
    print(name, round(time.monotonic() - began, 2), len(os.listdir("/proc/self/fd")) - before)

loop.run(main())
"""


def namespaces(flags: str, network: str = "") -> list[str]:
    """The command that gives a program namespaces of its own; skips the test where that is not allowed."""
    command = ["unshare", flags]
    try:
        tried = subprocess.run([*command, "sh", "-c", network + "true"], capture_output=True, timeout=10, check=False)
        why = tried.stderr.decode().strip() if tried.returncode else ""
    except OSError as error:
        why = str(error)
    if why:
        pytest.skip(f"no network of its own for the test on this system: {why}")
    return command


def names(folder: Path, *lines: str) -> list[str]:
    """A hosts file and a resolv.conf that names no server that answers."""
    hosts, resolver = folder / "hosts", folder / "resolv.conf"
    hosts.write_text("".join(f"{line}\n" for line in ("127.0.0.1 localhost", *lines)))
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    return [str(hosts), str(resolver)]


NO_ROUTE = "ip link set lo up && "


def reached(folder: Path, network: str, addresses: Sequence[str], port: str, loop: str) -> tuple[str, float]:
    """What came of a name with these addresses, in a network of its own, and after how many seconds."""
    files = names(folder, *(f"{address} cloud.test" for address in addresses))
    shell = ["sh", "-c", network + HOSTS + 'exec "$@"', "sh", *files]
    done = subprocess.run(
        [*namespaces("-mn", network), *shell, sys.executable, "-c", REACH, "cloud.test", port],
        cwd=ROOT, env={**os.environ, "VOICE_BRIDGE_LOOP": loop},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    what, seconds, left_open = done.stdout.split()
    assert left_open == "0"
    return what, float(seconds)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize(
    ("v6", "network", "least"),
    [(["fd00:dead::1"], NO_ROUTE, 0.0), (["fd00:b1ac::1"], BLACK_HOLE, HEAD_START),
     ([f"fd00:b1ac::{number}" for number in range(3, 9)], BLACK_HOLE, HEAD_START)],
    ids=["no route", "black hole", "six black holes"],
)  # fmt: skip
def test_ipv4_is_reached_when_ipv6_comes_first_and_leads_nowhere(
    tmp_path: Path, v6: list[str], network: str, least: float, loop: str
) -> None:
    family, seconds = reached(tmp_path, network, [*v6, "127.0.0.1"], "open", loop)
    assert family == "AF_INET"
    assert least <= seconds <= least + 1


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize(
    ("addresses", "network", "error"),
    [
        (["127.0.0.1", "127.0.0.2"], NO_ROUTE, ConnectionRefusedError(errno.ECONNREFUSED, "")),
        (["fd00:dead::1", "127.0.0.1"], NO_ROUTE, ConnectionRefusedError(errno.ECONNREFUSED, "")),
        (["fd00:dead::1", "fd00:b1ac::1"], BLACK_HOLE, TimeoutError()),
        (["fd00:b1ac::1", "127.0.0.1"], BLACK_HOLE, ConnectionRefusedError(errno.ECONNREFUSED, "")),
        (["fd00:dead::1"], NO_ROUTE, OSError(errno.ENETUNREACH, "")),
        (["fd00:b1ac::1", "fd00:b1ac::3"], BLACK_HOLE, TimeoutError()),
    ],
    ids=["all refuse", "no route and refused", "no route and silent", "silent and refused", "no route", "all silent"],
)
def test_an_answer_is_told_rather_than_silence_and_silence_rather_than_no_way(
    tmp_path: Path, addresses: list[str], network: str, error: OSError, loop: str
) -> None:
    what, seconds = reached(tmp_path, network, addresses, "closed", loop)
    assert what == f"{type(error).__name__}:{error.errno}"
    assert seconds < 3


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of a socket whose queue is full: the system drops whatever else would connect."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_silent_address_is_given_up_in_time(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "WITHIN", 0.3)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await reach("127.0.0.1", deaf)
    assert 0.3 <= time.monotonic() - began < 2


async def test_who_is_cancelled_while_dialling_leaves_no_socket_open(deaf: int) -> None:
    before = len(psutil.Process().net_connections())
    dialling = asyncio.ensure_future(reach("127.0.0.1", deaf))
    await eventually(lambda: len(psutil.Process().net_connections()) == before + 1)
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    assert len(psutil.Process().net_connections()) == before


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 64 + ".example", "half\ud83d", "nul\0.example"])
async def test_a_name_that_cannot_be_resolved_is_told_as_that(name: str) -> None:
    with pytest.raises(socket.gaierror):
        await reach(name, 80)


async def test_a_literal_address_and_a_name_are_reached_and_a_closed_port_is_not() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    async with listening(hang_up) as port:
        for host in ("127.0.0.1", "localhost"):
            with await reach(host, port) as connection:
                assert connection.getpeername()[1] == port
    if socket.has_ipv6:
        async with listening(hang_up, host="::1") as port:
            with await reach("::1", port) as connection:
                assert connection.family is socket.AF_INET6
    with pytest.raises(ConnectionRefusedError):
        await reach("127.0.0.1", port)


async def test_a_name_that_cannot_be_resolved_at_boot_is_dialled_as_soon_as_it_can(tmp_path: Path) -> None:
    hosts, resolver = names(tmp_path)
    before = [*namespaces("-m"), "sh", "-c", HOSTS + 'exec "$@"', "sh", hosts, resolver]
    async with VoiceCloud(OFFICIAL, token=TOKEN) as cloud:
        url = cloud.url.replace("127.0.0.1", "cloud.test")
        settings = write_settings(tmp_path, {"s": child()}, {"home": {"url": url}}, minBackoff=0.2, maxBackoff=1)
        async with Bridge(settings, before=before) as bridge:
            line = r"^home: not connected: the cloud's name cannot be resolved; is this .*\?; next try in \d\.\d s$"
            await bridge.says(line, times=3, within=20)
            assert bridge.process.returncode is None
            Path(hosts).write_text("127.0.0.1 localhost cloud.test\n")  # noqa: ASYNC240
            known = time.monotonic()
            session = await cloud.session(15)
            assert time.monotonic() - known < 4
            await session.ready()
            Path(hosts).write_text("127.0.0.1 localhost\n")  # noqa: ASYNC240
            session.abort()
            await bridge.says(line, times=4, within=10)  # asked anew for each attempt
            assert len([text for text in bridge.lines if "home: not connected" in text]) == len(bridge.matching(line))
            await eventually(lambda: bridge.process.returncode is None, 1)
