"""Everything goes wrong at once, under a steady load of calls from two clouds; every call must still be answered once.

    python bench/chaos.py [--seconds 120] [--seed N]

Children are killed and stopped, sockets cut, closed and stalled, dials refused and left hanging, the settings rewritten
and broken, stderr flooded. At the end: every request on a living connection was answered exactly once and with its own
answer, every server is back, nothing is left behind, and the bridge holds no more than in the beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from voice_bridge.simulator import OFFICIAL, CloudSession, Disconnected, NoAnswer, Reply, SessionError, VoiceCloud
from voice_bridge.simulator.events import Event, Failed, Ignored

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from bench.rig import Json, ObservedBridge, child, growth, quarters, table  # noqa: E402 - also when run as a script

WORKERS = 6
PAUSE = 0.03
CALL_TIMEOUT = 4
PATIENCE = 15.0
CALM_WITHIN = 30.0
BRIDGE = {
    "minBackoff": 0.1,
    "maxBackoff": 0.5,
    "stableAfter": 1,
    "dialAfter": 2,
    "pingInterval": 0.7,
    "pingTimeout": 0.7,
}
SERVERS: Mapping[str, Json] = {
    "plain": child("ok"),
    "noisy": child("noise", "unasked", "stderr"),
    "wordy": child("banner", "crlf", "bom", "stderrcr", "progress=3"),
    "forest": child("tree", "deafterm"),
    "strange": child("oddtools", "listchanged", "pages=2", "big=300000"),
}
PASSING: Mapping[str, Json] = {
    "flood": child("stderrflood"),
    "dies": child("die"),
    "never": child("dieatstart"),
    "deaf": child("neverreads"),
    "odd": child("nan", "name=odd"),
}
"""Servers that come and go with the settings."""
CODES = (1001, 1006, 1011, 1012, 1013, 4004)
PATIENT = replace(OFFICIAL, needs_tools=False, catch_all=None, handshake_timeout=PATIENCE, ping_every=1.0)


@dataclass(slots=True)
class Tally:
    """What became of the calls, and what was done to the bridge."""

    answers: Counter[str] = field(default_factory=Counter)
    trouble: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    connections: int = 0

    def fault(self, sentence: str) -> None:
        """Something that must not happen."""
        self.faults.append(sentence)

    def heard(self, event: Event) -> None:
        """What a cloud noticed: an answer too many, a handshake that failed."""
        if isinstance(event, Ignored):
            self.fault(f"the bridge sent {event.dropped.why}: {str(event.dropped.frame.data)[:200]}")
        elif isinstance(event, Failed):
            self.fault(f"a handshake failed: {event.why}")


class Load:
    """Workers that call tools on whatever connection a cloud has."""

    def __init__(self, cloud: VoiceCloud, tally: Tally, random: random.Random) -> None:
        self._cloud, self._tally, self._random = cloud, tally, random
        self.session: CloudSession | None = None
        self.over = asyncio.Event()

    async def run(self) -> None:
        """Calls until `over`, and until every call has come to its end."""
        async with asyncio.TaskGroup() as tasks:
            newest = tasks.create_task(self._newest())
            workers = [tasks.create_task(self._work()) for _ in range(WORKERS)]
            await asyncio.wait(workers)
            newest.cancel()

    async def _newest(self) -> None:
        while True:
            with suppress(NoAnswer):
                self.session = await self._cloud.session(1)
                self._tally.connections += 1

    async def _work(self) -> None:
        while not self.over.is_set():
            session = self.session
            if session is not None and session.is_usable:
                await self._call(session)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), PAUSE)

    async def _call(self, session: CloudSession) -> None:
        tool, arguments, wanted = self._question(session)
        meta = {"progressToken": f"p{self._random.random()}"} if self._random.random() < 0.2 else None
        try:
            reply = await session.call(tool, arguments, meta=meta, timeout=PATIENCE)
        except Disconnected:
            self._tally.answers["connection lost first"] += 1
        except NoAnswer:
            self._tally.fault(f"no answer to {tool} within {PATIENCE:g} s on a connection that lives")
        else:
            self._judge(tool, wanted, reply)

    def _question(self, session: CloudSession) -> tuple[str, Json, str | None]:
        """A tool, its arguments, and the text of the answer where it is known."""
        names = [tool.name for tool in session.tools if not tool.name.endswith("crash")] or ["echo"]
        if self._random.random() < 0.005:
            return "crash", {}, None
        echoes = [name for name in names if name.endswith("echo")]
        if echoes and self._random.random() < 0.7:
            text = f"{self._random.random()} " + "读" * int(self._random.paretovariate(0.7) % 100_000)
            return self._random.choice(echoes), {"text": text}, text
        tool = self._random.choice(names)
        return tool, {"s": self._random.random() / 2, "kind": "roots", "name": "PATH", "text": ""}, None

    def _judge(self, tool: str, wanted: str | None, reply: Reply) -> None:
        if reply.error is not None:
            message = str(reply.error.get("message"))
            self._tally.answers["error: " + _kind_of(message)] += 1
        elif wanted is not None and reply.text != wanted:
            self._tally.fault(f"{tool} was answered with another call's text: {reply.text[:80]!r}")
        else:
            self._tally.answers["result"] += 1


def _kind_of(message: str) -> str:
    for words in ("is not available", "did not answer", "there is no tool", "exited", "was killed", "was stopped"):
        if words in message:
            return words
    return "does not read its input" if "does not read" in message else "the server's own"


class Storm:
    """Does one random harm after another."""

    def __init__(self, bridge: ObservedBridge, loads: Mapping[VoiceCloud, Load], tally: Tally, seed: int) -> None:
        self._bridge, self._loads, self._tally = bridge, loads, tally
        self._random = random.Random(seed)

    async def rage(self, until: float) -> None:
        """Until that time of the monotonic clock; what was done for a while is undone before it returns."""
        async with asyncio.TaskGroup() as harms:
            order: list[str] = []
            while time.monotonic() < until:
                if not order:  # each harm as often as the others, in random order
                    order = self._random.sample(sorted(HARMS), len(HARMS))
                name = order.pop()
                self._tally.trouble[name] += 1
                harms.create_task(self._suffered(HARMS[name](self)))
                await asyncio.sleep(self._random.uniform(0.05, 0.5))

    async def _suffered(self, harm: Awaitable[object]) -> None:
        with suppress(SessionError, psutil.Error, ProcessLookupError):  # it was gone before it could be harmed
            await harm

    def _session(self) -> CloudSession:
        session = self._random.choice(list(self._loads.values())).session
        if session is None:
            raise Disconnected("not connected yet")
        return session

    def _pid(self) -> int:
        children = self._bridge.children()
        if not children:
            raise ProcessLookupError
        return self._random.choice(children).pid

    async def _kill(self) -> None:
        os.kill(self._pid(), signal.SIGKILL)

    async def _freeze(self) -> None:
        pid = self._pid()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        os.kill(pid, signal.SIGCONT)

    async def _cut(self) -> None:
        self._session().abort()

    async def _close(self) -> None:
        await self._session().close(self._random.choice(CODES), "chaos")

    async def _stall(self) -> None:
        session = self._session()
        session.stall()
        await asyncio.sleep(self._random.uniform(0.2, 3.0))
        if session.is_open:
            session.resume()

    async def _refuse(self) -> None:
        cloud = self._random.choice(list(self._loads))
        cloud.refuse(self._random.choice((429, 500, 503)))
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        cloud.accept()

    async def _hold(self) -> None:
        cloud = self._random.choice(list(self._loads))
        cloud.hold()
        await asyncio.sleep(self._random.uniform(0.1, 1.0))
        cloud.accept()

    async def _rewrite(self) -> None:
        some = self._random.sample(sorted(PASSING), self._random.randint(0, 2))
        servers = {**SERVERS, **{name: PASSING[name] for name in some}}
        if self._random.random() < 0.5:
            servers["plain"] = {**servers["plain"], "tools": {"rename": {"t": f"t{self._random.randint(1, 3)}"}}}
        if self._random.random() < 0.3:
            servers["noisy"] = {**servers["noisy"], "disabled": True}
        if self._random.random() < 0.3:
            servers["wordy"] = {**servers["wordy"], "env": {"CHANGED": str(self._random.random())}}
        self._bridge.write(servers)

    async def _break(self) -> None:
        self._bridge.write_text(self._random.choice(("", "{", '{"mcpServers": 7}', "\x00", json.dumps({"a": 1})[:-1])))


HARMS: Mapping[str, Callable[[Storm], Awaitable[object]]] = {
    "child killed": Storm._kill,
    "child stopped for a while": Storm._freeze,
    "socket cut": Storm._cut,
    "socket closed with a code": Storm._close,
    "socket stalled": Storm._stall,
    "dials refused": Storm._refuse,
    "dials left hanging": Storm._hold,
    "settings rewritten": Storm._rewrite,
    "settings broken": Storm._break,
}


async def run(seconds: float, seed: int) -> tuple[Tally, dict[str, tuple[float, float]], str]:
    """One run: the tally, what was held in the first and last quarter, and the end of the bridge's log."""
    tally = Tally()
    async with (
        VoiceCloud(PATIENT, keep=200, on_event=tally.heard) as one,
        VoiceCloud(PATIENT, keep=200, on_event=tally.heard) as two,
    ):
        endpoints = {
            name: {"url": cloud.url, "callTimeout": CALL_TIMEOUT} for name, cloud in (("one", one), ("two", two))
        }
        async with ObservedBridge(SERVERS, endpoints, BRIDGE) as bridge:
            loads = {cloud: Load(cloud, tally, random.Random(f"{seed} {cloud.port}")) for cloud in (one, two)}
            held = await _suffer(bridge, loads, tally, seconds, seed)
            if bridge.process.returncode is not None:
                tally.fault("the bridge ended by itself")
            status = await bridge.end()
            if status != 0:
                tally.fault(f"the bridge ended with status {status}")
            if left := bridge.alive():
                tally.fault(f"left behind: {len(left)} processes")
            if "please report this" in bridge.log():
                tally.fault("the log tells of a fault in the bridge")
            return tally, held, "\n".join(bridge.log().splitlines()[-40:])


async def _suffer(
    bridge: ObservedBridge, loads: Mapping[VoiceCloud, Load], tally: Tally, seconds: float, seed: int
) -> dict[str, tuple[float, float]]:
    async with asyncio.TaskGroup() as tasks:
        for load in loads.values():
            tasks.create_task(load.run())
        await _calm(loads, tally, "at the start")
        began = time.monotonic()
        await Storm(bridge, loads, tally, seed).rage(began + seconds)
        ended = time.monotonic()
        bridge.write(SERVERS)
        await _calm(loads, tally, "after the storm")
        for load in loads.values():
            load.over.set()
    await _only_the_servers_live(bridge, tally)
    held = quarters(bridge.samples, began, ended)
    tally.faults += growth(held, len(SERVERS) + len(PASSING))
    return held


async def _calm(loads: Mapping[VoiceCloud, Load], tally: Tally, when: str) -> None:
    """Waits until each cloud is connected and every server answers there."""
    deadline = time.monotonic() + CALM_WITHIN
    for load in loads.values():
        missing: set[str] = set(SERVERS)
        while missing and time.monotonic() < deadline:
            session = load.session
            if session is not None and session.is_usable:
                with suppress(SessionError):
                    missing = await _silent(session)
            await asyncio.sleep(0.1)
        if missing:
            tally.fault(f"{when} there is no answer from {', '.join(sorted(missing))}")


async def _silent(session: CloudSession) -> set[str]:
    """The servers whose own tools cannot be called; each is known by the name in its tools' descriptions."""
    missing = set(SERVERS)
    tools = await session.list_tools()
    echoes = [tool for tool in tools if tool.name.endswith("echo")]
    for tool in echoes:
        owner = tool.name.removesuffix("echo").strip("_")
        reply = await session.call(tool.name, {"text": "well?"}, timeout=PATIENCE)
        if reply.text == "well?":
            missing.discard(owner)
            if not owner:
                missing.discard("plain")
    return missing


async def _only_the_servers_live(bridge: ObservedBridge, tally: Tally) -> None:
    """Bounded, because a server taken out a moment ago is still on its ladder down."""
    wanted = len(SERVERS) + 1  # `forest` has a grandchild
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if len(bridge.alive()) == wanted and not bridge.zombies():
            return
        await asyncio.sleep(0.1)
    tally.fault(f"{len(bridge.alive())} processes live, {wanted} should; zombies: {len(bridge.zombies())}")


def report(tally: Tally, held: Mapping[str, tuple[float, float]], seconds: float, seed: int) -> str:
    """The outcome for people."""
    calls = sum(tally.answers.values())
    lines = [f"{seconds:g} s, seed {seed}: {calls:,} calls over {tally.connections:,} connections of two clouds", ""]
    lines += [f"{number:8,}  {name}" for name, number in tally.trouble.most_common()]
    lines += ["", *(f"{number:8,}  {name}" for name, number in tally.answers.most_common()), "", table(held), ""]
    lines += [f"FAULT: {sentence}" for sentence in tally.faults] or [
        "every request on a living connection was answered exactly once; nothing left behind; nothing grew"
    ]
    return "\n".join(lines)


def main() -> int:
    """Status 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    tally, held, log = asyncio.run(run(options.seconds, options.seed))
    print(report(tally, held, options.seconds, options.seed))
    if tally.faults:
        print("\nThe end of the bridge's log:\n" + log)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
