"""An hour's worth of life in minutes: the bridge must hold no more at the end than at the beginning.

    python bench/soak.py [--redials 2000] [--crashes 500] [--svg docs/soak.svg]

Backoff and pings are compressed to fractions of a second. Four clouds hang up after every few calls while one server
after another is made to crash. What the bridge holds is sampled four times a second; the first and the last quarter
are compared, and drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from voice_bridge.simulator import OFFICIAL, CloudSession, NoAnswer, SessionError, VoiceCloud

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from bench.chart import Panel, chart  # noqa: E402 - also when run as a script
from bench.rig import Json, ObservedBridge, Sample, child, growth, quarters, table  # noqa: E402

CLOUDS = 4
CALLS_EACH = 3
WARM_UP = 5.0
LONGEST = 1800.0
CODES = (1001, 1006, 1011, 1012, 1013, 4004)
BRIDGE = {
    "minBackoff": 0.01, "maxBackoff": 0.1, "stableAfter": 0, "dialAfter": 5, "pingInterval": 0.2, "pingTimeout": 5,
}  # fmt: skip
SERVERS: Mapping[str, Json] = {f"server{number}": child("ok", f"name=server{number}") for number in range(1, 6)}
RESTLESS = replace(OFFICIAL, needs_tools=False, catch_all=None, ping_every=0.2, call_timeout=30)


@dataclass(slots=True)
class Wear:
    """How much is still to be done, and what was done."""

    redials: int
    crashes: int
    done: Counter[str]

    @property
    def over(self) -> bool:
        """Everything that was to be done is done."""
        return self.done["redials"] >= self.redials and self.done["crashes"] >= self.crashes


async def live(cloud: VoiceCloud, wear: Wear) -> None:
    """One cloud: connections of a few calls each, then it hangs up; the last one stays."""
    while not wear.over:
        session = await cloud.session(60)
        with suppress(SessionError):
            await session.ready()
            for _ in range(CALLS_EACH):
                await _call(session, wear)
            while wear.done["redials"] >= wear.redials and not wear.over:
                await _call(session, wear)
            if not wear.over:
                wear.done["redials"] += 1
                await session.close(random.choice(CODES), "soak")


async def _call(session: CloudSession, wear: Wear) -> None:
    """Now and then the one that makes its server crash: as often as keeps pace with the redials."""
    share = wear.done["redials"] / wear.redials
    crashes = [tool.name for tool in session.tools if tool.name.endswith("crash")]
    if crashes and wear.done["crashes"] < wear.crashes * min(1.0, share + 0.01):
        reply = await session.call(random.choice(crashes))
        if reply.error is not None and "exited with code 7" in str(reply.error["message"]):
            wear.done["crashes"] += 1
        return
    reply = await session.call("echo", {"text": "still here"})
    wear.done["calls answered" if reply.ok else "calls refused"] += 1


async def run(redials: int, crashes: int) -> tuple[Wear, list[Sample], float, float, list[str]]:
    """One run: the wear, every sample, when counting began and ended, and the faults.

    Raises TimeoutError after half an hour.
    """
    wear, faults = Wear(redials, crashes, Counter()), list[str]()
    async with asyncio.timeout(LONGEST), AsyncExitStack() as stack:
        clouds = [await stack.enter_async_context(VoiceCloud(RESTLESS, keep=50)) for _ in range(CLOUDS)]
        endpoints = {f"cloud{number}": {"url": cloud.url} for number, cloud in enumerate(clouds, 1)}
        bridge = await stack.enter_async_context(ObservedBridge(SERVERS, endpoints, BRIDGE))
        began = time.monotonic() + WARM_UP
        try:
            async with asyncio.TaskGroup() as tasks:
                for cloud in clouds:
                    tasks.create_task(live(cloud, wear))
        except* NoAnswer as errors:
            faults.append(f"{errors.exceptions[0]}; the log ends: {bridge.log()[-1000:]}")
        ended = time.monotonic()
        if await bridge.end() != 0:
            faults.append("the bridge did not end with status 0")
        if left := bridge.alive():
            faults.append(f"left behind: {len(left)} processes")
        faults += growth(quarters(bridge.samples, began, ended), len(SERVERS))
        return wear, bridge.samples, began, ended, faults


def picture(samples: Sequence[Sample], began: float, title: str) -> str:
    """The samples as an SVG."""
    times = [sample.at - began + WARM_UP for sample in samples]
    panels = [
        Panel("memory of its own (MiB)", [sample.memory / 2**20 for sample in samples]),
        Panel("open descriptors", [float(sample.descriptors) for sample in samples]),
        Panel("asyncio tasks", [float(sample.tasks) for sample in samples]),
        Panel("threads", [float(sample.threads) for sample in samples]),
    ]
    return chart(title, times, panels)


def main() -> int:
    """Status 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redials", type=int, default=2000)
    parser.add_argument("--crashes", type=int, default=500)
    parser.add_argument("--svg", type=Path, help="where to draw the graph")
    options = parser.parse_args()
    wear, samples, began, ended, faults = asyncio.run(run(options.redials, options.crashes))
    done = ", ".join(f"{number:,} {name}" for name, number in wear.done.most_common())
    seconds = ended - began + WARM_UP
    print(f"{seconds:.0f} s: {done}\n\n{table(quarters(samples, began, ended))}\n")
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "nothing grew, nothing left behind")
    if options.svg:
        title = f"{wear.done['redials']:,} redials and {wear.done['crashes']:,} crashed servers in {seconds:.0f} s"
        options.svg.parent.mkdir(exist_ok=True)
        options.svg.write_text(picture(samples, began, title), encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
