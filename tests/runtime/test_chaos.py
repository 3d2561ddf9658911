"""Twenty seconds in which everything goes wrong at once, and bytes that no peer should send."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from bench import chaos, soak
from bench.rig import WATCHED, Sample, growth, quarters
from tests.children import MODES
from voice_bridge.core.client import View
from voice_bridge.core.effects import Effect, ToClient, ToServer
from voice_bridge.core.keys import ClientKey, ServerKey
from voice_bridge.core.router import Router
from voice_bridge.core.server import Manner
from voice_bridge.ports.servers.port import Oversized
from voice_bridge.ports.servers.stdio import Lines
from voice_bridge.protocol import jsonrpc

SECONDS, SEED = 20, 4
LIMIT = 90
GOOD, BAD, ONE, OTHER = ServerKey("good"), ServerKey("bad"), ClientKey("one"), ClientKey("other")


async def test_in_a_storm_every_request_on_a_living_connection_is_answered_once_and_nothing_is_left() -> None:
    tally, held, log = await chaos.run(SECONDS, SEED)
    print(chaos.report(tally, held, SECONDS, SEED), log, sep="\n")
    assert tally.faults == []
    assert min(tally.trouble[name] for name in chaos.HARMS) >= 3
    assert tally.answers["result"] > 200
    assert sum(number for name, number in tally.answers.items() if name.startswith("error")) > 20
    assert tally.connections >= 6


def test_what_grew_between_the_first_and_the_last_quarter_is_named() -> None:
    """The measure itself: a leak of a descriptor a second is a fault, the same number all the time is none."""
    steady = [Sample(at, 20, 7, 40, 30 * 2**20) for at in range(100)]
    leaking = [Sample(at, 20, 7, 40 + at, 30 * 2**20) for at in range(100)]
    assert growth(quarters(steady, 0, 99), children=5) == []
    assert growth(quarters(leaking, 0, 99), children=5) == ["descriptors grew from 52 to 127"]


# Any bytes from either side

FRAMES = [
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{}}}',
    b'{"jsonrpc":"2.0","id":"7","method":"tools/list","params":{"cursor":"x"}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}',
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}',
    b'{"jsonrpc":"2.0","id":8,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[1]}}}',
    b'{"jsonrpc":"2.0","id":9,"result":{}}',
    b'{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"memo://one"}}',
    b'{"jsonrpc":"2.0","id":4,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":1}}}',
    b'{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":[]}}',
]
LINES = [
    b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"t","inputSchema":{}}],"nextCursor":"1"}}',
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-1,"message":"no"}}',
    b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":%d}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}',
]


def damaged(message: bytes, at: int, cut: int, extra: bytes) -> bytes:
    at %= len(message)
    return message[:at] + extra + message[at + cut :]


frames = st.binary(max_size=60) | st.builds(
    damaged, st.sampled_from(FRAMES), st.integers(0, 300), st.integers(0, 4), st.binary(max_size=4)
)
lines = st.binary(max_size=60) | st.builds(
    damaged,
    st.builds(lambda line, number: line % number, st.sampled_from(LINES), st.integers(0, 30)),
    st.integers(0, 300),
    st.integers(0, 4),
    st.binary(max_size=4),
)


class Peers:
    """A router with a good client and a good server, and a bad client and a bad server that both share with them."""

    def __init__(self) -> None:
        self.router = Router(list_grace=0)
        self.heard: list[bytes] = []
        self.now = 0.0
        for server in (GOOD, BAD):
            self.router.supervisor.wanted(server, Manner(server, start_timeout=1e6), 0)
            self.play(self.router.supervisor.opened(server, 1, 0))
        for client in (ONE, OTHER):
            self.router.client_opened(client, View("v", (GOOD, BAD)))

    def play(self, effects: list[Effect]) -> None:
        """Delivers: the good server answers, the bad one only writes what the test makes it write."""
        for effect in effects:
            if isinstance(effect, ToClient) and effect.to == ONE:
                self.heard.append(effect.data)
            elif isinstance(effect, ToServer) and effect.to == GOOD:
                message = json.loads(effect.data)
                if "id" in message and "method" in message:
                    result = {"tools": [{"name": "mine", "inputSchema": {}}], "content": [], "capabilities": {}}
                    answer = jsonrpc.result(b"%d" % message["id"], jsonrpc.dump(result))
                    self.play(self.router.server_message(GOOD, answer, self.now))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.booleans(), frames, lines), min_size=1, max_size=12), st.integers(1, 50))
def test_whatever_bytes_arrive_nothing_breaks_and_no_neighbour_is_lost(
    noise: list[tuple[bool, bytes, bytes]], cut: int
) -> None:
    peers = Peers()
    for number, (from_client, frame, line) in enumerate(noise):
        peers.now += 1.0
        if from_client:
            peers.play(peers.router.client_message(OTHER, frame, peers.now))
        else:
            stream, cutter = line + b"\n", Lines(limit=LIMIT)
            for start in range(0, len(stream), cut):
                for message in cutter.feed(stream[start : start + cut]):
                    if isinstance(message, Oversized):
                        sends = peers.router.server_oversized(BAD, message.ends, message.size, LIMIT, peers.now)
                    else:
                        sends = peers.router.server_message(BAD, message, peers.now)
                    peers.play(sends)
        peers.play(peers.router.expire(peers.now))
        peers.heard.clear()
        call = jsonrpc.request(number, "tools/call", b'{"name":"mine"}')
        peers.play(peers.router.client_message(ONE, call, peers.now))
        answers = [json.loads(data) for data in peers.heard if b'"result"' in data or b'"error"' in data]
        assert [(answer["id"], "content" in answer.get("result", {})) for answer in answers] == [(number, True)]
    peers.play(peers.router.client_closed(OTHER, peers.now))
    peers.play(peers.router.supervisor.ended(BAD, "exited", peers.now))


def test_the_servers_of_the_storm_are_of_known_kinds() -> None:
    for entry in (*chaos.SERVERS.values(), *chaos.PASSING.values()):
        words = [word for word in entry["args"][1:] if "=" not in word]
        assert set(words) <= MODES


def test_the_graph_of_a_soak_is_svg_with_a_line_for_each_thing_held() -> None:
    samples = [Sample(at / 4, 20, 7, 40, 30 * 2**20) for at in range(2000)]
    root = ElementTree.fromstring(soak.picture(samples, began=5.0, title="a < b & c"))
    lines = [element.attrib["points"].split() for element in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == len(WATCHED)
    assert all(300 <= len(points) <= 334 for points in lines)
    assert root.find("{http://www.w3.org/2000/svg}title").text == "a < b & c"  # type: ignore[union-attr]
