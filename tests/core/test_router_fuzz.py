"""Any bytes from a client or a server: never a crash, never a lost neighbour, never a frame that is not JSON."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.stage import ENVELOPE, MODERN, Send, Stage, answer, dumps, frame, id_of, only, tool
from tests.wire import FRAGILE, read
from voice_bridge.core.handlers.table import REQUESTS
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.server import LISTS

NOTICES = (
    "notifications/cancelled", "notifications/progress", "notifications/message", "notifications/initialized",
    "notifications/resources/updated", "notifications/tools/list_changed", "notifications/resources/list_changed",
    "notifications/roots/list_changed", "notifications/subscriptions/acknowledged",
)  # fmt: skip
ASKS = ("sampling/createMessage", "elicitation/create", "roots/list", "ping", "tools/call", "no/such")
KEYS = (
    "name", "uri", "_meta", "progressToken", "requestId", "reason", "level", "ref", "type", "cursor", "nextCursor",
    "notifications", "resourceSubscriptions", "toolsListChanged", "protocolVersion", "capabilities", "tools", "prompts",
    "resources", "resourceTemplates", "inputSchema", "uriTemplate", "resultType", "instructions", "code", "message",
    "io.modelcontextprotocol/protocolVersion", "id", "method", "params", "result", "error",
)  # fmt: skip

words = st.sampled_from(("t", "memo://1", "", "input_required", MODERN, "2024-11-05", "ref/prompt", "p", "error", "1"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats(allow_nan=False, allow_infinity=False) | words
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
methods = st.sampled_from((*REQUESTS, *NOTICES, *ASKS))
messages = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0"), "id": values, "method": methods | values, "params": values,
                  "result": values, "error": values}
).map(dumps)  # fmt: skip
requests = st.builds(lambda method, id_, params: frame(method, id_, params), methods, st.integers(0, 5), values)
damage = st.builds(
    lambda whole, at, cut, extra: whole[: at % (len(whole) + 1)] + extra + whole[at % (len(whole) + 1) + cut :],
    messages | requests, st.integers(0, 300), st.integers(0, 5),
    st.binary(max_size=4) | st.sampled_from((b"NaN", b"\xff", b"\n", rb"\ud83d", b"1e400", b"[[[[")),
)  # fmt: skip
anything = st.binary(max_size=60) | messages | requests | damage


def crowd() -> tuple[Stage, int]:
    """Neighbours with a call in flight at each server, and the number under which one server owes it."""
    stage = Stage()
    stage.server("s", "t", prompts=[{"name": "p"}], resources=[{"uri": "memo://1", "name": "m"}])
    stage.server("new", "u", modern=True)
    stage.server("calm", "v")
    stage.client("neighbour", capabilities={"sampling": {}, "roots": {}})
    stage.client("fuzzed", capabilities={"roots": {}})
    stage.client("modern", version=MODERN)
    stage.calls("fuzzed", "t", id="busy")
    return stage, id_of(stage.calls("neighbour", "v", id="kept"), "calm")


def check(sends: list[Send]) -> None:
    for send in sends:
        assert send.to in ("s", "odd", "new", "calm", "neighbour", "fuzzed", "modern")
        assert b"\n" not in send.data
        assert read(send.data)["jsonrpc"] == "2.0"


def still_fine(stage: Stage, owed: int) -> None:
    """Whoever was not talking has noticed nothing."""
    assert only(stage.writes("calm", answer(owed, "fine")), "neighbour") == {
        "jsonrpc": "2.0", "id": "kept", "result": "fine",
    }  # fmt: skip
    assert "v" in stage.names("neighbour")
    asked = id_of(stage.calls("neighbour", "v", id=0), "calm")
    assert only(stage.writes("calm", answer(asked, "again")), "neighbour")["result"] == "again"
    check(stage.wait(700))
    check(stage.exits("s"))
    check(stage.leaves("fuzzed"))


@given(st.lists(anything, min_size=1, max_size=8), st.sampled_from(["fuzzed", "modern"]))
@settings(max_examples=150)
@example([frame("resources/unsubscribe", 1, {"uri": []})], "fuzzed")
@example([frame("subscriptions/listen", 1, {"notifications": {"resourceSubscriptions": ["memo://1", {}]}})], "fuzzed")
@example([b'{"id":"\\ud83d","method":"tools/call","params":{"name":"t"}}'], "fuzzed")
@example([b'{"method":"notifications/cancelled","params":{"requestId":"\\ud83d"}}'], "fuzzed")
def test_any_frames_of_a_client(frames: list[bytes], who: str) -> None:
    stage, owed = crowd()
    for data in frames:
        check(stage.says(who, data))
    still_fine(stage, owed)


@given(st.lists(anything, min_size=1, max_size=8), st.sampled_from(["s", "new"]))
@settings(max_examples=150)
@example([frame("notifications/resources/updated", params={"uri": {}})], "s")
@example([frame("notifications/message", params={"level": []})], "s")
@example([b'{"jsonrpc":"2.0","id":1e999999,"result":{}}'], "s")
@example([b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"result":{}}'], "s")
def test_any_lines_of_a_server(lines: list[bytes], who: str) -> None:
    stage, owed = crowd()
    for data in lines:
        check(stage.writes(who, data))
        check(stage.wait(0.2))
    still_fine(stage, owed)


@given(st.lists(values, min_size=1, max_size=6), st.booleans())
@settings(max_examples=200)
def test_any_answers_to_a_handshake(results: list[object], modern: bool) -> None:
    """Whatever a server says of itself and its lists, it ends ready, failed or waiting, and the others go on."""
    stage, owed = crowd()
    stage.server("odd", "x", modern=modern, ready=False)
    asks = [send for send in stage.begins("odd") if send.to == "odd"]
    for result in results:
        if not asks:
            break
        asked = read(asks.pop(0).data)
        if "id" in asked:
            line = answer(int(asked["id"]), result) if result is not None else answer(int(asked["id"]), error=b"null")
            asks += [send for send in stage.writes("odd", line) if send.to == "odd"]
    assert stage.router.peers.servers[ServerKey("odd")].life.state in ("starting", "ready", "backoff", "failed")
    still_fine(stage, owed)


@given(
    st.lists(values | st.fixed_dictionaries({"name": values, "uri": values, "uriTemplate": values}), max_size=5),
    st.sampled_from(sorted(LISTS)),
)
@settings(max_examples=150)
def test_any_entries_in_a_list_leave_the_good_ones_callable(entries: list[object], kind: str) -> None:
    stage = Stage()
    stage.server("s", prompts=[], resources=[])
    member = LISTS[kind][1]
    good = {"name": "good", "uri": "memo://good", "uriTemplate": "memo://{good}", "inputSchema": {"type": "object"}}
    stage.offers["s"][member] = [*entries, good]
    stage.exits("s")
    stage.start("s")
    stage.client("c")
    listed = stage.lists("c", "resources/templates" if kind == "templates" else kind)
    assert any(entry.get("name") == "good" for entry in listed)
    if kind == "tools":
        assert only(stage.calls("c", "good"), "s")["params"]["name"] == "good"


SHAPES = (
    ("initialize", b'{"capabilities":%s}'),
    ("tools/call", b'{"name":"t","arguments":%s}'),
    ("tools/call", b'{"name":"t","_meta":{"progressToken":1,"x":%s}}'),
    ("prompts/get", b'{"name":"p","arguments":%s}'),
    ("resources/read", b'{"uri":%s}'),
    ("subscriptions/listen", b'{"notifications":%s}'),
    ("completion/complete", b'{"ref":%s}'),
)


@pytest.mark.parametrize(("method", "shape"), SHAPES)
@pytest.mark.parametrize("who", ["fuzzed", "modern"])
def test_no_depth_of_nesting_is_fatal(who: str, method: str, shape: bytes) -> None:
    """What still fits when the frame is parsed may no longer fit a few calls deeper in the stack."""
    stage, owed = crowd()
    limit = sys.getrecursionlimit()
    for depth in (10, *range(limit - 150, limit + 5), 50_000):
        nested = b"[" * depth + b"1" + b"]" * depth
        sends = stage.says(who, frame(method, 1, raw=shape % nested))
        sends += stage.writes("s", frame("notifications/message", raw=b'{"level":' + nested + b"}"))
        sends += stage.writes("s", frame("roots/list", depth, raw=b'{"_meta":{"progressToken":%s}}' % nested))
        assert sends, "each of these has an answer"
    still_fine(stage, owed)


@pytest.mark.parametrize("payload", FRAGILE)
def test_fragile_payloads_cross_the_eras_unchanged(payload: bytes) -> None:
    """Old client and new server, new client and old server: the envelope differs, the payload does not."""
    stage = Stage()
    stage.server("old", "t")
    stage.server("new", tool("u"), modern=True)
    stage.client("c")
    stage.client("m", version=MODERN)
    raw = b'{"content":[],"structuredContent":{"x":' + payload + b"}}"
    for client, server, name in (("c", "new", b"u"), ("m", "old", b"t"), ("m", "new", b"u"), ("c", "old", b"t")):
        meta = b',"_meta":' + dumps(ENVELOPE) if client == "m" else b""
        params = b'{"name":"%s","arguments":{"x":' % name + payload + b"}" + meta + b"}"
        (down,) = stage.says(client, frame("tools/call", 1, raw=params))
        assert down.to == server
        assert b'"arguments":{"x":' + payload + b"}" in down.data
        (up,) = stage.writes(server, answer(id_of([down], server), raw=raw))
        assert raw[1:] in up.data
        assert read(up.data)["result"]["content"] == []
