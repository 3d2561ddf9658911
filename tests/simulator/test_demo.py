"""`voice-bridge demo` shows the voice path, tells what went wrong, and never leaves a bridge behind."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.simulator.peers import CHILD, TINY_BRIDGE
from tests.simulator.terminals import COMMAND, CTRL_C, CTRL_D, PATIENCE, ROOT, terminal
from voice_bridge.cli import demo
from voice_bridge.cli.questions import spoken
from voice_bridge.config import shipped_settings
from voice_bridge.simulator import process
from voice_bridge.simulator.messages import Reply
from voice_bridge.simulator.process import BridgeEnded, BridgeProcess, ServerReady

MATH = [*TINY_BRIDGE, sys.executable, str(ROOT / "servers" / "math_evaluator.py")]
SETTINGS = Path("mcp_settings.json")
HAS_DOCUMENTS = importlib.util.find_spec("chromadb") is not None


async def play(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    status = await asyncio.wait_for(demo.play(command, SETTINGS, stay=False), PATIENCE)
    return status, capsys.readouterr().out


@pytest.fixture(autouse=True)
def _own_documents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user with another store; only one test has the sample documents read, since that takes a model."""
    monkeypatch.setenv("DOCMIND_CHROMA_PATH", str(tmp_path / "none"))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration's patience, cut to what a test can wait for."""
    for name, seconds in (("NEEDED_WITHIN", 0.2), ("WANTED_WITHIN", 0.1), ("DIAL_WITHIN", 1.0)):
        monkeypatch.setattr(demo, name, seconds)
    monkeypatch.setattr(process, "_STOP_WITHIN", 0.5)


@pytest.mark.usefixtures("hurried")
class TestOnce:
    async def test_a_real_server_calculates_and_what_is_absent_is_skipped(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(demo, "DIAL_WITHIN", PATIENCE)
        status, out = await play(capsys, *MATH)
        assert status == 0, out
        assert re.search(r"math_evaluator\.py +3 tools +ready in 0\.01 s\n", out)
        assert "Together they offer 1 tool: calculate.\n" in out
        assert re.search(r'  calculate\(expression="1004 \* 328"\)  →  329312   [\d.]+ ms\n', out)
        assert "no server offers get_datetime: skipped" in out
        assert "MCP_ENDPOINT='wss://…' python bridge_connector.py" in out
        assert "token=" not in out

    async def test_without_a_calculator_it_fails(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out = await play(capsys, *TINY_BRIDGE, *CHILD, "tools=a")
        assert status == 1
        assert "no server offers calculate, which this needs" in out
        assert "1 of 5 questions failed." in out
        assert "The bridge's last words:\n  tools=a: ready in 0.01 s, 3 tools" in out

    async def test_a_wrong_answer_fails(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out = await play(capsys, *TINY_BRIDGE, *CHILD, "tools=srv__calculate")
        assert status == 1
        assert re.search(
            r'srv__calculate\(expression="1004 \* 328"\)\n  failed: child:srv__calculate  \([\d.]+ ms', out
        )

    async def test_a_bridge_that_ends_is_quoted(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out = await play(capsys, "sh", "-c", "echo nothing to run >&2; exit 2")
        assert status == 1
        assert "failed: the bridge ended with status 2.\nThe bridge's last words:\n  nothing to run\n" in out

    async def test_a_bridge_that_dies_in_a_call(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out = await play(capsys, *TINY_BRIDGE, *CHILD, "tools=calculate", "die")
        assert status == 1
        assert "The demonstration failed: the bridge ended with status 0." in out
        assert "  out of cheese" in out

    async def test_a_command_that_does_not_exist(self, capsys: pytest.CaptureFixture[str]) -> None:
        status, out = await play(capsys, "/no/such/bridge")
        assert status == 1
        assert "No such file or directory: '/no/such/bridge'" in out

    async def test_a_bridge_that_never_dials_is_stopped_even_if_it_is_deaf(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, out = await play(capsys, *CHILD, "deafterm", "deafeof")
        assert status == 1
        assert "The demonstration failed: the bridge did not dial within 1 s." in out
        assert "The bridge said nothing." in out
        found = re.search(r"\(process (\d+)\)", out)
        assert found
        assert not psutil.pid_exists(int(found[1]))


class TestTheRealBridge:
    """`voice-bridge demo` itself, as `make demo` runs it."""

    @pytest.mark.parametrize("key", [CTRL_C + CTRL_C, CTRL_D])
    def test_it_stays_with_a_prompt_and_stops_the_bridge_at_the_end(self, key: str) -> None:
        with terminal([*COMMAND, "demo"]) as screen:
            started = re.search(r"\(process (\d+)\)", screen.wait_for(")."))
            assert started
            bridge = psutil.Process(int(started[1]))
            shown = screen.wait_for("Type help for the commands.")
            servers = bridge.children(recursive=True)
            assert re.search(r"  math-evaluator +1 tool +ready in [\d.]+ s\r\n", shown)
            assert re.search(r'  calculate\(expression="1004 \* 328"\)  →  329312   [\d.]+ ms\r\n', shown)
            assert re.search(r'  get_datetime\(timezone="Asia/Singapore"\)  →  \d{4}-\d\d-\d\dT[\d:]+\+08:00 ', shown)
            assert re.search(r"  get_uuid\(\)  →  [0-9a-f-]{36} ", shown)
            screen.press("calculate expression=2+3\n")
            screen.wait_for("ms)")
            screen.press(key)
            assert screen.end() == 0
            assert not bridge.is_running()
            assert not [server for server in servers if server.is_running()]
            assert "Traceback" not in screen.seen

    def test_once_ends_after_the_calls_of_all_that_is_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DOCMIND_CHROMA_PATH")
        with terminal([*COMMAND, "demo", "--once"]) as screen:
            shown = screen.wait_for("“What is corrective RAG?”")
            assert "329312" in shown
            assert re.search(r"  query_database\(sql=.*\)  →  5   ", shown)
            answer = r"Corrective RAG" if HAS_DOCUMENTS else r"skipped: .* pip install "
            screen.wait_for("That was the whole path")
            assert re.search(answer, screen.seen)
            assert screen.end() == 0

    def test_ctrl_c_in_the_middle_is_clean(self) -> None:
        with terminal([*COMMAND, "demo"]) as screen:
            started = re.search(r"\(process (\d+)\)", screen.wait_for(")."))
            assert started
            screen.press(CTRL_C)
            assert screen.end() == 0
            assert not psutil.pid_exists(int(started[1]))
            assert "Traceback" not in screen.seen

    def test_a_bridge_that_dies_at_the_prompt_ends_the_demonstration(self) -> None:
        with terminal([*COMMAND, "demo"]) as screen:
            started = re.search(r"\(process (\d+)\)", screen.wait_for(")."))
            assert started
            screen.wait_for("Type help for the commands.")
            psutil.Process(int(started[1])).kill()
            screen.wait_for("the bridge ended with signal 9")
            assert screen.end() == 1

    def test_without_a_terminal_and_without_settings_it_shows_the_shipped_servers_and_ends(
        self, tmp_path: Path
    ) -> None:
        done = run_in(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "→  329312" in done.stdout
        assert "`voice-bridge init` writes one to start from" in done.stdout

    def test_a_slow_server_is_waited_for(self, tmp_path: Path) -> None:
        # Slower than the bridge's grace before it dials (5 s) and its hold of the list (5 s) together may be.
        servers = {
            "quick": {"command": sys.executable, "args": [*CHILD[1:], "tools=get_uuid,get_datetime"]},
            "slow": {"command": "sh", "args": ["-c", 'sleep 6; exec "$0" -m servers.math_evaluator', sys.executable]},
        }
        settings = {"mcpServers": servers, "bridge": {"dialAfter": 0.1}}
        (tmp_path / SETTINGS).write_text(json.dumps(settings))
        done = run_in(tmp_path)
        assert "→  329312" in done.stdout, done.stdout
        assert "2 of 5 questions failed" in done.stdout  # the child's answers are none

    def test_a_broken_settings_file_is_told_in_the_bridges_words(self, tmp_path: Path) -> None:
        (tmp_path / SETTINGS).write_text('{"mcpServers": [')
        done = run_in(tmp_path)
        assert done.returncode == 1
        assert "The demonstration failed: the bridge ended with status 2." in done.stdout
        assert "mcp_settings.json" in done.stdout.partition("last words")[2]


def run_in(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90
    )


class TestSettings:
    @pytest.fixture(autouse=True)
    def _in_an_empty_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("MCP_CONFIG", raising=False)
        monkeypatch.setenv("MCP_ENDPOINT", demo._STAND_IN)

    def test_the_shipped_ones_where_there_are_none(self) -> None:
        assert demo._settings() == (shipped_settings(), "")
        assert "voice-bridge init" in demo._next_steps(shipped_settings())

    @pytest.mark.parametrize(
        "text", ['{"mcpServers": {}}', "{ not JSON", '{"endpoints": {"a": {"url": "${MCP_ENDPOINT}"}}}']
    )
    def test_those_of_the_working_directory(self, text: str) -> None:
        SETTINGS.write_text(text)
        assert demo._settings() == (SETTINGS, "")
        assert "Servers are added in mcp_settings.json." in demo._next_steps(SETTINGS)

    def test_not_where_the_bridge_would_dial_a_real_cloud(self) -> None:
        SETTINGS.write_text('{"endpoints": {"home": {"url": "wss://real.example/mcp/?token=SECRET"}}}')
        settings, note = demo._settings()
        assert settings == shipped_settings()
        assert note.startswith("mcp_settings.json has addresses of its own (home), which a demonstration must not dial")
        assert "SECRET" not in note


class TestProcess:
    async def test_its_log_is_kept_and_its_facts_are_read(self) -> None:
        state = '{"kind":"ServerState","server":"%s","key":"%s","state":"%s","took":%s,"tools":%d}\\n'
        facts = state % ("m", "m@a", "ready", 0.62, 1) + state % ("slow", "slow", "starting", "null", 0)
        facts += state % ("m", "m@a", "ready", 0.7, 2) + '{"kind":"Remark"}\\n{"half'
        script = f"printf '{facts}' > $VOICE_BRIDGE_FACTS; printf 'x: not ready\\n\\nlast words without an end'"
        async with BridgeProcess(["sh", "-c", script], os.environ) as bridge:
            with pytest.raises(BridgeEnded, match="the bridge ended with status 0"):
                await asyncio.wait_for(bridge.ended(), PATIENCE)
            assert bridge.servers() == [ServerReady("m", 0.7, 2)]
        assert bridge.log() == ["x: not ready", "last words without an end"]

    async def test_a_flood_without_line_ends_is_cut(self) -> None:
        async with BridgeProcess(["head", "-c", "5000000", "/dev/zero"], os.environ) as bridge:
            with pytest.raises(BridgeEnded):
                await asyncio.wait_for(bridge.ended(), PATIENCE)
        assert [len(line) for line in bridge.log()] == [500]
        assert bridge.servers() == []

    async def test_a_grandchild_that_holds_the_log_keeps_nobody_waiting(self) -> None:
        async with BridgeProcess([*CHILD, "tree", "dieatstart"], os.environ) as bridge:
            with pytest.raises(BridgeEnded, match="status 1"):
                await asyncio.wait_for(bridge.ended(), PATIENCE)
            os.killpg(bridge.pid, signal.SIGKILL)
        assert bridge.log() == ["no database at /nowhere: giving up"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"status": "success", "value": 329312}', "329312"),
        ('{"datetime": "2026-11-30T20:00:00+08:00", "date": "x"}', "2026-11-30T20:00:00+08:00"),
        ('{"uuids": ["a", "b"]}', "a"),
        ("plain words", "plain words"),
        ("[]", "[]"),
        ('{"value": null}', "None"),
        ("3.50", "3.5"),
    ],
)
def test_the_heart_of_an_answer(text: str, words: str) -> None:
    assert spoken(Reply(1, {}, None, text, 1.0, "")) == words
