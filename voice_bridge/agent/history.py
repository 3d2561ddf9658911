"""The rules of a message history, as pure functions on the Messages API's own JSON.

What the API demands (Messages API, "handling tool calls"):

1. the first message is the user's; consecutive messages of one role count as one;
2. every `tool_use` is answered by a `tool_result` in the very next message, before any other block of it;
3. no text block is empty or blank, no content is empty;
4. thinking blocks go back as they came;
5. at most four blocks carry `cache_control`.

A history lives as it happened; `for_request` makes the copy that is sent.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from voice_bridge.agent.results import Block, cut
from voice_bridge.text import encodable

Message = dict[str, Any]

EARLIER_LEFT_OUT = "[Earlier parts of this conversation were left out to make room.]"
_IMAGE_BYTES = 5_000  # about what an image costs in tokens, told in bytes of text
_SHORT_RESULT = 300
_CACHE = {"type": "ephemeral"}


def user_message(text: str) -> Message:
    """What the person said."""
    return {"role": "user", "content": [{"type": "text", "text": encodable(text)}]}


def tool_result(call_id: str, content: list[Block] | str, *, is_error: bool) -> Block:
    """The answer to one `tool_use`."""
    blocks = [{"type": "text", "text": encodable(content)}] if isinstance(content, str) else content
    block: Block = {"type": "tool_result", "tool_use_id": call_id, "content": blocks}
    if is_error:
        block["is_error"] = True
    return block


def tool_uses(message: Message) -> list[Block]:
    """The calls a message asks for."""
    if message["role"] != "assistant":
        return []
    return [block for block in message["content"] if block.get("type") == "tool_use"]


def spoken(message: Message) -> str:
    """The text of a message, without its other blocks."""
    texts = [block["text"] for block in message["content"] if block.get("type") == "text"]
    return "\n\n".join(text.strip() for text in texts if text.strip())


def is_question(message: Message) -> bool:
    """True where a person's turn begins: a user message that answers no tool call."""
    return message["role"] == "user" and not any(block.get("type") == "tool_result" for block in message["content"])


def repair(messages: list[Message], finished: Mapping[str, Block], reason: str) -> tuple[list[Message], list[str]]:
    """The history with every rule kept, and a sentence for each kind of damage found.

    `finished` holds results that came in but were not yet part of a message; a call without any result
    is answered by an error that gives `reason`.
    """
    notes: list[str] = []
    repaired: list[Message] = []
    waiting: list[Block] = []
    for message in _without_blanks(messages, notes):
        if waiting and (message["role"] != "user" or not _answers(message)):
            repaired.append(_results_for(waiting, {}, finished, reason, notes))
            waiting = []
        given = _answers(message)
        if given or waiting:
            calls = {call["id"] for call in waiting}
            if orphans := [key for key in given if key not in calls]:
                notes.append(f"{len(orphans)} tool result(s) without a call were dropped")
            others = [block for block in message["content"] if block.get("type") != "tool_result"]
            content = _results_for(waiting, given, finished, reason, notes)["content"] if waiting else []
            message = {**message, "content": content + others}
            if not message["content"]:
                continue
        if not repaired and message["role"] != "user":
            notes.append("a beginning without a question was dropped")
            continue
        repaired.append(message)
        waiting = tool_uses(message)
    if waiting:
        repaired.append(_results_for(waiting, {}, finished, reason, notes))
    return repaired, list(dict.fromkeys(notes))


def results_for(calls: list[Block], finished: Mapping[str, Block], reason: str) -> Message:
    """The message that answers `calls`: with the results in `finished`, else with an error that gives `reason`."""
    return _results_for(calls, {}, finished, reason, [])


def _results_for(
    calls: list[Block],
    given: Mapping[str, Block],
    finished: Mapping[str, Block],
    reason: str,
    notes: list[str],
) -> Message:
    content = []
    open_calls = 0
    for call in calls:
        block = given.get(call["id"]) or finished.get(call["id"])
        if block is None:
            open_calls += 1
            block = tool_result(call["id"], f"Not finished: {reason}.", is_error=True)
        content.append(block)
    if open_calls:
        notes.append(f"{open_calls} tool call(s) without a result were marked as {reason}")
    return {"role": "user", "content": content}


def _answers(message: Message) -> dict[str, Block]:
    return {
        str(block.get("tool_use_id")): block
        for block in message["content"]
        if block.get("type") == "tool_result" and message["role"] == "user"
    }


def _without_blanks(messages: list[Message], notes: list[str]) -> list[Message]:
    kept = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if message.get("role") not in ("user", "assistant") or not isinstance(content, list):
            notes.append("an unreadable message was dropped")
            continue
        full = [block for block in content if isinstance(block, dict) and not _is_blank(block)]
        if len(full) < len(content):
            notes.append("empty text was dropped")
        if full:
            kept.append({"role": message["role"], "content": full})
    return kept


def _is_blank(block: Block) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def for_request(messages: list[Message]) -> list[Message]:
    """A copy that may be sent: one message per turn of speech, cache marks on the last two user messages."""
    merged: list[Message] = []
    for message in messages:
        content = [dict(block) for block in message["content"]]
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += content
        else:
            merged.append({"role": message["role"], "content": content})
    # Two marks let the next request find the previous one's cache entry (prompt caching, "continuing a conversation").
    for message in [message for message in merged if message["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = _CACHE
    return merged


def size(messages: list[Message]) -> int:
    """Bytes of a history as JSON, an image counted as what it costs in tokens, not in base64."""
    total = 0
    for message in messages:
        for block in message["content"]:
            for part in _leaves(block):
                if part.get("type") == "image":
                    total += _IMAGE_BYTES
                else:
                    total += len(json.dumps(part, ensure_ascii=False).encode("utf-8", "replace"))
    return total


def _leaves(block: Block) -> list[Block]:
    content = block.get("content")
    return content if block.get("type") == "tool_result" and isinstance(content, list) else [block]


def shrink(messages: list[Message], limit: int) -> list[Message]:
    """A copy of about `limit` bytes or less, as far as that goes.

    In this order: results of earlier turns shortened, oldest first; earlier turns left out whole, so
    that pairs stay together; results of the present turn shortened. Words of the present turn stay.
    """
    messages = copy.deepcopy(messages)
    present = max((i for i, message in enumerate(messages) if is_question(message)), default=0)
    _shorten_results(messages[:present], lambda: size(messages) > limit)
    starts = [i for i, message in enumerate(messages) if is_question(message)]
    cut_at = next((i for i in starts if size(messages[i:]) <= limit), present)
    if cut_at:
        messages = messages[cut_at:]
        note: Block = {"type": "text", "text": EARLIER_LEFT_OUT}
        if messages[0]["content"][0] != note:
            messages[0]["content"].insert(0, note)
    _shorten_results(messages, lambda: size(messages) > limit)
    return messages


def _shorten_results(messages: list[Message], too_long: Callable[[], bool]) -> None:
    for message in messages:
        for block in message["content"]:
            if block.get("type") != "tool_result":
                continue
            if not too_long():
                return
            block["content"] = [_short(part) for part in _leaves(block)]


def _short(part: Block) -> Block:
    if part.get("type") == "image":
        return {"type": "text", "text": "[an image, left out to make room]"}
    return {**part, "text": cut(part["text"], _SHORT_RESULT)} if part.get("type") == "text" else part


def without_images(messages: list[Message]) -> tuple[list[Message], int]:
    """A copy with a line of text for each image in a tool result, and how many there were."""
    messages = copy.deepcopy(messages)
    count = 0
    for message in messages:
        for block in message["content"]:
            if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
                for position, part in enumerate(block["content"]):
                    if part.get("type") == "image":
                        count += 1
                        block["content"][position] = {"type": "text", "text": "[an image the API refused]"}
    return messages, count


def without_thinking(messages: list[Message]) -> tuple[list[Message], int]:
    """A copy without thinking blocks, which only the model that wrote them takes back, and how many there were."""
    bare = [
        {**message, "content": [block for block in message["content"] if not _is_thinking(block)]}
        for message in messages
    ]
    count = sum(_is_thinking(block) for message in messages for block in message["content"])
    return [message for message in bare if message["content"]], count


def _is_thinking(block: Block) -> bool:
    return block.get("type") in ("thinking", "redacted_thinking")
