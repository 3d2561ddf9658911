"""The cloud's side of the bridge in the field: each end of a connection, its one log line, and what comes next.

One real bridge serves many endpoints at once here, so that long waits run side by side.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import itertools
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support import ROOT, TOKEN, Bridge, Cable, Json, child, eventually, listening, write_settings
from voice_bridge.simulator import OFFICIAL, RELAY, CloudSession, Kind, VoiceCloud
from voice_bridge.simulator.events import Event, Opened

QUIET = replace(OFFICIAL, ping_every=None)


def endpoint(cloud: VoiceCloud, **more: object) -> Json:
    return {"url": cloud.url, **more}


def cloud_of(kind: Kind = QUIET, **more: object) -> VoiceCloud:
    return VoiceCloud(kind, token=TOKEN, **more)  # type: ignore[arg-type]


async def usable(cloud: VoiceCloud, timeout: float = 15) -> CloudSession:
    """The next connection, with a call answered on it."""
    session = await cloud.session(timeout)
    await session.ready(timeout)
    assert (await session.call("echo", {"text": "hi"}, timeout=5)).text == "hi"
    return session


@pytest.fixture(scope="module", autouse=True)
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """The log of a bridge that runs beside the tests of this module: a server that starts for ever, a silent cloud."""
    folder = tmp_path_factory.mktemp("patient")
    with socket.create_server(("127.0.0.1", 0)) as deaf, open(folder / "log", "wb") as log:
        endpoints: dict[str, Json] = {
            "mute": {"url": f"ws://127.0.0.1:{deaf.getsockname()[1]}/mcp/?token={TOKEN}", "servers": ["quick"]}
        }
        servers = {"quick": child(), "slow": child("slow=300")}
        settings = write_settings(folder, servers, endpoints, dialAfter=0.1)
        bridge = subprocess.Popen(
            [sys.executable, "bridge_connector.py"],
            cwd=ROOT, env={**os.environ, "MCP_CONFIG": str(settings)}, stderr=log,
        )  # fmt: skip
        yield (folder / "log").read_text
        bridge.terminate()
        bridge.wait(15)


# ---- the outcome table

STATUSES: dict[str, tuple[int, float | None, str]] = {
    "http-400": (400, None, r"not connected: the cloud refused the connection \(HTTP 400\); next try in [4-6]\.\d s"),
    "http-401": (401, None, r"not connected: the cloud refused the token \(HTTP 401\); copy a new .* next try in 60 s"),
    "http-403": (403, None, r"not connected: the cloud refused the token \(HTTP 403\); copy a new .* next try in 60 s"),
    "http-404": (404, None, r"not connected: there is nothing at that address; .* \(HTTP 404\); next try in 60 s"),
    "http-429": (429, 30, r"not connected: the cloud says: too many connections \(HTTP 429\); next try in 30 s"),
    "http-500": (500, None, r"not connected: the cloud is in trouble \(HTTP 500\); next try in [4-6]\.\d s"),
    "http-502": (502, None, r"not connected: the cloud is in trouble \(HTTP 502\); next try in [4-6]\.\d s"),
    "http-503": (503, 45, r"not connected: the cloud is in trouble \(HTTP 503\); next try in 45 s"),
}
BEFORE_HANDSHAKE: dict[str, tuple[int, str]] = {
    "early-1000": (
        1000,
        r"disconnected with code 1000 after 0\.\d s: the cloud closed the connection; next try in [4-6]",
    ),
    "early-1006": (
        1006,
        r"disconnected with code 1006 after 0\.\d s: the connection broke without a goodbye; next try",
    ),
    "early-1008": (1008, r"disconnected with code 1008 after 0\.\d s: the cloud refused the token; .*next try in 60 s"),
    "early-4004": (4004, r"disconnected with code 4004 after 0\.\d s: .*catch-all.*; next try in [4-6]\.\d s"),
}
AFTER_HANDSHAKE: dict[str, tuple[int, str]] = {
    "late-1000": (1000, "the cloud closed the connection"),
    "late-1001": (1001, "the cloud is going away"),
    "late-1006": (1006, "the connection broke without a goodbye"),
    "late-1008": (1008, "the cloud closed the connection"),
    "late-1011": (1011, "the cloud met an internal error"),
    "late-1012": (1012, "the cloud is restarting"),
    "late-1013": (1013, "the cloud is overloaded"),
    "late-4004": (4004, "catch-all"),
    "late-4999": (4999, "the cloud closed the connection"),
}


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    return


async def talk_ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    await reader.read(65_536)


async def show_a_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n<h1>hi</h1>\r\n")
    await writer.drain()


async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(f"HTTP/1.1 301 Moved\r\nLocation: wss://elsewhere.example/?token={TOKEN}\r\n\r\n".encode())
    await writer.drain()


RAW: dict[str, tuple[Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], str]] = {
    "hangs-up": (hang_up, "not connected: what answers there does not speak WebSocket; next try in"),
    "talks-ssh": (talk_ssh, "not connected: what answers there does not speak WebSocket; next try in"),
    "shows-a-page": (show_a_page, r"not connected: the cloud refused the connection \(HTTP 200\); next try in"),
    "redirects": (
        redirect,
        r"not connected: the cloud has moved: put its new address into the URL \(HTTP 301\); next try",
    ),
}


async def test_every_end_of_a_connection_has_one_line_with_code_reason_lifetime_and_next_try(tmp_path: Path) -> None:
    clouds = {name: cloud_of() for name in (*STATUSES, *BEFORE_HANDSHAKE, *AFTER_HANDSHAKE)}
    clouds["bad-token"] = cloud_of(RELAY)
    expected = {name: line for name, (_, _, line) in STATUSES.items()}
    expected |= {name: line for name, (_, line) in BEFORE_HANDSHAKE.items()}
    expected |= {
        name: rf"disconnected with code {code} after \d\.\d s: .*{words}.*; next try in [4-6]\.\d s"
        for name, (code, words) in AFTER_HANDSHAKE.items()
    }
    expected |= {name: line for name, (_, line) in RAW.items()}
    expected["refuses"] = r"not connected: no connection: Connection refused; next try in [4-6]\.\d s"
    expected["bad-token"] = (
        r"disconnected with code 1008 after 0\.\d s: the cloud refused the token .*; next try in 60 s"
    )
    async with AsyncExitStack() as stack:
        for name, cloud in clouds.items():
            await stack.enter_async_context(cloud)
            if name in STATUSES:
                cloud.refuse(*STATUSES[name][:2])
            elif name in BEFORE_HANDSHAKE:
                cloud.accept_and_close(0.05, BEFORE_HANDSHAKE[name][0])
        endpoints = {name: endpoint(cloud) for name, cloud in clouds.items()}
        endpoints["bad-token"]["url"] = clouds["bad-token"].url.replace(TOKEN, TOKEN[::-1])
        for name, (answer, _) in RAW.items():
            port = await stack.enter_async_context(listening(answer))
            endpoints[name] = {"url": f"ws://127.0.0.1:{port}/mcp/?token={TOKEN}"}
        async with listening(hang_up) as port:
            endpoints["refuses"] = {"url": f"ws://127.0.0.1:{port}/mcp/?token={TOKEN}"}
        settings = write_settings(
            tmp_path, {"s": child()}, endpoints, minBackoff=5, maxBackoff=600, stableAfter=30, dialAfter=0.5
        )
        bridge = await stack.enter_async_context(Bridge(settings))
        for name in AFTER_HANDSHAKE:
            session = await clouds[name].session(20)
            await session.ready()
            await session.close(AFTER_HANDSHAKE[name][0], "said so")
        for name, line in expected.items():
            await bridge.says(f"^{name}: {line}", within=30)
        ends = [line for line in bridge.messages if "next try in" in line]
        for name in expected:
            lines = [line for line in bridge.lines if f" {name}: " in line and not line.endswith(": connected")]
            assert all("next try in" in line for line in lines), lines  # one line for each end, and nothing else
        for name in ("http-401", "http-403", "http-404", "early-1008", "bad-token", "redirects"):
            assert sum(line.startswith(f"{name}: ") for line in ends) == 1


# ---- how often it dials


def gaps(cloud: VoiceCloud) -> list[float]:
    times = [attempt.at for attempt in cloud.attempts]
    return [after - before for before, after in itertools.pairwise(times)]


async def test_a_cloud_that_accepts_and_closes_is_dialled_ever_more_slowly_until_a_session_lasts(
    tmp_path: Path,
) -> None:
    async with cloud_of() as cloud:
        cloud.accept_and_close(0.02)
        settings = write_settings(tmp_path, {"s": child()}, {"home": endpoint(cloud)}, minBackoff=0.1, maxBackoff=1.5)
        async with Bridge(settings) as bridge:
            await bridge.says("^home: disconnected", times=6)
            cloud.accept()
            session = await usable(cloud)
            for gap, nominal in zip(gaps(cloud), [0.1, 0.2, 0.4, 0.8, 1.5, 1.5], strict=False):
                assert gap >= nominal * 0.8
            with pytest.raises(TimeoutError):
                await session.until(lambda: False, 0.6, "let it last longer than stableAfter")
            session.abort()
            cut = time.monotonic()
            await usable(cloud)
            assert time.monotonic() - cut < 1


async def test_sessions_that_shake_hands_and_end_are_not_hammered(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(
            tmp_path, {"s": child()}, {"home": endpoint(cloud)}, minBackoff=0.1, stableAfter=0.8, maxBackoff=9
        )
        async with Bridge(settings) as bridge:
            for _ in range(6):
                session = await cloud.session()
                await session.ready()
                await session.close(1011, "sorry")
            await bridge.says("^home: disconnected with code 1011", times=6)
            for gap, nominal in zip(gaps(cloud), [0.1, 0.2, 0.4, 0.8, 0.8], strict=False):
                assert gap >= nominal * 0.8


async def test_retry_after_is_honoured_and_a_later_try_connects(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        cloud.refuse(429, retry_after=2)
        settings = write_settings(tmp_path, {"s": child()}, {"home": endpoint(cloud)}, maxBackoff=0.5)
        async with Bridge(settings) as bridge:
            await bridge.says(r"^home: not connected: .*\(HTTP 429\); next try in 2.0 s$")
            cloud.accept()
            await usable(cloud)
            assert gaps(cloud)[0] >= 2


# ---- the network fails


async def test_silence_is_noticed_and_the_first_sign_of_life_brings_a_new_connection(tmp_path: Path) -> None:
    async with cloud_of() as cloud, Cable(cloud.port) as cable:
        settings = write_settings(
            tmp_path, {"s": child()}, {"home": {"url": cable.through(cloud.url)}}, pingInterval=0.4, pingTimeout=0.4
        )
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            slow = asyncio.ensure_future(session.call("sleep", {"s": 2}))
            assert (await slow).text == "slept"  # a busy server is no silence: pings go on meanwhile
            cable.hang()
            began = time.monotonic()
            await bridge.says(
                r"^home: disconnected with code 1006 after \d\.\d s: the cloud was silent for [01]\.\d s; next"
            )
            assert time.monotonic() - began < 2.5
            cable.mend()
            mended = time.monotonic()
            await usable(cloud)
            assert time.monotonic() - mended < 3


async def test_a_stopped_cloud_is_left_without_waiting_for_its_goodbye(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(
            tmp_path, {"s": child()}, {"home": endpoint(cloud)}, pingInterval=0.3, pingTimeout=0.3
        )
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            session.stall()
            await bridge.says("^home: .*the cloud was silent for", within=3)
            await usable(cloud)


async def test_a_cloud_without_pongs_stays_connected_while_it_speaks_and_not_when_it_is_silent(tmp_path: Path) -> None:
    def withhold(event: Event) -> None:
        if isinstance(event, Opened):
            event.session.withhold_pongs()

    talkative = cloud_of(replace(OFFICIAL, ping_every=0.9), on_event=withhold)
    silent = cloud_of(on_event=withhold)
    async with talkative, silent:
        endpoints = {"talkative": endpoint(talkative), "silent": endpoint(silent)}
        settings = write_settings(tmp_path, {"s": child()}, endpoints, pingInterval=0.2, pingTimeout=0.25)
        async with Bridge(settings) as bridge:
            session = await usable(talkative)
            await bridge.says("^silent: .*the cloud was silent for", times=2, within=15)
            assert session.is_open
            assert not bridge.matching("^talkative: disconnected")
            assert (await session.call("echo", {"text": "still"}, timeout=3)).text == "still"


async def test_a_bridge_that_slept_answers_again_soon(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(
            tmp_path, {"s": child()}, {"home": endpoint(cloud)}, pingInterval=0.3, pingTimeout=0.3
        )
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            bridge.process.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                await session.request("ping", timeout=3)
            bridge.process.send_signal(signal.SIGCONT)
            await usable_again(cloud, session)


async def test_a_bridge_that_slept_through_the_end_of_its_connection_dials_again(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(tmp_path, {"s": child()}, {"home": endpoint(cloud)})
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            bridge.process.send_signal(signal.SIGSTOP)
            session.abort()
            bridge.process.send_signal(signal.SIGCONT)
            await usable(cloud, 5)


async def usable_again(cloud: VoiceCloud, session: CloudSession) -> None:
    """A call is answered within seconds, on the old connection or on a new one."""
    if session.is_open:
        assert (await session.call("echo", {"text": "awake"}, timeout=5)).text == "awake"
    else:
        await usable(cloud, 5)


async def test_a_reset_connection_is_dialled_anew_and_nothing_of_the_old_call_arrives(tmp_path: Path) -> None:
    async with cloud_of() as cloud, Cable(cloud.port) as cable:
        settings = write_settings(
            tmp_path, {"s": child("late=0.5", "seen")}, {"home": {"url": cable.through(cloud.url)}}
        )
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            late = asyncio.ensure_future(session.call("t", {}, id=3))
            await eventually(lambda: any(frame.get("id") == 3 for frame in session.frames))
            cable.cut()
            with pytest.raises(ConnectionError):
                await late
            await bridge.says("^home: disconnected with code 1006 after")
            again = await usable(cloud)
            assert '"notifications/cancelled"' in (await again.call("seen", {}, id=3)).text
            with pytest.raises(TimeoutError):
                await again.receive(lambda frame: "late" in str(frame.data), timeout=0.8)


async def test_a_frame_that_is_too_large_for_the_cloud_is_named_with_its_size_and_comes_once(tmp_path: Path) -> None:
    small = replace(RELAY, max_size=100_000)
    async with cloud_of(small) as cloud:
        settings = write_settings(tmp_path, {"s": child("big=150000")}, {"home": endpoint(cloud)})
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            with pytest.raises(ConnectionError):
                await session.call("t", {}, timeout=5)
            await bridge.says(
                r"^home: disconnected with code 1009 after \d.*too large.*; the largest was 150,\d{3} bytes: "
                r"set maxResultBytes for this endpoint; next try in 0\.1 s"
            )
            await usable(cloud)
            assert len(bridge.matching("code 1009")) == 1


async def test_a_frame_over_our_own_limit_ends_the_connection_with_one_line_that_names_the_setting(
    tmp_path: Path,
) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(tmp_path, {"s": child()}, {"home": endpoint(cloud)}, maxMessageBytes=100_000)
        async with Bridge(settings) as bridge:
            session = await usable(cloud)
            await session.send('{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":"' + "x" * 200_000 + '"}}')
            assert (await session.wait_closed())[0] == 1009
            await usable(cloud)
            line = (
                r"^home: disconnected with code 1009 after .*: the cloud sent a message over the limit \(bridge.maxMess"
            )
            assert len(bridge.matching(line)) == 1
            assert len(cloud.attempts) == 2


# ---- the relay


async def test_being_replaced_again_and_again_is_explained_and_answered_with_long_waits(tmp_path: Path) -> None:
    async with cloud_of() as cloud:
        settings = write_settings(tmp_path, {"s": child()}, {"home": endpoint(cloud)})
        async with Bridge(settings) as bridge:
            for _ in range(3):
                session = await usable(cloud)
                await session.close(1000, "displaced by a newer connection")
            line = await bridge.says(
                "^home: disconnected with code 1000 after .*another bridge seems to use this token"
            )
            assert line.string.endswith("next try in 60 s")
            assert len(cloud.attempts) == 3


async def test_two_bridges_on_one_token_leave_one_of_them_in_peace(tmp_path: Path) -> None:
    async with cloud_of(RELAY) as cloud, Cable(cloud.port) as cable:  # another address: as if on another machine
        first = write_settings(tmp_path / "a", {"s": child()}, {"home": endpoint(cloud)})
        second = write_settings(tmp_path / "b", {"s": child()}, {"home": {"url": cable.through(cloud.url)}})
        async with Bridge(first) as one, Bridge(second) as other:
            both = asyncio.gather(*(each.says("^home: (connected|disconnected)", times=1) for each in (one, other)))
            await asyncio.wait_for(both, 20)
            await eventually(lambda: one.matching("code 1000") or other.matching("code 1000"))
            await eventually(lambda: any(session.is_usable for session in cloud.sessions))
            winner = next(session for session in cloud.sessions if session.is_usable)
            for number in range(20):
                assert (await winner.call("echo", {"text": str(number)}, timeout=5)).text == str(number)
            assert len(cloud.attempts) <= 6


@pytest.mark.parametrize("kind", [QUIET, RELAY], ids=lambda kind: kind.name)
async def test_changed_tools_bring_one_orderly_redial_or_a_notice_as_the_endpoint_wants(
    tmp_path: Path, kind: Kind
) -> None:
    async with cloud_of(kind) as redialled, cloud_of(QUIET) as notified:
        endpoints = {"redial": endpoint(redialled, refresh="reconnect"), "notice": endpoint(notified)}
        settings = write_settings(tmp_path, {"s": child("listchanged")}, endpoints)
        async with Bridge(settings) as bridge:
            session, listener = await usable(redialled), await usable(notified)
            await listener.call("change", {}, timeout=5)
            await listener.until(lambda: bool(listener.notifications), 5, "no notice of changed tools")
            assert [notice["method"] for notice in listener.notifications] == ["notifications/tools/list_changed"]
            again = await usable(redialled)
            assert (await session.wait_closed())[0] == 1000
            assert len(again.tools) == len(session.tools) + 1
            assert len(await listener.list_tools()) == len(again.tools)
            assert len(redialled.attempts) == 2
            assert len(notified.attempts) == 1
            await bridge.says("^redial: the tools changed; dialling anew")


# ---- proxies

LOGIN = "user:pa55word-of-the-proxy"


class ConnectProxy:
    """An HTTP proxy on loopback that knows CONNECT (RFC 9110 §9.3.6) and may want a login."""

    def __init__(self, login: str = "", refusal: int = 0) -> None:
        self.asked: list[str] = []
        self._login, self._refusal = login, refusal

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split(" ")[1]
        self.asked.append(target)
        given = re.search(r"Proxy-Authorization: Basic (\S+)", head)
        if self._refusal or (self._login and (given is None or b64decode(given[1]).decode() != self._login)):
            writer.write(f"HTTP/1.1 {self._refusal or 407} No\r\nProxy-Authenticate: Basic\r\n\r\n".encode())
            await writer.drain()
            return
        host, port = target.rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as both:
            both.create_task(copy(reader, far_writer))
            both.create_task(copy(far_reader, writer))


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
    except OSError:
        pass
    writer.close()


async def test_a_proxy_in_the_environment_is_used_or_its_trouble_explained(tmp_path: Path) -> None:
    open_, locked, closed = ConnectProxy(), ConnectProxy(LOGIN), ConnectProxy(refusal=403)
    async with (
        cloud_of() as cloud,
        listening(open_.serve) as a,
        listening(locked.serve) as b,
        listening(closed.serve) as c,
    ):

        async def bridge_with(proxy: str, line: str, **environment: str) -> None:
            name = re.sub(r"\W", "_", proxy + str(environment))
            folder, url = tmp_path / name, cloud.url.replace("/mcp/", f"/mcp/{name}/")  # one bridge for each address
            settings = write_settings(folder, {"s": child()}, {"home": {"url": url}}, minBackoff=30, maxBackoff=30)
            async with Bridge(settings, **{"HTTPS_PROXY": proxy, **environment}) as bridge:
                await bridge.says(f"^home: {line}", within=30)
                assert "pa55word" not in bridge.log

        async with asyncio.TaskGroup() as group:
            for proxy, line in (
                (f"http://127.0.0.1:{a}", "connected"),
                (f"http://{LOGIN}@127.0.0.1:{b}", "connected"),
                (f"http://127.0.0.1:{b}", "not connected: the proxy wants a login; put user:password@ .*; next try in"),
                (f"http://127.0.0.1:{c}", r"not connected: the proxy refused to connect \(HTTP 403\); next try in"),
                ("socks5://127.0.0.1:1", r"not connected: .*SOCKS.*pip install python-socks\[asyncio\]; next try in"),
                ("gopher://127.0.0.1:1", "not connected: the proxy variable holds no proxy's address; .*next try in"),
            ):
                group.create_task(bridge_with(proxy, line))
            group.create_task(bridge_with("http://127.0.0.1:1", "connected", NO_PROXY="localhost,127.0.0.1"))
            group.create_task(bridge_with("", "connected", ALL_PROXY=f"http://127.0.0.1:{a}"))
            group.create_task(bridge_with("", "connected", ALL_PROXY="http://127.0.0.1:1", NO_PROXY="127.0.0.1"))
        assert open_.asked == 2 * [f"127.0.0.1:{cloud.port}"]
        assert len(cloud.attempts) == 5


# ---- TLS


class Authority:
    """A private certificate authority and the certificates it signs for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        own = self._sign(self._name, self._key, 365).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def server(self, days: int = 365) -> ssl.SSLContext:
        """What a server with a certificate of this authority needs; negative days have passed."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cloud")])
        signed = self._sign(subject, key, days).add_extension(names, False).sign(self._key, hashes.SHA256())
        file = self._folder / f"server{days}.pem"
        kind = serialization.PrivateFormat.PKCS8
        private = key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        began = now - datetime.timedelta(days=30)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(began)
            .not_valid_after(now + datetime.timedelta(days=days))
        )


async def test_certificates_are_checked_and_a_private_authority_can_be_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "house")
    (tmp_path / "empty.pem").write_text("no certificate here")
    fronts = {"private": authority.server(), "unknown": authority.server(), "expired": authority.server(-1)}
    async with cloud_of() as cloud, AsyncExitStack() as stack:
        endpoints: dict[str, Json] = {}
        for name, tls in fronts.items():
            cable = await stack.enter_async_context(Cable(cloud.port, tls))
            endpoints[name] = {"url": cable.through(cloud.url), "caFile": "house.pem"}
        del endpoints["unknown"]["caFile"]
        endpoints["plain"] = {"url": cloud.url.replace("ws://", "wss://")}
        endpoints["no-file"] = {"url": endpoints["private"]["url"] + "&a", "caFile": "gone.pem"}
        endpoints["no-cert"] = {"url": endpoints["private"]["url"] + "&b", "caFile": "empty.pem"}
        settings = write_settings(tmp_path, {"s": child()}, endpoints, minBackoff=30, maxBackoff=60)
        bridge = await stack.enter_async_context(Bridge(settings))
        await usable(cloud)
        for name, words in {
            "unknown": "the cloud's certificate is not trusted: .*; for a private authority set caFile, else check",
            "expired": "the cloud's certificate is not trusted: certificate has expired; .*clock",
            "plain": "(no TLS connection|no connection: the other side hung up)",
            "no-file": f"caFile {tmp_path}/gone.pem cannot be used: No such file or directory",
            "no-cert": f"caFile {tmp_path}/empty.pem cannot be used: it holds no certificate",
        }.items():
            await bridge.says(f"^{name}: not connected: {words}.*; next try in")
        assert bridge.matching("^private: connected")


# ---- what takes long


async def test_a_silent_cloud_and_a_slow_server_are_waited_for_with_a_word_about_it(patient: Callable[[], str]) -> None:
    """At the end of this module, so that most of the waiting has been done beside the other tests."""
    for line in (
        r" mute: not connected: the cloud did not answer in time; next try in \d",
        " slow: still starting after 15 s",
    ):
        await eventually(lambda line=line: re.search(line, patient()), 40)  # type: ignore[misc]
    assert TOKEN not in patient()
