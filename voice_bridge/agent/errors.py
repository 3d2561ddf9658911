"""What an agent raises on purpose, below `voice_bridge.errors.VoiceBridgeError`.

::

    VoiceBridgeError
    ├── ModelError              the model gave no reply
    │   ├── TooLong             the request does not fit the model's context
    │   └── Refused             the API found fault with one tool or image
    └── StoreError              the file of conversations cannot be read or written
"""

from __future__ import annotations

from voice_bridge.errors import VoiceBridgeError


class ModelError(VoiceBridgeError):
    """The model gave no reply: a sentence with the cause and the remedy."""


class TooLong(ModelError):
    """The request does not fit the model's context; `ratio` is the part of it that would, where known."""

    def __init__(self, message: str, ratio: float | None) -> None:
        super().__init__(message)
        self.ratio = ratio


class Refused(ModelError):
    """The API found fault with one part of the request: the tool at `tool`, or an image."""

    def __init__(self, message: str, reason: str, *, tool: int | None, image: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.tool = tool
        self.image = image


class StoreError(VoiceBridgeError):
    """The file of conversations cannot be read or written."""
