"""The two clouds in use, as data: what each sends, what it ignores, and when it loses patience.

Change one trait with `dataclasses.replace(OFFICIAL, ping_every=0.1)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """The habits of one kind of cloud. Times are seconds, sizes bytes.

    `pipelined`: the three messages of the handshake are sent without waiting for answers.
    `first_id`: where ids start on each connection.
    `one_per_token`: a second connection displaces the first with close 1000, and the first one's cleanup then
    unregisters the second (unless the first was gone before).
    `call_extras`: members added to the params of `tools/call`.
    `first_block_only`: of a result, only `content[0].text` is read.
    `deaf`: replies to id 0, notifications and requests from the bridge are dropped; a binary frame unregisters.
    `handshake_timeout`: an unanswered `initialize` or `tools/list` ends in `catch_all`, where there is one.
    `needs_tools`: an empty tool list ends in `catch_all`.
    `bad_token`: an HTTP status, or (≥ 1000) the close code sent after a successful 101.
    `name_rule`: what may not stand in a tool's name; each such character becomes `_`. Empty: names are kept.
    """

    name: str
    client_name: str
    capabilities: tuple[tuple[str, Any], ...] = ()
    pipelined: bool = False
    first_id: int = 0
    one_per_token: bool = False
    call_extras: tuple[tuple[str, Any], ...] = ()
    first_block_only: bool = False
    deaf: bool = False
    ping_every: float | None = None
    ping_patience: float = 60
    handshake_timeout: float = 10
    call_timeout: float = 300
    catch_all: tuple[int, str] | None = None
    needs_tools: bool = False
    bad_token: int = 401
    max_size: int | None = None
    name_rule: str = ""

    def spoken_name(self, name: str) -> str:
        """The name under which this cloud offers a tool to its model."""
        return re.sub(self.name_rule, "_", name) if self.name_rule else name

    def heard(self, result: dict[str, Any]) -> str:
        """The text this cloud takes out of a tool's result (MCP 2025-06-18, server/tools, "Tool Result")."""
        content = result.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
        if self.first_block_only:
            return texts[0] if texts and isinstance(texts[0], str) else ""
        return "\n".join(text for text in texts if isinstance(text, str))


OFFICIAL = Kind(
    name="official",
    client_name="xz-mcp-broker",
    call_extras=(("serialNumber", None),),
    ping_every=60,
    catch_all=(4004, "Internal server error"),
    needs_tools=True,
)
"""The official voice cloud since 2026-08; older deployments have `call_timeout=10`."""

RELAY = Kind(
    name="relay",
    client_name="self-hosted-relay",
    capabilities=(("roots", {"listChanged": True}), ("sampling", {})),
    pipelined=True,
    first_id=1,
    one_per_token=True,
    first_block_only=True,
    deaf=True,
    call_timeout=30,
    bad_token=1008,
    max_size=2**24,  # 16 MiB, its web server's default: 17 MB is the first round size that closes with 1009
    name_rule=r"[^A-Za-z0-9_\-一-鿿]",
)
"""The open-source relay that people host themselves."""

KINDS = {kind.name: kind for kind in (OFFICIAL, RELAY)}
