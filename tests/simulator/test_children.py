"""The misbehaving child does what its table says, down to the bytes; other tests rely on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tests.children import BANNER, NOISE, RAW_RESULT, SPLIT_TEXT, U2028_TEXT

CHILDREN = Path(__file__).parents[1] / "children.py"
PATIENCE = 20


class Pipes:
    """A running child and the lines it writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.ids = iter(range(1, 10_000))

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def write(self, message: object) -> None:
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> int:
        id = next(self.ids)
        self.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        return id

    def call(self, name: str, arguments: dict[str, Any] | None = None, **more: object) -> int:
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}, **more})

    def answer(self, id: int) -> dict[str, Any]:
        while line := self.line():
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == id:
                return message
        raise AssertionError("the child's stdout ended")

    def text(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        return str(self.answer(self.call(name, arguments))["result"]["content"][0]["text"])

    def tools(self) -> list[object]:
        return list(self.answer(self.ask("tools/list"))["result"]["tools"])


@contextmanager
def child(*modes: str, stderr: int = subprocess.DEVNULL) -> Iterator[Pipes]:
    process = subprocess.Popen(
        [sys.executable, str(CHILDREN), *modes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )
    # A read that would never return ends when the clock kills the child.
    clock = subprocess.Popen(["sh", "-c", f"sleep {PATIENCE}; kill -9 -{process.pid}"], start_new_session=True)
    try:
        yield Pipes(process)
    finally:
        os.killpg(clock.pid, signal.SIGKILL)
        clock.wait()
        with suppress(ProcessLookupError):  # its grandchildren may outlive it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError, BlockingIOError):
                    pipe.close()


def test_the_default_tools_answer() -> None:
    with child() as pipes:
        names = [tool["name"] for tool in pipes.tools() if isinstance(tool, dict)]
        assert names == ["t", "echo", "sleep", "pid", "env", "cwd", "crash", "iserror", "rpcerror"]
        assert pipes.text("t") == "ok"
        assert pipes.text("echo", {"text": "行 \ud83d"}) == "行 \ud83d"
        assert pipes.text("pid") == str(pipes.process.pid)
        assert pipes.text("env", {"name": "PATH"}) == os.environ["PATH"]
        assert json.loads(pipes.text("env"))["PATH"] == os.environ["PATH"]
        assert pipes.text("cwd") == str(Path.cwd())
        assert pipes.answer(pipes.call("iserror"))["result"]["isError"] is True
        assert pipes.answer(pipes.call("rpcerror"))["error"] == {
            "code": -32602,
            "message": "bad arguments",
            "data": {"x": 1},
        }
        assert pipes.answer(pipes.call("nope"))["error"]["code"] == -32602


def test_a_mistyped_mode_is_not_taken_for_ok() -> None:
    done = subprocess.run([sys.executable, str(CHILDREN), "bigg=1"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr == "children.py: no such mode or option: bigg\n"


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 5_000_000])
def test_big_is_exact(size: int) -> None:
    with child(f"big={size}") as pipes:
        pipes.call("t")
        assert len(pipes.line()) == size + 1


def test_bytes_of_the_odd_answers() -> None:
    with child("raw") as pipes:
        pipes.call("t")
        assert pipes.line() == b'{"jsonrpc":"2.0","id":1,"result":' + RAW_RESULT.encode() + b"}\n"
    with child("split") as pipes:
        assert pipes.text("t") == SPLIT_TEXT
    with child("u2028") as pipes:
        pipes.call("t")
        assert U2028_TEXT.encode() in pipes.line()
    with child("gbk") as pipes:
        pipes.call("t")
        assert "你好".encode("gbk") in pipes.line()
    with child("nan") as pipes:
        pipes.call("t")
        assert b'"mean":NaN,"max":Infinity' in pipes.line()
    with child("badbyte") as pipes:
        pipes.call("t")
        assert b"\xc4\xe3" in pipes.line()
        assert b"still here" in pipes.line()
    with child("bom", "crlf") as pipes:
        pipes.ask("ping")
        first = pipes.line()
        pipes.ask("ping")
        assert first[:3] == b"\xef\xbb\xbf"
        assert first.endswith(b"\r\n")
        assert pipes.line()[:1] == b"{"


def test_noise_comes_before_the_answers() -> None:
    with child("banner", "noise", "unasked") as pipes:
        pipes.call("t")
        lines = [pipes.line() for _ in range(len(BANNER.splitlines()) + 4 + 3 + 1)]
        written = b"".join(lines)
        assert written.startswith(BANNER.encode() + NOISE)
        assert [json.loads(line)["id"] for line in lines[-4:]] == [987654321, "nobody", 0.5, 1]


@pytest.mark.parametrize(("mode", "least"), [("stderr", 300_000), ("stderrcr", 150_000), ("stderrflood", 1_900_000)])
def test_stderr_is_flooded(mode: str, least: int, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as log, child(mode, stderr=log.fileno()) as pipes:
        assert pipes.text("t") == "ok"
        pipes.stdin.close()
        assert pipes.process.wait(PATIENCE) == 0
    written = (tmp_path / "stderr").read_bytes()
    assert len(written) >= least
    assert (b"\n" in written) is (mode != "stderrcr")


@pytest.mark.parametrize(
    ("mode", "status", "last_line"),
    [("dieatstart", 1, "no database at /nowhere: giving up"), ("die", 3, "out of cheese")],
)
def test_it_dies(mode: str, status: int, last_line: str) -> None:
    with child(mode, stderr=subprocess.PIPE) as pipes:
        if mode == "die":
            pipes.call("t")
        assert pipes.process.wait(PATIENCE) == status
        assert pipes.process.stderr is not None
        assert pipes.process.stderr.read().decode().splitlines()[-1] == last_line


def test_it_dies_when_started_again(tmp_path: Path) -> None:
    modes = ("diesecond", f"file={tmp_path / 'mark'}")
    with child(*modes) as pipes:
        assert pipes.text("t") == "ok"
    with child(*modes) as pipes:
        assert pipes.process.wait(PATIENCE) == 4


def test_deaf_to_everything_with_a_grandchild() -> None:
    with child("tree", "deafterm", "deafeof") as pipes:
        grandchild = psutil.Process(int(pipes.text("grandchild")))
        assert grandchild.ppid() == pipes.process.pid
        pipes.stdin.close()
        os.killpg(pipes.process.pid, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            pipes.process.wait(0.5)
        assert grandchild.is_running()
        os.killpg(pipes.process.pid, signal.SIGKILL)
        pipes.process.wait(PATIENCE)


def test_stdout_is_shut_while_it_lives_on() -> None:
    with child("closestdout") as pipes:
        pipes.call("t")
        assert pipes.line() == b""
        assert pipes.process.poll() is None
        pipes.stdin.close()
        assert pipes.process.wait(PATIENCE) == 0


def test_it_stops_reading_after_the_first_call() -> None:
    with child("neverreads") as pipes:
        assert pipes.tools()
        pipes.call("t")
        os.set_blocking(pipes.stdin.fileno(), False)
        written = 0
        with suppress(BlockingIOError):
            while written < 10_000_000:
                written += os.write(pipes.stdin.fileno(), b"x" * 65_536)
        assert 0 < written < 10_000_000


def test_pages_and_odd_entries() -> None:
    with child("pages=4") as pipes:
        pages = []
        cursor: dict[str, str] = {}
        while True:
            page = pipes.answer(pipes.ask("tools/list", cursor))["result"]
            pages.append(len(page["tools"]))
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert pages == [4, 4, 1]
    with child("pages=4", "roundpages") as pipes:
        assert pipes.answer(pipes.ask("tools/list", {"cursor": "0"}))["result"]["nextCursor"] == "0"
    with child("oddtools", "tools=a") as pipes:
        assert len([tool for tool in pipes.tools() if not isinstance(tool, dict) or "name" not in tool]) == 5


def test_a_changed_list_is_announced() -> None:
    with child("listchanged", "name=x", "tools=change,a") as pipes:
        pipes.answer(pipes.call("change"))
        assert json.loads(pipes.line())["method"] == "notifications/tools/list_changed"
        assert [tool["name"] for tool in pipes.tools() if isinstance(tool, dict)] == ["change", "a", "new2"]
        assert pipes.text("new2") == "x:new2"


def test_progress_and_lateness() -> None:
    with child("late=0.2", "progress=3") as pipes:
        late = pipes.call("t")
        assert pipes.text("echo", {"text": "first"}) == "first"
        assert pipes.answer(late)["result"]["content"][0]["text"] == "late"
        pipes.call("sleep", {"s": 0.03}, _meta={"progressToken": "p-1"})
        notices = [json.loads(pipes.line())["params"] for _ in range(3)]
        assert notices == [{"progressToken": "p-1", "progress": step, "total": 3} for step in (1, 2, 3)]


def test_it_asks_the_client_and_tells_what_it_heard() -> None:
    with child("ask", "seen", "inits", "line") as pipes:
        pipes.answer(pipes.ask("initialize", {"protocolVersion": "2024-11-05"}))
        call = pipes.call("ask", {"kind": "roots"})
        question = json.loads(pipes.line())
        assert question["method"] == "roots/list"
        pipes.write({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        assert pipes.answer(call)["result"]["content"][0]["text"] == '{"result": {"roots": []}}'
        assert pipes.text("inits") == "1"
        assert json.loads(pipes.text("seen"))[0]["method"] == "initialize"
        assert '"name": "line"' in pipes.text("line")


def test_prompts_and_resources() -> None:
    with child("prompts", "resources") as pipes:
        assert set(pipes.answer(pipes.ask("initialize"))["result"]["capabilities"]) == {"tools", "prompts", "resources"}
        greeting = pipes.answer(pipes.ask("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}}))["result"]
        assert greeting["messages"][0]["content"]["text"] == "Greet Ann."
        memo = pipes.answer(pipes.ask("resources/read", {"uri": "memo://one"}))["result"]
        assert memo["contents"][0]["text"] == "a memo"
    with child() as pipes:
        assert pipes.answer(pipes.ask("prompts/list"))["error"]["code"] == -32601
