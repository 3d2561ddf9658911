"""What a view no longer includes is silent, and what it still includes goes on through restarts."""

from __future__ import annotations

from tests.core.stage import ENVELOPE, MODERN, Send, Stage, answer, frame, id_of, seen
from tests.wire import Number
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.server import Manner

MEMO = {"uri": "memo://1", "name": "m"}
SUBSCRIBE = frame("resources/subscribe", 5, {"uri": "memo://1"})
UPDATED = frame("notifications/resources/updated", params={"uri": "memo://1"})


def subscribed(*, modern: bool = False) -> Stage:
    stage = Stage()
    stage.server("s", "t", resources=[MEMO], capabilities={"logging": {}}, modern=modern)
    stage.server("other", "u")
    stage.client("c")
    stage.says("c", SUBSCRIBE)
    assert [to for to, _ in seen(stage.writes("s", UPDATED))] == ["c"]
    return stage


def methods(sends: list[Send], to: str) -> list[str]:
    return [str(message["method"]) for receiver, message in seen(sends) if receiver == to and "method" in message]


def test_nothing_of_a_server_that_left_the_view_reaches_the_client_again() -> None:
    stage = subscribed()
    called = id_of(stage.calls("c", "t", id=7), "s")
    progress = frame("notifications/progress", params={"progressToken": called, "progress": 1})
    sends = stage.sees("c", ["other"])
    failed = next(message for to, message in seen(sends) if to == "c" and "id" in message)
    assert (failed["id"], "was taken away" in failed["error"]["message"]) == (Number(7), True)
    assert methods(sends, "s") == ["resources/unsubscribe", "notifications/cancelled"]
    late = [
        UPDATED,
        progress,
        answer(called, {"content": []}),
        frame("notifications/message", params={"level": "error"}),
    ]
    assert [stage.writes("s", line) for line in late] == [[]] * len(late)
    assert stage.names("c") == ["u"]


def test_a_question_open_at_a_client_that_lost_the_server_is_answered_for_it() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c", capabilities={"sampling": {}})
    stage.calls("c", "t")
    asked = id_of(stage.writes("s", frame("sampling/createMessage", "q", {})), "c")
    sends = stage.sees("c", [])
    assert "error" in next(message for to, message in seen(sends) if to == "s" and message.get("id") == "q")
    assert stage.says("c", answer(asked, {"text": "late"})) == []


def test_a_subscription_of_the_new_era_falls_silent_too() -> None:
    stage = Stage()
    stage.server("s", resources=[MEMO])
    stage.client("new", version=MODERN)
    wanted = {"notifications": {"resourceSubscriptions": ["memo://1"]}, "_meta": ENVELOPE}
    stage.says("new", frame("subscriptions/listen", "sub", wanted))
    assert [to for to, _ in seen(stage.writes("s", UPDATED))] == ["new"]
    stage.sees("new", [])
    assert stage.writes("s", UPDATED) == []


def test_a_server_restarted_by_its_settings_keeps_its_subscriptions_and_its_log_level() -> None:
    stage = subscribed()
    stage.says("c", frame("logging/setLevel", 6, {"level": "warning"}))
    supervisor, key = stage.router.supervisor, ServerKey("s")
    stage.sent(supervisor.renewed(key, Manner("s"), stage.now, "is restarted: its settings changed"))
    stage.sent(supervisor.gone(key, stage.now))
    stage.everything.clear()
    stage.play("s", stage.begins("s"))
    told = stage.asked("s", "resources/subscribe", "logging/setLevel")
    assert told == [{"uri": "memo://1"}, {"level": "warning"}]
    assert [to for to, _ in seen(stage.writes("s", UPDATED))] == ["c"]


def test_a_server_of_the_new_era_that_restarts_is_listened_to_with_all_wishes() -> None:
    stage = subscribed(modern=True)
    stage.exits("s")
    stage.sent(stage.router.supervisor.gone(ServerKey("s"), stage.now))
    stage.wait(60)
    stage.everything.clear()
    stage.play("s", stage.begins("s"))
    (listened,) = stage.asked("s", "subscriptions/listen")
    assert listened["notifications"]["resourceSubscriptions"] == ["memo://1"]
    assert [to for to, _ in seen(stage.writes("s", UPDATED))] == ["c"]
