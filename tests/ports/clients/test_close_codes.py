"""What each end of a connection means: the kind of wait it earns, and words that never hold the address."""

from __future__ import annotations

import errno
import socket
import ssl
import time
from email.utils import formatdate

import pytest
from websockets import exceptions as ws
from websockets.datastructures import Headers
from websockets.frames import Close
from websockets.http11 import Response

from tests.support import TOKEN
from voice_bridge.core.retry import Kind
from voice_bridge.errors import UsageError
from voice_bridge.ports.clients.close_codes import judge
from voice_bridge.retry_after import LONGEST, retry_after

URL = f"wss://cloud.example/mcp/?token={TOKEN}"


def closed(code: int, reason: str = "") -> ws.ConnectionClosed:
    return ws.ConnectionClosedError(Close(code, reason), None)


def status(code: int, **headers: str) -> ws.InvalidStatus:
    return ws.InvalidStatus(Response(code, "", Headers({key.replace("_", "-"): text for key, text in headers.items()})))


@pytest.mark.parametrize(
    ("code", "greeted", "kind", "words"),
    [
        (1000, False, "transient", "the cloud closed the connection"),
        (1000, True, "replaced", "the cloud closed the connection"),
        (1001, True, "transient", "the cloud is going away"),
        (1005, True, "transient", "the cloud closed the connection"),
        (1008, False, "rejected", "the cloud refused the token"),
        (1008, True, "transient", "the cloud closed the connection"),
        (1009, True, "too_large", "the cloud refused a message as too large"),
        (1011, True, "transient", "the cloud met an internal error"),
        (1012, True, "transient", "the cloud is restarting"),
        (1013, True, "transient", "the cloud is overloaded"),
        (3000, False, "rejected", "the cloud refused the token"),
        (4001, True, "rejected", "the cloud refused the token"),
        (4004, False, "transient", "catch-all"),
        (4004, True, "transient", "catch-all"),
        (4999, True, "transient", "the cloud closed the connection"),
    ],
)
def test_a_close_code_has_a_meaning(code: int, greeted: bool, kind: Kind, words: str) -> None:
    verdict = judge(closed(code, "as it said"), answered=greeted)
    assert (verdict.kind, verdict.code) == (kind, code)
    assert words in verdict.text
    assert '("as it said")' in verdict.text
    assert ("copy a new token from the console" in verdict.text) == (kind == "rejected")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (401, "rejected", "the cloud refused the token (HTTP 401); copy a new token"),
        (403, "rejected", "the cloud refused the token (HTTP 403); copy a new token"),
        (404, "rejected", "there is nothing at that address; check the endpoint's URL (HTTP 404)"),
        (410, "rejected", "there is nothing at that address; check the endpoint's URL (HTTP 410)"),
        (429, "transient", "the cloud says: too many connections (HTTP 429)"),
        (400, "transient", "the cloud refused the connection (HTTP 400)"),
        (500, "transient", "the cloud is in trouble (HTTP 500)"),
        (502, "transient", "the cloud is in trouble (HTTP 502)"),
        (503, "transient", "the cloud is in trouble (HTTP 503)"),
    ],
)
def test_a_status_has_a_meaning(code: int, kind: Kind, words: str) -> None:
    verdict = judge(status(code, Retry_After="30"))
    assert (verdict.kind, verdict.code, verdict.retry_after) == (kind, code, 30)
    assert words in verdict.text


def test_no_close_frame_is_a_broken_connection_and_a_frame_over_our_limit_is_named() -> None:
    assert judge(ws.ConnectionClosedError(None, None)).text == "the connection broke without a goodbye"
    mine = judge(ws.ConnectionClosedError(None, Close(1009, "")), answered=True)
    assert (mine.kind, mine.code) == ("transient", 1009)
    assert "bridge.maxMessageBytes" in mine.text


def moved() -> ValueError:
    error = ValueError(f"cannot follow redirect to {URL}")
    error.__cause__ = status(301, Location=URL)
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, f"no name {URL}"), "the cloud's name cannot be resolved"),
        (TimeoutError(URL), "the cloud did not answer in time"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "no connection: Connection refused"),
        (OSError(errno.ECONNREFUSED, f"Connect call failed {URL}"), "no connection: Connection refused"),
        (OSError(f"Multiple exceptions: {URL}"), "no connection: Multiple exceptions: wss"),
        (ws.InvalidMessage(URL), "what answers there does not speak WebSocket"),
        (EOFError(URL), "what answers there does not speak WebSocket"),
        (ws.InvalidProxy(URL, "no"), "the proxy variable holds no proxy's address"),
        (ws.InvalidProxyStatus(Response(407, "", Headers())), "the proxy wants a login"),
        (ws.InvalidProxyStatus(Response(403, "", Headers())), "the proxy refused to connect (HTTP 403)"),
        (ws.InvalidProxyMessage(URL), "the proxy could not be used; check HTTPS_PROXY and NO_PROXY"),
        (ImportError(URL), "pip install python-socks[asyncio]"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "no TLS connection"),
        (ws.InvalidURI(URL, "isn't valid"), "no connection (InvalidURI)"),
        (UsageError("caFile x cannot be used"), "caFile x cannot be used"),
        (moved(), "the cloud has moved: put its new address into the URL (HTTP 301)"),
        (RuntimeError(URL), "no connection (RuntimeError)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failed_dial_is_explained_without_the_address(error: Exception, words: str) -> None:
    verdict = judge(error)
    assert words in verdict.text
    assert TOKEN not in verdict.text
    assert "cloud.example" not in verdict.text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("30", 30), (" 7 ", 7), ("0", 0), ("-5", None), ("soon", None), ("", None), ("²", None),
        ("1.5", None), ("9" * 400, LONGEST), ("31536000", LONGEST),
        (formatdate(1_000_060, usegmt=True), 60), (formatdate(999_000, usegmt=True), 0),
        ("Mon, 99 Foo 99999 00:00:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date_and_an_hour_at_most(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, 1_000_000) == seconds


def test_retry_after_as_a_date_counts_from_now() -> None:
    verdict = judge(status(503, Retry_After=formatdate(time.time() + 90, usegmt=True)))
    assert verdict.retry_after is not None
    assert 85 < verdict.retry_after <= 90
