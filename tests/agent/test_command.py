"""`voice-bridge agent` and piped `voice-bridge chat`, as a shell runs them, with real servers behind the runtime."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent.children import ROOT
from tests.agent.messages_api import MessagesAPI, Reply, calls, error, numbers, question, results, text
from voice_bridge import cli

COMMAND = [sys.executable, "-m", "voice_bridge"]


@dataclass
class Done:
    """A command that has ended."""

    stdout: str
    stderr: str
    returncode: int


def run(*arguments: str, stdin: str = "") -> Done:
    """Runs a command here: the import of the SDK takes longer than everything a command does."""
    out, err = io.StringIO(), io.StringIO()
    with _stdin(stdin), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
    return Done(out.getvalue(), err.getvalue(), status)


@contextlib.contextmanager
def _stdin(words: str) -> Iterator[None]:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(words.encode()))
    try:
        yield
    finally:
        sys.stdin = before


def test_the_average_salary_goes_from_the_database_to_the_calculator(api: MessagesAPI, tmp_path: Path) -> None:
    def model(request: dict[str, Any]) -> Reply:
        """Puts what it got from the last tool into the next one, as a model would."""
        seen = results(request)
        if not seen:
            sql = "SELECT AVG(salary) AS average, SUM(salary) AS total FROM employees WHERE department = 'Engineering'"
            return calls(("query_database", {"sql": sql}))
        average, total = sorted(n for n in numbers(seen[:1]) if n > 1000)[:2]
        if len(seen) == 1:
            return calls(("calculate", {"expression": f"{total:.0f} * 0.12"}))
        (bonus,) = [n for n in numbers(seen[1:]) if 1000 < n < total]
        return text(f"The average is {average:,.0f}; 12 % of {total:,.0f} is {bonus:,.0f}.")

    api.answerer = model
    servers = {
        name: {"command": sys.executable, "args": ["-m", f"servers.{name}"], "cwd": str(ROOT), "trust": True}
        for name in ("database", "math_evaluator")
    }
    config = tmp_path / "settings.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    done = run(
        "agent", "What is the average salary in Engineering, and a bonus of 12 %?", "--config", str(config), "--json"
    )
    result = json.loads(done.stdout)
    assert result["answer"] == "The average is 141,600; 12 % of 708,000 is 84,960."
    assert result["iterations"] == 3
    assert [(call["tool"], call["server"]) for call in result["tool_calls"]] == [
        ("query_database", "database"),
        ("calculate", "math_evaluator"),
    ]
    assert result["usage"]["cache_read_input_tokens"] > 0
    assert "Calling query_database {'sql':" in done.stderr
    assert done.returncode == 0
    assert api.refusals == []


def test_json_says_why_there_is_no_answer(api: MessagesAPI, settings: Path) -> None:
    api.replies = [Reply([])]
    done = run("agent", "what?", "--config", str(settings), "--json")
    assert "gave no answer" in json.loads(done.stdout)["error"]
    assert done.returncode == 1


def test_the_plain_output_is_the_answer_then_rounds_and_numbered_calls(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "x"}), ("fail", {}), say="Wait."), text("It is **x**.")]
    done = run("agent", "what?", "--config", str(settings))
    assert done.stdout == (
        "It is **x**.\n\nIterations: 2\nTool calls:\n"
        "  1. echo {'text': 'x'}\n     -> x\n  2. fail {}\n     -> (error) the disk is full\n"
    )
    lines = done.stderr.splitlines()
    assert lines[:3] == ["Wait.", "Calling echo {'text': 'x'}", "Calling fail {}"]
    assert sorted(lines[3:5]) == ["Failed of fail: the disk is full", "Result of echo: x"]
    assert lines[5].startswith("Tokens: input ")
    assert done.returncode == 0


def test_json_is_one_object_also_when_it_fails(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "x"})), error(403, "permission_error", "not yours")]
    done = run("agent", "what?", "--json", "--config", str(settings))
    result = json.loads(done.stdout)
    assert "not yours" in result["error"]
    assert result["tool_calls"][0]["output"] == "x"
    assert "not yours" in done.stderr
    assert done.returncode == 1


def test_without_a_key_a_sentence_comes_at_once(settings: Path, log: Path) -> None:
    done = run("agent", "what?", "--config", str(settings))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "set ANTHROPIC_API_KEY" in done.stderr
    assert not log.exists()


def test_the_key_may_be_in_the_env_file_beside_the_settings(
    api: MessagesAPI, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.parent / ".env").write_text("\n".join(f"{name}={value}" for name, value in api.environment.items()))
    for name in api.environment:
        monkeypatch.delenv(name)
    done = run("agent", "what?", "--config", str(settings))
    assert done.stdout.startswith("Done.")


def test_a_wrong_key_says_where_the_key_goes_and_shows_none(
    api: MessagesAPI, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong-987654321")
    done = run("agent", "what?", "--config", str(settings))
    assert done.returncode == 1
    assert "put a valid one into ANTHROPIC_API_KEY" in done.stderr
    assert "987654321" not in done.stdout + done.stderr


def test_no_network_ends_in_a_sentence(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-0123456789")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    done = run("agent", "what?", "--config", str(settings))
    assert done.returncode == 1
    assert "Cannot reach http://127.0.0.1:9" in done.stderr.splitlines()[-1]
    assert "trying again in 1 s" in done.stderr


def test_a_broken_server_leaves_the_others_usable(api: MessagesAPI, settings: Path) -> None:
    config = json.loads(settings.read_text())
    config["mcpServers"]["broken"] = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no disk')"]}
    settings.write_text(json.dumps(config))
    api.replies = [calls(("echo", {"text": "x"})), text("x")]
    done = run("agent", "what?", "--config", str(settings))
    assert done.returncode == 0
    assert "Server broken is down" in done.stderr
    assert "no disk" in done.stderr
    assert "-> x" in done.stdout


def test_a_server_that_dies_in_a_call_is_a_result(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("crash", {})), text("It died.")]
    done = run("agent", "what?", "--config", str(settings), "--json")
    (call,) = json.loads(done.stdout)["tool_calls"]
    assert call["is_error"]
    assert "trouble" in call["output"]
    assert "3" in call["output"]


def test_tools_that_change_things_run_with_yes_and_not_without(api: MessagesAPI, settings: Path, log: Path) -> None:
    api.answerer = lambda request: text("ok") if results(request) else calls(("write_note", {"text": "x"}))
    refused = run("agent", "write", "--config", str(settings), "--json")
    assert "no terminal to ask" in json.loads(refused.stdout)["tool_calls"][0]["output"]
    assert not log.exists()
    run("agent", "write", "--config", str(settings), "--yes")
    assert "began write_note" in log.read_text()


def test_a_conversation_goes_on_and_is_listed(api: MessagesAPI, settings: Path) -> None:
    first = json.loads(run("agent", "my name is Ada", "--json", "--config", str(settings)).stdout)
    run("agent", "something else", "--config", str(settings))
    run("agent", "what is my name?", "--resume", first["conversation"], "--config", str(settings))
    assert "my name is Ada" in json.dumps(api.requests[-1])
    run("agent", "sure?", "-c", "--config", str(settings))
    assert "my name is Ada" in json.dumps(api.requests[-1])
    listed = run("chat", "--list").stdout.splitlines()
    assert listed[0].startswith(first["conversation"])
    assert "3 questions" in listed[0]
    assert "my name is Ada" in listed[0]
    assert "something else" in listed[1]
    unknown = run("agent", "x", "--resume", "nope", "--config", str(settings))
    assert unknown.returncode == 2
    assert "chat --list" in unknown.stderr


def test_piped_text_is_one_message_and_the_answer_is_plain(api: MessagesAPI, settings: Path) -> None:
    api.replies = [text("**Two** lines.")]
    done = run("chat", "--config", str(settings), stdin="line one\nline two\n")
    assert done.stdout == "**Two** lines.\n"
    assert api.requests[0]["messages"][0]["content"][0]["text"] == "line one\nline two\n"


def test_terminal_codes_from_a_tool_or_the_model_are_not_passed_on(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "\x1b]0;owned\x07\x1b[2J"})), text("red \x1b[31malert")]
    done = run("agent", "what?", "--config", str(settings))
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("content", [bytes(40_960), b"this is not a database, by no means at all" * 100])
def test_a_damaged_conversation_file_is_set_aside_and_the_question_answered(
    api: MessagesAPI, settings: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "conversations.db").write_bytes(content)
    done = run("agent", "what?", "--config", str(settings))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Done.")
    (aside,) = (tmp_path / "data").glob("conversations.db.damaged-*")
    assert f"set aside as {aside}" in done.stderr
    assert aside.read_bytes() == content
    assert "what?" in run("chat", "--list").stdout


def test_without_a_writable_data_folder_the_question_is_answered_and_not_kept(
    api: MessagesAPI, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICE_BRIDGE_DATA", str(settings / "folder"))
    done = run("agent", "what?", "--config", str(settings))
    piped = run("chat", "--config", str(settings), stdin="hello")
    assert (done.returncode, piped.returncode) == (0, 0)
    for ended in (done, piped):
        assert ended.stdout.startswith("Done.")
        assert "set VOICE_BRIDGE_DATA to a folder" in ended.stderr
        assert "This conversation is not kept." in ended.stderr


@pytest.mark.parametrize(
    "words", [("chat", "--list"), ("chat", "-c"), ("agent", "x", "-c"), ("agent", "x", "--resume", "a")]
)
def test_earlier_conversations_out_of_reach_are_status_2(
    api: MessagesAPI, settings: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("VOICE_BRIDGE_DATA", str(settings / "folder"))
    done = run(*words, "--config", str(settings), stdin="hello")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "set VOICE_BRIDGE_DATA" in done.stderr
    assert api.requests == []


@pytest.mark.parametrize("words", [("agent", " "), ("agent", "-"), ("agent",), ("chat",)])
def test_an_empty_question_is_found_before_any_server_starts(
    api: MessagesAPI, settings: Path, log: Path, words: tuple[str, ...]
) -> None:
    done = run(*words, "--config", str(settings), stdin="  \n")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the question is empty" in done.stderr
    assert not log.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ANTHROPIC_BASE_URL", "localhost:8080"), ("ANTHROPIC_API_KEY", "sk-密钥"), ("ANTHROPIC_API_KEY", '""')],
)
def test_a_bad_address_or_key_is_found_before_any_server_starts(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    started = tmp_path / "started"
    touch = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    settings.write_text(json.dumps({"mcpServers": {"touch": touch}}))
    monkeypatch.setenv(name, value)
    done = run("agent", "what?", "--config", str(settings))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert name in done.stderr
    assert not started.exists()


def test_a_refused_tool_shows_in_the_exit_status_and_by_name(api: MessagesAPI, settings: Path) -> None:
    api.answerer = lambda request: text("ok") if results(request) else calls(("write_note", {"text": "x"}))
    plain = run("agent", "write", "--config", str(settings))
    assert plain.returncode == 1
    assert plain.stdout.startswith("ok\n")
    assert plain.stderr.splitlines()[-1] == "Refused, and not run: write_note of trouble."
    denied = run("agent", "write", "--yes", "--deny", "write_*", "--config", str(settings), "--json")
    assert denied.returncode == 1
    answer = json.loads(denied.stdout)
    assert (answer["answer"], answer["tool_calls"][0]["refused"]) == ("ok", True)
    assert "write_note of trouble" in answer["error"]
    assert run("agent", "write", "--yes", "--config", str(settings)).returncode == 0


def test_a_pattern_that_denies_no_tool_is_refused_with_near_names(api: MessagesAPI, settings: Path, log: Path) -> None:
    api.answerer = lambda request: text("ok") if results(request) else calls(("write_note", {"text": "x"}))
    done = run("agent", "write", "--yes", "--deny", "write_notes", "--config", str(settings))
    assert done.returncode == 2
    assert "--deny write_notes means no tool" in done.stderr
    assert "did you mean write_note" in done.stderr
    assert not log.exists()
    assert api.requests == []


def test_a_pattern_for_a_server_that_is_down_is_kept_and_told(api: MessagesAPI, settings: Path) -> None:
    config = json.loads(settings.read_text())
    config["mcpServers"]["broken"] = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no disk')"]}
    settings.write_text(json.dumps(config))
    kept = run("agent", "what?", "--deny", "broken/write*", "--config", str(settings))
    assert (kept.returncode, "--deny broken/write* means no tool yet" in kept.stderr) == (0, True)
    unclear = run("agent", "what?", "--deny", "delete*", "--config", str(settings))
    assert unclear.returncode == 2
    assert "For a tool of broken, not ready yet, write SERVER/TOOL" in unclear.stderr


def test_a_server_without_trust_is_asked_for_whatever_it_says_of_itself(
    api: MessagesAPI, settings: Path, log: Path
) -> None:
    config = json.loads(settings.read_text())
    del config["mcpServers"]["trouble"]["trust"]
    settings.write_text(json.dumps(config))
    api.replies = [calls(("echo", {"text": "x"})), text("I may not.")]
    done = run("agent", "what?", "--config", str(settings))
    assert done.returncode == 1
    assert "echo of trouble" in done.stderr
    assert not log.exists()


def test_an_odd_byte_in_an_argument_or_a_pipe_becomes_a_replacement_character(api: MessagesAPI, settings: Path) -> None:
    with_byte: list[str | bytes] = [*COMMAND, "agent", b"caf\xe9", "--config", str(settings)]
    first = subprocess.run(
        with_byte, env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, timeout=60, cwd=ROOT
    )
    again = [*COMMAND, "agent", "-c", "--config", str(settings)]
    second = subprocess.run(again, input=b"und \xe9", capture_output=True, timeout=60, cwd=ROOT)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert [question(request) for request in api.requests] == ["caf\ufffd", "und \ufffd"]
    assert "caf\ufffd" in json.dumps(api.requests[-1], ensure_ascii=False)


def wait_until(log: Path, line: str) -> None:
    deadline = time.monotonic() + 40
    while not log.exists() or line not in log.read_text():
        assert time.monotonic() < deadline, f"{line!r} did not happen"
        time.sleep(0.02)


def started(settings: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "agent", *arguments, "--config", str(settings)],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_a_conversation_survives_kill_9_in_the_middle_of_two_calls(api: MessagesAPI, settings: Path, log: Path) -> None:
    api.replies = [calls(("echo", {"text": "quick"}), ("wait", {})), text("Hello.")]
    with started(settings, "two things") as process:
        wait_until(log, "began wait")
        wait_until(log, "ended echo")
        # The result is on its way from the server to the agent's file: it is there when stderr shows it.
        assert process.stderr is not None
        while not process.stderr.readline().startswith("Result of echo"):
            pass
        process.kill()
    done = run("agent", "hello", "-c", "--config", str(settings))
    assert done.stdout.startswith("Hello.")
    assert "It was damaged and is repaired: 1 tool call(s)" in done.stderr
    quick, slow = api.requests[-1]["messages"][2]["content"][:2]
    assert quick["content"][0]["text"] == "quick"
    assert "interrupted" in slow["content"][0]["text"]
    assert api.refusals == []
    again = run("agent", "again", "-c", "--config", str(settings))
    assert "damaged" not in again.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_a_question_in_good_order(
    api: MessagesAPI, settings: Path, log: Path, number: signal.Signals, status: int
) -> None:
    api.replies = [calls(("wait", {})), text("Hello.")]
    with started(settings, "wait", "--json") as process:
        wait_until(log, "began wait")
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    assert process.returncode == status
    assert json.loads(out)["answer"] == ""
    assert "Traceback" not in err
    wait_until(log, "cancelled wait")
    done = run("agent", "hello", "-c", "--config", str(settings))
    assert "damaged" not in done.stderr
    assert "interrupted by the user" in json.dumps(api.requests[-1])


def test_the_package_imports_without_the_sdk() -> None:
    code = (
        "import sys, voice_bridge.agent\n"
        "print([m for m in ('anthropic', 'httpx2', 'rich', 'prompt_toolkit') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_a_sentence_names_it(settings: Path) -> None:
    code = (
        "import sys; sys.modules['anthropic'] = None\n"
        "from voice_bridge.agent import Agent\n"
        "from voice_bridge.errors import UsageError\n"
        "try: Agent()\n"
        "except UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, cwd=ROOT)
    assert 'pip install "mcp-voice-bridge[agent]"' in done.stdout


def test_a_reader_that_leaves_ends_the_output_not_the_work(api: MessagesAPI, settings: Path, log: Path) -> None:
    api.replies = [calls(("echo", {"text": "x"})), text("It is x.")]
    with started(settings, "what?") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(40) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert "ended echo" in log.read_text()
