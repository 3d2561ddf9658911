"""The whole voice path on one machine: a sentence, the model, the cloud's WebSocket, the bridge, a server, and back."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

from tests.agent.children import ROOT
from tests.agent.messages_api import MessagesAPI, calls, text
from voice_bridge.agent.assistant import Assistant
from voice_bridge.simulator.cloud import VoiceCloud


async def test_a_typed_sentence_goes_through_the_bridge_and_comes_back(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "ping"})), text("It said ping."), text("You are welcome.")]
    said: list[str] = []
    assistant = Assistant(said.append)
    async with VoiceCloud() as cloud:
        environment = {**os.environ, "MCP_ENDPOINT": cloud.url}
        command = [sys.executable, "-m", "voice_bridge", "run", "--config", str(settings)]
        bridge = await asyncio.create_subprocess_exec(*command, env=environment, cwd=ROOT, stderr=DEVNULL)
        try:
            session = await cloud.session(timeout=30)
            await session.ready()
            assert await assistant.answer(session, "say ping") == "It said ping."
            assert await assistant.answer(session, "thanks") == "You are welcome."
        finally:
            bridge.terminate()
            await bridge.wait()
    await assistant.close()
    assert said == ["Calling echo {'text': 'ping'}", "Result: ping"]
    assert "spoken aloud" in api.requests[0]["system"][0]["text"]
    assert api.refusals == []
