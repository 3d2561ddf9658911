"""A bridge under observation, for the runs that hurt it (chaos) and that wear it out (soak)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CHILDREN = str(ROOT / "tests" / "children.py")
MARK = "VOICE_BRIDGE_RIG"
WATCHED = ("tasks", "threads", "descriptors", "memory")
Json = dict[str, Any]


def child(*modes: str, **more: Any) -> Json:
    """A server entry: the misbehaving child of the tests in these modes."""
    return {"command": sys.executable, "args": [CHILDREN, *modes], **more}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the bridge held at one moment: `at` is `time.monotonic()`, memory is bytes of its own."""

    at: float
    tasks: int
    threads: int
    descriptors: int
    memory: int


class ObservedBridge:
    """`bench/observed.py` as a process, used as an async context manager; its samples and its log are kept."""

    def __init__(self, servers: Mapping[str, Json], endpoints: Mapping[str, Json], bridge: Mapping[str, float]) -> None:
        self.samples: list[Sample] = []
        self._bridge = dict(bridge)
        self._folder = tempfile.TemporaryDirectory(prefix="voice-bridge-rig-", ignore_cleanup_errors=True)
        self._settings = Path(self._folder.name, "mcp_settings.json")
        self._endpoints = dict(endpoints)
        self._mark = uuid.uuid4().hex
        self._log = Path(self._folder.name, "log").open("wb")  # noqa: SIM115 - closed in __aexit__
        self.write(servers)

    def write(self, servers: Mapping[str, Json]) -> None:
        """Saves settings with these servers, as an editor does: the bridge sees the whole file or the one before."""
        data = {"mcpServers": servers, "endpoints": self._endpoints, "bridge": self._bridge}
        self.write_text(json.dumps(data))

    def write_text(self, text: str) -> None:
        """Saves any text as the settings."""
        draft = self._settings.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._settings)

    async def __aenter__(self) -> Self:
        environ = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "observed.py"), str(self._settings),
            env={**environ, MARK: self._mark}, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._group.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in [*self.alive(), *([self.process.pid] if self.process.returncode is None else [])]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(self.process.wait(), 10)
        await self._group.__aexit__(None, None, None)
        self._log.close()
        self._folder.cleanup()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.samples.append(Sample(**json.loads(line)))

    def log(self) -> str:
        """Everything it logged so far."""
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def children(self) -> list[psutil.Process]:
        """The servers' processes: the bridge's own children, living or dead."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def zombies(self) -> list[int]:
        """The children that ended and were not waited for."""
        return [process.pid for process in self.children() if _status(process) == psutil.STATUS_ZOMBIE]

    def alive(self) -> list[int]:
        """Every living process that this bridge started, directly or not."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                ours = process.pid != self.process.pid and process.environ().get(MARK) == self._mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    async def end(self, within: float = 20.0) -> int:
        """Sends SIGTERM, unless it ended by itself, and waits for the end; the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), within)


def _status(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.status())
    return ""


def quarters(samples: Sequence[Sample], began: float, ended: float) -> dict[str, tuple[float, float]]:
    """What was held in the first and in the last quarter of a run (medians)."""
    length = (ended - began) / 4
    first = [sample for sample in samples if began <= sample.at <= began + length]
    last = [sample for sample in samples if ended - length <= sample.at <= ended]
    return {name: (_median(first, name), _median(last, name)) for name in WATCHED}


def _median(samples: Iterable[Sample], name: str) -> float:
    values = [getattr(sample, name) for sample in samples]
    return statistics.median(values) if values else 0.0


def growth(held: Mapping[str, tuple[float, float]], children: int) -> list[str]:
    """A sentence for each thing that grew.

    At any moment a few connections, calls and restarts are on their way: each server may account for three tasks or
    descriptors more. Memory may differ by a tenth and 4 MiB, for the allocator's sake.
    """
    if not held["threads"][0] * held["threads"][1]:
        return ["the run was too short to compare its quarters"]
    allowed = {
        "tasks": lambda first: first + 3 * children,
        "threads": lambda first: first + 2,
        "descriptors": lambda first: first + 3 * children,
        "memory": lambda first: first * 1.1 + 4 * 2**20,
    }
    return [
        f"{name} grew from {first:,.0f} to {last:,.0f}"
        for name, (first, last) in held.items()
        if last > allowed[name](first)
    ]


def table(held: Mapping[str, tuple[float, float]]) -> str:
    """The figures of `quarters` as lines."""
    rows = [f"{'':12} {'first quarter':>14} {'last quarter':>14}"]
    for name, (first, last) in held.items():
        scale, unit = (2**20, " MiB") if name == "memory" else (1, "")
        digits = 1 if unit else 0
        rows.append(f"{name:12} {first / scale:>14,.{digits}f} {last / scale:>14,.{digits}f}{unit}")
    return "\n".join(rows)
