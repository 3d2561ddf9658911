"""What of a server's words may reach a terminal by way of `call`, `tools` and `agent`."""

from __future__ import annotations

import sys

from voice_bridge.agent.screen import put, tolerant
from voice_bridge.text import printable


def write(text: str, *, error: bool = False) -> None:
    """Prints lines, on standard error if need be; characters the terminal cannot show become escapes."""
    put(tolerant(sys.stderr if error else sys.stdout), text)


def safe_json(text: str) -> str:
    """JSON whose strings hold no character that steers a terminal; the same values, some written as escapes.

    Outside of strings JSON knows none of those characters but line ends and tabs (RFC 8259 §2).
    """
    if printable(text) == text:
        return text
    return "".join(char if printable(char) == char else f"\\u{ord(char):04x}" for char in text)
