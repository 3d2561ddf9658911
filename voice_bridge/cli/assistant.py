"""The voice of the local cloud: typed sentences answered through whatever bridge is connected to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from voice_bridge.agent.events import Event, Finished, TextDelta, TextDiscarded, TextEnded
from voice_bridge.agent.loop import SYSTEM_PROMPT, Agent
from voice_bridge.agent.screen import progress
from voice_bridge.errors import CallError, VoiceBridgeError

if TYPE_CHECKING:
    from voice_bridge.simulator.session import CloudSession

SPOKEN = "\n\nYour answer is spoken aloud by a small device: one to three short sentences, no Markdown, no lists."
_NO_CODE = -32603  # JSON-RPC 2.0 §5.1, internal error


class SessionTools:
    """The tools of one bridge, as the cloud sees them over its WebSocket."""

    def __init__(self, session: CloudSession) -> None:
        self._session = session

    async def tools(self) -> list[dict[str, Any]]:
        """The bridge's tools, asked anew. Raises `SessionError`."""
        listed = await self._session.list_tools()
        return [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.schema or None} for tool in listed
        ]

    async def call(self, name: str, arguments: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        """One call over the wire. Raises `CallError` and `SessionError`."""
        reply = await self._session.call(name, arguments, timeout=timeout)
        if reply.result is None:
            error = reply.error or {}
            raise CallError(int(error.get("code", _NO_CODE)), str(error.get("message", "unknown error")))
        return reply.result

    def owner(self, name: str) -> str:
        """The cloud does not know which server is behind a tool."""
        return "bridge"


class Assistant:
    """One conversation for as long as the cloud runs. Tools run without asking, as in a real voice cloud.

    `say` prints a line of progress. Raises `UsageError` when no model is set up.
    """

    def __init__(
        self, say: Callable[[str], None], *, model: str | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._say = say
        self._agent = Agent(model=model, allow_all=True, system=SYSTEM_PROMPT + SPOKEN, environ=environ)

    async def answer(self, session: CloudSession, sentence: str) -> str:
        """What the device would say; trouble with the model is told in a sentence, too. Raises `SessionError`."""
        self._agent.tools = SessionTools(session)
        shown: set[int] = set()

        def show(event: Event) -> None:
            if not isinstance(event, TextDelta | TextEnded | TextDiscarded | Finished):
                for line in progress(event, shown):
                    self._say(line)

        try:
            answer = await self._agent.ask(sentence, show)
        except VoiceBridgeError as error:
            return str(error)
        return answer.answer or answer.incomplete

    async def close(self) -> None:
        """Closes the connections to the model."""
        await self._agent.close()
