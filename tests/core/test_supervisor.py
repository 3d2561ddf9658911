"""Servers kept running: how long they lived, when their lists are read again, what new settings and new clients do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.core.stage import Json, Send, Stage, answer, frame, id_of, only, seen, tool
from tests.wire import Number
from voice_bridge.config import BridgeSettings
from voice_bridge.core.effects import Start, Stop
from voice_bridge.core.facts import Fault, Remark, ServerState
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.lifecycle import State
from voice_bridge.core.retry import QUICK_DEATHS_UNTIL_FAILED
from voice_bridge.core.server import Manner, Server

KEY = ServerKey("s")
CHANGED = frame("notifications/tools/list_changed")


def the_server(stage: Stage) -> Server:
    return stage.router.peers.servers[KEY]


def die(stage: Stage, *, start_takes: float, ready_for: float) -> ServerState:
    """One life of a server that has been told to start; what is told of its end."""
    sends = stage.begins("s")
    stage.now += start_takes
    stage.play("s", sends)
    assert the_server(stage).ready
    stage.now += ready_for
    stage.exits("s")
    told: ServerState = stage.told(ServerState)[-1]
    stage.sent(stage.router.supervisor.gone(KEY, stage.now))
    stage.wait(told.next_try_in or 0.0)
    assert the_server(stage).starting
    return told


# How long it lived


def test_a_long_start_is_no_long_life() -> None:
    stage = Stage()
    stage.router.supervisor.settings(BridgeSettings(min_backoff=1, max_backoff=600, stable_after=30))
    stage.server("s", "t", ready=False)
    ends = [die(stage, start_takes=40, ready_for=1) for _ in range(QUICK_DEATHS_UNTIL_FAILED + 1)]
    assert [end.state for end in ends] == [State.BACKOFF] * QUICK_DEATHS_UNTIL_FAILED + [State.FAILED]
    waits = [end.next_try_in or 0.0 for end in ends]
    assert all(later > earlier * 1.2 for earlier, later in pairwise(waits)), waits


def test_a_long_life_is_followed_by_a_quick_start_however_often() -> None:
    stage = Stage()
    stage.router.supervisor.settings(BridgeSettings(min_backoff=1, max_backoff=600, stable_after=30))
    stage.server("s", "t", ready=False)
    ends = [die(stage, start_takes=1, ready_for=40) for _ in range(2 * QUICK_DEATHS_UNTIL_FAILED)]
    assert {end.state for end in ends} == {State.BACKOFF}
    assert max(end.next_try_in or 0.0 for end in ends) < 2


# Lists


def lists_asked(sends: list[Send]) -> list[int]:
    return [int(message["id"]) for to, message in seen(sends) if to == "s" and message.get("method") == "tools/list"]


def greet(stage: Stage) -> int:
    """Plays the handshake up to the first `tools/list`; its id."""
    hello = id_of(stage.begins("s"), "s")
    facts = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {}}
    (asked,) = lists_asked(stage.writes("s", answer(hello, facts)))
    return asked


def test_a_change_during_the_handshake_is_read_once_more() -> None:
    stage = Stage()
    stage.server("s", ready=False)
    first = greet(stage)
    stage.writes("s", CHANGED)
    sends = stage.wait(0.2) + stage.writes("s", answer(first, {"tools": [tool("old")]}))
    (again,) = lists_asked(sends)
    stage.writes("s", answer(again, {"tools": [tool("new")]}))
    stage.client("c")
    assert stage.names("c") == ["new"]


def test_a_list_that_is_never_answered_is_asked_for_again_and_the_known_one_stays() -> None:
    stage = Stage()
    stage.server("s", "old")
    stage.client("c")
    stage.names("c")
    stage.writes("s", CHANGED)
    (lost,) = lists_asked(stage.wait(0.2))
    assert stage.names("c") == ["old"]
    (again,) = lists_asked(stage.wait(60))
    assert "did not answer tools/list; its list of tools stays as it was" in stage.told(Remark)[-1].text
    assert stage.writes("s", answer(lost, {"tools": []})) == [], "too late"
    told = stage.writes("s", answer(again, {"tools": [tool("new")]}))
    assert [message["method"] for _, message in seen(told)] == ["notifications/tools/list_changed"]
    assert stage.names("c") == ["new"]


def test_a_change_is_heard_after_a_list_that_was_never_answered() -> None:
    stage = Stage()
    stage.server("s", "old")
    stage.client("c")
    stage.writes("s", CHANGED)
    assert len(lists_asked(stage.wait(0.2))) == 1
    assert len(lists_asked(stage.wait(31))) + len(lists_asked(stage.wait(10))) == 1
    stage.writes("s", CHANGED)
    stage.wait(600)
    stage.play("s", stage.writes("s", CHANGED) + stage.wait(600))
    assert stage.names("c") == ["old"]


def test_a_request_of_our_own_is_not_waited_for_for_ever() -> None:
    stage = Stage()
    stage.server("s", resources=[{"uri": "memo://1", "name": "m"}], capabilities={"logging": {}})
    stage.client("c")
    stage.says("c", frame("resources/subscribe", 5, {"uri": "memo://1"}))
    stage.says("c", frame("logging/setLevel", 6, {"level": "debug"}))
    assert stage.router.peers.pending.items()
    stage.wait(60)
    assert stage.router.peers.pending.items() == []


# Settings


def test_new_settings_of_the_bridge_reach_servers_that_restart_later() -> None:
    stage = Stage()
    stage.router.supervisor.settings(BridgeSettings(min_backoff=1, max_backoff=600, stable_after=30))
    stage.server("s", "t", ready=False)
    before = die(stage, start_takes=0, ready_for=1).next_try_in or 0.0
    assert before < 2
    stage.router.supervisor.settings(BridgeSettings(min_backoff=50, max_backoff=600, stable_after=30))
    assert (die(stage, start_takes=0, ready_for=1).next_try_in or 0.0) > 40
    stage.router.supervisor.settings(BridgeSettings(min_backoff=1, max_backoff=2, stable_after=30))
    assert (die(stage, start_takes=0, ready_for=1).next_try_in or 99.0) <= 2.4


def opened_and_closed(stage: Stage) -> list[str]:
    return [type(act).__name__ for act in stage.acts if isinstance(act, Start | Stop)]


def test_a_server_removed_and_put_back_while_it_is_being_ended_runs_once() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c")
    stage.acts.clear()
    supervisor = stage.router.supervisor
    stage.sent(supervisor.unwanted(KEY, stage.now, "was removed from the settings"))
    stage.now += 1
    stage.sent(supervisor.wanted(KEY, Manner("s"), stage.now))
    assert opened_and_closed(stage) == ["Stop"], "the old process still ends"
    stage.now += 4
    stage.sent(supervisor.gone(KEY, stage.now))
    assert opened_and_closed(stage) == ["Stop", "Start"]
    stage.play("s", stage.begins("s"))
    assert stage.names("c") == ["t"]


def test_a_server_removed_for_good_while_it_is_being_ended_is_forgotten_when_it_is_gone() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.removes("s")
    assert stage.router.peers.servers == {}
    assert stage.router.peers.pending.items() == []


# What it is told of its clients


def declared(sends: list[Send]) -> Json:
    found: Json = next(message["params"] for _, message in seen(sends) if message.get("method") == "initialize")
    return dict(found["capabilities"])


def test_a_server_is_told_of_no_abilities_that_no_client_has() -> None:
    stage = Stage()
    stage.server("s", ready=False)
    assert declared(stage.begins("s")) == {}


def test_a_server_is_told_what_its_present_clients_can_do() -> None:
    stage = Stage()
    stage.server("s", ready=False)
    stage.client("c", capabilities={"sampling": {}, "experimental": {"x": {}}})
    stage.client("elsewhere", servers=[], capabilities={"roots": {}})
    assert declared(stage.begins("s")) == {"sampling": {}}


def test_a_voice_cloud_that_declares_what_it_never_answers_can_do_nothing() -> None:
    stage = Stage()
    stage.server("s", ready=False)
    stage.client("c", greet=False)
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}, "roots": {"listChanged": True}},
        "clientInfo": {"name": "XiaozhiMCPEndpointClient", "version": "1"},
    }
    stage.says("c", frame("initialize", 0, hello))
    assert declared(stage.begins("s")) == {}


def test_a_server_begins_anew_when_a_client_comes_that_can_do_more() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.acts.clear()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": {"name": "c"}}
    stage.client("c", greet=False)
    stage.says("c", frame("initialize", 0, hello))
    assert opened_and_closed(stage) == ["Stop"]
    assert stage.says("c", frame("tools/list", 1)) == [], "the list that it shows then is waited for"
    called = stage.calls("c", "t", id=2)
    assert called == [], "a call waits until it has begun anew"
    stage.sent(stage.router.supervisor.gone(KEY, stage.now))
    assert opened_and_closed(stage) == ["Stop", "Start"]
    began = stage.begins("s")
    assert declared(began) == {"sampling": {}}
    stage.offers["s"]["tools"].append(tool("ask"))
    sends = stage.play("s", began)
    listed = next(message for to, message in seen(sends) if to == "c" and message.get("id") == Number(1))
    assert [entry["name"] for entry in listed["result"]["tools"]] == ["t", "ask"]
    assert [message["params"]["name"] for to, message in seen(sends) if to == "s"] == ["t"]


def test_it_begins_anew_only_when_no_call_is_open_and_once_for_all_that_came() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("plain")
    called = id_of(stage.calls("plain", "t"), "s")
    stage.acts.clear()
    for name, ability in (("c", "sampling"), ("d", "roots")):
        hello = {"protocolVersion": "2025-11-25", "capabilities": {ability: {}}, "clientInfo": {"name": name}}
        stage.client(name, greet=False)
        stage.says(name, frame("initialize", 0, hello))
    assert opened_and_closed(stage) == []
    assert only(stage.writes("s", answer(called, {"content": []})), "plain")["result"] == {"content": []}
    assert opened_and_closed(stage) == ["Stop"]
    stage.sent(stage.router.supervisor.gone(KEY, stage.now))
    assert declared(stage.begins("s")) == {"sampling": {}, "roots": {}}


def test_clients_that_leave_make_nobody_begin_anew() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", capabilities={"sampling": {}})
    stage.acts.clear()
    stage.leaves("c")
    stage.client("plain")
    assert opened_and_closed(stage) == []


def test_a_server_of_the_new_era_is_told_with_each_request() -> None:
    stage = Stage()
    stage.server("s", "t", modern=True)
    stage.acts.clear()
    stage.client("c", capabilities={"sampling": {}})
    assert opened_and_closed(stage) == []
    meta = only(stage.calls("c", "t"), "s")["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}


# Where the cause of a failed start passes


@pytest.mark.parametrize(("passing", "state"), [(True, State.BACKOFF), (False, State.FAILED)])
def test_a_start_that_failed_for_a_passing_reason_is_tried_again_soon(passing: bool, state: State) -> None:
    stage = Stage()
    stage.router.supervisor.settings(BridgeSettings(min_backoff=1, max_backoff=600, stable_after=30))
    stage.server("s", ready=False)
    waits: list[float] = []
    for _ in range(12):
        stage.sent(stage.router.supervisor.failed(KEY, "cannot start: too many open files", stage.now, passing=passing))
        told = stage.told(ServerState)[-1]
        assert told.state == state
        waits.append(told.next_try_in or 0.0)
        stage.wait(waits[-1])
    assert all(wait <= 30 for wait in waits) if passing else min(waits) == 600


# A fault of our own


def test_a_fault_in_the_bridge_is_answered_and_costs_nobody_else() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c")
    sane, the_server(stage).manner = the_server(stage).manner, None  # type: ignore[assignment]
    failed = only(stage.calls("c", "t", id="x"), "c")
    assert (failed["id"], failed["error"]["code"]) == ("x", Number(-32603))
    assert "NoneType" not in failed["error"]["message"]
    assert "NoneType" in stage.told(Fault)[-1].trace
    the_server(stage).manner = sane
    called = id_of(stage.calls("c", "t", id=3), "s")
    assert only(stage.writes("s", answer(called, {"content": []})), "c")["id"] == Number(3)
