"""A conversation: its messages, and what was allowed in it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Protocol

from voice_bridge.agent.events import Usage
from voice_bridge.agent.history import Message, results_for, tool_uses
from voice_bridge.agent.results import Block


class Keeper(Protocol):
    """Where a conversation is kept; a `Store` is one. Each method raises `StoreError`."""

    def add_message(self, conversation: Conversation, message: Message) -> None:
        """Keeps one message at the conversation's next position."""

    def add_finished(self, conversation: Conversation, call_id: str, block: Block) -> None:
        """Keeps a tool result that waits for the others of its turn."""

    def add_approval(self, conversation: Conversation, tool: str, allowed: bool) -> None:
        """Keeps a decision."""

    def drop_messages(self, conversation: Conversation) -> None:
        """Forgets the messages beyond those the conversation counts."""

    def set_usage(self, conversation: Conversation) -> None:
        """Keeps the sums of tokens."""


@dataclass
class Conversation:
    """Messages in the Messages API's form, kept in `store` when there is one.

    `messages` may become shorter than what is stored, to fit the model's context; the store keeps all.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(4))
    messages: list[Message] = field(default_factory=list)
    finished: dict[str, Block] = field(default_factory=dict)
    approvals: dict[str, bool] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    store: Keeper | None = None
    stored: int = 0

    def append(self, message: Message) -> None:
        """Adds a message and keeps it. Raises `StoreError`."""
        self.messages.append(message)
        if self.store is not None:
            self.store.add_message(self, message)
        self.stored += 1
        if message["role"] == "user":
            self.finished.clear()

    def record(self, call_id: str, block: Block) -> None:
        """Keeps a tool result that is not yet part of a message. Raises `StoreError`."""
        self.finished[call_id] = block
        if self.store is not None:
            self.store.add_finished(self, call_id, block)

    def close_open_calls(self, reason: str) -> None:
        """Answers every call that has no result, so that the history is valid again. Raises `StoreError`."""
        if self.messages and (calls := tool_uses(self.messages[-1])):
            self.append(results_for(calls, self.finished, reason))

    def allow(self, tool: str, allowed: bool) -> None:
        """Remembers a decision for the rest of this conversation. Raises `StoreError`."""
        self.approvals[tool] = allowed
        if self.store is not None:
            self.store.add_approval(self, tool, allowed)

    def drop_last(self, count: int) -> None:
        """Takes back the last `count` messages. Raises `StoreError`."""
        if count > 0:
            del self.messages[-count:]
            self.stored -= count
            if self.store is not None:
                self.store.drop_messages(self)

    def add_usage(self, usage: Usage) -> None:
        """Adds to the sums. Raises `StoreError`."""
        self.usage.add(usage)
        if self.store is not None:
            self.store.set_usage(self)
