"""What each bundled server costs, beside a bare one-tool `MCPServer` in the same run.

    python -m bench.servers [--runs 7] [--calls 300]

Prints from spawn to the answered `tools/list` (the best of the runs, which take turns, since other work on the machine
only ever adds), the memory then and after calls (USS: what the process alone would give back), the first call and the
p50 of the next. Exit status 1 when a server lists its tools more than 0.3 s after the bare one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 0.3
PATIENCE = 60.0
BARE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare")
@server.tool()
def ping() -> str:
    "Answer."
    return "pong"
server.run()
"""


@dataclass
class Subject:
    """One server, the call it is measured with, and what was found."""

    name: str
    arguments: list[str]
    call: tuple[str, dict[str, Any]]
    starts: list[float] = field(default_factory=list)
    idle: int = 0
    used: int = 0
    first: float = 0.0
    p50: float = 0.0


SUBJECTS = [
    Subject("bare MCPServer", ["-c", BARE], ("ping", {})),
    Subject("math_evaluator", ["-m", "servers.math_evaluator"], ("calculate", {"expression": "1004 * 328"})),
    Subject("clock", ["-m", "servers.clock"], ("get_datetime", {"timezone": "東京"})),
    Subject("identifiers", ["-m", "servers.identifiers"], ("get_uuid", {})),
    Subject(
        "database",
        ["-m", "servers.database"],
        ("query_database", {"sql": "SELECT avg(salary) FROM employees WHERE department = 'Engineering'"}),
    ),
    Subject("toolserver", ["-m", "servers.toolserver"], ("calculate", {"expression": "1004 * 328"})),
]


class ServerUnderTest:
    """A child with the handshake done; ended after PATIENCE whatever happens."""

    def __init__(self, subject: Subject, data: str) -> None:
        self._started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *subject.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "VOICE_BRIDGE_DATA": data, "DATABASE_URL": ""},
        )
        self._guard = threading.Timer(PATIENCE, self.process.kill)
        self._guard.start()
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
        self.request("initialize", client)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.request("tools/list", {})
        self.start = time.perf_counter() - self._started

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of one request."""
        assert self.process.stdout is not None
        self._write({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = json.loads(self.process.stdout.readline())
        if "result" not in answer or answer["result"].get("isError"):
            raise SystemExit(f"{method} failed: {answer}")
        return answer["result"]

    def timed_call(self, call: tuple[str, dict[str, Any]]) -> float:
        """Return the seconds of one tool call."""
        started = time.perf_counter()
        self.request("tools/call", {"name": call[0], "arguments": call[1]})
        return time.perf_counter() - started

    @property
    def memory(self) -> int:
        """The USS in bytes."""
        return int(psutil.Process(self.process.pid).memory_full_info().uss)

    def close(self) -> None:
        """End stdin and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self._guard.cancel()


def measure(runs: int, calls: int) -> None:
    """Fill in SUBJECTS."""
    with tempfile.TemporaryDirectory() as data:
        for run in range(runs + 1):
            for subject in SUBJECTS:
                session = ServerUnderTest(subject, data)
                if run:  # the first round only warms the disk's cache
                    subject.starts.append(session.start)
                if run == runs:
                    subject.idle = session.memory
                    subject.first = session.timed_call(subject.call)
                    subject.p50 = statistics.median(session.timed_call(subject.call) for _ in range(calls))
                    subject.used = session.memory
                session.close()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    measure(max(1, options.runs), max(1, options.calls))
    bare = min(SUBJECTS[0].starts)
    print(f"{'server':16}{'tools/list':>12}{'more':>9}{'USS idle':>11}{'USS used':>11}{'1st call':>11}{'p50 call':>11}")
    late = []
    for subject in SUBJECTS:
        start = min(subject.starts)
        print(
            f"{subject.name:16}{start:10.2f} s{start - bare:+7.2f} s{subject.idle / 2**20:7.1f} MiB"
            f"{subject.used / 2**20:7.1f} MiB{subject.first * 1e3:8.1f} ms{subject.p50 * 1e3:8.2f} ms"
        )
        if start - bare > BUDGET:
            late.append(subject.name)
    verdict = f"MISSED by {', '.join(late)}" if late else "kept"
    print(f"budget: tools listed at most {BUDGET} s after the bare server's: {verdict}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
