"""The board of facts: what is current, a bounded history, and who wants to hear."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from voice_bridge.core.facts import CallEnded, CallStarted, EndpointState, Fact, ServerState

HISTORY = 1000


class Told(NamedTuple):
    """A fact and when it was told, in seconds since the epoch."""

    at: float
    fact: Fact


Reader = Callable[[Told], None]


class Board:
    """Keeps the last state of each server and endpoint, the open calls, and the newest facts of both kinds.

    Readers are called at once and in order; a reader must neither block nor raise.
    """

    def __init__(self, readers: Iterable[Reader] = (), keep: int = HISTORY) -> None:
        self.servers: dict[str, Told] = {}
        self.endpoints: dict[str, Told] = {}
        self.open_calls: dict[int, Told] = {}
        self.calls: deque[Told] = deque(maxlen=keep)
        self.events: deque[Told] = deque(maxlen=keep)
        self._readers = list(readers)

    def tell(self, fact: Fact) -> None:
        """Something happened."""
        told = Told(time.time(), fact)
        if isinstance(fact, CallStarted):
            self.open_calls[fact.call] = told
        elif isinstance(fact, CallEnded):
            self.open_calls.pop(fact.call, None)
            self.calls.append(told)
        else:
            self._note(told)
        for reader in self._readers:
            reader(told)

    def _note(self, told: Told) -> None:
        self.events.append(told)
        if isinstance(told.fact, ServerState):
            self.servers[told.fact.key] = told
        elif isinstance(told.fact, EndpointState):
            self.endpoints[told.fact.endpoint] = told

    def forget(self, *, servers: Iterable[str] = (), endpoints: Iterable[str] = ()) -> None:
        """What is no longer in the settings is no longer current."""
        for key in servers:
            self.servers.pop(key, None)
        for name in endpoints:
            self.endpoints.pop(name, None)

    def subscribe(self, reader: Reader) -> Callable[[], None]:
        """Lets a reader hear of all that happens from now on; the function that ends it."""
        self._readers.append(reader)
        return lambda: self._readers.remove(reader)
