"""Open requests and their deadlines, our own included: what is still owed, to whom, and until when. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from msgspec import Raw

from voice_bridge.core.client import Client
from voice_bridge.core.keys import EndpointKey, ServerKey
from voice_bridge.core.request import Request
from voice_bridge.core.server import Ask

PROGRESS_EXTENDS_UP_TO: Final = 10
_QUOTED = re.compile(rb'"([1-9][0-9]{0,18})(?:\.0+)?"')


class Call:
    """A client's request that a server owes an answer to. `token` is the client's own progress token."""

    __slots__ = (
        "bytes_in", "client", "deadline", "hard_deadline", "id", "log_level", "method", "server", "started", "timeout",
        "token", "tool",
    )  # fmt: skip

    def __init__(self, request: Request, server: ServerKey, tool: str, timeout: float, token: bytes | None) -> None:
        self.client, self.id, self.method, self.started = request.client, request.id, request.method, request.now
        self.server, self.tool, self.timeout, self.token = server, tool, timeout, token
        self.bytes_in = len(request.params)
        self.log_level: str | None = None
        self.deadline = request.now + timeout
        self.hard_deadline = request.now + timeout * PROGRESS_EXTENDS_UP_TO


@dataclass(slots=True)
class Held:
    """A client's list request that waits for servers that are about to be ready."""

    client: Client
    id: bytes
    kind: str
    deadline: float


@dataclass(slots=True)
class Delayed:
    """A client's request that waits for a server that is being started anew for its sake."""

    client: Client
    id: bytes
    server: ServerKey
    request: Request
    tool: str
    deadline: float


@dataclass(slots=True)
class Asked:
    """A server's request (sampling, elicitation, roots) that a client owes an answer to."""

    server: ServerKey
    id: bytes
    client: Client
    token: bytes | None
    deadline: float


@dataclass(slots=True)
class Own:
    """A request of the bridge itself to a server; without a deadline where something else watches its time."""

    server: ServerKey
    ask: Ask
    deadline: float | None = None


@dataclass(slots=True)
class Reread:
    """A list to be read again once a burst of change notifications is over."""

    server: ServerKey
    kind: str
    deadline: float


@dataclass(slots=True)
class Relisten:
    """A subscription to be opened again that the server ended."""

    server: ServerKey
    deadline: float


@dataclass(slots=True)
class Patience:
    """The end of a server's time to start, or the next word on how long it takes."""

    server: ServerKey
    began: float
    until: float
    deadline: float


@dataclass(slots=True)
class Retry:
    """A server's or an endpoint's next try."""

    who: ServerKey | EndpointKey
    deadline: float


@dataclass(slots=True)
class Settling:
    """The end of an endpoint's wait for its servers."""

    endpoint: EndpointKey
    deadline: float


Timed = Call | Held | Delayed | Asked | Own | Reread | Relisten | Patience | Retry | Settling
OfServer = Call | Delayed | Asked | Own | Reread | Relisten | Patience
OfClient = Call | Held | Delayed | Asked


class Pending:
    """Mints ids and keeps what they stand for. An id never stands for two things."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._items: dict[int, Timed] = {}
        self._deadlines: list[tuple[float, int]] = []

    def mint(self) -> int:
        """A new id."""
        return next(self._ids)

    def add(self, item: Timed) -> int:
        """Enters an item under a new id."""
        id_ = next(self._ids)
        self.open(id_, item)
        return id_

    def open(self, id_: int, item: Timed) -> None:
        """Enters an item under a minted id."""
        self._items[id_] = item
        if item.deadline is None:
            return
        heapq.heappush(self._deadlines, (item.deadline, id_))
        if len(self._deadlines) > 64 + 4 * len(self._items):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._items]
            heapq.heapify(self._deadlines)

    def get(self, id_: int | None) -> Timed | None:
        """The item of an id, if it is still open."""
        return self._items.get(id_) if id_ is not None else None

    def close(self, id_: int) -> None:
        """Strikes an item out."""
        del self._items[id_]

    def items(self) -> list[tuple[int, Timed]]:
        """All open items, oldest first."""
        return list(self._items.items())

    def of_server(self, key: ServerKey) -> Iterable[tuple[int, OfServer]]:
        """The open items that a server has a part in."""
        return [(id_, item) for id_, item in self._items.items() if isinstance(item, OfServer) and item.server == key]

    def of_client(self, client: Client) -> Iterable[tuple[int, OfClient]]:
        """The open items that a client has a part in."""
        return [
            (id_, item) for id_, item in self._items.items() if isinstance(item, OfClient) and item.client is client
        ]

    def next_deadline(self) -> float | None:
        """When something may be due, or None."""
        while self._deadlines and self._deadlines[0][1] not in self._items:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now: float) -> Iterator[tuple[int, Timed]]:
        """What is due, oldest deadline first; an item whose deadline was moved meanwhile waits on."""
        while (when := self.next_deadline()) is not None and when <= now:
            _, id_ = heapq.heappop(self._deadlines)
            item = self._items[id_]
            if item.deadline is None:
                continue
            if item.deadline > now:
                heapq.heappush(self._deadlines, (item.deadline, id_))
            else:
                yield id_, item


def minted(raw: object) -> int | None:
    """The integer in a raw id; some servers answer with our number as a string or a float."""
    if not isinstance(raw, Raw):
        return None
    word = bytes(raw)
    try:
        return int(word)
    except ValueError:
        pass
    if word.startswith(b'"'):
        quoted = _QUOTED.fullmatch(word)
        return int(quoted[1]) if quoted else None
    try:
        number = float(word)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None
