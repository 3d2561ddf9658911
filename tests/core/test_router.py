"""The router as transcripts: who said what, and what became of it. The laws over all interleavings are next door."""

from __future__ import annotations

import pytest

from tests.core.stage import ENVELOPE, Send, Stage, answer, dumps, frame, id_of, only, seen, tool
from tests.wire import FRAGILE, Number, read
from voice_bridge.config import ToolRules
from voice_bridge.core.catalog import Catalog
from voice_bridge.core.effects import ToClient, ToServer
from voice_bridge.core.handlers.table import REQUESTS
from voice_bridge.core.keys import ClientKey, ServerKey

INVALID_REQUEST, PARSE_ERROR, METHOD_NOT_FOUND, INVALID_PARAMS = (
    Number(code) for code in (-32600, -32700, -32601, -32602)
)


def stage_with_one() -> Stage:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c")
    return stage


# Ids come back as they were written


IDS = (b'"1"', b"1", b'"req-a"', b"0", b'""', b"-5", b"9007199254740993", b"1.5", b"18446744073709551616", b'"x_n_1"')


@pytest.mark.parametrize("method", ["tools/list", "ping", "no/such"])
@pytest.mark.parametrize("id_", IDS)
def test_an_answer_from_memory_carries_the_id_as_it_was_written(method: str, id_: bytes) -> None:
    (send,) = stage_with_one().says("c", frame(method, raw_id=id_))
    assert send.data.startswith(b'{"jsonrpc":"2.0","id":' + id_ + b",")


@pytest.mark.parametrize("id_", IDS)
def test_an_answer_from_a_server_carries_the_id_as_it_was_written(id_: bytes) -> None:
    stage = stage_with_one()
    asked = id_of(stage.says("c", frame("tools/call", raw_id=id_, params={"name": "t"})), "s")
    assert stage.writes("s", answer(asked, raw=b'{"content":[]}')) == [
        ToClient(ClientKey("c"), b'{"jsonrpc":"2.0","id":' + id_ + b',"result":{"content":[]}}')
    ]


def test_one_and_the_word_one_in_flight_at_once_get_their_own_answers() -> None:
    stage = stage_with_one()
    number, word = (id_of(stage.calls("c", "t", id=id_), "s") for id_ in (1, "1"))
    assert only(stage.writes("s", answer(word, "for the word")), "c") == {
        "jsonrpc": "2.0", "id": "1", "result": "for the word",
    }  # fmt: skip
    assert only(stage.writes("s", answer(number, "for the number")), "c")["id"] == Number(1)


@pytest.mark.parametrize("id_", [b"null", b"{}", b"[]", b"true"])
def test_what_cannot_be_an_id_is_refused_without_one(id_: bytes) -> None:
    stage = stage_with_one()
    refused = only(stage.says("c", frame("tools/call", raw_id=id_, params={"name": "t"})), "c")
    assert refused["id"] is None
    assert refused["error"]["code"] == INVALID_REQUEST
    assert stage.names("c") == ["t"]


# Frames that are no request


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","id":6,"method":"tools/list"}]', INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b"42", INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
        (b'"x"', INVALID_REQUEST),
        (b"{", PARSE_ERROR),
        (b"", PARSE_ERROR),
        (b"\x00\xff\xfe", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{"x":NaN}}}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":3}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":3,"method":7}', INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
    ],
)
def test_a_frame_that_is_no_request_is_refused_at_once_and_the_next_one_is_answered(data: bytes, code: Number) -> None:
    stage = stage_with_one()
    refused = only(stage.says("c", data), "c")
    assert refused["id"] is None
    assert refused["error"]["code"] == code
    assert only(stage.says("c", frame("ping", 4)), "c") == {"jsonrpc": "2.0", "id": Number(4), "result": {}}


@pytest.mark.parametrize("method", sorted(REQUESTS))
@pytest.mark.parametrize(
    "params", [None, [], [1], {}, {"uri": []}, {"uri": {}, "name": [], "level": {}, "ref": 5}, {"_meta": 7}]
)
def test_every_method_answers_odd_params_once(method: str, params: object) -> None:
    stage = Stage()
    stage.server("s", "t", prompts=[{"name": "p"}], resources=[{"uri": "memo://1", "name": "m"}])
    stage.client("c")
    sends = [send for send in stage.says("c", frame(method, "odd", params)) if send.to == "c"]
    answers = [read(send.data) for send in sends if b'"id":"odd"' in send.data]
    if method == "subscriptions/listen":
        assert b"acknowledged" in sends[0].data
    else:
        assert [message["id"] for message in answers] == ["odd"]


def test_a_method_nobody_knows_is_refused_by_name() -> None:
    refused = only(stage_with_one().says("c", frame("tools/fly", 9)), "c")
    assert refused["error"] == {"code": METHOD_NOT_FOUND, "message": "there is no method 'tools/fly'"}


# Payloads


@pytest.mark.parametrize("payload", FRAGILE)
def test_payloads_pass_byte_for_byte_both_ways(payload: bytes) -> None:
    stage = stage_with_one()
    params = b'{"name":"t","arguments":{"x":' + payload + b'},"serialNumber":null}'
    (down,) = stage.says("c", frame("tools/call", 2, raw=params))
    asked = id_of([down], "s")
    ours = b'{"_meta":{"progressToken":%d},' % asked + params[1:]  # progress is asked for always; the rest is theirs
    assert down == ToServer(
        ServerKey("s"), b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % asked + ours + b"}"
    )
    result = b'{"content":[],"structuredContent":{"x":' + payload + b"}}"
    assert stage.writes("s", answer(id_of([down], "s"), raw=result)) == [
        ToClient(ClientKey("c"), b'{"jsonrpc":"2.0","id":2,"result":' + result + b"}")
    ]


@pytest.mark.parametrize("payload", FRAGILE)
def test_errors_and_notices_pass_byte_for_byte(payload: bytes) -> None:
    stage = stage_with_one()
    error = b'{"code":-32000,"message":"no","data":' + payload + b"}"
    (up,) = stage.writes("s", answer(id_of(stage.calls("c", "t"), "s"), error=error))
    assert up.data == b'{"jsonrpc":"2.0","id":2,"error":' + error + b"}"
    notice = b'{"level":"error","data":' + payload + b"}"
    assert stage.writes("s", frame("notifications/message", raw=notice)) == [
        ToClient(ClientKey("c"), b'{"jsonrpc":"2.0","method":"notifications/message","params":' + notice + b"}")
    ]


def test_a_pretty_printed_frame_is_one_line_for_the_server() -> None:
    stage = stage_with_one()
    pretty = (
        b'{\n  "jsonrpc": "2.0",\r\n  "id": 2,\n  "method": "tools/call",\n'
        b'  "params": {\n "name": "t",\n "arguments": {\n "a": "x\\ny"\n}}}\n'
    )
    (send,) = stage.says("c", pretty)
    assert b"\n" not in send.data
    assert b"\r" not in send.data
    params = read(send.data)["params"]
    assert (params["name"], params["arguments"]) == ("t", {"a": "x\ny"})


@pytest.mark.parametrize("payload", FRAGILE)
def test_a_renamed_tool_gets_its_arguments_untouched(payload: bytes) -> None:
    stage = Stage()
    stage.server("s", "t", rules=ToolRules(rename={"t": "other"}))
    stage.client("c")
    raw = b'{"name":"other","arguments":{"x":' + payload + b'},"_meta":{"progressToken":"p","k":' + payload + b"}}"
    (send,) = stage.says("c", frame("tools/call", 2, raw=raw))
    assert read(send.data)["params"]["name"] == "t"
    assert send.data.count(payload) == 2


# What a server owes


def test_an_answer_with_neither_result_nor_error_ends_the_call_with_a_reason() -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t"), "s")
    ended = only(stage.writes("s", b'{"jsonrpc":"2.0","id":%d}' % asked), "c")
    assert "server s" in ended["error"]["message"]


@pytest.mark.parametrize(
    "error", [b"null", b'"boom"', b"{}", b"[]", b"7", b'{"code":"x","message":5}', b'{"message":"no code"}']
)
def test_an_error_that_is_no_error_object_reaches_the_client_as_one(error: bytes) -> None:
    """A client's parser would drop it, and the user would wait for nothing."""
    stage = stage_with_one()
    ended = only(stage.writes("s", answer(id_of(stage.calls("c", "t"), "s"), error=error)), "c")
    assert isinstance(ended["error"]["code"], Number)
    assert isinstance(ended["error"]["message"], str)
    assert not isinstance(ended["error"]["message"], Number)
    assert "server s" in ended["error"]["message"]


@pytest.mark.parametrize("spelling", [b'"%d"', b"%d.0", b"%de0"])
def test_our_number_spelled_otherwise_is_still_our_number(spelling: bytes) -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t", id="mine"), "s")
    line = b'{"jsonrpc":"2.0","id":' + spelling % asked + b',"result":{}}'
    assert only(stage.writes("s", line), "c")["id"] == "mine"


@pytest.mark.parametrize(
    "spelling", ['"0%d"', '"%d_"', '" %d"', '"1_0"', '"+%d"', "-%d", "%d.5", '"inf"', "1e400", "true", '"nan"']
)
def test_a_number_that_only_resembles_ours_ends_nobodys_call(spelling: str) -> None:
    stage = stage_with_one()
    asked = id_of([stage.calls("c", "t", id=n) for n in range(10)][-1], "s")
    id_ = spelling % asked if "%" in spelling else spelling
    assert stage.writes("s", f'{{"jsonrpc":"2.0","id":{id_},"result":{{}}}}'.encode()) == []


def test_a_second_answer_and_an_answer_to_somebody_elses_call_go_nowhere() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.server("other", "u")
    stage.client("c")
    asked = id_of(stage.calls("c", "t"), "s")
    assert stage.writes("other", answer(asked, "stolen")) == []
    assert only(stage.writes("s", answer(asked, "first")), "c")["result"] == "first"
    assert stage.writes("s", answer(asked, "second")) == []


@pytest.mark.parametrize("spoiled", [b'"mean":NaN', b'"text":"\xc4\xe3"', b'"max":Infinity'])
def test_an_unreadable_answer_ends_its_own_call_and_no_other(spoiled: bytes) -> None:
    stage = stage_with_one()
    first, second = (id_of(stage.calls("c", "t", id=id_), "s") for id_ in ("a", "b"))
    line = b'{"jsonrpc":"2.0","id":%d,"result":{"rows":[{"id":%d}],' % (second, first) + spoiled + b"}}"
    sends = stage.writes("s", line)
    assert only(sends, "c")["id"] == "b"
    assert "server s" in only(sends, "c")["error"]["message"]
    assert only(stage.writes("s", answer(first, "fine")), "c")["id"] == "a"


def test_an_unreadable_request_of_a_server_ends_nobodys_call() -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t"), "s")
    line = b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"temperature":NaN}}' % asked
    assert [send.to for send in stage.writes("s", line)] in ([], ["s"])
    assert only(stage.writes("s", answer(asked, "fine")), "c")["result"] == "fine"


def test_an_oversized_answer_ends_its_own_call_and_says_what_limit() -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t"), "s")
    ends = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % asked + b"x" * 400 + b"]}}"
    text = only(stage.oversized("s", ends, 70_000_000, 67_108_864), "c")["error"]["message"]
    assert "70,000,000" in text
    assert "67,108,864" in text
    assert "maxMessageBytes" in text


def test_a_dead_server_answers_its_open_calls_and_no_others() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.server("alive", "u")
    stage.client("c")
    stage.client("d")
    stage.calls("c", "t", id=1)
    stage.calls("d", "t", id="1")
    kept = id_of(stage.calls("c", "u", id=2), "alive")
    answers = {(to, message["id"]): message["error"]["message"] for to, message in seen(stage.exits("s"))}
    assert answers == {("c", Number(1)): "server s exited with code 3", ("d", "1"): "server s exited with code 3"}
    assert "is not available: exited with code 3" in only(stage.calls("c", "t", id=3), "c")["error"]["message"]
    assert stage.names("c") == ["t", "u"], "while it restarts its tools stay listed"
    assert only(stage.writes("alive", answer(kept, "ok")), "c")["result"] == "ok"
    stage.start("s")
    assert only(stage.writes("s", answer(id_of(stage.calls("c", "t", id=4), "s"), "back")), "c")["result"] == "back"


def test_what_a_server_does_not_read_is_answered_for_that_call_only() -> None:
    stage = Stage()
    stage.server("deaf", "t")
    stage.server("busy", "u")
    stage.client("c", capabilities={"sampling": {}})
    (kept,) = stage.calls("c", "u", id="kept")
    (lost,) = stage.calls("c", "t", id="lost")
    failed = only(stage.undelivered("deaf", lost.data), "c")
    assert failed["id"] == "lost"
    assert "server deaf does not read its input" in failed["error"]["message"]
    # An answer to the deaf server's own question bears that server's number, not one of ours.
    own_number = answer(id_of([kept], "busy"), "a sampled text")
    assert stage.undelivered("deaf", own_number) == []
    assert stage.undelivered("deaf", frame("notifications/cancelled", params={"requestId": 5})) == []
    assert only(stage.writes("busy", answer(id_of([kept], "busy"), "ok")), "c")["id"] == "kept"


# Deadlines


def test_a_late_call_is_answered_politely_the_server_told_and_the_late_answer_dropped() -> None:
    stage = stage_with_one()
    stage.client("hasty", timeout=10)
    asked = id_of(stage.calls("hasty", "t", id=5), "s")
    assert stage.wait(9.9) == []
    told = dict(seen(stage.wait(0.2)))
    assert told["hasty"]["id"] == Number(5)
    assert told["hasty"]["error"]["message"] == "server s did not answer t within 10 s"
    assert told["s"]["method"] == "notifications/cancelled"
    assert told["s"]["params"]["requestId"] == Number(asked)
    again = id_of(stage.calls("hasty", "t", id=5), "s")
    assert stage.writes("s", answer(asked, "late")) == []
    assert only(stage.writes("s", answer(again, "in time")), "hasty")["result"] == "in time"


def test_the_shorter_of_the_two_limits_counts() -> None:
    stage = Stage()
    stage.server("s", "t", timeout=3)
    stage.client("c", timeout=10)
    stage.client("hasty", timeout=1)
    stage.calls("c", "t")
    stage.calls("hasty", "t")
    assert {send.to for send in stage.wait(1.5)} == {"hasty", "s"}
    assert {send.to for send in stage.wait(2)} == {"c", "s"}


def test_progress_extends_a_call_up_to_a_hard_cap() -> None:
    """Notices every 5 s, far beyond the plain limit."""
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", timeout=10)
    (down,) = stage.says("c", frame("tools/call", 2, {"name": "t", "_meta": {"progressToken": "p"}}))
    token = int(read(down.data)["params"]["_meta"]["progressToken"])
    for step in range(18):
        assert stage.wait(5) == [], f"gave up at step {step}"
        (notice,) = stage.writes(
            "s", frame("notifications/progress", params={"progressToken": token, "progress": step})
        )
        assert read(notice.data)["params"] == {"progressToken": "p", "progress": Number(step)}
    sends, steps = list[Send](), 0
    while not sends and (steps := steps + 1) < 100:
        stage.writes("s", frame("notifications/progress", params={"progressToken": token, "progress": steps}))
        sends = stage.wait(5)
    assert 5 * (18 + steps) <= 105, "no amount of progress holds a call for ever"
    assert only(sends, "c")["id"] == Number(2)


def test_each_call_hears_of_its_own_progress_under_its_own_token() -> None:
    stage = stage_with_one()
    tokens = {}
    for id_, token in ((1, "p-1"), (2, 7), (3, "7")):
        (send,) = stage.says("c", frame("tools/call", id_, {"name": "t", "_meta": {"progressToken": token}}))
        tokens[id_] = int(read(send.data)["params"]["_meta"]["progressToken"])
    (silent,) = stage.calls("c", "t", id=4)
    assert read(silent.data)["params"]["_meta"] == {"progressToken": Number(id_of([silent], "s"))}
    assert len(set(tokens.values())) == 3
    for id_, spelled in ((2, b"7"), (3, b'"7"'), (1, b'"p-1"')):
        (send,) = stage.writes(
            "s", frame("notifications/progress", raw=b'{"progressToken":%d,"progress":0.50}' % tokens[id_])
        )
        assert send.data.endswith(b'"params":{"progressToken":' + spelled + b',"progress":0.50}}')
    unasked = frame("notifications/progress", params={"progressToken": id_of([silent], "s"), "progress": 1})
    assert stage.writes("s", unasked) == []


# Cancellation


def test_a_cancelled_call_gets_no_answer_and_its_server_is_told_the_number_it_knows() -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t", id="long"), "s")
    told = only(stage.says("c", frame("notifications/cancelled", params={"requestId": "long", "reason": "bored"})), "s")
    assert told["params"] == {"requestId": Number(asked), "reason": "bored"}
    assert stage.writes("s", answer(asked, "late")) == []
    assert stage.wait(1000) == []


def test_cancelling_touches_only_the_id_of_the_same_type_of_the_same_client() -> None:
    stage = stage_with_one()
    stage.client("d")
    stage.calls("c", "t", id=1)
    stage.calls("d", "t", id=1)
    assert stage.says("c", frame("notifications/cancelled", params={"requestId": "1"})) == []
    assert len(stage.says("c", frame("notifications/cancelled", params={"requestId": 1}))) == 1
    assert {to for to, message in seen(stage.exits("s"))} == {"d"}


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": {}}, {"requestId": 77}, [], {"reason": "x"}]
)
def test_cancelling_what_is_not_there_changes_nothing(params: object) -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t", id=1), "s")
    assert stage.says("c", frame("notifications/cancelled", params=params)) == []
    assert only(stage.writes("s", answer(asked)), "c")["id"] == Number(1)


# Connections


def test_after_a_reconnect_old_answers_go_nowhere_though_the_ids_are_used_again() -> None:
    stage = stage_with_one()
    old = id_of(stage.calls("c", "t", id=2), "s")
    (told,) = stage.leaves("c")
    assert read(told.data)["params"]["requestId"] == Number(old)
    stage.client("c")
    new = id_of(stage.calls("c", "t", id=2), "s")
    assert stage.writes("s", answer(old, "old")) == []
    assert only(stage.writes("s", answer(new, "new")), "c")["result"] == "new"


def test_a_client_does_not_see_or_reach_servers_outside_its_view() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.server("hidden", "secret", resources=[{"uri": "memo://1", "name": "m"}], prompts=[{"name": "p"}])
    stage.client("c", servers=["s"])
    assert stage.names("c") == ["t"]
    for method, params in (
        ("tools/call", {"name": "secret"}),
        ("prompts/get", {"name": "p"}),
        ("resources/read", {"uri": "memo://1"}),
        ("resources/subscribe", {"uri": "memo://1"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}),
    ):
        (refused,) = stage.says("c", frame(method, 5, params))
        assert refused.to == "c"
        assert "error" in read(refused.data)
    assert stage.writes("hidden", frame("notifications/message", params={"level": "error", "data": 1})) == []


def test_a_list_that_comes_early_waits_for_the_slowest_server_and_then_no_longer() -> None:
    stage = Stage(list_grace=5)
    stage.server("quick", "a")
    stage.server("slow", "b", ready=False)
    stage.client("c")
    assert stage.says("c", frame("tools/list", 1)) == []
    assert [one["name"] for one in only(stage.start("slow"), "c")["result"]["tools"]] == ["a", "b"]
    stage.server("slower", "z", ready=False)
    stage.client("d")
    assert stage.says("d", frame("tools/list", 1)) == []
    assert [one["name"] for one in only(stage.wait(5), "d")["result"]["tools"]] == ["a", "b"]
    assert stage.names("d") == ["a", "b"], "later lists do not wait again"


def test_a_server_that_cannot_start_holds_up_no_list() -> None:
    stage = Stage(list_grace=5)
    stage.server("s", "a")
    stage.server("broken", ready=False)
    stage.client("c")
    stage.says("c", frame("tools/list", 1))
    assert [one["name"] for one in only(stage.exits("broken", "cannot start"), "c")["result"]["tools"]] == ["a"]


def test_initialize_and_ping_are_answered_whatever_the_servers_do() -> None:
    stage = Stage()
    stage.server("stuck", "t", ready=False)
    stage.client("c", greet=False)
    hello = only(stage.says("c", frame("initialize", 0, {"protocolVersion": "2024-11-05", "capabilities": {}})), "c")
    assert hello["id"] == Number(0)
    assert hello["result"]["protocolVersion"] == "2024-11-05"
    assert only(stage.says("c", frame("ping", 1)), "c")["result"] == {}


def test_a_relay_initializes_for_every_device_on_one_connection() -> None:
    stage = stage_with_one()
    pending = id_of(stage.calls("c", "t", id=2), "s")
    again = frame("initialize", "dev2_n_1", {"protocolVersion": "2024-11-05", "capabilities": {}})
    assert only(stage.says("c", again), "c")["id"] == "dev2_n_1"
    assert only(stage.writes("s", answer(pending, "still")), "c")["result"] == "still"


# Lists that change


def change(stage: Stage, key: str, *tools: str) -> list[Send]:
    """The server's tools are now these: it says so, and answers when it is asked anew."""
    stage.offers[key]["tools"] = [tool(name) for name in tools]
    sends = stage.writes(key, frame("notifications/tools/list_changed"))
    return stage.play(key, sends + stage.wait(1))


def test_a_burst_of_change_notices_is_one_new_reading_and_one_notice() -> None:
    stage = stage_with_one()
    stage.names("c")
    stage.offers["s"]["tools"] = [tool("t"), tool("new")]
    for _ in range(50):
        assert stage.writes("s", frame("notifications/tools/list_changed")) == []
    asks = stage.wait(1)
    assert [read(send.data)["method"] for send in asks] == ["tools/list"]
    told = stage.play("s", asks)
    assert seen(told) == [("c", {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})]
    assert stage.names("c") == ["t", "new"]


def test_nobody_is_told_of_a_change_that_changes_nothing() -> None:
    stage = stage_with_one()
    stage.names("c")
    assert change(stage, "s", "t") == []


def test_an_endpoint_that_wants_a_reconnect_is_asked_to_redial() -> None:
    stage = stage_with_one()
    stage.client("r", redial=True)
    stage.names("r")
    assert change(stage, "s", "t", "new") == []
    assert stage.redials() == ["r"]


def test_a_removed_tool_gives_a_clear_error() -> None:
    stage = stage_with_one()
    stage.names("c")
    change(stage, "s", "other")
    assert only(stage.calls("c", "t"), "c")["error"] == {
        "code": INVALID_PARAMS, "message": "server s no longer offers the tool 't'",
    }  # fmt: skip


def test_a_list_that_cannot_be_read_again_stays_as_it_was() -> None:
    stage = stage_with_one()
    stage.names("c")
    stage.writes("s", frame("notifications/tools/list_changed"))
    asked = id_of(stage.wait(1), "s")
    assert stage.writes("s", answer(asked, error=dumps({"code": -32603, "message": "database is locked"}))) == []
    assert stage.names("c") == ["t"]
    assert [to for to, _ in seen(change(stage, "s", "t", "new"))] == ["c"]


def test_a_change_during_a_reading_is_read_once_more() -> None:
    stage = stage_with_one()
    stage.names("c")
    stage.writes("s", frame("notifications/tools/list_changed"))
    asks = stage.wait(1)
    stage.writes("s", frame("notifications/tools/list_changed"))
    assert stage.wait(1) == [], "one reading at a time"
    old = stage.writes("s", answer(id_of(asks, "s"), {"tools": [tool("half")]}))
    stage.offers["s"]["tools"] = [tool("whole")]
    stage.play("s", old)
    assert stage.names("c") == ["whole"]


@pytest.mark.parametrize("size", [1, 3])
def test_pages_are_followed_to_the_end_and_never_round_in_circles(size: int) -> None:
    stage = Stage()
    names = [f"t{number}" for number in range(7)]
    stage.server("s", ready=False)
    sends = stage.begins("s")
    sends = stage.writes(
        "s", answer(id_of(sends, "s"), {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
    )
    (asks,) = [send for send in sends if b"tools/list" in send.data]
    for start in range(0, 7, size):
        asked = read(asks.data)
        assert asked["params"].get("cursor", "0") == str(start)
        page = {"tools": [tool(name) for name in names[start : start + size]]}
        more = {"nextCursor": str(start + size)} if start + size < 7 else {}
        sends = stage.writes("s", answer(int(asked["id"]), page | more))
        asks = sends[0] if sends else asks
    stage.client("c")
    assert stage.names("c") == names


def test_a_cursor_that_leads_back_ends_the_reading_with_what_is_there() -> None:
    stage = Stage()
    stage.server("s", ready=False)
    sends = stage.begins("s")
    sends = stage.writes(
        "s", answer(id_of(sends, "s"), {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
    )
    asks, pages = [send for send in sends if b"tools/list" in send.data], 0
    while asks and pages < 10:
        pages += 1
        page = {"tools": [tool("t")], "nextCursor": "same"}
        asks = stage.writes("s", answer(int(read(asks[0].data)["id"]), page))
    assert pages == 2
    stage.client("c")
    assert stage.names("c") == ["t"]


def test_a_name_once_shown_keeps_its_owner_until_the_connection_ends() -> None:
    stage = Stage(list_grace=0)
    stage.server("first", "x", ready=False)
    stage.server("second", "x")
    stage.client("c")
    assert stage.names("c") == ["x"]
    stage.start("first")
    assert only(stage.calls("c", "x"), "second")["params"]["name"] == "x"
    assert sorted(stage.names("c")) == ["first__x", "x"]
    assert only(stage.calls("c", "first__x"), "first")["params"]["name"] == "x"
    stage.client("new")
    assert sorted(stage.names("new")) == ["second__x", "x"]
    assert only(stage.calls("new", "x"), "first")["params"]["name"] == "x"


def test_a_name_keeps_its_owner_even_when_that_owner_is_gone_and_lists_are_read_again() -> None:
    stage = Stage()
    stage.server("a", "x", "y")
    stage.server("b", "x")
    stage.client("c")
    assert stage.names("c") == ["x", "y", "b__x"]
    change(stage, "a", "y")
    assert stage.names("c") == ["y", "b__x"]
    change(stage, "a", "y", "z")
    assert stage.names("c") == ["y", "z", "b__x"], "b's tool is not moved to the name that was a's"
    assert "no longer offers" in only(stage.calls("c", "x"), "c")["error"]["message"]


# Prompts, resources, completion, levels


def test_prompts_and_resources_of_all_servers_are_merged_and_routed() -> None:
    stage = Stage()
    stage.server("a", prompts=[{"name": "greet"}], resources=[{"uri": "memo://1", "name": "m"}])
    stage.server("b", prompts=[{"name": "greet"}], resources=[{"uri": "db://u", "name": "u"}],
                 templates=[{"uriTemplate": "db://{table}", "name": "t"}])  # fmt: skip
    stage.server("plain", "t")
    stage.client("c")
    assert stage.names("c", "prompts") == ["greet", "b__greet"]
    assert [one["uri"] for one in stage.lists("c", "resources")] == ["memo://1", "db://u"]
    assert [one["uriTemplate"] for one in stage.lists("c", "resources/templates")] == ["db://{table}"]
    assert only(stage.says("c", frame("prompts/get", 5, {"name": "b__greet"})), "b")["params"]["name"] == "greet"
    for uri, owner in (("memo://1", "a"), ("db://u", "b"), ("db://other", "b")):
        assert only(stage.says("c", frame("resources/read", 6, {"uri": uri})), owner)["params"]["uri"] == uri
    refused = only(stage.says("c", frame("resources/read", 7, {"uri": "ftp://x"})), "c")
    assert refused["error"]["code"] == Number(-32002)
    for ref in ({"type": "ref/prompt", "name": "b__greet"}, {"type": "ref/resource", "uri": "db://{table}"}):
        asked = frame("completion/complete", 8, {"ref": ref, "argument": {"name": "who", "value": "A"}})
        sent = only(stage.says("c", asked), "b")["params"]
        assert sent["ref"].get("name", "greet") == "greet"
        assert sent["argument"] == {"name": "who", "value": "A"}


def test_capabilities_are_those_of_the_servers_in_view() -> None:
    stage = Stage()
    stage.server("plain", "t")
    stage.server("rich", "u", prompts=[], resources=[], capabilities={"logging": {}, "completions": {}})
    greeted = {}
    for name, servers in (("few", ["plain"]), ("all", ["plain", "rich"])):
        greeted[name] = only(stage.client(name, servers), name)["result"]["capabilities"]
    assert set(greeted["few"]) == {"tools"}
    assert set(greeted["all"]) == {"tools", "prompts", "resources", "logging", "completions"}


def test_subscriptions_are_made_once_ended_with_the_last_and_renewed_after_a_restart() -> None:
    stage = Stage()
    stage.server("s", resources=[{"uri": "memo://1", "name": "m"}])
    stage.client("c")
    stage.client("d")
    subscribe, unsubscribe = (
        frame(f"resources/{word}", 5, {"uri": "memo://1"}) for word in ("subscribe", "unsubscribe")
    )
    assert [to for to, _ in seen(stage.says("c", subscribe))] == ["s", "c"]
    assert [to for to, _ in seen(stage.says("d", subscribe))] == ["d"]
    updated = frame("notifications/resources/updated", params={"uri": "memo://1"})
    assert {to for to, _ in seen(stage.writes("s", updated))} == {"c", "d"}
    stage.exits("s")
    renewed = [message["method"] for to, message in seen(stage.start("s")) if to == "s"]
    assert renewed == [] or "resources/subscribe" in renewed
    assert [to for to, _ in seen(stage.says("c", unsubscribe))] == ["c"]
    assert [message.get("method") for to, message in seen(stage.leaves("d"))] == ["resources/unsubscribe"]
    assert stage.writes("s", updated) == []


def test_log_messages_reach_those_who_want_that_level() -> None:
    stage = Stage()
    stage.server("s", capabilities={"logging": {}})
    stage.client("all")
    stage.client("few")
    sends = stage.says("few", frame("logging/setLevel", 5, {"level": "error"}))
    assert only(sends, "few")["result"] == {}
    notice = {
        level: frame("notifications/message", params={"level": level, "data": 1}) for level in ("info", "critical")
    }
    assert [to for to, _ in seen(stage.writes("s", notice["info"]))] == ["all"]
    assert [to for to, _ in seen(stage.writes("s", notice["critical"]))] == ["all", "few"]
    refused = only(stage.says("few", frame("logging/setLevel", 6, {"level": "loud"})), "few")
    assert "debug" in refused["error"]["message"]


# What servers ask of clients


ASKS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


@pytest.mark.parametrize("method", sorted(ASKS))
def test_what_a_client_cannot_do_is_refused_at_once(method: str) -> None:
    stage = stage_with_one()
    stage.calls("c", "t")
    refused = only(stage.writes("s", frame(method, "ask-1", {"x": 1})), "s")
    assert refused["id"] == "ask-1"
    assert refused["error"]["code"] == METHOD_NOT_FOUND


@pytest.mark.parametrize("payload", FRAGILE)
@pytest.mark.parametrize("method", sorted(ASKS))
def test_what_a_client_declared_is_passed_through_both_ways(method: str, payload: bytes) -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", capabilities={ASKS[method]: {}})
    stage.client("bystander", capabilities={ASKS[method]: {}})
    stage.calls("c", "t")
    params = b'{"x":' + payload + b"}"
    (up,) = stage.writes("s", frame(method, raw_id=b'"1"', raw=params))
    assert up.to == "c"
    assert up.data.endswith(b',"params":' + params + b"}")
    own = id_of([up], "c")
    assert stage.says("bystander", answer(own, "forged")) == []
    (down,) = stage.says("c", b'{"jsonrpc":"2.0","id":%d,\n"result":{"x":' % own + payload + b"}}")
    assert down == ToServer(ServerKey("s"), b'{"jsonrpc":"2.0","id":"1","result":{"x":' + payload + b"}}")
    assert stage.says("c", answer(own, "again")) == []


def test_a_servers_question_is_answered_when_its_client_leaves_or_stays_silent() -> None:
    stage = Stage()
    stage.server("s", "t")
    for end in ("leaves", "silent"):
        stage.client("c", capabilities={"roots": {}}, timeout=10_000)
        stage.calls("c", "t")
        stage.writes("s", frame("roots/list", 1))
        sends = stage.leaves("c") if end == "leaves" else stage.wait(601)
        answered = [message for to, message in seen(sends) if to == "s" and message.get("id") == Number(1)]
        assert len(answered) == 1, end
        assert "error" in answered[0]


def test_a_clients_progress_on_a_servers_question_finds_that_server_under_its_own_token() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", capabilities={"sampling": {}})
    stage.calls("c", "t")
    up = only(stage.writes("s", frame("sampling/createMessage", 1, {"_meta": {"progressToken": "mine"}})), "c")
    token = up["params"]["_meta"]["progressToken"]
    assert token == up["id"]
    notice = frame("notifications/progress", raw=b'{"progressToken":' + token.encode() + b',"progress":0.50}')
    (down,) = stage.says("c", notice)
    assert down.to == "s"
    assert down.data.endswith(b'"params":{"progressToken":"mine","progress":0.50}}')
    stage.client("other")
    assert stage.says("other", notice) == [], "nobody else can speak about it"


def test_changed_roots_are_told_to_the_servers_in_view() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.server("hidden", "u")
    stage.client("c", servers=["s"], capabilities={"roots": {"listChanged": True}})
    assert seen(stage.says("c", frame("notifications/roots/list_changed"))) == [
        ("s", {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
    ]


def test_a_log_line_with_a_number_is_not_an_answer() -> None:
    stage = stage_with_one()
    asked = id_of(stage.calls("c", "t"), "s")
    for line in (b'{"id":%d,"level":"info"}', b'{"level":"info","id":%d,"msg":"\\"jsonrpc\\""}'):
        assert stage.writes("s", line % asked) == []
    assert only(stage.writes("s", answer(asked, "fine")), "c")["result"] == "fine"


def test_a_server_pings_and_is_answered() -> None:
    assert only(stage_with_one().writes("s", frame("ping", "p")), "s") == {"jsonrpc": "2.0", "id": "p", "result": {}}


def test_a_servers_request_withdrawn_is_withdrawn_at_the_client() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", capabilities={"sampling": {}})
    stage.calls("c", "t")
    asked = id_of(stage.writes("s", frame("sampling/createMessage", 9, {})), "c")
    told = only(stage.writes("s", frame("notifications/cancelled", params={"requestId": 9})), "c")
    assert told["params"]["requestId"] == Number(asked)
    assert stage.says("c", answer(asked, "late")) == []


# Eras, as far as one can tell without sockets


def test_a_request_in_an_unknown_revision_is_refused_with_those_we_speak() -> None:
    stage = stage_with_one()
    stage.client("m", greet=False)
    for method in ("server/discover", "tools/list", "tools/call"):
        future = {"name": "t", "_meta": {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
        refused = only(stage.says("m", frame(method, 3, future)), "m")
        assert refused["error"]["code"] == Number(-32022), method
        assert "2026-07-28" in refused["error"]["data"]["supported"]
        assert refused["error"]["data"]["requested"] == "2031-01-01"


def test_a_hot_reload_shows_a_connected_client_what_it_may_see_now() -> None:
    stage = stage_with_one()
    stage.names("c")
    assert stage.server("later", "u") == []
    told = stage.sees("c", ("s", "later"))
    assert [message["method"] for _, message in seen(told)] == ["notifications/tools/list_changed"]
    assert stage.names("c") == ["t", "u"]
    stage.calls("c", "u", id=9)
    told = stage.removes("later")
    assert {message.get("id", message.get("method")) for _, message in seen(told)} == {
        Number(9), "notifications/tools/list_changed",
    }  # fmt: skip
    assert stage.writes("later", answer(1)) == []
    assert isinstance(stage.router.peers.catalog_of(stage.router.peers.clients[ClientKey("c")]), Catalog)
