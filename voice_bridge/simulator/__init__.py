"""A voice cloud on this machine, for tests, demonstrations and authors of bridges.

It imports nothing else of this package, so it stays an independent witness of what the bridge does. Start with
`VoiceCloud`; what each kind of cloud does is in `kinds`.
"""

from __future__ import annotations

from voice_bridge.simulator.cloud import VoiceCloud
from voice_bridge.simulator.events import Attempt
from voice_bridge.simulator.kinds import KINDS, OFFICIAL, RELAY, Kind
from voice_bridge.simulator.messages import (
    BadAnswer,
    Disconnected,
    Dropped,
    Frame,
    ListedTool,
    NoAnswer,
    Reply,
    SessionError,
)
from voice_bridge.simulator.session import CloudSession

__all__ = [
    "KINDS",
    "OFFICIAL",
    "RELAY",
    "Attempt",
    "BadAnswer",
    "CloudSession",
    "Disconnected",
    "Dropped",
    "Frame",
    "Kind",
    "ListedTool",
    "NoAnswer",
    "Reply",
    "SessionError",
    "VoiceCloud",
]
