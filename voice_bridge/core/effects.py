"""What the core decides, for the runtime to carry out. Pure data.

When the core wants to be woken is no effect: `Pending.next_deadline` tells it at any time.
"""

from __future__ import annotations

from typing import NamedTuple

from voice_bridge.core.facts import Fact
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey


class ToClient(NamedTuple):
    """Send one message to a client."""

    to: ClientKey
    data: bytes


class ToServer(NamedTuple):
    """Send one message to a server."""

    to: ServerKey
    data: bytes


class Start(NamedTuple):
    """Start a server's process or open its session; answer with `server_opened` or `server_failed`."""

    server: ServerKey


class Stop(NamedTuple):
    """End whatever is left of a server; answer with `server_gone` when nothing of it runs any more."""

    server: ServerKey


class Acquire(NamedTuple):
    """Find out whether this bridge may dial an endpoint; answer with `endpoint_granted` or `endpoint_refused`."""

    endpoint: EndpointKey


class Dial(NamedTuple):
    """Dial an endpoint; answer with `endpoint_opened` and, at its end, `endpoint_lost`."""

    endpoint: EndpointKey


class HangUp(NamedTuple):
    """Close an endpoint's connection in good order; answer with `endpoint_gone` when the socket is closed."""

    endpoint: EndpointKey


class Redial(NamedTuple):
    """Close a client's connection once its calls are answered, so that the cloud reads the lists on a new one."""

    client: ClientKey


class Note(NamedTuple):
    """Tell the board a fact."""

    fact: Fact


Effect = ToClient | ToServer | Start | Stop | Acquire | Dial | HangUp | Redial | Note
