"""What a client of the revision without a handshake (2026-07-28) is told, and how servers of that era are heard."""

from __future__ import annotations

import pytest

from tests.core.stage import ENVELOPE, MODERN, Json, Stage, answer, frame, id_of, only, seen
from tests.wire import Number
from voice_bridge.core.handlers.table import REQUESTS

MEMO = {"uri": "memo://1", "name": "m"}
UPDATED = frame("notifications/resources/updated", params={"uri": "memo://1"})
GONE = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]


def stage_with(*, modern: bool = False) -> Stage:
    stage = Stage()
    stage.server("s", "t", prompts=[{"name": "p"}], resources=[MEMO], capabilities={"logging": {}}, modern=modern)
    stage.client("new", version=MODERN)
    return stage


def asked(stage: Stage, method: str, **params: object) -> Json:
    found: Json = only(stage.says("new", frame(method, 9, {**params, "_meta": ENVELOPE})), "new")
    return found


def test_an_unknown_resource_is_a_wrong_parameter_there_and_not_found_before() -> None:
    stage = stage_with()
    stage.client("old")
    assert asked(stage, "resources/read", uri="ftp://x")["error"]["code"] == Number(-32602)
    before = only(stage.says("old", frame("resources/read", 9, {"uri": "ftp://x"})), "old")
    assert before["error"]["code"] == Number(-32002)


@pytest.mark.parametrize("method", GONE[1:])
def test_methods_that_went_with_the_session_do_not_exist_there(method: str) -> None:
    stage = stage_with()
    refused = asked(stage, method, uri="memo://1", level="info")
    assert refused["error"]["code"] == Number(-32601)
    assert stage.asked("s", method) == []


def test_every_result_says_what_kind_it_is() -> None:
    stage = stage_with()
    for method in sorted(REQUESTS.keys() - {*GONE, "subscriptions/listen"}):
        ref = {"type": "ref/prompt", "name": "p"}
        params = {"name": "p" if method == "prompts/get" else "t", "uri": "memo://1", "ref": ref}
        sends = stage.says("new", frame(method, 9, {**params, "_meta": ENVELOPE}))
        if sends[0].to == "s":
            sends = stage.writes("s", answer(id_of(sends, "s"), {"content": []}))
        assert only(sends, "new")["result"]["resultType"] == "complete", method


def test_only_resources_that_some_server_has_are_acknowledged() -> None:
    stage = stage_with()
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://1", "ftp://nobody", 5]}
    listened = stage.says("new", frame("subscriptions/listen", 3, {"notifications": wanted, "_meta": ENVELOPE}))
    acknowledged = only(listened, "new")["params"]["notifications"]
    assert acknowledged == {"toolsListChanged": True, "resourceSubscriptions": ["memo://1"]}
    assert stage.asked("s", "resources/subscribe") == [{"uri": "memo://1"}]


def test_nothing_is_acknowledged_that_was_not_asked_for() -> None:
    stage = stage_with()
    wanted = {"toolsListChanged": False, "resourceSubscriptions": ["ftp://nobody"], "zzz": True}
    listened = stage.says("new", frame("subscriptions/listen", 3, {"notifications": wanted, "_meta": ENVELOPE}))
    assert only(listened, "new")["params"]["notifications"] == {}


def listens(stage: Stage) -> list[int]:
    sent = [(send.data, message) for send in stage.everything if send.to == "s" for _, message in seen([send])]
    return [int(message["id"]) for _, message in sent if message.get("method") == "subscriptions/listen"]


def test_a_server_that_ends_our_subscription_is_listened_to_again_ever_more_slowly() -> None:
    stage = stage_with(modern=True)
    waits: list[float] = []
    for _ in range(6):
        before = listens(stage)
        stage.writes("s", answer(before[-1], {"resultType": "complete"}))
        assert listens(stage) == before, "not at once"
        began = stage.now
        while listens(stage) == before and stage.now < began + 100:
            stage.wait(0.1)
        waits.append(stage.now - began)
    assert len(listens(stage)) == 7
    assert waits[-1] > waits[0]
    assert waits[0] < 2


def test_what_changed_while_nobody_listened_is_read_again() -> None:
    stage = stage_with(modern=True)
    stage.offers["s"]["tools"].append({"name": "new", "inputSchema": {"type": "object"}})
    stage.writes("s", answer(listens(stage)[-1], {"resultType": "complete"}))
    stage.play("s", stage.wait(5))
    assert stage.names("new") == ["t", "new"]


def test_a_server_that_cannot_be_listened_to_is_not_asked_again() -> None:
    stage = stage_with(modern=True)
    stage.writes("s", answer(listens(stage)[-1], error=b'{"code":-32601,"message":"no"}'))
    stage.wait(3600)
    assert len(listens(stage)) == 1


def test_a_call_without_a_progress_token_is_given_one_that_extends_its_time() -> None:
    stage = stage_with()
    stage.client("voice", timeout=60)
    called = only(stage.calls("voice", "t", id=4), "s")
    token = called["params"]["_meta"]["progressToken"]
    assert token == called["id"]
    for step in range(3):
        stage.wait(50)
        progress = frame("notifications/progress", raw=b'{"progressToken":%s,"progress":%d}' % (token.encode(), step))
        assert stage.writes("s", progress) == [], "a client that did not ask for progress hears of none"
    done = only(stage.writes("s", answer(int(called["id"]), {"content": []})), "voice")
    assert (done["id"], done["result"]) == (Number(4), {"content": []}), "after 150 s, with a limit of 60 s"
