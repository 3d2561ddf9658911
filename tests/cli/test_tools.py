"""`voice-bridge tools` with servers that are isolated, or say odd things of themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, child, python, write_settings

LISTS = """
import json, sys
hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "0"}}
answers = {"initialize": hello, "tools/list": {"tools": json.loads(sys.argv[1])}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
"""
STEERING = "\x1b[31m\x07\u202e\u009b"


def tools(settings: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "voice_bridge", "tools", *words, "--config", str(settings)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": str(settings.parent), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Settings with a server whose only tool steers the terminal wherever it can."""
    schema = {"type": "object", "properties": {f"p{STEERING}": {}}, "required": 5}
    listed = [{"name": "show", "description": f"Shows{STEERING} it.", "title": STEERING, "inputSchema": schema}]
    return write_settings(tmp_path, {"odd": python(LISTS, json.dumps(listed))})


def test_an_isolated_server_is_started_and_listed_once(tmp_path: Path) -> None:
    endpoints = {name: {"url": f"ws://127.0.0.1:9/?token={name}-token"} for name in ("one", "two", "three")}
    starts = tmp_path / "starts"
    code = f"open({str(starts)!r}, 'a').write('x'); " + LISTS
    listed = json.dumps([{"name": "alone", "inputSchema": {"type": "object"}}])
    servers = {"own": python(code, listed, isolate=True), "shared": child("tools=echo")}
    ended = tools(write_settings(tmp_path, servers, endpoints))
    assert ended.stdout == "own (1 tool)\n  alone()\nshared (1 tool)\n  echo(text?)\n      child echo\n"
    assert starts.read_text() == "x"


def test_what_steers_a_terminal_is_escaped(odd: Path) -> None:
    ended = tools(odd)
    assert not set(ended.stdout + ended.stderr) & set(STEERING.replace("[31m", ""))
    assert "show(p\\x1b[31m" in ended.stdout
    assert "Shows\\x1b[31m" in ended.stdout


def test_as_json_it_is_escaped_but_the_same(odd: Path) -> None:
    ended = tools(odd, "--json")
    assert not set(ended.stdout) & set(STEERING.replace("[31m", ""))
    assert json.loads(ended.stdout)[0]["description"] == f"Shows{STEERING} it."
