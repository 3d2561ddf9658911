"""Serves a bundled server over streamable HTTP: open on loopback, by bearer token elsewhere."""

from __future__ import annotations

import ipaddress
import secrets
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

PATH = "/mcp"


class OneToken:
    """Accepts the one token that the owner has set (mcp's `TokenVerifier`)."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the owner's access, or None for any other token."""
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        return AccessToken(token=token, client_id="owner", scopes=[])


def serve_http(server: MCPServer, host: str, port: int, token: str) -> int:
    """Serve at http://HOST:PORT/mcp until SIGTERM or SIGINT, and return the exit status.

    0 after a clean end, 2 for an address that needs a token and has none, 1 when the port cannot be had. `port` 0 takes
    a free one; the address is told on stderr.
    """
    loopback = is_loopback(host)
    if not loopback and not token:
        print(
            f"{host} can be reached from other machines: set TOOLSERVER_TOKEN to a secret that clients must send as "
            "bearer token, or leave --host at 127.0.0.1.",
            file=sys.stderr,
        )
        return 2
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        print(f"Cannot listen on {host}:{port} ({error}): choose another --port or --host.", file=sys.stderr)
        return 1
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    print(f"Serving MCP at http://{shown}:{port}{PATH}", file=sys.stderr, flush=True)
    _run(_app(server, shown, port, token, loopback=loopback), listener)
    return 0


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`; a name other than localhost counts as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _app(server: MCPServer, host: str, port: int, token: str, *, loopback: bool) -> Starlette:
    names = ["127.0.0.1", "localhost", "[::1]", host]
    security = TransportSecuritySettings(
        # A token keeps web pages out as well, and by which names the machine is known elsewhere we cannot tell.
        enable_dns_rebinding_protection=loopback,
        allowed_hosts=[f"{name}:{port}" for name in names],
        allowed_origins=[f"http://{name}:{port}" for name in names],
    )
    return server._lowlevel_server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=security,
        host=host,
        auth=AuthSettings(issuer_url=AnyHttpUrl(f"http://{host}:{port}"), resource_server_url=None) if token else None,
        token_verifier=OneToken(token) if token else None,
    )


def _run(app: Starlette, listener: socket.socket) -> None:
    def leave(*_: object) -> NoReturn:
        sys.exit(0)

    # uvicorn ends its connections on a signal and then raises it once more, for this handler.
    signal.signal(signal.SIGTERM, leave)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
