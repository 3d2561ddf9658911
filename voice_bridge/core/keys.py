"""What names the parts. Different types, so that a server called like a client's connection is never taken for it."""

from __future__ import annotations

from typing import NamedTuple, NewType

ClientKey = NewType("ClientKey", str)
"""One connection of a client; a new connection gets a new key."""

ServerKey = NewType("ServerKey", str)
"""One running server: its name, and `name@endpoint` where each endpoint has one of its own."""


class EndpointKey(NamedTuple):
    """One WebSocket to a cloud: an endpoint's, or an endpoint's for a single server."""

    endpoint: str
    only: str | None = None

    def __str__(self) -> str:
        return self.endpoint if self.only is None else f"{self.endpoint}/{self.only}"
