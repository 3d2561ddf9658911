"""The stand-in's address and key for every test of the agent, and a data folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.messages_api import MessagesAPI


@pytest.fixture(autouse=True)
def private_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the developer's keys, proxies or conversations."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ANTHROPIC_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VOICE_BRIDGE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesAPI]:
    """The stand-in, to which the SDK is led by the environment."""
    with MessagesAPI() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
