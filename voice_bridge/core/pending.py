"""Open questions and their deadlines: what is still owed, to whom, and until when. Pure."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from msgspec import Raw

from voice_bridge.core.client import Client
from voice_bridge.core.server import Ask

PROGRESS_EXTENDS_UP_TO: Final = 10
_QUOTED = re.compile(rb'"([1-9][0-9]{0,18})(?:\.0+)?"')


class Call:
    """A client's request that a server owes an answer to."""

    __slots__ = (
        "client", "deadline", "hard_deadline", "id", "log_level", "method", "server", "timeout", "token", "tool",
    )  # fmt: skip

    def __init__(
        self, client: Client, id_: bytes, server: str, method: str, tool: str, now: float, timeout: float,
        token: bytes | None,
    ) -> None:  # fmt: skip
        self.client, self.id, self.server, self.method, self.tool = client, id_, server, method, tool
        self.timeout, self.token = timeout, token
        self.log_level: str | None = None
        self.deadline = now + timeout
        self.hard_deadline = now + timeout * PROGRESS_EXTENDS_UP_TO


@dataclass(slots=True)
class Held:
    """A client's list request that waits for servers that are about to be ready."""

    client: Client
    id: bytes
    kind: str
    deadline: float


@dataclass(slots=True)
class Asked:
    """A server's request (sampling, elicitation, roots) that a client owes an answer to."""

    server: str
    id: bytes
    client: Client
    token: bytes | None
    deadline: float


@dataclass(slots=True)
class Own:
    """A request of the bridge itself to a server. The supervisor watches its time."""

    server: str
    ask: Ask


@dataclass(slots=True)
class Reread:
    """A list to be read again once a burst of change notices is over."""

    server: str
    kind: str
    deadline: float


Timed = Call | Held | Asked | Reread
Item = Timed | Own


class Ledger:
    """Mints ids and keeps what they stand for. An id never stands for two things."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._items: dict[int, Item] = {}
        self._deadlines: list[tuple[float, int]] = []

    def mint(self) -> int:
        """A new id."""
        return next(self._ids)

    def open(self, id_: int, item: Item) -> None:
        """Enters an item under a minted id; all but `Own` have a deadline."""
        self._items[id_] = item
        if isinstance(item, Own):
            return
        heapq.heappush(self._deadlines, (item.deadline, id_))
        if len(self._deadlines) > 64 + 4 * len(self._items):
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._items]
            heapq.heapify(self._deadlines)

    def get(self, id_: int | None) -> Item | None:
        """The item of an id, if it is still open."""
        return self._items.get(id_) if id_ is not None else None

    def close(self, id_: int) -> None:
        """Strikes an item out."""
        del self._items[id_]

    def items(self) -> list[tuple[int, Item]]:
        """All open items, oldest first."""
        return list(self._items.items())

    def newest_first(self) -> Iterator[Item]:
        """All open items, newest first."""
        return reversed(self._items.values())

    def of_server(self, key: str) -> Iterable[tuple[int, Call | Asked | Own | Reread]]:
        """The open items that a server has a part in."""
        return [(id_, item) for id_, item in self._items.items() if not isinstance(item, Held) and item.server == key]

    def of_client(self, client: Client) -> Iterable[tuple[int, Call | Held | Asked]]:
        """The open items that a client has a part in."""
        return [
            (id_, item)
            for id_, item in self._items.items()
            if isinstance(item, Call | Held | Asked) and item.client is client
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
            if isinstance(item, Own):
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
