"""What the demonstration asks the bridge: sentences as spoken to a device, and the tool calls they come to."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_bridge import __version__
from voice_bridge.simulator.messages import ListedTool, NoAnswer, Reply
from voice_bridge.simulator.session import CloudSession
from voice_bridge.simulator.wording import describe_reply, milliseconds, shorten

DATA_VARIABLES = {"DATABASE_URL", "DOCMIND_CHROMA_PATH", "CHROMA_URL", "DOCUMENTS_COLLECTION"}
_INGEST_WITHIN = 300.0


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody asks the device, the tool call it comes to, and what the answer must hold.

    `needed`: the tool must be there. `own_data`: the answer is in the data that comes with the bridge, so it may be
    missing where the settings are the user's. `patience` is seconds.
    """

    words: str
    tool: str
    arguments: Mapping[str, str]
    expected: str
    needed: bool = False
    own_data: bool = False
    patience: float = 15.0


QUESTIONS = (
    Question("What is 1004 times 328?", "calculate", {"expression": "1004 * 328"}, r"\b329312\b", needed=True),
    Question("What time is it in Singapore?", "get_datetime", {"timezone": "Asia/Singapore"}, r"\d"),
    Question("Give me a fresh identifier.", "get_uuid", {}, r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    Question(
        "How many people work in Engineering?",
        "query_database",
        {"sql": "SELECT count(*) AS people FROM employees WHERE department = 'Engineering'"},
        r"\b5\b",
        own_data=True,
    ),
    Question(
        "What is corrective RAG?",
        "search_documents",
        {"query": "What is corrective RAG?"},
        r"(?i)corrective",
        own_data=True,
        patience=120.0,
    ),
)


async def ask(session: CloudSession, question: Question, say: Callable[[str], None], *, shipped: bool) -> bool:
    """Put one question to the bridge; True unless it failed.

    An absent tool is a failure only where it is needed; missing data only where the `shipped` data is in use.
    """
    say(f"\n“{question.words}”")
    tool = find(session.tools, question.tool)
    if tool is None:
        say(f"  no server offers {question.tool}" + (", which this needs" if question.needed else ": skipped"))
        return not question.needed
    asked = f"  {tool.spoken}({', '.join(f'{key}={json.dumps(value)}' for key, value in question.arguments.items())})"
    try:
        reply = await session.call(tool.name, dict(question.arguments), timeout=question.patience)
    except NoAnswer as error:
        say(f"{asked}\n  failed: {error}")
        return False
    if reply.ok and re.search(question.expected, reply.text):
        say(
            f"{asked}  →  {textwrap.shorten(spoken(reply), 400, placeholder=' …')}   {milliseconds(reply.milliseconds)}"
        )
        return True
    if (install := re.search(r"pip install .*", reply.text)) is not None:
        say(f"{asked}\n  skipped: it is not installed; {install[0].rstrip('.')}")
        return True
    if question.own_data and not shipped:
        say(f"{asked}\n  skipped: the data that comes with the bridge is not in use here")
        return True
    say(f"{asked}\n  failed: {describe_reply(reply)}")
    return False


def spoken(reply: Reply) -> str:
    """The heart of an answer, as a device would say it: of JSON the value that says it all, where it is plain."""
    try:
        data: Any = json.loads(reply.text)
    except ValueError:
        return shorten(reply.text)
    while isinstance(data, (dict, list)) and data:
        if isinstance(data, dict):
            telling = [key for key in ("value", "result", "results", "rows", "text", "datetime") if key in data]
            data = data[telling[0] if telling else next(iter(data))]
        else:
            data = data[0]
    return " ".join(str(data).split())


def find(tools: Sequence[ListedTool], name: str) -> ListedTool | None:
    """The tool of that name, also where the bridge put its server's name in front."""
    by_name = {tool.name: tool for tool in tools}
    prefixed = (tool for tool in tools if tool.name.endswith(f"_{name}"))
    return by_name.get(name) or next(prefixed, None)


async def prepare_documents(say: Callable[[str], None]) -> dict[str, str]:
    """The sample documents, ready to be searched; the environment a bridge needs for that.

    Empty where the extra is missing or the user has documents of their own in use.
    """
    if DATA_VARIABLES & os.environ.keys() or importlib.util.find_spec("chromadb") is None:
        return {}
    from servers.documents import corpus_dir
    from voice_bridge.paths import data_dir

    store = data_dir() / "demo-documents"
    done = data_dir() / "demo-documents.version"
    if not done.exists() or done.read_text(encoding="ascii") != __version__:
        say("The sample documents are read once, for search; this takes a moment.")
        if not await _ingest(corpus_dir(), store):
            say("  that failed: `voice-bridge ingest` on a folder of yours will say why")
            return {}
        done.write_text(__version__, encoding="ascii")
    return {"DOCMIND_CHROMA_PATH": str(store)}


async def _ingest(corpus: Path, store: Path) -> bool:
    nothing = asyncio.subprocess.DEVNULL
    words = ("-m", "voice_bridge", "ingest", str(corpus), "--store", str(store))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=nothing, stdout=nothing, stderr=nothing
    )
    try:
        async with asyncio.timeout(_INGEST_WITHIN):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()  # what it has written so far is whole, and the next demonstration goes on from there
            await process.wait()
