"""What an agent raises on purpose, below `voice_bridge.errors.VoiceBridgeError`.

::

    VoiceBridgeError
    ├── ModelError              the model gave no reply
    │   ├── TooLong             the request does not fit the model's context
    │   └── Refused             the API found fault with a tool, an image or old thinking
    └── StoreError              the file of conversations cannot be read or written
"""

from __future__ import annotations

from typing import Literal

from voice_bridge.errors import VoiceBridgeError

Part = Literal["tool", "image", "thinking"]


class ModelError(VoiceBridgeError):
    """The model gave no reply: a sentence with the cause and the remedy."""


class TooLong(ModelError):
    """The request does not fit the model's context; `ratio` is the part of it that would, where known."""

    def __init__(self, message: str, ratio: float | None) -> None:
        super().__init__(message)
        self.ratio = ratio


class Refused(ModelError):
    """The API found fault with one part of the request that it can do without; `reason` is its own words.

    `part` names it; `tool` is its index where it is a tool.
    """

    def __init__(self, message: str, reason: str, part: Part, tool: int = -1) -> None:
        super().__init__(message)
        self.reason = reason
        self.part = part
        self.tool = tool


class StoreError(VoiceBridgeError):
    """The file of conversations cannot be read or written."""
