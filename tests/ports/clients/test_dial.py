"""Names and addresses in the field, in namespaces of their own: IPv6 that leads nowhere, DNS that comes late."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ROOT, TOKEN, Bridge, child, eventually, listening, write_settings
from voice_bridge.ports.clients.dial import EACH_ADDRESS, reach
from voice_bridge.simulator import OFFICIAL, VoiceCloud

HOSTS = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/resolv.conf && shift 2 && '
BLACK_HOLE = (  # a tunnel that nobody reads from swallows every packet
    "ip link set lo up && ip tuntap add mode tun black && ip link set black up && "
    "ip -6 address add fd00:b1ac::2/64 dev black nodad && "
)
REACH = """
import asyncio, sys, time
from voice_bridge.ports.clients.dial import reach

async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    began = time.monotonic()
    sock = await reach(sys.argv[1], server.sockets[0].getsockname()[1])
    print(sock.family.name, round(time.monotonic() - began, 1))
    sock.close()

asyncio.run(main())
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


@pytest.mark.parametrize(
    ("v6", "network", "least"),
    [("fd00:dead::1", "ip link set lo up && ", 0.0), ("fd00:b1ac::1", BLACK_HOLE, EACH_ADDRESS)],
    ids=["no route", "black hole"],
)
def test_ipv4_is_reached_when_ipv6_comes_first_and_leads_nowhere(
    tmp_path: Path, v6: str, network: str, least: float
) -> None:
    files = names(tmp_path, f"{v6} cloud.test", "127.0.0.1 cloud.test")
    shell = ["sh", "-c", network + HOSTS + 'exec "$@"', "sh", *files]
    done = subprocess.run(
        [*namespaces("-mn", network), *shell, sys.executable, "-c", REACH, "cloud.test"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    family, seconds = done.stdout.split()
    assert family == "AF_INET"
    assert least <= float(seconds) <= least + 2


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
    with pytest.raises(socket.gaierror):
        await reach("no-such-host.invalid", 80)


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
