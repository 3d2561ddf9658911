"""A websockets client connection that hands over frames as they arrive, without a queue and a task in between.

The two task switches that `recv()` and a writing task cost are most of what a call through the bridge would take, so
incoming frames go straight from the event loop's callback to the router, and outgoing ones straight to the transport
for as long as that takes them; then they queue here. What queues is bounded: a cloud that does not read its answers is
not read from either, so that it asks nothing more, and one that leaves too much unread is let go.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import OPEN

WRITE_STALLED = 60.0
WITHOUT_PONGS = 6.0
PRESSED_AT = 4 * 2**20
MOST_UNREAD = 64 * 2**20
_ASLEEP = 5.0


@dataclass(frozen=True, slots=True)
class Pulse:
    """When a silent connection is asked for a sign of life, and when it is given up; seconds."""

    interval: float
    timeout: float


class Connection(ClientConnection):
    """`received` gets each message (bytes, text or binary alike).

    A connection that stays silent is pinged, then aborted without waiting for a goodbye. Whatever arrives counts as
    life. A cloud that left even the first ping unanswered sends no pongs at all (RFC 6455 §5.5.2 wants them): it gets
    WITHOUT_PONGS times the patience, enough for one that speaks by itself once a minute.
    """

    def __init__(self, *args: Any, received: Callable[[bytes], None], pulse: Pulse, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.largest_sent = 0
        self.silent_for = 0.0
        self._received, self._pulse = received, pulse
        self._last_heard = time.monotonic()
        self._asked_at: float | None = None
        self._sends_pongs = False
        self._pulse_timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self._reading_paused = False
        self.left_unread = 0
        self._stalled: asyncio.TimerHandle | None = None

    def deliver(self, data: bytes) -> None:
        """Sends a message as a text frame, or queues it while the cloud does not read. Never blocks, never raises."""
        self.largest_sent = max(self.largest_sent, len(data))
        if not self.paused and not self._waiting:
            self._write(data)
            return
        self._waiting.append(data)
        self._waiting_size += len(data)
        if self._waiting_size > MOST_UNREAD and len(self._waiting) > 1:
            self.left_unread = self._waiting_size
            self.transport.abort()
        elif self._waiting_size > PRESSED_AT and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def watch_pulse(self) -> None:
        """To be called once when the connection is up: from now on silence is noticed.

        The first ping shows whether this cloud answers any.
        """
        self._pulse_timer = asyncio.get_running_loop().call_later(self._pulse.interval, self._check_pulse)
        self._ping()

    def _write(self, data: bytes) -> None:
        if self.protocol.state is not OPEN:
            return
        self.protocol.send_text(data)
        with suppress(OSError, RuntimeError):  # the transport is closing; who waits for its end learns why
            self.send_data()

    # The event loop's calls

    def data_received(self, data: bytes) -> None:
        self._last_heard = time.monotonic()
        super().data_received(data)

    def process_event(self, event: Any) -> None:
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            self._sends_pongs = self._sends_pongs or (isinstance(event, Frame) and event.opcode is Opcode.PONG)
            super().process_event(event)
        elif event.fin and not self._parts:
            self._received(bytes(event.data))
        else:
            self._parts.append(bytes(event.data))
            if event.fin:
                whole, self._parts = b"".join(self._parts), []
                self._received(whole)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = asyncio.get_running_loop().call_later(WRITE_STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._drop_stall_timer()
        while self._waiting and not self.paused:
            data = self._waiting.popleft()
            self._waiting_size -= len(data)
            self._write(data)
        if self._reading_paused and self._waiting_size <= PRESSED_AT // 2:
            self._reading_paused = False
            self._last_heard = time.monotonic()  # while it was not read from it could not be heard
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_stall_timer()
        if self._pulse_timer is not None:
            self._pulse_timer.cancel()
        self._waiting.clear()
        super().connection_lost(exc)

    def _check_pulse(self) -> None:
        now = time.monotonic()
        if self._reading_paused:
            self._last_heard = now  # a cloud that does not read has a limit of its own
        asked_at, self._asked_at = self._asked_at, None
        wait = self._last_heard + self._pulse.interval - now
        if wait <= 0:
            patience = self._pulse.timeout * (1 if self._sends_pongs else WITHOUT_PONGS)
            due = asked_at + patience if asked_at is not None else None
            if due is not None and asked_at is not None and self._last_heard < asked_at and now < due + _ASLEEP:
                self.silent_for = now - self._last_heard
                self.transport.abort()
                return
            # Not asked yet, or this machine slept through the answer: ask.
            self._asked_at = now
            self._ping()
            wait = patience
        self._pulse_timer = asyncio.get_running_loop().call_later(wait, self._check_pulse)

    def _ping(self) -> None:
        if self.protocol.state is OPEN:
            self.protocol.send_ping(b"")
            with suppress(OSError, RuntimeError):
                self.send_data()

    def _drop_stall_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
