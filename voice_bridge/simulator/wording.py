"""How the cloud words what it sees. Pure: events and answers in, text for a person out."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence

from voice_bridge.simulator.commands import usage
from voice_bridge.simulator.events import Closed, Event, Failed, Framed, Ignored, Opened, Ready, Rejected
from voice_bridge.simulator.messages import Frame, Json, ListedTool, Reply

LONGEST = 4000


def describe(event: Event) -> str:
    """A sentence on what happened; empty for most frames."""
    match event:
        case Framed(session, frame) if not frame.sent and frame.get("method") == "notifications/tools/list_changed":
            return f"bridge {session.number} says that its tools have changed: `tools` shows them as they are now"
        case Opened(session):
            return f"bridge {session.number} connected"
        case Ready(session):
            return (
                f"bridge {session.number} is {describe_server(session.server_info)}, "
                f"{count(len(session.tools), 'tool')}\n{describe_tools(session.tools, whole=False)}".rstrip()
            )
        case Failed(session, why):
            end = session.kind.catch_all
            return f"bridge {session.number}: {why}" + (f"; closing with {end[0]} {end[1]}" if end else "")
        case Closed(session, 1006, _):
            return f"bridge {session.number} is gone: the line was cut without a close frame (1006)"
        case Closed(session, code, reason):
            return f"bridge {session.number} is gone: closed with {code}" + (f" {reason}" if reason else "")
        case Rejected(attempt, why):
            return f"turned away: {why}" + ("" if attempt.status == 101 else f" ({attempt.status})")
        case Ignored(session, dropped):
            return f"bridge {session.number} sent what this cloud drops: {dropped.why}\n  {shorten(dropped.frame.data)}"
    return ""


def describe_server(info: Json) -> str:
    """Name and version out of `serverInfo`, as far as they are given."""
    return " ".join(str(info[key]) for key in ("name", "version") if info.get(key)) or "nameless"


def describe_frame(frame: Frame) -> str:
    """A frame with its direction, as seen from the cloud."""
    return f"{'→' if frame.sent else '←'} {shorten(frame.data)}"


def describe_tools(tools: Sequence[ListedTool], *, whole: bool) -> str:
    """Each tool with its parameters and what it says of itself: `whole`, or its first line."""
    width = shutil.get_terminal_size((100, 24)).columns - 1
    parts = []
    for tool in tools:
        own = "" if tool.spoken == tool.name else f"   (in the bridge's words: {tool.name})"
        parts.append(f"  {usage(tool)}{own}")
        words = " ".join(tool.description.split() if whole else tool.description.strip().partition("\n")[0].split())
        if words and whole:
            parts.append(textwrap.fill(words, width, initial_indent="      ", subsequent_indent="      "))
        elif words:
            parts.append("      " + textwrap.shorten(words, max(width - 6, 20), placeholder=" …"))
    return "\n".join(parts)


def describe_reply(reply: Reply) -> str:
    """What the device would hear, and how long it took; an error is called one."""
    took = f"({milliseconds(reply.milliseconds)})"
    if reply.error is not None:
        data = f"\n  {shorten(json.dumps(reply.error['data'], ensure_ascii=False))}" if "data" in reply.error else ""
        return f"error {reply.error.get('code')}: {reply.error.get('message')} {took}{data}"
    if reply.result is None:
        return f"an answer that is no object, which the cloud cannot use: {shorten(reply.raw)} {took}"
    text = shorten(reply.text) if reply.text else "(nothing to say)"
    unread = _unread(reply.result, reply.text)
    return (
        ("" if reply.ok else "the tool reports an error: ") + text + f"  {took}" + (f"\n  {unread}" if unread else "")
    )


def _unread(result: Json, text: str) -> str:
    """What this cloud leaves aside of a result."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    left = [str(block.get("type")) for block in blocks if block.get("type") != "text"]
    texts = [block for block in blocks if block.get("type") == "text"]
    if len(texts) > 1 and text == texts[0].get("text"):
        left.append(f"{count(len(texts) - 1, 'more text block')}")
    if not text and "structuredContent" in result:
        left.append("structured content without any text")
    return f"not read by this cloud: {', '.join(left)}" if left else ""


def milliseconds(value: float) -> str:
    """A time as one reads it: `0.42 ms`, `12 ms`, `3100 ms`."""
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def count(number: int, thing: str) -> str:
    """`1 tool`, `3 tools`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def shorten(data: str | bytes) -> str:
    """Text for one place on the screen; what is cut off is counted."""
    text = f"binary, {len(data)} bytes: {data[:60]!r}" if isinstance(data, bytes) else data
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters in all)"
