"""The commands, run as a user runs them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import CHILDREN, ROOT, Bridge, child, write_settings
from voice_bridge.cli import COMMANDS
from voice_bridge.simulator import VoiceCloud


def environ() -> dict[str, str]:
    """The tests' environment without what chooses settings and endpoint."""
    return {name: value for name, value in os.environ.items() if name not in ("MCP_ENDPOINT", "MCP_CONFIG")}


def voice_bridge(*words: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "voice_bridge", *words],
        cwd=cwd or ROOT,
        env={**environ(), "PYTHONPATH": str(ROOT), **extra},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def settings(tmp_path: Path) -> str:
    broken = {"gone": {"command": "no-such-command-xyz"}, "odd": {"comment": "nothing"}}
    return str(
        write_settings(tmp_path, {"good": child("tools=echo,env"), "more": child("tools=echo,iserror"), **broken})
    )


class TestRun:
    @pytest.mark.parametrize(
        "command", [[sys.executable, "bridge_connector.py"], [sys.executable, "-m", "voice_bridge", "run"]]
    )
    def test_without_an_endpoint_it_says_what_to_set(self, command: list[str]) -> None:
        ended = subprocess.run(command, cwd=ROOT, env=environ(), capture_output=True, text=True, timeout=30)
        assert ended.returncode == 2
        last = ended.stderr.strip().splitlines()[-1]
        assert last.startswith("voice-bridge: no endpoint: set MCP_ENDPOINT to the wss:// address")
        assert "`make demo`" in last

    def test_ctrl_c_while_the_program_still_loads_is_clean(self, tmp_path: Path) -> None:
        (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        ended = subprocess.run(
            [sys.executable, "bridge_connector.py"], cwd=ROOT, env=environ() | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_without_settings_it_says_how_to_get_some(self, tmp_path: Path) -> None:
        ended = voice_bridge("run", cwd=tmp_path, MCP_ENDPOINT="ws://127.0.0.1:9/?token=abcdef")
        assert ended.returncode == 2
        assert (
            "there is no mcp_settings.json here and MCP_CONFIG is not set; `voice-bridge init` writes a starter"
            in ended.stderr
        )

    def test_when_no_server_can_be_used_it_says_why_and_ends(self, tmp_path: Path) -> None:
        path = write_settings(tmp_path, {"odd": {"comment": "x"}})
        ended = voice_bridge("run", MCP_ENDPOINT="ws://127.0.0.1:9/?token=abcdef", MCP_CONFIG=str(path))
        assert ended.returncode == 2
        assert "no server can be used" in ended.stderr
        assert "it has neither a command nor a url" in ended.stderr

    async def test_a_script_alone_needs_no_settings(self, tmp_path: Path) -> None:
        script = tmp_path / "mine.py"
        script.write_text(
            f"import runpy, sys\nsys.argv[1:] = ['tools=echo']\nrunpy.run_path({CHILDREN!r}, run_name='__main__')\n"
        )
        async with VoiceCloud() as cloud, Bridge(None, str(script), endpoint=cloud.url) as bridge:
            session = await cloud.session()
            assert [tool.name for tool in await session.ready()] == ["echo"]
            assert (await session.call("echo", {"text": "hi"})).text == "hi"
            await bridge.says(r"^mine: ready in \d+\.\d\d s, 1 tool$")

    async def test_only_the_named_servers_run(self, settings: str) -> None:
        async with VoiceCloud() as cloud, Bridge(Path(settings), "more", endpoint=cloud.url):
            assert [tool.name for tool in await (await cloud.session()).ready()] == ["echo", "iserror"]


class TestTools:
    def test_every_tool_is_listed_with_its_server_and_what_is_broken_is_told(self, settings: str) -> None:
        ended = voice_bridge("tools", "--config", settings)
        assert ended.returncode == 0
        assert "good (2 tools)\n  echo(text?)" in ended.stdout
        assert "more (2 tools)\n  more__echo(text?)" in ended.stdout
        assert "gone: failed: cannot start: command 'no-such-command-xyz' was not found; searched " in ended.stderr
        assert "it has neither a command nor a url" in ended.stderr

    def test_as_json(self, settings: str) -> None:
        ended = voice_bridge("tools", "good", "--json", "--config", settings)
        assert [tool["name"] for tool in json.loads(ended.stdout)] == ["echo", "env"]

    def test_of_a_script(self) -> None:
        ended = voice_bridge("tools", "servers/math_evaluator.py")
        assert "math_evaluator (1 tool)\n  calculate(expression)" in ended.stdout

    def test_status_1_when_there_are_none(self, settings: str) -> None:
        assert voice_bridge("tools", "gone", "--config", settings).returncode == 1


class TestCall:
    def test_a_result_is_printed(self) -> None:
        ended = voice_bridge("call", "calculate", '{"expression": "1004 * 328"}', "--server", "math-evaluator")
        assert ended.returncode == 0
        assert "329312" in ended.stdout

    def test_an_error_is_printed_and_gives_status_1(self, settings: str) -> None:
        ended = voice_bridge("call", "iserror", "--config", settings)
        assert ended.returncode == 1
        assert ended.stdout.strip()

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["echo", "{text: 1}"], "the arguments are not JSON"),
            (["echo", "[1]"], "the arguments must be a JSON object"),
            (["nope"], "there is no tool 'nope'; the servers offer: echo, env, more__echo, iserror; gone is failed"),
        ],
    )
    def test_a_mistake_is_explained_with_status_2(self, settings: str, words: list[str], sentence: str) -> None:
        ended = voice_bridge("call", *words, "--config", settings)
        assert ended.returncode == 2
        assert sentence in ended.stderr

    def test_secrets_of_the_bridge_are_not_in_a_tools_environment(self, settings: str) -> None:
        ended = voice_bridge(
            "call",
            "env",
            '{"name": "MCP_ENDPOINT"}',
            "--config",
            settings,
            MCP_ENDPOINT="ws://127.0.0.1:9/?token=hush-hush",
        )
        assert "hush" not in ended.stdout + ended.stderr


class TestCheck:
    async def test_all_is_well(self, tmp_path: Path) -> None:
        async with VoiceCloud() as cloud:
            path = write_settings(tmp_path, {"a": child("tools=echo"), "off": {"command": "x", "disabled": True}})
            ended = await asyncio.to_thread(voice_bridge, "check", "--config", str(path), MCP_ENDPOINT=cloud.url)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "ok    a: 1 tool, ready in " in ended.stdout
        assert "off   off" in ended.stdout
        assert "ok    default: connected and greeted in " in ended.stdout
        assert "about " in ended.stdout
        assert ended.stdout.endswith("All is well.\n")

    async def test_what_is_wrong_is_told_with_the_remedy(self, settings: str) -> None:
        async with VoiceCloud(token="the-right-one") as cloud:
            url = cloud.url.replace("the-right-one", "the-wrong-one")
            ended = await asyncio.to_thread(voice_bridge, "check", "--config", settings, MCP_ENDPOINT=url)
        assert ended.returncode == 1
        assert "WRONG gone: cannot start: command 'no-such-command-xyz' was not found; searched /" in ended.stdout
        assert "WRONG " in ended.stdout
        assert "odd: it has neither a command nor a url" in ended.stdout
        assert "WRONG default: the cloud refused the token (HTTP 401); copy a new token" in ended.stdout
        assert "3 things to put right." in ended.stdout
        assert "the-wrong-one" not in ended.stdout + ended.stderr

    async def test_an_endpoint_that_is_in_use_is_not_dialled(self, tmp_path: Path) -> None:
        path = write_settings(tmp_path, {"a": child("tools=echo")})
        async with VoiceCloud() as cloud, Bridge(path, endpoint=cloud.url) as bridge:
            await (await cloud.session()).ready()
            ended = await asyncio.to_thread(voice_bridge, "check", "--config", str(path), MCP_ENDPOINT=cloud.url)
            taken = "endpoint 'default' is already served by another bridge on this machine"
            assert (
                f"  note  default was not dialled: {taken} (process {bridge.pid}); stop that one first" in ended.stdout
            )
            assert (ended.returncode, ended.stderr) == (0, "")
            assert ended.stdout.endswith("All is well.\n")
            assert len(cloud.sessions) == 1

    async def test_where_no_lock_can_be_had_it_says_so_and_dials_all_the_same(self, tmp_path: Path) -> None:
        path = write_settings(tmp_path, {"a": child("tools=echo")})
        (tmp_path / "data").write_text("no folder")
        async with VoiceCloud() as cloud:
            ended = await asyncio.to_thread(
                voice_bridge, "check", "--config", str(path),
                MCP_ENDPOINT=cloud.url, VOICE_BRIDGE_DATA=str(tmp_path / "data"),
            )  # fmt: skip
        assert (
            "  note  default: cannot tell whether another bridge uses this endpoint: the data folder " in ended.stdout
        )
        assert "ok    default: connected and greeted in " in ended.stdout
        assert (ended.returncode, ended.stderr) == (0, "")


class TestInit:
    def test_it_writes_settings_that_work(self, tmp_path: Path) -> None:
        assert voice_bridge("init", cwd=tmp_path).returncode == 0
        ended = voice_bridge("tools", "clock", cwd=tmp_path)
        assert "get_datetime" in ended.stdout, ended.stderr

    def test_it_never_touches_an_existing_file(self, tmp_path: Path) -> None:
        (tmp_path / "mcp_settings.json").write_text("mine")
        ended = voice_bridge("init", cwd=tmp_path)
        assert ended.returncode == 2
        assert "mcp_settings.json exists already; it was left as it is" in ended.stderr
        assert (tmp_path / "mcp_settings.json").read_text() == "mine"


def test_the_version_and_the_help_name_every_command() -> None:
    assert voice_bridge("--version").stdout.startswith("voice-bridge 0.")
    listed = voice_bridge("--help").stdout
    assert all(f"\n  {name} " in listed for name in COMMANDS)


def test_an_unknown_command_is_refused_with_status_2() -> None:
    ended = voice_bridge("rum")
    assert ended.returncode == 2
    assert "No such command 'rum'" in ended.stderr


def test_the_daemon_imports_nothing_it_does_not_need() -> None:
    code = "import sys; from voice_bridge.cli import run; print([n for n in sys.argv[1:] if n in sys.modules])"
    heavy = [
        "anthropic",
        "chromadb",
        "torch",
        "mcp",
        "httpx",
        "json5",
        "rich",
        "prompt_toolkit",
        "voice_bridge.simulator",
        "watchfiles",
    ]
    ended = subprocess.run([sys.executable, "-c", code, *heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
