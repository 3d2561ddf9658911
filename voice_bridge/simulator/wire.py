"""A bridge's socket as the cloud holds it: a log of every frame, raw sending and receiving, and ways to misbehave."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame as WireFrame
from websockets.frames import Opcode

from voice_bridge.simulator.messages import Disconnected, Dropped, Frame, NoAnswer, read_message


class Wire:
    """One connection, below the level of MCP.

    `frames` is what went both ways, oldest first; `dropped` what the cloud could not use, with the reason. Both keep
    the newest `keep`. `settled` is set when the connection has ended and the cloud has cleaned up after it.
    """

    def __init__(self, ws: ServerConnection, *, keep: int, on_frame: Callable[[Frame], None]) -> None:
        self.opened_at = time.monotonic()
        self.frames: deque[Frame] = deque(maxlen=keep)
        self.dropped: deque[Dropped] = deque(maxlen=keep)
        self.settled = asyncio.Event()
        self.stalled = False
        self._ws = ws
        self._on_frame = on_frame
        self._count = 0
        self._cursor = 0
        self._ended = False
        self._change = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """False once the connection has ended."""
        return not self._ended

    async def send(self, data: str | bytes) -> None:
        """Send one frame exactly as given: text for str, binary for bytes. Raises Disconnected."""
        self._log(True, data)
        self._changed()
        try:
            await self._ws.send(data)
        except ConnectionClosed as error:
            raise Disconnected("the connection to the bridge is closed") from error

    async def receive(self, matching: Callable[[Frame], bool] = lambda _: True, timeout: float = 10) -> Frame:
        """The next frame from the bridge, after the last one this method returned, that matches.

        Frames that came in the meantime are not missed, as long as the log keeps them. Raises NoAnswer after
        `timeout` seconds, Disconnected when the connection ended and no such frame is left.
        """
        found: list[Frame] = []

        def look() -> bool:
            seen = max(0, self._cursor - self.frames[0].number) if self.frames else 0
            for frame in itertools.islice(self.frames, seen, None):
                self._cursor = frame.number + 1
                if not frame.sent and matching(frame):
                    found.append(frame)
                    return True
            return False

        await self.until(look, timeout, "the expected frame did not come")
        return found[0]

    async def until(self, happened: Callable[[], bool], timeout: float, complaint: str) -> None:
        """Wait until something is true; looked at again after each frame either way and at the end of the connection.

        Raises NoAnswer after `timeout` seconds, and Disconnected when it can no longer come true.
        """
        try:
            async with asyncio.timeout(timeout):
                while not happened():
                    if self._ended:
                        raise Disconnected(f"the connection ended: {complaint}")
                    await self._change.wait()
        except TimeoutError:
            raise NoAnswer(f"{complaint} within {timeout:g} s") from None

    async def wait_closed(self, timeout: float = 10) -> tuple[int, str]:
        """The close code and reason, once the connection has ended: of the side that closed first.

        1006 stands for no close frame at all (RFC 6455 §7.1.5). Raises NoAnswer.
        """
        await self.until(lambda: self._ended, timeout, "the connection did not end")
        protocol = self._ws.protocol
        sent, received = protocol.close_sent, protocol.close_rcvd
        close = received if sent is None or protocol.close_rcvd_then_sent else sent
        return (1006, "") if close is None else (int(close.code), close.reason)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection with a close frame, and wait 2 s at most for the bridge's. 1006 means `abort`."""
        if code == 1006 or self.stalled:
            self.abort()
        else:
            await self._ws.close(code, reason)
        await self.wait_closed()

    def abort(self) -> None:
        """Cut the TCP connection without a word, as a failing network does."""
        self._ws.transport.abort()

    def stall(self) -> None:
        """Stop reading: WebSocket pings go unanswered too, and the bridge's writes back up."""
        self.stalled = True
        self._ws.transport.pause_reading()

    def resume(self) -> None:
        """Read again after `stall`."""
        self.stalled = False
        self._ws.transport.resume_reading()

    def withhold_pongs(self) -> None:
        """Read on, but leave WebSocket pings unanswered from now on (RFC 6455 §5.5.2 wants them answered)."""
        protocol = self._ws.protocol
        send_frame = protocol.send_frame

        def send_all_but_pongs(frame: WireFrame) -> None:
            if frame.opcode is not Opcode.PONG:
                send_frame(frame)

        protocol.send_frame = send_all_but_pongs  # type: ignore[method-assign]

    def _log(self, sent: bool, data: str | bytes) -> Frame:
        message, problem = read_message(data)
        frame = Frame(self._count, time.monotonic(), sent, data, message, problem)
        self._count += 1
        self.frames.append(frame)
        self._on_frame(frame)
        return frame

    def _changed(self) -> None:
        """Let everyone who waits in `until` look again."""
        self._change.set()
        self._change = asyncio.Event()
