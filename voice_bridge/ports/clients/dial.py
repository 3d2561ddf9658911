"""A TCP connection to the first address of a name that answers.

The event loops try a name's addresses one after the other without a limit for each: where IPv6 is announced but leads
nowhere, the time for the whole attempt is over before IPv4 has its turn (RFC 8305 §1).
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Sequence

EACH_ADDRESS = 3.0

Address = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


async def reach(host: str, port: int) -> socket.socket:
    """A connected socket; the name is resolved anew each time, its families are tried in turn (RFC 8305 §4).

    Raises OSError (socket.gaierror when the name cannot be resolved, TimeoutError when the last address was silent).
    """
    loop = asyncio.get_running_loop()
    addresses: Sequence[Address] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in _alternating(addresses):
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # a family that this machine does not have
            last = error
            continue
        connection.setblocking(False)
        try:
            async with asyncio.timeout(EACH_ADDRESS):
                await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise last


def _alternating(addresses: Sequence[Address]) -> list[Address]:
    """The addresses with the families taking turns, beginning with the resolver's first choice."""
    families = dict.fromkeys(address[0] for address in addresses)
    columns = [[address for address in addresses if address[0] == family] for family in families]
    rows = itertools.zip_longest(*columns)
    return [address for row in rows for address in row if address is not None]
