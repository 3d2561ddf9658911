"""The tables of `lifecycle`, replayed as histories: what happened, where it led, and what the runtime is to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_bridge.core.lifecycle import ENDPOINT, SERVER, Act, Event, Life, State, Table

# One step: an event, the state after it, what is to be done; None where the event means nothing.
History = list[tuple[str, str, str | None]]

SERVER_HISTORIES: dict[str, History] = {
    "wanted, ready, not wanted any more": [
        ("wanted", "starting", "open"),
        ("answered", "ready", "none"),
        ("unwanted", "stopped", "close"),
        ("gone", "stopped", None),
    ],
    "a death, a wait and a new start": [
        ("wanted", "starting", "open"),
        ("answered", "ready", "none"),
        ("died", "backoff", "close"),
        ("gone", "backoff", None),
        ("due", "starting", "open"),
        ("answered", "ready", "none"),
    ],
    "the wait is over before the old process is gone": [
        ("wanted", "starting", "open"),
        ("died", "backoff", "close"),
        ("due", "starting", "none"),
        ("gone", "starting", "open"),
    ],
    "given up, and tried at once because a person asks": [
        ("wanted", "starting", "open"),
        ("gave up", "failed", "close"),
        ("gone", "failed", None),
        ("due", "starting", "open"),
    ],
    "removed and put back while it is being ended": [
        ("wanted", "starting", "open"),
        ("answered", "ready", "none"),
        ("unwanted", "stopped", "close"),
        ("wanted", "starting", "none"),
        ("gone", "starting", "open"),
        ("answered", "ready", "none"),
    ],
    "removed, put back and removed while it is being ended": [
        ("wanted", "starting", "open"),
        ("unwanted", "stopped", "close"),
        ("wanted", "starting", "none"),
        ("unwanted", "stopped", "none"),
        ("gone", "stopped", None),
    ],
    "other settings while it runs, and again while it is being ended": [
        ("wanted", "starting", "open"),
        ("answered", "ready", "none"),
        ("renewed", "starting", "close"),
        ("renewed", "starting", "none"),
        ("gone", "starting", "open"),
    ],
    "other settings while nothing of it runs": [
        ("wanted", "starting", "open"),
        ("died", "backoff", "close"),
        ("gone", "backoff", None),
        ("renewed", "starting", "open"),
    ],
    "what means nothing changes nothing": [
        ("unwanted", "stopped", None),
        ("answered", "stopped", None),
        ("wanted", "starting", "open"),
        ("wanted", "starting", None),
        ("due", "starting", None),
        ("opened", "starting", None),
        ("answered", "ready", "none"),
        ("answered", "ready", None),
        ("due", "ready", None),
    ],
}

ENDPOINT_HISTORIES: dict[str, History] = {
    "dialled, answered, not wanted any more": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("opened", "connected", "none"),
        ("answered", "ready", "none"),
        ("unwanted", "stopped", "close"),
        ("gone", "stopped", None),
    ],
    "a cloud that does not listen, then does": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("lost", "backoff", "none"),
        ("due", "dialling", "open"),
        ("opened", "connected", "none"),
        ("lost", "backoff", "none"),
        ("due", "dialling", "open"),
    ],
    "a token that is refused": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("refused", "rejected", "none"),
        ("lost", "rejected", None),
        ("due", "dialling", "open"),
    ],
    "somebody else takes the token's place": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("opened", "connected", "none"),
        ("answered", "ready", "none"),
        ("displaced", "replaced", "none"),
        ("due", "dialling", "open"),
    ],
    "another address while it is connected": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("opened", "connected", "none"),
        ("renewed", "waiting", "close"),
        ("granted", "dialling", "none"),
        ("gone", "dialling", "open"),
    ],
    "removed and put back while it says goodbye": [
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "open"),
        ("opened", "connected", "none"),
        ("unwanted", "stopped", "close"),
        ("wanted", "waiting", "none"),
        ("granted", "dialling", "none"),
        ("gone", "dialling", "open"),
    ],
}
LOSSES = {Event.LOST, Event.REFUSED, Event.DISPLACED}


def take(life: Life, event: Event, now: float) -> Act | None:
    """As the core does it: a socket that is lost runs no more."""
    if event in LOSSES and not life.closing:
        life.running = False
    return life.take(event, now)


def replay(table: Table, history: History) -> None:
    life = Life(table)
    for now, (event, state, act) in enumerate(history):
        done = take(life, Event(event), now)
        assert (life.state, done) == (state, act), f"{event}, step {now + 1}"


@pytest.mark.parametrize("history", SERVER_HISTORIES.values(), ids=SERVER_HISTORIES)
def test_the_life_of_a_server(history: History) -> None:
    replay(SERVER, history)


@pytest.mark.parametrize("history", ENDPOINT_HISTORIES.values(), ids=ENDPOINT_HISTORIES)
def test_the_life_of_an_endpoint(history: History) -> None:
    replay(ENDPOINT, history)


@pytest.mark.parametrize(("table", "histories"), [(SERVER, SERVER_HISTORIES), (ENDPOINT, ENDPOINT_HISTORIES)])
def test_every_state_of_a_table_is_reached_and_left(table: Table, histories: dict[str, History]) -> None:
    states = {state for state, _ in table}
    assert {state for state, _ in table.values()} == states, "a state that nothing leads to, or nothing out of"
    assert {State(state) for history in histories.values() for _, state, _ in history} == states


@pytest.mark.parametrize("table", [SERVER, ENDPOINT], ids=["server", "endpoint"])
@given(events=st.lists(st.sampled_from(Event), max_size=40))
def test_whatever_happens_nothing_runs_twice_and_what_is_wanted_can_always_begin(
    table: Table, events: list[Event]
) -> None:
    life, running, losses = Life(table), 0, LOSSES & {event for _, event in table}
    for now, event in enumerate([*events, Event.GONE, Event.WANTED, Event.DUE, Event.GRANTED]):
        if (event is Event.GONE and not life.closing) or (
            event in LOSSES and (life.closing or not running or event not in losses)
        ):
            continue  # the runtime tells of an end once, and only of what ran
        if event is Event.GONE or event in losses:
            running = 0
        running += take(life, event, now) is Act.OPEN
        assert running <= 1
        assert life.running is bool(running)
    assert running == 1
