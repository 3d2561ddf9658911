"""Endpoints kept connected: what counts as a good connection, what new settings do, and that no token is used twice."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.core.stage import ENVELOPE, Stage, frame
from voice_bridge.config import BridgeSettings
from voice_bridge.core.effects import Acquire, Dial, HangUp
from voice_bridge.core.facts import EndpointState
from voice_bridge.core.keys import ClientKey, EndpointKey
from voice_bridge.core.lifecycle import State
from voice_bridge.core.retry import Verdict

KEY = EndpointKey("home")
CLOSED = Verdict("transient", "the cloud closed the connection", 1000)
SLOWER = BridgeSettings(min_backoff=1, max_backoff=600, stable_after=30)


def endpoint_on(stage: Stage, settings: BridgeSettings = SLOWER) -> None:
    """An endpoint that may be dialled."""
    stage.router.dialling.settings(settings)
    stage.sent(stage.router.dialling.wanted(KEY, (), stage.now))
    stage.sent(stage.router.dialling.granted(KEY, stage.now))


def connects(stage: Stage) -> str:
    """The socket is up; the key of the client on it."""
    key = f"home#{stage.now}"
    stage.router.client_opened(ClientKey(key), stage.view(key), KEY)
    stage.sent(stage.router.dialling.opened(KEY, ClientKey(key), stage.now))
    return key


def ends(stage: Stage, key: str, verdict: Verdict = CLOSED) -> EndpointState:
    """The socket is closed; what is told of it. The wait for the next dial passes."""
    stage.leaves(key)
    stage.sent(stage.router.dialling.lost(KEY, verdict, stage.now))
    told: EndpointState = stage.told(EndpointState)[-1]
    stage.wait(told.next_try_in or 0.0)
    return told


def states(stage: Stage) -> list[str]:
    return [fact.state for fact in stage.told(EndpointState)]


def acts(stage: Stage) -> list[str]:
    return [type(act).__name__ for act in stage.acts if isinstance(act, Acquire | Dial | HangUp)]


@pytest.mark.parametrize(
    "asked",
    [
        frame("tools/list", 1, {"_meta": ENVELOPE}),
        frame("tools/list", 1),
        frame("tools/call", 1, {"name": "t", "_meta": ENVELOPE}),
        frame("server/discover", 1, {"_meta": ENVELOPE}),
        frame("ping", 1),
    ],
    ids=["new list", "old list", "call", "discover", "ping"],
)
def test_a_connection_on_which_anything_was_answered_was_a_good_one(asked: bytes) -> None:
    stage = Stage()
    stage.server("s", "t")
    endpoint_on(stage)
    waits = []
    for _ in range(8):
        key = connects(stage)
        for send in stage.says(key, asked):
            if send.to == "s":
                stage.writes("s", b'{"jsonrpc":"2.0","id":%d,"result":{}}' % _own_id(send.data))
        stage.now += 3600
        waits.append(ends(stage, key).next_try_in or 0.0)
    assert states(stage).count("ready") == 8
    assert max(waits) < 2, "after an hour of good service the next dial comes soon"


def _own_id(data: bytes) -> int:
    return int(data.split(b'"id":')[1].split(b",")[0])


@pytest.mark.parametrize("sent", [None, b"hello", frame("no/such", 1), frame("notifications/initialized"), b"[]"])
def test_a_connection_on_which_nothing_was_answered_was_none(sent: bytes | None) -> None:
    stage = Stage()
    stage.server("s", "t")
    endpoint_on(stage)
    waits = []
    for _ in range(6):
        key = connects(stage)
        if sent is not None:
            stage.says(key, sent)
        stage.now += 1
        waits.append(ends(stage, key).next_try_in or 0.0)
    assert "ready" not in states(stage)
    assert all(later > earlier for earlier, later in pairwise(waits)), waits


def test_a_short_good_connection_is_not_followed_by_a_storm() -> None:
    stage = Stage()
    stage.server("s", "t")
    endpoint_on(stage)
    waits = []
    for _ in range(6):
        key = connects(stage)
        stage.says(key, frame("ping", 1))
        waits.append(ends(stage, key).next_try_in or 0.0)
    assert waits[-1] > 8 * waits[0]


def test_new_settings_of_the_bridge_reach_endpoints_that_redial_later() -> None:
    stage = Stage()
    endpoint_on(stage)
    assert (ends(stage, connects(stage)).next_try_in or 99.0) < 2
    stage.router.dialling.settings(BridgeSettings(min_backoff=50, max_backoff=600))
    assert (ends(stage, connects(stage)).next_try_in or 0.0) > 40
    stage.router.dialling.settings(BridgeSettings(min_backoff=0.1, max_backoff=0.5))
    assert (ends(stage, connects(stage)).next_try_in or 99.0) <= 0.6


def test_an_endpoint_removed_and_put_back_while_it_says_goodbye_is_dialled_when_that_is_over() -> None:
    stage = Stage()
    endpoint_on(stage)
    connects(stage)
    stage.acts.clear()
    dialling = stage.router.dialling
    stage.sent(dialling.unwanted(KEY, stage.now, "was removed from the settings"))
    stage.sent(dialling.wanted(KEY, (), stage.now))
    stage.sent(dialling.granted(KEY, stage.now))
    assert acts(stage) == ["HangUp", "Acquire"]
    stage.sent(dialling.lost(KEY, CLOSED, stage.now))
    assert acts(stage) == ["HangUp", "Acquire", "Dial"]
    stage.wait(3600)
    assert acts(stage) == ["HangUp", "Acquire", "Dial"], "once"


def test_another_address_is_dialled_when_the_old_connection_is_closed() -> None:
    stage = Stage()
    endpoint_on(stage)
    connects(stage)
    stage.acts.clear()
    stage.sent(stage.router.dialling.renewed(KEY, (), stage.now))
    stage.sent(stage.router.dialling.granted(KEY, stage.now))
    assert acts(stage) == ["HangUp", "Acquire"]
    stage.sent(stage.router.dialling.gone(KEY, stage.now))
    assert acts(stage) == ["HangUp", "Acquire", "Dial"]
    assert states(stage)[-2:] == ["waiting", "dialling"]


def test_a_refused_token_is_tried_ever_more_rarely_and_a_new_address_at_once() -> None:
    stage = Stage()
    endpoint_on(stage)
    refused = Verdict("rejected", "HTTP 401", 401)
    waits = []
    for _ in range(4):
        stage.sent(stage.router.dialling.lost(KEY, refused, stage.now))
        waits.append(stage.told(EndpointState)[-1].next_try_in or 0.0)
        assert states(stage)[-1] == State.REJECTED
        stage.wait(waits[-1])
        assert states(stage)[-1] == State.DIALLING
    assert waits == [60, 120, 240, 480]
    stage.sent(stage.router.dialling.lost(KEY, refused, stage.now))
    stage.acts.clear()
    stage.sent(stage.router.dialling.renewed(KEY, (), stage.now))
    assert acts(stage) == ["Acquire"]


def test_an_endpoint_held_by_another_bridge_is_asked_for_again_and_told_once() -> None:
    stage = Stage()
    stage.router.dialling.settings(SLOWER)
    stage.sent(stage.router.dialling.wanted(KEY, (), stage.now))
    for _ in range(3):
        stage.sent(stage.router.dialling.withheld(KEY, "another bridge holds it", stage.now))
        stage.wait(10)
    assert [fact.reason for fact in stage.told(EndpointState)] == ["", "another bridge holds it"]
    assert acts(stage).count("Acquire") == 4
    stage.sent(stage.router.dialling.granted(KEY, stage.now))
    assert states(stage)[-1] == State.DIALLING
