"""The log: one line per event, no secret in it, a flood counted instead of shown."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from websockets.exceptions import InvalidURI

from voice_bridge import secrets
from voice_bridge.observe.log import LOG, configure
from voice_bridge.quota import Quota
from voice_bridge.secrets import keep_secret, mask
from voice_bridge.text import LONGEST_LINE, duration, plural

TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJ1c2VySWQiOjF9.c2lnbmF0dXJl"
URL = f"wss://api.example.com/mcp/?token={TOKEN}"


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_secrets", set[str]())


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the log wrote; the root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level, own = root.handlers[:], root.level, LOG.level
    stream = io.StringIO()
    configure(stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    LOG.setLevel(own)


def test_a_kept_secret_never_reaches_the_log(written: io.StringIO) -> None:
    keep_secret(TOKEN)
    LOG.warning("living-room: could not connect to %s", URL)
    LOG.warning("the token alone: %s.", TOKEN)
    assert TOKEN not in written.getvalue()
    assert "living-room: could not connect to wss://api.example.com/mcp/?token=***" in written.getvalue()


def test_a_token_nobody_announced_is_masked_where_it_looks_like_one(written: io.StringIO) -> None:
    LOG.info("dialling %s", URL)
    LOG.info("sent Authorization: Bearer %s", TOKEN)
    LOG.info("through http://alice:s3cretpass@proxy:3128/")
    LOG.info("refused https://h/x?a=1&api_key=abcdef123456&b=2")
    text = written.getvalue()
    for secret in (TOKEN, "s3cretpass", "abcdef123456"):
        assert secret not in text
    assert "a=1&api_key=***&b=2" in text


def test_an_exception_that_prints_the_whole_address_is_masked(written: io.StringIO) -> None:
    """websockets puts the whole URI into the text of InvalidURI."""
    error = InvalidURI(URL, "isn't a valid URI")
    assert TOKEN in str(error)
    LOG.warning("living-room: %s", error)
    try:
        raise error
    except InvalidURI:
        LOG.exception("unexpected")
    assert TOKEN not in written.getvalue()


def test_a_secret_hidden_in_a_traceback_of_another_package_is_masked(written: io.StringIO) -> None:
    keep_secret(TOKEN)
    logging.getLogger("websockets.client").warning("handshake with %s failed", URL)
    assert written.getvalue()
    assert TOKEN not in written.getvalue()


def test_a_secret_is_masked_even_where_the_line_is_cut(written: io.StringIO) -> None:
    keep_secret(TOKEN)
    for shift in range(len(TOKEN) + 12):
        LOG.warning("%s%s", "x" * (LONGEST_LINE - 9 - shift), TOKEN)
    for length in range(8, len(TOKEN)):
        assert TOKEN[:length] not in written.getvalue(), f"{length} characters of the token are left at a cut"


def test_one_secret_inside_another_leaves_nothing_of_the_longer_one() -> None:
    keep_secret("hunter2!", "hunter2!-and-the-rest-of-it", "rest-of-it")
    assert mask("x hunter2!-and-the-rest-of-it y") == "x *** y"


def test_short_and_empty_words_are_not_masked() -> None:
    keep_secret("", "abc", "12345")
    assert mask("abc 12345") == "abc 12345"


@given(st.text(), st.text(min_size=6), st.text())
def test_masking_leaves_no_trace_of_the_secret(before: str, secret: str, after: str) -> None:
    assume("*" not in secret)
    secrets._secrets.clear()
    keep_secret(secret)
    assert secret not in mask(before + secret + after)


def test_every_event_is_one_printable_line(written: io.StringIO) -> None:
    LOG.info("clock: stderr: %s", "a\r\nb\x1b[31mred\x1b[0m\u2028c\u0085d\x00e")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        LOG.exception("clock: broke")
    lines = written.getvalue().split("\n")
    assert len(lines) == 3
    assert lines[-1] == ""
    assert all(line.isprintable() for line in lines)


def test_a_long_line_is_cut_and_says_by_how_much(written: io.StringIO) -> None:
    LOG.info("x" * 1_000_000)
    line = written.getvalue()
    assert len(line) < LONGEST_LINE + 60
    assert "more characters)" in line


def test_text_of_any_language_stays_readable(written: io.StringIO) -> None:
    LOG.info("clock: 查询天气 🎉 désolé")
    assert "clock: 查询天气 🎉 désolé" in written.getvalue()


def test_a_quiet_log_keeps_to_errors(written: io.StringIO) -> None:
    configure(written, quiet=True)
    LOG.warning("hidden")
    LOG.error("shown")
    assert "hidden" not in written.getvalue()
    assert "shown" in written.getvalue()


def test_a_flood_is_counted_and_the_count_is_told_once() -> None:
    quota = Quota(lines=3, window=10.0)
    assert [quota.admit(0.0) for _ in range(5)] == [(True, 0)] * 3 + [(False, 0)] * 2
    assert quota.admit(9.9) == (False, 0)
    assert quota.admit(10.0) == (True, 3)
    assert quota.admit(10.1) == (True, 0)


@given(st.lists(st.floats(0, 5), max_size=200), st.integers(1, 5))
def test_no_window_lets_more_through_than_its_quota_and_every_line_is_accounted_for(
    steps: list[float], lines: int
) -> None:
    quota, now, shown, held = Quota(lines=lines, window=10.0), 0.0, 0, 0
    times: list[float] = []
    for step in steps:
        now += step
        admitted, counted = quota.admit(now)
        shown, held = shown + admitted, held + counted
        times += [now] * admitted
    assert all(sum(start <= time < start + 10.0 for time in times) <= 2 * lines for start in times)
    assert shown + held <= len(steps)
    assert quota.admit(now + 11.0) == (True, len(steps) - shown - held)


def test_times_and_numbers_are_said_as_a_person_says_them() -> None:
    said = {0.04: "0.0 s", 1.5: "1.5 s", 9.96: "10.0 s", 59.7: "60 s", 600: "10 min"}
    assert {seconds: duration(seconds) for seconds in said} == said
    assert [plural(number, "tool") for number in (0, 1, 2)] == ["0 tools", "1 tool", "2 tools"]
