"""Which tool calls may run: read-only tools of trusted servers always, others when a person or a flag says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import quote

from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.tools import Tool
from voice_bridge.text import encodable

Decision = Literal["once", "always", "no", "never"]
Approve = Callable[[Tool, dict[str, Any]], Awaitable[Decision]]

NOBODY_TO_ASK = (
    "Not run: this tool may change things, and there is no terminal to ask for permission. "
    "The person can allow it by starting the program with --yes."
)


def denies(pattern: str, server: str, tool: str) -> bool:
    """Whether a pattern of `--deny` means this tool; it is matched against `TOOL` and `SERVER/TOOL`."""
    return fnmatchcase(tool, pattern) or fnmatchcase(f"{server}/{tool}", pattern)


def unmatched(patterns: Sequence[str], tools: Sequence[tuple[str, str]]) -> list[str]:
    """The patterns that deny none of the tools, given as server and tool."""
    return [glob for glob in patterns if not any(denies(glob, server, tool) for server, tool in tools)]


def approval_key(server: str, tool: str) -> str:
    """What a decision is remembered under; no two pairs share a key, whatever is in the names."""
    return f"{quote(server, safe='', errors='replace')}/{encodable(tool)}"


@dataclass(frozen=True)
class Permissions:
    """`approve` asks a person; without it a call that would need asking is refused.

    `deny` holds globs on `tool` or `server/tool`; it is stronger than everything else. Decisions for
    always and never are remembered in the conversation, for that tool of that server only.
    """

    allow_all: bool = False
    deny: Sequence[str] = ()
    approve: Approve | None = None

    async def refusal(self, tool: Tool, arguments: dict[str, Any], conversation: Conversation) -> str | None:
        """None when the call may run, else what the model is told instead of a result."""
        pattern = next((glob for glob in self.deny if denies(glob, tool.server, tool.name)), None)
        if pattern is not None:
            return f"Not run: the person who started this program denied it (--deny {pattern})."
        if self.allow_all or tool.read_only:
            return None
        key = approval_key(tool.server, tool.name)
        remembered = conversation.approvals.get(key)
        if remembered is not None:
            return None if remembered else "Not run: the person never allows this tool in this conversation."
        if self.approve is None:
            return NOBODY_TO_ASK
        decision = await self.approve(tool, arguments)
        if decision in ("always", "never"):
            conversation.allow(key, decision == "always")
        return None if decision in ("once", "always") else "Not run: the person did not allow this call."
