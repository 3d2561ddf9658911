"""The whole voice path on one machine: a sentence, the model, the cloud's WebSocket, the bridge, a server, and back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

from tests.agent.children import ROOT
from tests.agent.messages_api import MessagesAPI, calls, text
from voice_bridge.cli.assistant import Assistant
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


def test_the_cloud_command_answers_sentences_and_obeys_commands(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "ping"})), text("It said ping.")]
    cloud = subprocess.Popen(
        [sys.executable, "-u", "-m", "voice_bridge", "cloud", "--assistant"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert cloud.stdout is not None
    assert cloud.stdin is not None
    url = ""
    while "Waiting for a bridge" not in (line := cloud.stdout.readline()):
        assert line, "the cloud ended early"
        url = url or next((word[13:] for word in line.split() if word.startswith("MCP_ENDPOINT=")), "")
    command = [sys.executable, "-m", "voice_bridge", "run", "--config", str(settings)]
    bridge = subprocess.Popen(command, env={**os.environ, "MCP_ENDPOINT": url}, cwd=ROOT, stderr=DEVNULL)
    try:
        rest, _ = cloud.communicate("say ping for me\ntools\nquit\n", timeout=60)
    finally:
        bridge.terminate()
        bridge.wait(30)
    assert "Calling echo {'text': 'ping'}" in rest
    assert "It said ping." in rest
    assert rest.index("It said ping.") < rest.rindex("echo(")
    assert cloud.returncode == 0


def test_without_a_model_the_assistant_says_what_to_set_up() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    command = [sys.executable, "-m", "voice_bridge", "cloud", "--assistant"]
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, stdin=DEVNULL)
    assert ended.returncode == 2
    assert "set ANTHROPIC_API_KEY" in ended.stderr
