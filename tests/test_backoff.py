"""How long the bridge waits before it tries again, told as sequences of delays."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_bridge.backoff import Backoff


def steady() -> Backoff:
    """A backoff in the middle of its jitter, so that delays are exact."""
    return Backoff(minimum=1, maximum=600, stable_after=30, random=lambda: 0.5)


def test_failures_double_from_one_second_to_ten_minutes() -> None:
    backoff = steady()
    delays = [backoff.after_failure() for _ in range(12)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


@pytest.mark.parametrize(("drawn", "factor"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_jitter_is_twenty_percent_either_way(drawn: float, factor: float) -> None:
    backoff = Backoff(random=lambda: drawn)
    assert [backoff.after_failure() for _ in range(3)] == pytest.approx([factor, 2 * factor, 4 * factor])


def test_only_a_session_that_lived_starts_the_sequence_anew() -> None:
    backoff = steady()
    for _ in range(6):
        backoff.after_session(2.0)
    assert backoff.after_session(29.9) > 16, "a brief session must not be redialled at once for ever"
    assert backoff.after_session(30.0) == 1
    assert backoff.after_session(3600.0) == 1


def test_a_cloud_that_shakes_hands_and_hangs_up_is_dialled_ever_more_slowly() -> None:
    backoff = steady()
    assert [backoff.after_session(0.01) for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_cloud_that_restarts_is_met_again_at_once() -> None:
    backoff = steady()
    backoff.after_session(3600.0)
    assert [backoff.after_failure() for _ in range(3)] == [1, 2, 4]
    assert backoff.after_session(40.0) == 1, "what failed before a good session is forgotten"
    assert backoff.after_failure() == 1


def test_accepting_without_a_session_is_a_failure_each_time() -> None:
    backoff = steady()
    dials_at = list(itertools.accumulate(backoff.after_failure() for _ in range(100)))
    in_ten_minutes = sum(time <= 600 for time in dials_at)
    assert in_ten_minutes <= 10, "a cloud that accepts and closes must not be hammered"


@given(
    minimum=st.floats(0.01, 1000),
    maximum=st.floats(0.01, 100_000),
    stable_after=st.floats(0, 10_000),
    drawn=st.floats(0, 1),
    lives=st.lists(st.none() | st.floats(0, 1e9), max_size=120),
)
def test_whatever_happens_no_delay_leaves_its_bounds(
    minimum: float, maximum: float, stable_after: float, drawn: float, lives: list[float | None]
) -> None:
    backoff = Backoff(minimum, maximum, stable_after, random=lambda: drawn)
    lowest = min(minimum, maximum)
    for lived in lives:
        delay = backoff.after_failure() if lived is None else backoff.after_session(lived)
        assert lowest * 0.8 <= delay * (1 + 1e-9)
        assert delay <= max(maximum, minimum) * 1.2 * (1 + 1e-9)


def test_a_year_of_failures_neither_overflows_nor_forgets_the_ceiling() -> None:
    backoff = steady()
    assert [backoff.after_failure() for _ in range(60_000)][-1] == 600
