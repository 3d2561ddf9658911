"""`voice-bridge cloud` as its users meet it: with a pipe, at a terminal, and when something is wrong."""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.simulator.peers import CHILD, TINY_BRIDGE
from tests.simulator.terminals import COMMAND, CTRL_C, CTRL_D, PATIENCE, ROOT, terminal

CLOUD = [*COMMAND, "cloud"]
PASTE = re.compile(r"MCP_ENDPOINT=(ws://127\.0\.0\.1:\d+/mcp/\?token=\S+) python bridge_connector\.py\s")


def address(screen: str) -> str:
    found = PASTE.search(screen)
    assert found, screen
    return found[1]


@contextmanager
def bridge(url: str, *modes: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*TINY_BRIDGE, *CHILD, *modes], env={"MCP_ENDPOINT": url}, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def with_pipe(typed: str, *options: str, modes: tuple[str, ...] = ()) -> tuple[int, str]:
    """Status and output of the cloud, with a bridge that connects after the commands were given."""
    command = [*CLOUD, *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(typed)
            process.stdin.flush()
            seen = ""
            while not PASTE.search(seen):
                line = process.stdout.readline()
                assert line, seen
                seen += line
            with bridge(address(seen), *modes):
                rest, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, seen + rest


def test_piped_commands_wait_for_the_bridge_and_run_in_order() -> None:
    status, out = with_pipe('tools\necho text="good morning"\ncall echo {"text": "a"}\nsleep s=0.2\nt')
    assert status == 0, out
    lines = out.splitlines()
    assert "bridge 1 connected" in lines
    assert not [line for line in lines if "is gone" in line]  # our own leaving is no news
    assert "bridge 1 is child 1, 9 tools" in lines
    assert lines.count("      child echo") == 2
    assert [re.sub(r"[\d.]+ ms", "… ms", line) for line in lines if " ms)" in line] == [
        "good morning  (… ms)",
        "a  (… ms)",
        "slept  (… ms)",
        "ok  (… ms)",
    ]


def test_a_failing_command_gives_status_1_and_does_not_stop_the_others() -> None:
    status, out = with_pipe('echo {"text": 1 2}\nnope\niserror\nrpcerror\nt\nquit\nt\n')
    assert status == 1
    assert "the JSON is wrong at column 12: expecting ',' delimiter\n  {\"text\": 1 2}\n" in out
    assert "there is no tool or command called nope" in out
    assert "the tool reports an error: boom" in out
    assert "error -32602: bad arguments" in out
    assert out.count("ok  (") == 1


def test_frames_drops_and_announcements_are_shown() -> None:
    status, out = with_pipe("change\nframes off\nt\ndrop 4004\nquit\n", "--frames", modes=("listchanged", "noise"))
    assert status == 0, out
    assert '→ {"jsonrpc": "2.0", "id": 0, "method": "initialize"' in out
    assert '← {"jsonrpc": "2.0", "id": 0, "result":' in out
    assert "bridge 1 sent what this cloud drops: not JSON: Expecting value: line 1 column 2 (char 1)\n  [INFO] x" in out
    assert "dropped with 4004" in out
    assert '"method": "tools/call", "params": {"name": "change"' in out
    assert '"params": {"name": "t"' not in out


def test_arguments_that_are_hard_to_send_arrive_or_are_refused() -> None:
    status, out = with_pipe('echo {"text": "half \\ud83d"}\necho {"text": 1e999}\nt\n')
    assert status == 1
    assert "half \\ud83d  (" in out
    assert "1e999 is no number that JSON can carry" in out
    assert "ok  (" in out


def test_a_changed_list_is_told() -> None:
    _, out = with_pipe("change\nsleep s=0.1\ntools\n", modes=("listchanged", "tools=change,sleep"))
    assert "bridge 1 says that its tools have changed: `tools` shows them as they are now" in out
    assert "  new2()" in out


def test_it_plays_the_relay() -> None:
    status, out = with_pipe("t\n", "--kind", "relay", "--frames")
    assert status == 0, out
    assert '"name": "self-hosted-relay"' in out
    assert re.search(r'"id": "[0-9a-f-]{36}_n_3", "method": "tools/call"', out)


def test_a_token_is_checked_and_shown_only_in_the_line_to_paste() -> None:
    with terminal([*CLOUD, "--token", "s3cret word"]) as screen:
        url = address(screen.wait_for("Type help"))
        assert url.endswith("?token=s3cret%20word")
        with bridge(url + "x"):
            screen.wait_for("turned away: wrong token (401)")
        with bridge(url):
            screen.wait_for("bridge 1 is child 1, 9 tools")
        screen.wait_for("bridge 1 is gone")
        screen.press(CTRL_D)
        assert screen.end() == 0
        assert screen.seen.count("s3cret") == 1


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D, "quit\n", "exit\n"])
@pytest.mark.parametrize("busy", [False, True])
def test_every_way_out_is_clean(key: str, busy: bool) -> None:
    with terminal(CLOUD) as screen:
        with bridge(address(screen.wait_for("Type help"))):
            screen.wait_for("9 tools")
            if busy:
                screen.press("sleep s=60\n")
                screen.press("echo text=later\n")
                screen.wait_for("later  (")
            screen.press(key)
            assert screen.end() == 0
        assert "Traceback" not in screen.seen
        assert "Error" not in screen.seen


def test_a_slow_call_does_not_hold_up_the_prompt_and_can_be_cut_off() -> None:
    with terminal(CLOUD) as screen, bridge(address(screen.wait_for("Type help"))):
        screen.wait_for("9 tools")
        screen.press("sleep s=60\n")
        screen.press("drop 1006\n")
        screen.wait_for("the connection ended before the answer came")
        screen.press("t\n")
        screen.wait_for("no bridge is connected: start one with the line above")
        screen.press("help\n")
        screen.wait_for("NAME key=value")


def test_a_browser_is_told_from_a_bridge() -> None:
    with terminal(CLOUD) as screen:
        url = address(screen.wait_for("Type help")).replace("ws:", "http:")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url, timeout=PATIENCE)
        screen.wait_for("turned away: Failed to open a WebSocket connection: ")
        screen.press("quit\n")
        assert screen.end() == 0
        assert "Traceback" not in screen.seen


def test_sigterm_ends_it_with_status_0() -> None:
    with terminal(CLOUD) as screen:
        screen.wait_for("Type help")
        screen.process.terminate()
        assert screen.end() == 0


def test_without_a_terminal_it_ends_with_its_input() -> None:
    done = subprocess.run(CLOUD, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert address(done.stdout)


def test_output_that_nobody_reads_is_no_error() -> None:
    command = f"{' '.join(CLOUD)} </dev/null | head -c 1"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""


def test_a_port_in_use_is_a_sentence_and_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*CLOUD, "--port", str(port)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == (
        f"voice-bridge: port {port} on 127.0.0.1 is in use: "
        "choose another with --port, or leave it out to get a free one\n"
    )


@pytest.mark.parametrize("options", [("--kind", "other"), ("--port", "99999"), ("--token", "")])
def test_wrong_options_give_status_2(options: tuple[str, str]) -> None:
    done = subprocess.run([*CLOUD, *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert options[0] in done.stderr


def test_a_hostile_tool_cannot_take_over_the_screen() -> None:
    def answer(ws: ClientConnection, id: object, result: str) -> None:
        ws.send(f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}')

    with terminal(CLOUD) as screen, connect(address(screen.wait_for("Type help"))) as ws:
        ws.recv()
        answer(ws, 0, '{"protocolVersion":"2024-11-05","serverInfo":{"name":"\\u001b[2Jx","version":"1"}}')
        ws.recv()
        ws.recv()
        answer(ws, 1, '{"tools":[{"name":"e\\u001b]0;t\\u0007","description":"\\u202edlrow"}]}')
        screen.wait_for("dlrow")
        assert "\x1b" not in screen.seen
        assert "\\x1b[2Jx 1, 1 tool" in screen.seen
