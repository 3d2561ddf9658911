"""One request to a Messages API, through the official SDK: streamed, retried, explained.

The SDK's own retries are off, because a wait must be shown and must end with Ctrl-C. This module and
`failures` are the only ones that import `anthropic`; `Agent` imports them when one is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import urlsplit

import anthropic

from voice_bridge.agent.access import SET_UP, access
from voice_bridge.agent.errors import ModelError
from voice_bridge.agent.events import Emit, TextDelta, TextDiscarded, Usage, Waiting
from voice_bridge.agent.failures import RAISED, BrokenOff, Explainer
from voice_bridge.agent.history import Message
from voice_bridge.agent.results import Block
from voice_bridge.backoff import Backoff
from voice_bridge.errors import UsageError
from voice_bridge.secrets import mask
from voice_bridge.text import encodable

_OFFICIAL = "https://api.anthropic.com"
_SLOWEST_RETRY = 30.0


@dataclass
class ModelReply:
    """One whole reply of the model. `content` holds its blocks as they came, for sending back.

    `faulty` has the ids of the calls whose input was no JSON object.
    """

    content: list[Block]
    stop_reason: str
    detail: str
    usage: Usage
    faulty: set[str] = field(default_factory=set)


class MessagesClient:
    """Asks one model, again and again if need be.

    Raises `UsageError` when the environment says neither which key nor which server to use, or says it wrongly.
    """

    def __init__(
        self, model: str | None, max_tokens: int, environ: Mapping[str, str], *, retries: int, first_wait: float
    ) -> None:
        self._client = _connect(environ)
        self._explain = Explainer(self.address)
        self.model = encodable(model or "") or current_sonnet()
        self._max_tokens = max_tokens
        self._retries = retries
        self._first_wait = first_wait

    @property
    def address(self) -> str:
        """Where requests go, without a user, a password or a query."""
        parts = urlsplit(str(self._client.base_url))
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}".rstrip("/")

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def reply(
        self,
        system: list[Block],
        tools: list[Block],
        messages: list[Message],
        emit: Emit,
        *,
        may_call: bool = True,
    ) -> ModelReply:
        """The model's next reply. Text is emitted as it arrives.

        Raises `ModelError` when the API refuses, or is still busy after the last try;
        `TooLong` and `Refused` are the kinds a caller can do something about.
        """
        request: dict[str, Any] = {"system": system, "messages": messages}
        if tools:
            request["tools"] = [*tools[:-1], {**tools[-1], "cache_control": {"type": "ephemeral"}}]
            if not may_call:
                request["tool_choice"] = {"type": "none"}
        waits = Backoff(minimum=self._first_wait, maximum=_SLOWEST_RETRY)
        for attempt in range(1, self._retries + 2):
            heard: list[str] = []
            try:
                return await self._ask(request, emit, heard)
            except RAISED as error:
                verdict = self._explain.judge(error)
                if isinstance(verdict, ModelError):
                    raise verdict from error
                if attempt > min(self._retries, verdict.tries):
                    raise ModelError(f"{verdict.reason}, still after {attempt} tries. {verdict.remedy}") from error
                if heard:
                    emit(TextDiscarded("".join(heard)))
                seconds = waits.after_failure() if verdict.wait is None else verdict.wait
                emit(Waiting(verdict.reason, seconds, attempt, min(self._retries, verdict.tries)))
            await asyncio.sleep(seconds)
        raise AssertionError("the last try either returns or raises")

    async def _ask(self, request: dict[str, Any], emit: Emit, heard: list[str]) -> ModelReply:
        finished = False
        stream_of = self._client.messages.stream(model=self.model, max_tokens=self._max_tokens, **request)
        async with stream_of as stream:
            async for event in stream:
                if event.type == "text":
                    heard.append(event.text)
                    emit(TextDelta(event.text))
                elif event.type == "message_stop":
                    finished = True
            if not finished:
                kind = stream.response.headers.get("content-type", "")
                raise BrokenOff(streamed="event-stream" in kind)
            return _whole(stream.current_message_snapshot)


def _whole(message: anthropic.types.Message) -> ModelReply:
    usage = message.usage
    detail = getattr(message.stop_details, "explanation", None) or getattr(message.stop_details, "category", None)
    return ModelReply(
        content=[_as_sent(block) for block in message.content],
        stop_reason=message.stop_reason or "end_turn",
        detail=str(detail or ""),
        usage=Usage(
            usage.input_tokens or 0,
            usage.output_tokens or 0,
            usage.cache_creation_input_tokens or 0,
            usage.cache_read_input_tokens or 0,
        ),
    )


def _as_sent(block: anthropic.types.ContentBlock) -> Block:
    sent: Block = block.to_dict(mode="json", warnings=False)
    if block.type == "tool_use":
        sent["input"] = block.input  # as JSON, Infinity would have become null, and nobody would know
    return sent


def _connect(environ: Mapping[str, str]) -> anthropic.AsyncAnthropic:
    found = access(environ)
    options: dict[str, Any] = {"max_retries": 0}
    if found.api_key:
        options["api_key"] = found.api_key
    elif found.auth_token:
        options["auth_token"] = found.auth_token
    if found.base_url:
        options["base_url"] = found.base_url
    elif "ANTHROPIC_BASE_URL" in environ:
        options["base_url"] = _OFFICIAL  # the SDK would take the empty variable at its word
    if found.base_url and not (found.api_key or found.auth_token or environ.get("ANTHROPIC_PROFILE")):
        # A local server wants no key, and must not get the one the SDK would find in the user's profile.
        without_key: dict[str, Any] = {"Authorization": anthropic.omit}
        return anthropic.AsyncAnthropic(**options, api_key="none", default_headers=without_key)
    try:
        client = anthropic.AsyncAnthropic(**options)
    except anthropic.AnthropicError as error:
        raise UsageError(f"The Anthropic credentials cannot be used: {mask(str(error))}") from error
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        raise UsageError(SET_UP)
    return client


def current_sonnet() -> str:
    """The newest Sonnet that the installed SDK knows by name."""
    literal = get_args(anthropic.types.Model)[0]
    names: list[str] = [name for name in get_args(literal) if name.startswith("claude-sonnet-")]
    return max(names, key=lambda name: [int(part) for part in name.split("-")[2:] if part.isdigit() and len(part) < 4])
