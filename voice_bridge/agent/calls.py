"""The tool calls of one reply: permitted, run side by side, each answered."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from voice_bridge.agent.events import Answer, Emit, ToolCall, ToolFinished, ToolStarted
from voice_bridge.agent.history import tool_result
from voice_bridge.agent.results import Block, to_content
from voice_bridge.agent.setup import Setup
from voice_bridge.agent.tools import Tool, Toolbox
from voice_bridge.errors import VoiceBridgeError
from voice_bridge.secrets import mask


@dataclass(frozen=True)
class _Call:
    """A `tool_use` block, the tool it names, and the record of it in the answer."""

    block: Block
    tool: Tool | None
    record: ToolCall


class Calls:
    """The `tool_use` blocks of one reply; those with `faulty` ids are answered but not run.

    Their records join `answer` in the order the model gave them.
    """

    def __init__(
        self, setup: Setup, box: Toolbox, blocks: list[Block], faulty: set[str], answer: Answer, emit: Emit
    ) -> None:
        self._faulty = faulty
        self._setup = setup
        self._box = box
        self._conversation = setup.conversation
        self._emit = emit
        self._calls = [self._recorded(block) for block in blocks]
        answer.tool_calls += [call.record for call in self._calls]

    def _recorded(self, block: Block) -> _Call:
        tool = self._box.tools.get(block["name"])
        given = block["input"]
        if tool is None:
            return _Call(block, None, ToolCall(str(block["name"]), given, is_error=True))
        return _Call(block, tool, ToolCall(tool.name, tool.arguments(given), server=tool.server, is_error=True))

    async def run(self) -> None:
        """Asks for permission one by one, then runs side by side; all results make one message.

        When cancelled, the results that are in are kept and the caller closes the open calls. Raises `StoreError`.
        """
        try:
            allowed: list[_Call] = []
            for call in self._calls:
                reason = self._cannot_run(call) or await self._refusal(call)
                if reason is None:
                    allowed.append(call)
                else:
                    self._finish(call, reason, is_error=True)
            async with asyncio.TaskGroup() as group:
                for call in allowed:
                    group.create_task(self._run(call, len(allowed)))
        except* VoiceBridgeError as failed:
            raise failed.exceptions[0] from None
        self._conversation.close_open_calls("no result")

    def _cannot_run(self, call: _Call) -> str | None:
        if call.tool is None:
            names = ", ".join(self._box.tools) or "none"
            return f"There is no tool named {call.record.tool!r}. The tools are: {names}."
        if call.block["id"] in self._faulty:
            return "Not run: the input is not a JSON object, or holds a number that JSON does not know."
        return None

    async def _refusal(self, call: _Call) -> str | None:
        assert call.tool is not None
        reason = await self._setup.permissions.refusal(call.tool, call.record.input, self._conversation)
        call.record.refused = reason is not None
        return reason

    async def _run(self, call: _Call, together: int) -> None:
        record = call.record
        # Settings may change while a person thinks: what was allowed was that server's tool, not its successor's.
        owner = self._setup.tools.owner(record.tool)
        if owner not in ("", record.server):
            record.refused = True
            changed = f"Not run: the tool {record.tool!r} of server {record.server!r} is now one of server {owner!r}."
            self._finish(call, f"{changed} The person may ask again.", is_error=True, together=together)
            return
        self._emit(ToolStarted(record, together))
        began = time.perf_counter()
        try:
            result = await self._setup.tools.call(record.tool, record.input)
            is_error = result.get("isError") is True
        except Exception as error:  # noqa: BLE001  A tool's failure is a result, which the model can act on.
            said = mask(str(error)) or type(error).__name__
            result, is_error = {"content": [{"type": "text", "text": f"The call failed: {said}"}]}, True
        record.milliseconds = round((time.perf_counter() - began) * 1000)
        self._finish(call, result, is_error=is_error, together=together)

    def _finish(self, call: _Call, result: dict[str, Any] | str, *, is_error: bool, together: int = 1) -> None:
        content: list[Block] | str
        if isinstance(result, str):
            content = text = result
        else:
            content, text = to_content(result, self._setup.result_budget)
        call.record.output, call.record.is_error = text, is_error
        call_id = call.block["id"]
        self._conversation.record(call_id, tool_result(call_id, content, is_error=is_error))
        self._emit(ToolFinished(call.record, together))

    def refuse(self, reason: str) -> None:
        """Answers every call with the reason why it is not run. Raises `StoreError`."""
        for call in self._calls:
            self._finish(call, f"Not run: {reason}.", is_error=True)
        self._conversation.close_open_calls(reason)
