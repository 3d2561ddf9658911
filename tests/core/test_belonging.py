"""Whose call it is: a server's question and its log messages reach the client they belong to, and nobody else."""

from __future__ import annotations

import pytest

from tests.core.stage import MODERN, Stage, answer, frame, id_of, only, seen
from tests.wire import Number
from voice_bridge.core.keys import ServerKey

QUESTIONS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
LOG = frame("notifications/message", params={"level": "error", "data": "about ann's call"})


def two_clients(**capabilities: object) -> Stage:
    stage = Stage()
    stage.server("s", "t", capabilities={"logging": {}})
    for name in ("ann", "bob"):
        stage.client(name, capabilities=capabilities)
    return stage


@pytest.mark.parametrize("method", QUESTIONS)
def test_a_question_goes_to_the_one_client_whose_call_is_open(method: str) -> None:
    stage = two_clients(**{QUESTIONS[method]: {}})
    done = id_of(stage.calls("bob", "t"), "s")
    stage.writes("s", answer(done))
    stage.calls("ann", "t")
    assert [to for to, _ in seen(stage.writes("s", frame(method, 1, {"x": 1})))] == ["ann"]


@pytest.mark.parametrize("method", QUESTIONS)
def test_a_question_that_could_be_for_either_of_two_is_refused(method: str) -> None:
    stage = two_clients(**{QUESTIONS[method]: {}})
    stage.calls("ann", "t")
    stage.calls("bob", "t")
    refused = only(stage.writes("s", frame(method, 1, {"x": 1})), "s")
    assert "it cannot be known whom" in refused["error"]["message"]


@pytest.mark.parametrize("method", QUESTIONS)
def test_a_question_without_an_open_call_is_refused_though_a_client_could_answer(method: str) -> None:
    stage = two_clients(**{QUESTIONS[method]: {}})
    assert only(stage.writes("s", frame(method, 1, {"x": 1})), "s")["error"]["code"] == Number(-32601)


def test_a_transport_that_tells_which_call_a_question_belongs_to_is_believed() -> None:
    stage = two_clients(sampling={})
    calls = {name: id_of(stage.calls(name, "t"), "s") for name in ("ann", "bob")}
    for name, call in calls.items():
        asked = frame("sampling/createMessage", 1, {"x": 1})
        sends = stage.sent(stage.router.server_message(ServerKey("s"), asked, stage.now, related=call))
        assert [to for to, _ in seen(sends)] == [name]
    forged = stage.sent(stage.router.server_message(ServerKey("s"), frame("roots/list", 2), stage.now, related=10**6))
    assert [to for to, _ in seen(forged)] == ["s"]


def test_log_messages_of_a_call_reach_its_client_only() -> None:
    stage = two_clients()
    for name in ("ann", "bob"):
        stage.says(name, frame("logging/setLevel", 5, {"level": "debug"}))
    called = id_of(stage.calls("ann", "t"), "s")
    assert [to for to, _ in seen(stage.writes("s", LOG))] == ["ann"]
    stage.calls("bob", "t")
    assert stage.writes("s", LOG) == [], "whose it is cannot be known"
    stage.writes("s", answer(called))
    assert [to for to, _ in seen(stage.writes("s", LOG))] == ["bob"]


def test_log_messages_without_a_call_reach_all_who_see_the_server() -> None:
    stage = two_clients()
    stage.client("elsewhere", servers=[])
    assert [to for to, _ in seen(stage.writes("s", LOG))] == ["ann", "bob"]


def test_who_never_asked_for_logs_does_not_hear_what_another_client_asked_for() -> None:
    stage = two_clients()
    said = {
        level: frame("notifications/message", params={"level": level, "data": 1})
        for level in ("debug", "info", "warning")
    }
    assert [to for to, _ in seen(stage.writes("s", said["debug"]))] == ["ann", "bob"], "what it says of itself"
    stage.says("ann", frame("logging/setLevel", 5, {"level": "debug"}))
    assert [to for to, _ in seen(stage.writes("s", said["debug"]))] == ["ann"]
    for level in ("info", "warning"):
        assert [to for to, _ in seen(stage.writes("s", said[level]))] == ["ann", "bob"]


def test_asking_for_logs_is_passed_on_only_by_those_who_ask() -> None:
    stage = two_clients()
    asked = only(stage.says("ann", frame("logging/setLevel", 5, {"level": "error"})), "s")
    assert asked["params"] == {"level": "error"}, "and not debug, which bob never asked for"


def test_a_client_of_the_new_era_hears_logs_of_its_own_call_that_asked_for_them() -> None:
    stage = Stage()
    stage.server("s", "t", capabilities={"logging": {}})
    stage.client("new", version=MODERN)
    stage.client("old")
    stage.calls("old", "t")
    assert [to for to, _ in seen(stage.writes("s", LOG))] == ["old"]
