"""The stand-in's address and key for every test of the agent, a data folder of its own, and a bound on time."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.children import ROOT, TROUBLE
from tests.agent.messages_api import MessagesAPI

LONGEST_TEST = 120


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A test that hangs fails with a traceback of where it hung."""

    def too_late(*_: object) -> None:
        raise TimeoutError(f"the test took more than {LONGEST_TEST} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(LONGEST_TEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def private_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the developer's keys, proxies or conversations."""
    names = ("API_KEY", "AUTH_TOKEN", "BASE_URL", "PROFILE", "CONFIG_DIR", "CUSTOM_HEADERS")
    for name in names:
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    monkeypatch.delenv("MCP_CONFIG", raising=False)
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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the server of `settings` notes its calls."""
    return tmp_path / "log"


@pytest.fixture
def settings(tmp_path: Path, log: Path) -> Path:
    """A settings file with the server that makes trouble; it is trusted."""
    command = {"command": sys.executable, "args": list(TROUBLE), "cwd": str(ROOT)}
    trouble = {**command, "env": {"TROUBLE_LOG": str(log)}, "trust": True}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"mcpServers": {"trouble": trouble}}))
    return path
