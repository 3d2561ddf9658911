"""One turn: from a person's question to the model's answer."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

from voice_bridge.agent.calls import Calls
from voice_bridge.agent.errors import Refused, TooLong
from voice_bridge.agent.events import (
    Answer,
    Emit,
    Event,
    Finished,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
)
from voice_bridge.agent.history import (
    Message,
    for_request,
    shrink,
    size,
    spoken,
    tool_uses,
    user_message,
    without_images,
    without_thinking,
)
from voice_bridge.agent.interrupts import Interrupted
from voice_bridge.agent.results import Block
from voice_bridge.agent.setup import Setup
from voice_bridge.agent.tools import Toolbox, toolbox
from voice_bridge.text import encodable

if TYPE_CHECKING:
    from voice_bridge.agent.client import ModelReply

INTERRUPTED = "interrupted by the user"
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
# How full the context may get before old results are shortened, and how full it is afterwards.
_FULL, _ROOMY = 0.85, 0.6


class Turn:
    """Runs one question through the conversation, which it leaves valid however it ends."""

    def __init__(self, setup: Setup, emit: Emit) -> None:
        self._setup = setup
        self._conversation = setup.conversation
        self._listener = emit
        self._heard = ""
        self._box = Toolbox()
        self.answer = Answer(model=setup.client.model)

    async def run(self, question: str) -> Answer:
        """The answer; see `Agent.ask`."""
        self._box = await self._list_tools()
        began = self._conversation.stored
        self._conversation.append(user_message(question))
        try:
            await self._rounds(began)
        except (asyncio.CancelledError, Interrupted):
            self._keep_what_was_said(INTERRUPTED)
            raise
        except BaseException:
            self._keep_what_was_said("broken off by an error")
            raise
        self._emit(Finished(self.answer))
        return self.answer

    async def _rounds(self, began: int) -> None:
        answer = self.answer
        while answer.iterations < self._setup.max_iterations:
            reply = await self._ask()
            answer.iterations += 1
            answer.stop_reason = reply.stop_reason
            calls = _tool_uses(reply.content) if reply.stop_reason == "tool_use" else []
            if reply.stop_reason == "pause_turn" and reply.content:
                self._conversation.append({"role": "assistant", "content": reply.content})
                self._end_text(reply, final=False)
                continue
            if not calls:
                self._conclude(reply, began)
                return
            self._conversation.append({"role": "assistant", "content": reply.content})
            self._end_text(reply, final=False)
            if answer.iterations < self._setup.max_iterations:
                await self._calls(calls, reply).run()
            else:
                limit = self._setup.max_iterations
                self._calls(calls, reply).refuse(
                    f"the limit of {limit} rounds is reached. Answer now from what is known"
                )
        await self._last_word(began)

    def _calls(self, blocks: list[Block], reply: ModelReply) -> Calls:
        return Calls(self._setup, self._box, blocks, reply.faulty, self.answer, self._emit)

    async def _last_word(self, began: int) -> None:
        """At the cap: one more reply without tools, marked as incomplete."""
        limit = self._setup.max_iterations
        reply = await self._ask(may_call=False)
        if not _has_text(reply.content) and _tool_uses(reply.content):
            # Some servers do not know `tool_choice: none`; without any tools they must speak.
            reply = await self._ask(may_call=False, with_tools=False)
        self.answer.stop_reason = reply.stop_reason
        self._conclude(reply, began)
        self.answer.incomplete = self.answer.incomplete or (
            f"stopped after {limit} round{'s' if limit > 1 else ''} of tool calls; the answer uses what was known then"
        )

    def _conclude(self, reply: ModelReply, began: int) -> None:
        """Ends the turn with what the reply says; none of its tool calls is run."""
        reply.content = [block for block in reply.content if block.get("type") != "tool_use"]
        message = {"role": "assistant", "content": reply.content}
        self.answer.answer = spoken(message)
        self._end_text(reply, final=True)
        if reply.stop_reason == "refusal":
            # The API goes on refusing while the refused turn stays in the history (Messages API, "Handling refusals").
            self._conversation.drop_last(self._conversation.stored - began)
        elif _has_text(reply.content):
            self._conversation.append(message)
        self.answer.incomplete = _why_incomplete(reply, self.answer.answer)

    async def _ask(self, *, may_call: bool = True, with_tools: bool = True) -> ModelReply:
        """One reply; a request the API finds too long or faulty is put right and sent again."""
        setup = self._setup
        self._make_room()
        shortened = False
        while True:
            tools = self._box.definitions if with_tools else []
            system: list[Block] = [{"type": "text", "text": setup.system, "cache_control": {"type": "ephemeral"}}]
            messages = for_request(self._conversation.messages)
            try:
                reply = await setup.client.reply(system, tools, messages, self._emit, may_call=may_call)
                break
            except TooLong as error:
                if shortened or not self._shorten(error.ratio):
                    raise
                shortened = True
            except Refused as error:
                if not self._leave_out(error):
                    raise
        self._account(reply, messages)
        _make_sendable(reply, self._known_ids())
        return reply

    def _account(self, reply: ModelReply, messages: list[Message]) -> None:
        self.answer.usage.add(reply.usage)
        self._conversation.add_usage(reply.usage)
        sent = size(messages)
        # Small requests are mostly tools and system prompt, and say little about the history.
        if sent > 20_000 and reply.usage.prompt_tokens:
            self._setup.tokens_per_byte = min(1.0, max(0.1, reply.usage.prompt_tokens / sent))

    def _make_room(self) -> None:
        setup = self._setup
        room = max(setup.context_window - setup.max_tokens, setup.context_window // 4)
        allowed = int(room / setup.tokens_per_byte)
        if size(self._conversation.messages) > allowed * _FULL:
            self._shrink_to(int(allowed * _ROOMY))

    def _shorten(self, ratio: float | None) -> bool:
        """After "prompt is too long": shorter by what the API said, or by half. False when nothing gave way."""
        now = size(self._conversation.messages)
        return self._shrink_to(int(now * (ratio or _ROOMY) * _FULL))

    def _shrink_to(self, limit: int) -> bool:
        before = size(self._conversation.messages)
        self._conversation.messages = shrink(self._conversation.messages, limit)
        if size(self._conversation.messages) >= before:
            return False
        self._emit(Notice("The conversation got long: old tool results and turns were shortened for the model."))
        return True

    def _leave_out(self, error: Refused) -> bool:
        """Takes out of the request what the API refuses. False when there is nothing of the kind (any more)."""
        if error.part == "tool":
            found = error.tool < len(self._box.tools)
            if found:
                self._note(self._box.leave_out(error.tool, f"the API refuses it ({error.reason})"))
            return found
        without = without_images if error.part == "image" else without_thinking
        self._conversation.messages, count = without(self._conversation.messages)
        if count:
            what = "image(s)" if error.part == "image" else "thoughts of the model"
            self._emit(Notice(f"{count} {what} left out, because the API refused one: {error.reason}"))
        return count > 0

    async def _list_tools(self) -> Toolbox:
        box = toolbox(self._setup.tools, await self._setup.tools.tools(), self._setup.trusted)
        for note in box.left_out:
            self._note(note)
        return box

    def _note(self, text: str) -> None:
        """A notice that is shown once in the agent's life."""
        if text not in self._setup.noted:
            self._setup.noted.add(text)
            self._emit(Notice(text))

    def _known_ids(self) -> set[str]:
        return {call["id"] for message in self._conversation.messages for call in tool_uses(message)}

    def _keep_what_was_said(self, reason: str) -> None:
        """After an interruption: the calls answered, the text so far kept with a note."""
        self._conversation.close_open_calls(reason)
        if self._heard.strip():
            text = f"{self._heard.rstrip()}\n\n[{reason}]"
            self._conversation.append({"role": "assistant", "content": [{"type": "text", "text": text}]})

    def _end_text(self, reply: ModelReply, *, final: bool) -> None:
        text = spoken({"role": "assistant", "content": reply.content})
        if text or final:
            self._emit(TextEnded(text, final))
        self._heard = ""

    def _emit(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._heard += event.text
        elif isinstance(event, TextDiscarded):
            self._heard = ""
        self._listener(event)


def _tool_uses(content: list[Block]) -> list[Block]:
    return [block for block in content if block.get("type") == "tool_use"]


def _has_text(content: list[Block]) -> bool:
    return any(block.get("type") == "text" for block in content)


def _make_sendable(reply: ModelReply, known: set[str]) -> None:
    """Puts right what some servers give and the API refuses: empty text, ids twice or none, inputs of any type."""
    blocks = [block for block in reply.content if block.get("type") != "text" or str(block.get("text") or "").strip()]
    for block in blocks:
        if block.get("type") == "text":
            block["text"] = encodable(block["text"])
        elif block.get("type") == "tool_use":
            if not _CALL_ID.fullmatch(str(block.get("id") or "")) or block["id"] in known:
                block["id"] = f"call_{len(known) + 1}_{time.time_ns():x}"
            known.add(block["id"])
            usable = _usable(block.get("input"))
            if usable is None:
                reply.faulty.add(block["id"])
            block["input"] = usable or {}
    reply.content = blocks


def _usable(given: object) -> dict[str, Any] | None:
    """The input as a request can carry it; None for no object, and for NaN or Infinity, which no JSON holds."""
    if not isinstance(given, dict):
        return None
    try:
        usable: dict[str, Any] = json.loads(encodable(json.dumps(given, ensure_ascii=False, allow_nan=False)))
    except (ValueError, RecursionError):
        return None
    return usable


def _why_incomplete(reply: ModelReply, text: str) -> str:
    detail = f" ({reply.detail})" if reply.detail else ""
    match reply.stop_reason:
        case "end_turn" | "stop_sequence" | "tool_use" if text:
            return ""
        case "end_turn" | "stop_sequence" | "tool_use":
            return "the model gave no answer; ask again, or in other words"
        case "max_tokens":
            return "the reply reached its longest length; ask for a shorter answer, or say “go on”"
        case "refusal":
            return f"the model declined{detail}; the question was taken out of the conversation, so that it can go on"
        case "model_context_window_exceeded":
            return "the conversation fills the model's context; start a new one (/new), or ask for less at once"
        case other:
            return f"the model stopped with the unknown reason {other!r}"
