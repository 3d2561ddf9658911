"""A model that uses the bridge's tools: `Agent`, and what it takes and gives.

Importing this is cheap; the `anthropic` SDK is loaded when an `Agent` is made.
"""

from __future__ import annotations

from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.errors import ModelError, StoreError
from voice_bridge.agent.events import (
    Answer,
    Event,
    Finished,
    Notice,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolCall,
    ToolFinished,
    ToolStarted,
    Usage,
    Waiting,
)
from voice_bridge.agent.loop import Agent
from voice_bridge.agent.permissions import Decision
from voice_bridge.agent.store import Store
from voice_bridge.agent.tools import Tool, ToolSource

__all__ = [
    "Agent",
    "Answer",
    "Conversation",
    "Decision",
    "Event",
    "Finished",
    "ModelError",
    "Notice",
    "Store",
    "StoreError",
    "TextDelta",
    "TextDiscarded",
    "TextEnded",
    "Tool",
    "ToolCall",
    "ToolFinished",
    "ToolSource",
    "ToolStarted",
    "Usage",
    "Waiting",
]
