"""A TCP connection to the first address of a name that answers.

The event loops try a name's addresses one after the other without a limit for each: where IPv6 is announced but leads
nowhere, the time for the whole attempt is over before IPv4 has its turn (RFC 8305 §1).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, cast

from aiohappyeyeballs import start_connection

HEAD_START = 0.25
WITHIN = 10.0


async def reach(host: str, port: int) -> socket.socket:
    """A connected socket; the name is resolved anew each time, its families take turns, 0.25 s apart (RFC 8305 §4, §5).

    Raises OSError: socket.gaierror when the name cannot be resolved; else what an address answered; else TimeoutError
    when one was silent for 10 s; else why the first address could not be tried.
    """
    loop = _Noting(asyncio.get_running_loop())
    try:
        addresses = await loop.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:  # a label that is empty or longer than 63 letters (RFC 1035 §2.3.4), a NUL
        raise socket.gaierror(socket.EAI_NONAME, "no host can have this name") from None
    try:
        async with asyncio.timeout(WITHIN + HEAD_START * len(addresses)):
            return await start_connection(addresses, happy_eyeballs_delay=HEAD_START, loop=cast(Any, loop))
    except OSError as error:  # the library's own one for several addresses has no errno
        silent = isinstance(error, TimeoutError) and error.errno is None
        raise next(loop.answers(), error if silent else next(iter(loop.errors), error)) from None


class _Noting:
    """An event loop as far as the library uses it, which notes why each address failed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.errors: list[OSError] = []

    async def sock_connect(self, connection: socket.socket, address: Any) -> None:
        try:
            await self.loop.sock_connect(connection, address)
        except OSError as error:
            self.errors.append(error)
            raise

    def answers(self) -> Iterator[OSError]:
        """The errors that came from the other side."""
        return (error for error in self.errors if isinstance(error, ConnectionError))
