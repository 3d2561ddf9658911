"""A stand-in for the Messages API: a real HTTP server that streams, keeps the real one's rules and fails on demand.

What it checks (and answers with 400 in the real one's words where they are known): key and version header,
unknown fields, roles, empty text, every `tool_use` answered first thing in the next message, ids, tool names and
schemas, thinking blocks unchanged, images that are what they say, at most four cache marks, no prefill, the
context's size. It counts tokens as bytes / 4 and keeps a prompt cache by prefix.

`python -m tests.agent.messages_api` serves the demonstration of the README until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import jsonschema

Json = dict[str, Any]
KEY = "sk-test-0123456789abcdef"
VERSIONS = {"2023-06-01", "2026-10-21"}

_FIELDS = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences"),
    *("thinking", "metadata", "cache_control", "output_config", "service_tier", "container"),
}
_BLOCK_FIELDS = {
    "text": {"type", "text", "citations", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
_ALLOWED_IN = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_MAGIC = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}


class BadRequest(Exception):
    """A rule is broken: status 400, `invalid_request_error`."""


@dataclass
class Reply:
    """What the server answers. After `cut_after` events the connection is reset, or `error_event` is sent.

    `hold` is waited for before the event numbered `hold_at` (default: the last ones), to catch a stream in the middle.
    """

    content: list[Json] = field(default_factory=list)
    stop_reason: str = "end_turn"
    stop_details: Json | None = None
    status: int = 200
    error: tuple[str, str] = ("api_error", "broken")
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    error_event: tuple[str, str] | None = None
    hold: threading.Event | None = None
    hold_at: int | None = None
    raw: bytes | None = None


def text(words: str, **more: Any) -> Reply:
    """A reply that says `words`."""
    return Reply([{"type": "text", "text": words}], **more)


def calls(*named: tuple[str, Json], say: str = "", **more: Any) -> Reply:
    """A reply that asks for tools; ids are given by the server."""
    blocks: list[Json] = [{"type": "text", "text": say}] if say else []
    blocks += [{"type": "tool_use", "name": name, "input": arguments} for name, arguments in named]
    return Reply(blocks, stop_reason="tool_use", **more)


def error(status: int, kind: str, message: str, **headers: str) -> Reply:
    """A refusal; keyword `retry_after` becomes the header `retry-after`."""
    return Reply(status=status, error=(kind, message), headers={k.replace("_", "-"): v for k, v in headers.items()})


Answerer = Callable[[Json], Reply]


class MessagesAPI:
    """The server, in a thread of its own. `replies` are used up in order, then `answerer` is asked."""

    def __init__(self, *replies: Reply, answerer: Answerer | None = None, context_tokens: int = 200_000) -> None:
        self.replies = list(replies)
        self.answerer = answerer
        self.context_tokens = context_tokens
        self.requests: list[Json] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.holding = threading.Event()
        self.key: str | None = KEY
        self._thinking: dict[str, str] = {}
        self._paused: list[list[Json]] = []
        self._cached: set[str] = set()
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead the SDK here."""
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": KEY}

    def forget_thinking(self) -> None:
        """From now on it is another model, to which earlier signatures mean nothing."""
        self._thinking.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the stand-in did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, limit=2**26)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                path, headers, body = request
                if not await self._respond(path, headers, body, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _respond(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        """True when the connection may be used again."""
        self.paths.append(path)
        self.headers.append(headers)
        if not path.startswith("/v1/messages"):
            await _send_json(writer, 404, _error("not_found_error", "Not found"))
            return True
        if self.key is not None and headers.get("x-api-key", _bearer(headers)) != self.key:
            await _send_json(writer, 401, _error("authentication_error", "invalid x-api-key"))
            return True
        try:
            request: Json = json.loads(body)
            self._check(request, headers, len(body))
        except BadRequest as problem:
            self.refusals.append(str(problem))
            await _send_json(writer, 400, _error("invalid_request_error", str(problem)))
            return True
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies else self.answerer(request) if self.answerer else text("Done.")
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        if reply.status != 200:
            await _send_json(writer, reply.status, _error(*reply.error), reply.headers)
            return True
        return await self._stream(request, reply, writer)

    async def _stream(self, request: Json, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if reply.cut_after == 0:
            _reset(writer)
            return False
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n")
        writer.write(b"request-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n")
        events = list(self._events(request, reply))
        hold_at = len(events) - 3 if reply.hold_at is None else reply.hold_at
        for number, event in enumerate(events):
            if reply.hold is not None and number == hold_at:
                await writer.drain()
                self.holding.set()
                await asyncio.to_thread(reply.hold.wait, 30)
            if number == reply.cut_after:
                await writer.drain()
                if reply.error_event is None:
                    _reset(writer)
                    return False
                _chunk(writer, _error(*reply.error_event))
                break
            _chunk(writer, event)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _events(self, request: Json, reply: Reply) -> Iterator[Json]:
        usage = self._usage(request)
        self._count += 1
        content = [self._identified(block) for block in reply.content]
        start = {"id": f"msg_{self._count:02}", "type": "message", "role": "assistant", "model": request["model"]}
        start |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": start}
        yield {"type": "ping"}
        for index, block in enumerate(content):
            empty, deltas = _pieces(block)
            yield {"type": "content_block_start", "index": index, "content_block": empty}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        if reply.stop_reason == "pause_turn":
            self._paused.append(content)
        output = max(1, len(json.dumps(content)) // 4)
        delta = {"stop_reason": reply.stop_reason, "stop_sequence": None, "stop_details": reply.stop_details}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output}}
        yield {"type": "message_stop"}

    def _identified(self, block: Json) -> Json:
        if block["type"] == "tool_use" and "id" not in block:
            self._count += 1
            return {"type": "tool_use", "id": f"toolu_{self._count:02}", **block}
        if block["type"] == "thinking":
            self._thinking[block["signature"]] = block["thinking"]
        return block

    def _usage(self, request: Json) -> Json:
        """Tokens by where they come from; the cache knows each prefix that once carried a mark."""
        total = read = written = 0
        seen = hashlib.sha256()
        for part in [*request.get("tools", []), *_blocks(request.get("system")), *_message_blocks(request)]:
            bare = json.dumps({key: value for key, value in part.items() if key != "cache_control"}, sort_keys=True)
            total += len(bare) // 4
            seen.update(bare.encode())
            if seen.hexdigest() in self._cached:
                read = total
            elif "cache_control" in part:
                written = total
                self._cached.add(seen.hexdigest())
        written = max(0, written - read)
        return {
            "input_tokens": max(1, total - read - written),
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
        }

    def _check(self, request: Json, headers: dict[str, str], size: int) -> None:
        if headers.get("anthropic-version") not in VERSIONS:
            raise BadRequest("anthropic-version: header is required")
        for name in request:
            if name not in _FIELDS:
                raise BadRequest(f"{name}: Extra inputs are not permitted")
        if not isinstance(request.get("model"), str) or not request["model"]:
            raise BadRequest("model: Field required")
        if not isinstance(request.get("max_tokens"), int) or request["max_tokens"] < 1:
            raise BadRequest("max_tokens: Input should be greater than or equal to 1")
        for block in _blocks(request.get("system")):
            _check_text(block, "system")
        _check_tools(request)
        messages = _check_messages(request)
        self._check_thinking(messages)
        if messages[-1]["role"] == "assistant" and messages[-1]["content"] not in self._paused:
            raise BadRequest("This model does not support assistant message prefill.")
        marks = sum("cache_control" in part for part in [*request.get("tools", []), *_blocks(request.get("system"))])
        marks += sum("cache_control" in block for block in _message_blocks(request))
        if marks > 4:
            raise BadRequest(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
        if size // 4 > self.context_tokens:
            raise BadRequest(f"prompt is too long: {size // 4} tokens > {self.context_tokens} maximum")

    def _check_thinking(self, messages: list[Json]) -> None:
        for number, message in enumerate(messages):
            for block in message["content"]:
                if block["type"] == "thinking" and self._thinking.get(block["signature"]) != block["thinking"]:
                    raise BadRequest(f"messages.{number}: Invalid `signature` in `thinking` block")


def _check_messages(request: Json) -> list[Json]:
    """The messages with runs of one role combined, as the API itself combines them."""
    given = request.get("messages")
    if not isinstance(given, list) or not given:
        raise BadRequest("messages: at least one message is required")
    messages: list[Json] = []
    for number, message in enumerate(given):
        if set(message) != {"role", "content"} or message["role"] not in _ALLOWED_IN:
            raise BadRequest(f"messages.{number}: role and content are required")
        content = _blocks(message["content"])
        if not content:
            raise BadRequest(f"messages.{number}: all messages must have non-empty content")
        for position, block in enumerate(content):
            _check_block(block, message["role"], f"messages.{number}.content.{position}")
        if messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] = messages[-1]["content"] + content
        else:
            messages.append({"role": message["role"], "content": content})
    if messages[0]["role"] != "user":
        raise BadRequest("messages: first message must use the user role")
    _check_pairs(messages)
    return messages


def _check_block(block: Json, role: str, where: str) -> None:
    kind = block.get("type")
    if kind not in _ALLOWED_IN[role]:
        raise BadRequest(f"{where}: Input tag '{kind}' is not allowed in a message of role {role}")
    extra = set(block) - _BLOCK_FIELDS[kind]
    if extra:
        raise BadRequest(f"{where}.{kind}.{min(extra)}: Extra inputs are not permitted")
    if kind == "text":
        _check_text(block, where)
    elif kind == "image":
        _check_image(block, where)
    elif kind == "tool_use":
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) or not isinstance(block["input"], dict):
            raise BadRequest(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    elif kind == "tool_result":
        for position, part in enumerate(_blocks(block.get("content", []))):
            if part["type"] not in ("text", "image"):
                raise BadRequest(f"{where}.tool_result.content.{position}: unknown type {part['type']}")
            _check_block(part, "user", f"{where}.content.{position}")


def _check_text(block: Json, where: str) -> None:
    if not block["text"]:
        raise BadRequest(f"{where}: text content blocks must be non-empty")
    if not block["text"].strip():
        raise BadRequest(f"{where}: text content blocks must contain non-whitespace text")


def _check_image(block: Json, where: str) -> None:
    source = block["source"]
    raw = base64.b64decode(source["data"], validate=True)
    if source["media_type"] not in _MAGIC or not raw.startswith(_MAGIC[source["media_type"]]):
        raise BadRequest(f"{where}.image.source: the image does not appear to be {source['media_type']}")
    if len(source["data"]) > 5 * 1024 * 1024:
        raise BadRequest(f"{where}.image.source: image exceeds 5 MB maximum")


def _check_pairs(messages: list[Json]) -> None:
    known: set[str] = set()
    for number, message in enumerate(messages):
        answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        asked = _ids(messages[number - 1]) if number else []
        for key in answered:
            if key not in asked or answered.count(key) > 1:
                raise BadRequest(
                    f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {key}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        first = [block["type"] for block in message["content"][: len(answered)]]
        missing = [key for key in asked if key not in answered]
        if missing or any(kind != "tool_result" for kind in first):
            raise BadRequest(
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing or asked)}."
            )
        for key in _ids(message):
            if key in known:
                raise BadRequest("messages: `tool_use` ids must be unique")
            known.add(key)
    if _ids(messages[-1]):
        raise BadRequest(f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks")


def _check_tools(request: Json) -> None:
    tools = request.get("tools", [])
    if "tool_choice" in request and not tools:
        raise BadRequest("tool_choice: may only be specified while providing tools")
    names = [tool.get("name", "") for tool in tools]
    if len(set(names)) < len(names):
        raise BadRequest("tools: Tool names must be unique.")
    for number, tool in enumerate(tools):
        where = f"tools.{number}.custom"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool.get("name", "")):
            raise BadRequest(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise BadRequest(f"{where}.input_schema.type: Input should be 'object'")
        if {"oneOf", "anyOf", "allOf"} & set(schema):
            raise BadRequest(f"{where}.input_schema: does not support oneOf, allOf, or anyOf at the top level")
        for name in schema.get("properties", {}):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
                raise BadRequest(f"{where}.input_schema.properties: Property keys should match pattern")
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as problem:
            raise BadRequest(f"{where}.input_schema: JSON schema is invalid ({problem.message})") from problem


def _ids(message: Json) -> list[str]:
    return [block["id"] for block in message["content"] if block["type"] == "tool_use"]


def _blocks(content: Any) -> list[Json]:
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _message_blocks(request: Json) -> list[Json]:
    return [block for message in request["messages"] for block in _blocks(message["content"])]


def _pieces(block: Json) -> tuple[Json, list[Json]]:
    """A block as it starts, and the deltas that fill it."""
    match block["type"]:
        case "text":
            pieces = re.findall(r"\S*\s*", block["text"])[:-1]
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "tool_use":
            whole = json.dumps(block["input"]) if block["input"] not in ("", None) else ""
            parts = [whole[i : i + 9] for i in range(0, len(whole), 9)]
            begin = [] if block["input"] is None else [""]
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in [*begin, *parts]]
            return {**block, "input": {}}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}] if block["thinking"] else []
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case _:
            return block, []


def _bearer(headers: dict[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ")


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _chunk(writer: asyncio.StreamWriter, event: Json) -> None:
    data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends the connection with RST, as a balancer does that forgot it."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    line = await reader.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while (header := (await reader.readline()).decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return line.split()[1].decode(), headers, body


async def _send_json(
    writer: asyncio.StreamWriter, status: int, body: Json, headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    await writer.drain()


def results(request: Json) -> list[str]:
    """The texts of every tool result since the last question, oldest first."""
    found: list[str] = []
    for message in request["messages"]:
        for block in _blocks(message["content"]):
            if block["type"] == "tool_result":
                found.append(" ".join(part.get("text", "") for part in _blocks(block["content"])))
            elif block["type"] == "text" and message["role"] == "user":
                found.clear()
    return found


def question(request: Json) -> str:
    """What the person said last."""
    spoken = [
        block["text"]
        for message in request["messages"]
        if message["role"] == "user"
        for block in _blocks(message["content"])
        if block["type"] == "text"
    ]
    return str(spoken[-1])


def numbers(words: Iterable[str]) -> list[float]:
    """Every number in the texts."""
    return [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*\.?\d*", " ".join(words))]


def demonstration(request: Json) -> Reply:
    """Plays the model's part in the README: the same questions lead to the same tools."""
    asked, seen = question(request).lower(), results(request)
    if "time" in asked and "singapore" in asked:
        if not seen:
            return calls(("get_datetime", {"timezone": "Asia/Singapore"}))
        now = json.loads(seen[0]) if seen[0].startswith("{") else {"time": seen[0], "weekday": "no day"}
        return text(f"In Singapore it is **{now['time'][:5]}** on {now['weekday']}.")
    if "salar" in asked:
        query = "SELECT AVG(salary) AS average, SUM(salary) AS total FROM employees WHERE department = 'Engineering'"
        if not seen:
            return calls(("query_database", {"sql": query}), say="Let me look up the salaries.")
        if len(seen) == 1:
            return calls(("calculate", {"expression": "708000 * 0.12"}))
        return text(
            "The average salary in **Engineering** is **141,600**. A 12 % bonus on the total of 708,000 "
            "would cost **84,960**."
        )
    return text("I am the stand-in for a model: ask me about **salaries** or the **time in Singapore**.")


def main() -> None:
    """Serves the demonstration and prints the variables to set."""
    with MessagesAPI(answerer=demonstration) as api:
        print("\n".join(f"export {name}={value}" for name, value in api.environment.items()), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.exit(0)


if __name__ == "__main__":
    main()
