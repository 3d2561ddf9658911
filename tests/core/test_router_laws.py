"""The router's five laws over random interleavings of everything that can happen to it.

A play is a list of events drawn by Hypothesis and performed by `Theatre`, which knows only what was said and keeps a
history: each event with the sends it caused. Each law then reads that history with the eyes of a stranger. Events name
clients, servers and open questions by number, so that a failing play shrinks to a short transcript.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.stage import ENVELOPE, Send, Stage, answer, dumps, frame, tool
from tests.wire import FRAGILE, Number, read
from voice_bridge.core.keys import ClientKey, ServerKey
from voice_bridge.core.pending import Patience, Retry

IDS = (
    b"0", b"1", b'"1"', b'""', b'"0"', b"-5", b"9007199254740993", b"18446744073709551616", b"1.5", b'"a"',
    rb'"\u0061b"', b'"9f3c_n_1"',
)  # fmt: skip
CLIENTS, SERVERS = ("ann", "bob", "cat"), ("s0", "s1", "s2")
VIEWS = ((0, 1, 2), (0,), (1, 2), ())
PAYLOADS = tuple(b'{"content":[],"structuredContent":{"x":' + payload + b"}}" for payload in FRAGILE)
NONCE = re.compile(rb'"nonce":(\d+)')
EVENTS = (
    "open", "close", "call", "call", "call", "call", "call", "list_", "ping", "junk", "cancel", "reply", "view",
    "answer", "answer", "answer", "error_answer", "odd_answer", "late_answer", "forged", "spoiled", "progress",
    "change", "ask", "exit", "die_for_good", "start", "start", "unread", "remove", "wait", "wait_long",
)  # fmt: skip
Speaker = Literal["client", "server", "world"]

plays = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.integers(0, 2), st.integers(0, 2), st.integers(0, len(IDS) - 1)),
    min_size=20,
    max_size=70,
)


@dataclass
class Asked:
    """A call of a client as it was said: by whom, on which connection, and what became of it."""

    nonce: int
    client: str
    connection: int
    server: str
    raw_id: bytes
    minted: int | None = None
    token: bytes | None = None
    open: bool = True


@dataclass
class Moment:
    """One event and what the router sent because of it."""

    speaker: Speaker
    who: str
    data: bytes
    sends: list[Send]
    connections: dict[str, int]
    note: dict[str, Any] = field(default_factory=dict)


class Theatre:
    """Performs a play and keeps its history."""

    def __init__(self) -> None:
        self.stage = Stage(list_grace=2.0)
        self.history: list[Moment] = []
        self.connections: dict[str, int] = {}
        self.views: dict[int, frozenset[str]] = {}
        self.calls: list[Asked] = []
        self.questions: list[tuple[str, int]] = []
        self.up: dict[str, bool] = {}
        self._numbers = itertools.count(1)
        for key in SERVERS:
            self.stage.server(key, f"t_{key}", ready=False, timeout=30 if key == "s1" else None)
            self.stage.offers[key]["capabilities"]["resources"] = {}
            self.up[key] = False

    def perform(self, play: list[tuple[str, int, int, int]]) -> Theatre:
        """Two servers are up and everybody has come, in an order and manner that the first event draws."""
        _, who, whom, what = play[0]
        for number, client in enumerate(CLIENTS[who:] + CLIENTS[:who]):
            self.open(client, "", what + number)
        for server in (SERVERS[whom], SERVERS[whom - 1]):
            self.start("", server, 0)
        for event, who, whom, what in play:
            getattr(self, event)(CLIENTS[who], SERVERS[whom], what)
        return self

    def moment(self, speaker: Speaker, who: str, data: bytes, sends: list[Send], **note: Any) -> None:
        self.history.append(Moment(speaker, who, data, list(sends), dict(self.connections), note))
        for send in sends:
            if send.to in SERVERS and (nonce := NONCE.search(send.data)):
                call = self.calls[int(nonce[1])]
                call.minted = int(read(send.data)["id"])
            elif send.to in SERVERS and b'"notifications/cancelled"' in send.data:
                given_up = int(read(send.data)["params"]["requestId"])
                for call in self.calls:
                    call.open = call.open and call.minted != given_up
            elif send.to in CLIENTS and b'"method":"roots/list"' in send.data:
                self.questions.append((send.to, int(read(send.data)["id"])))

    def says(self, client: str, data: bytes, **note: Any) -> None:
        self.moment("client", client, data, self.stage.says(client, data), **note)

    def writes(self, server: str, data: bytes, **note: Any) -> None:
        self.moment("server", server, data, self.stage.writes(server, data), **note)
        self.handshake(server)

    def handshake(self, server: str) -> None:
        """Lets a server answer what it was asked during the last event, as it should."""
        asked = [send for send in self.history[-1].sends if send.to == server]
        for send in asked:
            reply = self.stage._reply(server, read(send.data)) if b'"tools/call"' not in send.data else None
            if reply is not None and self.up[server]:
                self.writes(server, reply)

    # Clients

    def open(self, client: str, server: str, what: int) -> None:
        if client in self.connections:
            return
        number = next(self._numbers)
        servers = tuple(SERVERS[index] for index in VIEWS[what % len(VIEWS)])
        self.connections[client], self.views[number] = number, frozenset(servers)
        self.stage.router.client_opened(ClientKey(client), self.stage.view(client, servers, timeout=20.0))
        if what % 3 == 0:
            capabilities: dict[str, object] = {"roots": {}} if what % 2 == 0 else {}
            params = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            self.says(client, frame("initialize", raw_id=b"0", params=params), request=b"0")
        elif what % 3 == 1:
            self.says(client, frame("server/discover", raw_id=b"0", params={"_meta": ENVELOPE}), request=b"0")

    def close(self, client: str, server: str, what: int) -> None:
        if self.connections.pop(client, None) is not None:
            for call in self.calls:
                call.open = call.open and call.client != client
            self.moment("world", client, b"", self.stage.leaves(client))

    def call(self, client: str, server: str, what: int) -> None:
        if client not in self.connections:
            return
        nonce = len(self.calls)
        call = Asked(nonce, client, self.connections[client], server, IDS[what])
        call.token = IDS[-what] if what % 4 == 0 else None
        self.calls.append(call)
        meta = b',"_meta":{"progressToken":' + call.token + b"}" if call.token else b""
        raw = b'{"name":"t_%s","arguments":{"nonce":%d,"x":%s}%s}' % (
            server.encode(), nonce, FRAGILE[what % len(FRAGILE)], meta,
        )  # fmt: skip
        known = self.stage.router.peers.servers.get(ServerKey(server))
        ready = known is not None and known.ready
        data = frame("tools/call", raw_id=call.raw_id, raw=raw)
        self.says(client, data, request=call.raw_id, call=call, ready=ready)

    def list_(self, client: str, server: str, what: int) -> None:
        if client in self.connections:
            method = ("tools/list", "prompts/list", "resources/list")[what % 3]
            self.says(client, frame(method, raw_id=IDS[what]), request=IDS[what])

    def ping(self, client: str, server: str, what: int) -> None:
        if client in self.connections:
            self.says(client, frame("ping", raw_id=IDS[what]), request=IDS[what])

    def junk(self, client: str, server: str, what: int) -> None:
        if client in self.connections:
            self.says(client, (b"[]", b"{", b"42", b'{"id":1}', b'{"id":null,"method":"ping"}', b"\xff")[what % 6])

    def cancel(self, client: str, server: str, what: int) -> None:
        if client in self.connections:
            data = frame("notifications/cancelled", raw=b'{"requestId":' + IDS[what] + b"}")
            self.says(client, data, cancelled=IDS[what])

    def reply(self, client: str, server: str, what: int) -> None:
        if client in self.connections and self.questions:
            _, id_ = self.questions[what % len(self.questions)]
            self.says(client, answer(id_, {"roots": []}))

    # Servers

    def owed(self, server: str, what: int) -> Asked | None:
        """One of the calls that this life of the server still has to answer; not always the oldest."""
        owed = [call for call in self.calls if call.server == server and call.minted is not None and call.open]
        return owed[what % len(owed)] if owed and self.up[server] else None

    def _answers(self, call: Asked, line: bytes, expected: bytes | None) -> None:
        alive = self.connections.get(call.client) == call.connection
        call.open = False
        modern = alive and self.stage.router.peers.clients[ClientKey(call.client)].modern
        self.writes(call.server, line, answers=call, expected=expected if alive else None, modern=modern)

    def answer(self, client: str, server: str, what: int) -> None:
        if call := self.owed(server, what):
            raw = PAYLOADS[what % len(PAYLOADS)]
            self._answers(call, answer(call.minted, raw=raw), raw)

    def error_answer(self, client: str, server: str, what: int) -> None:
        if call := self.owed(server, what):
            raw = b'{"code":-32000,"message":"no","data":' + FRAGILE[what % len(FRAGILE)] + b"}"
            self._answers(call, answer(call.minted, error=raw), raw)

    def odd_answer(self, client: str, server: str, what: int) -> None:
        if call := self.owed(server, what):
            self._answers(call, b'{"jsonrpc":"2.0","id":"%d","result":[1.10]}' % (call.minted or 0), b"[1.10]")

    def spoiled(self, client: str, server: str, what: int) -> None:
        if call := self.owed(server, what):
            self._answers(call, b'{"jsonrpc":"2.0","id":%d,"result":{"x":NaN}}' % (call.minted or 0), None)

    def late_answer(self, client: str, server: str, what: int) -> None:
        done = [call for call in self.calls if call.minted is not None and not call.open]
        if done and self.up[server]:
            self.writes(server, answer(done[what % len(done)].minted, "late"), late=True)

    def forged(self, client: str, server: str, what: int) -> None:
        """A server answers with the number of a call that another server still owes."""
        others = [call for call in self.calls if call.minted is not None and call.open and call.server != server]
        if others and self.up[server]:
            self.writes(server, answer(others[what % len(others)].minted, "forged"), forged=True)

    def progress(self, client: str, server: str, what: int) -> None:
        if call := self.owed(server, what):
            params = b'{"progressToken":%d,"progress":0.50}' % (call.minted or 0)
            self.writes(server, frame("notifications/progress", raw=params), progress_of=call)

    def change(self, client: str, server: str, what: int) -> None:
        if self.up[server]:
            names = (f"t_{server}", "extra", "other")[: 1 + what % 3]
            self.stage.offers[server]["tools"] = [tool(name) for name in names]
            self.writes(server, frame("notifications/tools/list_changed"))

    def ask(self, client: str, server: str, what: int) -> None:
        if self.up[server]:
            self.writes(server, frame("roots/list", raw_id=IDS[what]), question=IDS[what])

    def start(self, client: str, server: str, what: int) -> None:
        if not self.up[server] and server in self.stage.router.peers.servers:
            self.up[server] = True
            self.stage.revive(server)
            self.moment("world", server, b"", self.stage.begins(server))
            self.handshake(server)

    def _gone(self, server: str, sends: list[Send]) -> None:
        self.up[server] = False
        for call in self.calls:
            call.open = call.open and call.server != server
        self.moment("world", server, b"", sends)

    def exit(self, client: str, server: str, what: int) -> None:
        if self.up[server]:
            self._gone(server, self.stage.exits(server))

    def die_for_good(self, client: str, server: str, what: int) -> None:
        if self.up[server]:
            self._gone(server, self.stage.exits(server, gone=True))

    def remove(self, client: str, server: str, what: int) -> None:
        """The settings lose a server and get it back, as an edit and its undoing do."""
        if what % 5 == 0 and server in self.stage.router.peers.servers:
            self._gone(server, self.stage.removes(server))
        elif server not in self.stage.router.peers.servers:
            self.stage.server(server, f"t_{server}", ready=False)

    def unread(self, client: str, server: str, what: int) -> None:
        """The last message to a server could not be handed over."""
        last = [send for send in self.history[-1].sends if send.to == server] if self.history else []
        if last and server in self.stage.router.peers.servers and b'"nonce"' in last[-1].data:
            sends = self.stage.undelivered(server, last[-1].data)
            for call in self.calls:
                call.open = call.open and call.minted != int(read(last[-1].data)["id"])
            self.moment("world", server, b"", sends)

    # The world

    def wait(self, client: str, server: str, what: int) -> None:
        self._expire(what * 0.5)

    def wait_long(self, client: str, server: str, what: int) -> None:
        self._expire(10.0 + what * 5)

    def _expire(self, seconds: float) -> None:
        sends = self.stage.wait(seconds)
        self.moment("world", "", b"", sends)
        for server in SERVERS:
            self.handshake(server)

    def view(self, client: str, server: str, what: int) -> None:
        """A hot reload that shows a client less, or more."""
        if client in self.connections and what % 3 == 0:
            servers = tuple(SERVERS[index] for index in VIEWS[what % len(VIEWS)])
            number = self.connections[client]
            self.views[number] |= frozenset(servers)
            self.moment("world", client, b"", self.stage.sees(client, servers, timeout=20.0))

    def end(self) -> Theatre:
        """Time runs out for every call, and every server leaves."""
        self._expire(1000)
        for server in SERVERS:
            self.exit("", server, 0)
        self._expire(1000)
        return self


def responses(moment: Moment) -> list[tuple[ClientKey | ServerKey, bytes, Any]]:
    """Responses to clients in a moment: to whom, the bytes, and the message read."""
    found = []
    for send in moment.sends:
        message = read(send.data) if send.to in CLIENTS and send.data else {}
        if "method" not in message and "id" in message:
            found.append((send.to, send.data, message))
    return found


@given(plays)
def test_law_1_every_request_gets_exactly_one_response_while_its_connection_lives(
    play: list[tuple[str, int, int, int]],
) -> None:
    """And none after it closed, though the next connection uses the ids again."""
    theatre = Theatre().perform(play).end()
    owed: Counter[tuple[str, int, Any]] = Counter()
    for moment in theatre.history:
        open_now = moment.connections
        if (request := moment.note.get("request")) is not None:
            owed[moment.who, open_now[moment.who], read(request)] += 1
        for to, data, message in responses(moment):
            assert to in open_now, f"{data!r} went to a connection that is closed"
            if message["id"] is None:
                assert moment.speaker == "client", "only junk from the client itself is answered without an id"
                continue
            key = (to, open_now[to], message["id"])
            assert owed[key] > 0, f"{data!r} answers what was not asked, or was answered already"
            owed[key] -= 1
        if (cancelled := moment.note.get("cancelled")) is not None:
            key = (ClientKey(moment.who), open_now[moment.who], read(cancelled))
            owed[key] = max(0, owed[key] - 1)
    left = {key: count for key, count in owed.items() if count and theatre.connections.get(key[0]) == key[1]}
    assert left == {}, "requests without an answer, though every deadline is over"


@given(plays)
def test_law_2_the_id_comes_back_identical_in_value_and_type(play: list[tuple[str, int, int, int]]) -> None:
    theatre = Theatre().perform(play).end()
    spelled: dict[str, set[bytes]] = {client: set() for client in CLIENTS}
    for moment in theatre.history:
        if (request := moment.note.get("request")) is not None:
            spelled[moment.who].add(request)
        for to, data, message in responses(moment):
            if message["id"] is not None:
                heads = {b'{"jsonrpc":"2.0","id":' + id_ + b"," for id_ in spelled[to]}
                assert any(data.startswith(head) for head in heads), f"{data!r} has an id that {to} never wrote"
        if (call := moment.note.get("answers")) and moment.note["expected"] is not None:
            ((_, _, message),) = responses(moment)
            assert message["id"] == read(call.raw_id)


@given(plays)
def test_law_3_what_a_server_wrote_reaches_the_client_byte_for_byte(play: list[tuple[str, int, int, int]]) -> None:
    """And what a client wrote as arguments reaches the server so."""
    theatre = Theatre().perform(play)
    for moment in theatre.history:
        if (expected := moment.note.get("expected")) is not None:
            call = moment.note["answers"]
            head = b'{"jsonrpc":"2.0","id":' + call.raw_id + b',"'
            ((to, data, _),) = responses(moment)
            assert to == call.client
            if b'"error":' in moment.data or not moment.note["modern"]:
                assert data in (head + b'result":' + expected + b"}", head + b'error":' + expected + b"}")
            else:
                assert expected.lstrip(b"{") in data, "a result for the new era keeps the server's bytes within"
        if call := moment.note.get("call"):
            for send in moment.sends:
                if send.to in SERVERS:
                    arguments = re.search(rb'"arguments":\{.*\}(?=[,}])', moment.data)
                    assert arguments
                    assert arguments[0].split(b',"_meta"')[0].rstrip(b"}") in send.data
        if (call := moment.note.get("progress_of")) and call.token is not None:
            for to, data in moment.sends:
                notice = b'"params":{"progressToken":' + call.token + b',"progress":0.50}}'
                assert to != call.client or data.endswith(notice)


@given(plays)
def test_law_4_a_server_sees_only_ids_the_router_minted_and_clients_whose_view_includes_it(
    play: list[tuple[str, int, int, int]],
) -> None:
    theatre = Theatre().perform(play).end()
    minted: dict[int, str] = {}
    questions: Counter[tuple[str, Any]] = Counter()
    for moment in theatre.history:
        assert not (moment.note.get("forged") and responses(moment)), "one server answered for another"
        if (question := moment.note.get("question")) is not None:
            questions[moment.who, read(question)] += 1
        for send in moment.sends:
            if send.to not in SERVERS:
                continue
            assert b"\n" not in send.data
            message = read(send.data)
            if message.get("method") == "notifications/cancelled":
                assert minted[int(message["params"]["requestId"])] == send.to
            elif "method" not in message:
                assert questions[send.to, message["id"]] > 0, "an answer to what this server never asked"
                questions[send.to, message["id"]] -= 1
            elif "id" in message:
                assert isinstance(message["id"], Number)
                assert int(message["id"]) not in minted, "an id stands for one thing only"
                minted[int(message["id"])] = send.to
            if nonce := NONCE.search(send.data):
                call = theatre.calls[int(nonce[1])]
                assert send.to == call.server
                assert send.to in theatre.views[call.connection]
                token = message["params"].get("_meta", {}).get("progressToken")
                assert token in (None, message["id"]), "a client's own token never reaches a server"


@given(plays)
def test_law_5_order_is_kept_between_a_client_and_a_server_and_nobody_waits_for_a_slow_call(
    play: list[tuple[str, int, int, int]],
) -> None:
    theatre = Theatre().perform(play)
    last: dict[tuple[str, str], int] = {}
    for moment in theatre.history:
        for send in moment.sends:
            if send.to in SERVERS and (nonce := NONCE.search(send.data)):
                call = theatre.calls[int(nonce[1])]
                assert last.get((call.client, call.server), -1) < call.nonce, "a later call overtook an earlier one"
                last[call.client, call.server] = call.nonce
        said: Asked | None = moment.note.get("call")
        if said is not None and moment.note["ready"]:
            assert {send.to for send in moment.sends} & {said.server, said.client}, "passed on or answered at once"


@given(plays)
def test_nothing_is_left_behind_when_everybody_has_gone(play: list[tuple[str, int, int, int]]) -> None:
    """Memory: a daemon lives for months."""
    theatre = Theatre().perform(play)
    for client in CLIENTS:
        theatre.close(client, "", 0)
    theatre.end()
    router = theatre.stage.router
    assert router.peers.clients == {}
    assert all(isinstance(item, Patience | Retry) for _, item in router.peers.pending.items()), "only the servers' own"
    assert len(router.peers.pending.items()) <= 2 * len(SERVERS)
    assert all(server.subscribers == {} for server in router.peers.servers.values())


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 40.0)), max_size=40))
@settings(max_examples=60)
def test_a_deadline_is_never_missed_nor_early(calls: list[tuple[int, float]]) -> None:
    """Calls with different limits at random times: each is given up at its own time, whoever asks when."""
    stage = Stage()
    for number, limit in enumerate((3.0, 10.0, 25.0, 60.0)):
        stage.server(f"s{number}", f"t{number}", timeout=limit)
    stage.client("c", timeout=45.0)
    limits, due = (3.0, 10.0, 25.0, 45.0), dict[int, float]()
    for id_, (server, pause) in enumerate(calls):
        until = stage.now + pause
        while (next_ := stage.router.next_deadline()) is not None and next_ <= until:
            stage.now = next_
            for send in stage.sent(stage.router.expire(next_)):
                if send.to == "c":
                    assert due.pop(int(read(send.data)["id"])) == next_
        stage.now = until
        stage.calls("c", f"t{server}", id=id_)
        due[id_] = stage.now + limits[server]
        assert stage.router.next_deadline() == min(due.values())


def test_the_theatre_really_plays() -> None:
    """A witness that sees nothing proves nothing: one fixed play, and what must have happened in it."""
    play = [
        ("open", 0, 0, 0), ("start", 0, 0, 0), ("start", 0, 1, 0), ("start", 0, 2, 0), ("open", 1, 0, 1),
        ("call", 0, 0, 1), ("ask", 0, 0, 3), ("reply", 0, 0, 0), ("call", 0, 0, 2), ("call", 1, 0, 4),
        ("progress", 1, 0, 2), ("answer", 0, 0, 1), ("cancel", 0, 0, 1), ("spoiled", 0, 0, 0), ("exit", 0, 0, 0),
        ("call", 0, 1, 5), ("wait_long", 0, 0, 9), ("late_answer", 0, 1, 0), ("close", 0, 0, 0),
    ]  # fmt: skip
    theatre = Theatre().perform(play).end()
    assert sum(len(responses(moment)) for moment in theatre.history) >= 5
    assert [call.minted is not None for call in theatre.calls] == [True, True, True, True]
    assert theatre.questions
    assert any(moment.note.get("expected") for moment in theatre.history)
    assert any(b"notifications/cancelled" in send.data for moment in theatre.history for send in moment.sends)
    assert dumps({}) == b"{}"
