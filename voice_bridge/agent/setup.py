"""What an agent is made of, and what each of its turns works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.permissions import Permissions
from voice_bridge.agent.tools import ToolSource

if TYPE_CHECKING:
    from voice_bridge.agent.client import MessagesClient


@dataclass(repr=False, eq=False)
class Setup:
    """The parts of one agent; `tools`, `conversation` and the client's model may change between turns.

    `result_budget` is in characters, `context_window` and `max_tokens` in tokens. `trusted` names the servers whose
    annotations count. `noted` and `tokens_per_byte` are what the turns have learnt so far.
    """

    client: MessagesClient
    tools: ToolSource
    conversation: Conversation
    permissions: Permissions
    system: str
    max_iterations: int
    max_tokens: int
    result_budget: int
    context_window: int
    trusted: frozenset[str] = frozenset()
    noted: set[str] = field(default_factory=set)
    tokens_per_byte: float = 0.3
