"""What the end of a connection means. Pure: an exception in, a verdict out."""

from __future__ import annotations

import os
import socket
import ssl
import time

from websockets import exceptions as ws
from websockets.datastructures import Headers

from voice_bridge.core.retry import Verdict
from voice_bridge.errors import UsageError
from voice_bridge.retry_after import retry_after

RENEW = "copy a new token from the console into MCP_ENDPOINT"
_CLOSE_WORDS = {
    1000: "the cloud closed the connection",
    1001: "the cloud is going away",
    1006: "the connection broke without a goodbye",
    1009: "the cloud refused a message as too large",
    1011: "the cloud met an internal error",
    1012: "the cloud is restarting",
    1013: "the cloud is overloaded",
    4004: "the cloud closed with its catch-all code: a handshake without answer, idleness, or too many connections",
}
_STATUS_WORDS = {
    404: "there is nothing at that address; check the endpoint's URL",
    407: "the proxy wants a login; put user:password@ before the host in the proxy variable",
    429: "the cloud says: too many connections",
}


def judge(error: BaseException, *, answered: bool = False) -> Verdict:
    """The verdict on a failed dial or an ended connection. `answered` says whether it was of use."""
    if isinstance(error, ws.ConnectionClosed):
        return _closed(error, answered)
    if isinstance(error, ws.InvalidStatus):
        return _status(error.response.status_code, error.response.headers)
    if isinstance(error, ws.ProxyError | ws.InvalidProxy | ImportError):
        return _proxy(error)
    if isinstance(error, UsageError):
        return Verdict("transient", str(error))
    if isinstance(error, ssl.SSLError):
        return _tls(error)
    if isinstance(error, socket.gaierror):
        return Verdict("transient", "the cloud's name cannot be resolved; is this machine online?")
    if isinstance(error, TimeoutError):
        return Verdict("transient", "the cloud did not answer in time")
    if isinstance(error, ws.InvalidHandshake | ws.InvalidMessage | EOFError):
        return Verdict("transient", "what answers there does not speak WebSocket")
    if isinstance(error, OSError):
        words = os.strerror(error.errno) if error.errno else _first_words(error)
        if isinstance(error, ConnectionError) and not error.errno:
            words = "the other side hung up"
        return Verdict("transient", f"no connection: {words}")
    if isinstance(error.__cause__, ws.InvalidStatus) and 300 <= error.__cause__.response.status_code < 400:
        code = error.__cause__.response.status_code
        return Verdict("rejected", f"the cloud has moved: put its new address into the URL (HTTP {code})", code)
    return Verdict("transient", f"no connection ({type(error).__name__})")


def _closed(error: ws.ConnectionClosed, answered: bool) -> Verdict:
    frame = error.rcvd
    if frame is None:
        mine = error.sent
        if mine is not None and mine.code == 1009:
            return Verdict("transient", "the cloud sent a message over the limit (bridge.maxMessageBytes)", 1009)
        return Verdict("transient", _CLOSE_WORDS[1006], 1006)
    said = f' ("{frame.reason[:120]}")' if frame.reason else ""
    words = _CLOSE_WORDS.get(frame.code, "the cloud closed the connection") + said
    if frame.code in (4001, 4003, 4401, 4403) or (frame.code in (1008, 3000, 3003) and not answered):
        return Verdict("rejected", f"the cloud refused the token{said}; {RENEW}", frame.code)
    if frame.code == 1009:
        return Verdict("too_large", words, 1009)
    if frame.code == 1000 and answered:
        return Verdict("replaced", words, 1000)
    return Verdict("transient", words, frame.code)


def _status(code: int, headers: Headers) -> Verdict:
    after = retry_after(headers.get("Retry-After"), time.time())
    if code in (401, 403):
        return Verdict("rejected", f"the cloud refused the token (HTTP {code}); {RENEW}", code, after)
    if code in (404, 410):
        return Verdict("rejected", f"{_STATUS_WORDS[404]} (HTTP {code})", code, after)
    words = _STATUS_WORDS.get(code, "the cloud is in trouble" if code >= 500 else "the cloud refused the connection")
    return Verdict("transient", f"{words} (HTTP {code})", code, after)


def _tls(error: ssl.SSLError) -> Verdict:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the cloud's certificate is not trusted: {error.verify_message}"
        return Verdict("transient", f"{text}; for a private authority set caFile, else check this machine's clock")
    reason = getattr(error, "reason", None)  # only errors that OpenSSL itself raised have one
    return Verdict("transient", f"no TLS connection: {reason or 'the other side does not speak TLS'}")


def _proxy(error: BaseException) -> Verdict:
    if isinstance(error, ImportError):
        return Verdict(
            "transient", "the proxy is a SOCKS proxy; install its support: pip install python-socks[asyncio]"
        )
    if isinstance(error, ws.InvalidProxy):
        return Verdict(
            "transient", "the proxy variable holds no proxy's address; it looks like http://HOST:PORT or socks5://…"
        )
    if isinstance(error, ws.InvalidProxyStatus):
        code = error.response.status_code
        return Verdict("transient", _STATUS_WORDS.get(code, "the proxy refused to connect") + f" (HTTP {code})", code)
    return Verdict("transient", "the proxy could not be used; check HTTPS_PROXY and NO_PROXY")


def _first_words(error: BaseException) -> str:
    """The beginning of an exception's text, which never reaches as far as an address with its token."""
    inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    text = getattr(inner, "strerror", None) or str(inner)
    return str(text).partition("://")[0][:100] or type(inner).__name__
