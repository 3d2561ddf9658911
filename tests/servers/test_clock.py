"""`get_datetime`, through a real stdio session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.servers.stdio_client import StdioClient


@pytest.fixture(scope="module")
def clock() -> Iterator[StdioClient]:
    with StdioClient("-m", "servers.clock", env={"TZ": "Europe/Berlin"}) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("Asia/Singapore", "Asia/Singapore"),
        ("asia/singapore", "Asia/Singapore"),
        ("AMERICA/NEW_YORK", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("utc", "UTC"),
        ("Etc/GMT+8", "Etc/GMT+8"),
        ("UTC+8", "UTC+08:00"),
        ("gmt-3:30", "UTC-03:30"),
        ("+0530", "UTC+05:30"),
        ("UTC−5", "UTC-05:00"),
        ("Tokyo", "Asia/Tokyo"),
        ("tokyo time", "Asia/Tokyo"),
        ("東京", "Asia/Tokyo"),
        ("パリ", "Europe/Paris"),
        ("东京", "Asia/Tokyo"),
        ("도쿄", "Asia/Tokyo"),
        ("ロンドン", "Europe/London"),
        ("伦敦", "Europe/London"),
        ("倫敦", "Europe/London"),
        ("런던", "Europe/London"),
        ("纽约", "America/New_York"),
        ("紐約", "America/New_York"),
        ("뉴욕", "America/New_York"),
        ("上海", "Asia/Shanghai"),
        ("香港", "Asia/Hong_Kong"),
        ("サンパウロ", "America/Sao_Paulo"),
        ("São Paulo", "America/Sao_Paulo"),
        ("sao paulo", "America/Sao_Paulo"),
        ("Calcutta", "Asia/Kolkata"),
        ("Germany", "Europe/Berlin"),
        ("德国", "Europe/Berlin"),
        ("ドイツ", "Europe/Berlin"),
        ("독일", "Europe/Berlin"),
        ("China", "Asia/Shanghai"),
        ("中国", "Asia/Shanghai"),
        ("Beijing", "Asia/Shanghai"),
        ("日本", "Asia/Tokyo"),
        ("한국", "Asia/Seoul"),
        ("韩国", "Asia/Seoul"),
        ("Spain", "Europe/Madrid"),
        ("UK", "Europe/London"),
        ("JP", "Asia/Tokyo"),
        ("New Zealand", "Pacific/Auckland"),
        ("JST", "Asia/Tokyo"),
        ("Eastern Time", "America/New_York"),
        ("日本標準時", "Asia/Tokyo"),
    ],
)
def test_understands_what_people_call_a_zone(clock: StdioClient, name: str, zone: str) -> None:
    answer = clock.call("get_datetime", timezone=name)

    assert not answer.failed, answer.text
    assert answer.data["timezone"] == zone


def test_tells_date_time_weekday_and_offset(clock: StdioClient) -> None:
    data = clock.call("get_datetime", timezone="Asia/Singapore").data

    told = datetime.fromisoformat(data["datetime"])
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)
    assert (data["date"], data["time"]) == (told.date().isoformat(), told.time().isoformat())
    assert data["weekday"] == told.strftime("%A")
    assert data["utc_offset"] == "+08:00"


def test_without_a_zone_it_is_the_owners(clock: StdioClient) -> None:
    assert clock.call("get_datetime").data["timezone"] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("CST", ["America/Chicago", "Asia/Shanghai", "America/Havana"]),
        ("IST", ["Asia/Kolkata", "Asia/Jerusalem", "Europe/Dublin"]),
        ("PST", ["America/Los_Angeles", "Asia/Manila"]),
        (
            "USA",
            ["America/New_York (UTC-0", "America/Chicago", "America/Denver", "America/Los_Angeles", "Pacific/Honolulu"],
        ),
        ("美国", ["America/New_York", "Pacific/Honolulu"]),
        ("Brazil", ["America/Sao_Paulo"]),
        ("Australia", ["Australia/Sydney", "Australia/Perth"]),
    ],
)
def test_an_ambiguous_name_is_answered_with_the_candidates(
    clock: StdioClient, name: str, candidates: list[str]
) -> None:
    sentence = clock.fail("get_datetime", timezone=name)

    assert "several" in sentence
    assert [candidate for candidate in candidates if candidate not in sentence] == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("バリ", "send the IANA name"),
        ("Nowhere", "send the IANA name"),
        ("Londn", "did you mean"),
        ("UTC+15", "no offset in use"),
        ("../../etc/passwd", "not a known time zone"),
        ("/etc/localtime", "not a known time zone"),
        ("x" * 5000, "too long"),
        ("  ", "empty"),
        ("\0", "not a known time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_what_to_send(clock: StdioClient, name: str, says: str) -> None:
    assert says in clock.fail("get_datetime", timezone=name)


@pytest.mark.parametrize(
    ("at", "source", "target", "answer"),
    [
        ("2026-11-30 15:00", "Europe/London", "Asia/Tokyo", "2026-12-01T00:00:00+09:00"),
        ("2026-07-01 15:00", "Europe/London", "Asia/Tokyo", "2026-07-01T23:00:00+09:00"),
        ("2026-11-30T15:00+09:00", None, "UTC", "2026-11-30T06:00:00+00:00"),
        ("2026-11-30T15:00:30Z", None, "Asia/Tokyo", "2026-12-01T00:00:30+09:00"),
        ("2026-11-30 3 pm London", None, "Asia/Tokyo", "2026-12-01T00:00:00+09:00"),
        ("2026-11-30 12:15am", "Asia/Tokyo", "UTC", "2026-11-29T15:15:00+00:00"),
        ("2026-11-30 15:00 東京", None, "UTC", "2026-11-30T06:00:00+00:00"),
        ("2026-11-30 15:00", None, "UTC", "2026-11-30T14:00:00+00:00"),
        ("2026-11-30", "Asia/Tokyo", "UTC", "2026-11-29T15:00:00+00:00"),
    ],
)
def test_converts_another_time(clock: StdioClient, at: str, source: str | None, target: str, answer: str) -> None:
    data = clock.call("get_datetime", timezone=target, at=at, at_timezone=source).data

    assert data["datetime"] == answer
    assert data["converted_from"].startswith("2026-")
    assert "note" not in data


def test_a_time_without_a_date_is_today_there(clock: StdioClient) -> None:
    data = clock.call("get_datetime", timezone="UTC", at="12:00", at_timezone="UTC").data

    assert abs((datetime.fromisoformat(data["datetime"]) - datetime.now(UTC)).total_seconds()) < 24 * 3600


@pytest.mark.parametrize(
    ("at", "zone", "answer", "notes"),
    [
        ("2026-03-29 02:30", "Europe/Berlin", "2026-03-29T01:30:00+00:00", ["does not exist", "60 minutes", "03:30"]),
        ("2026-10-25 02:30", "Europe/Berlin", "2026-10-25T00:30:00+00:00", ["twice", "UTC+02:00", "UTC+01:00"]),
        ("2026-03-08 02:30", "America/New_York", "2026-03-08T07:30:00+00:00", ["does not exist", "03:30"]),
        ("2026-11-01 01:30", "America/New_York", "2026-11-01T05:30:00+00:00", ["twice", "UTC-04:00", "UTC-05:00"]),
        (
            "2026-10-04 02:15",
            "Australia/Lord_Howe",
            "2026-10-03T15:45:00+00:00",
            ["does not exist", "30 minutes", "02:45"],
        ),
    ],
)
def test_gaps_and_overlaps_are_told(clock: StdioClient, at: str, zone: str, answer: str, notes: list[str]) -> None:
    data = clock.call("get_datetime", timezone="UTC", at=at, at_timezone=zone).data

    assert data["datetime"] == answer
    assert [note for note in notes if note not in data["note"]] == []


@pytest.mark.parametrize(
    "at",
    [
        "25:00",
        "12:61",
        "13 pm",
        "2026-02-30",
        "2026-13-01",
        "yesterday",
        "12:00 Nowhere",
        "9999-12-31 23:59",
        "x" * 999,
    ],
)
def test_an_impossible_time_is_refused(clock: StdioClient, at: str) -> None:
    assert clock.fail("get_datetime", timezone="Pacific/Auckland", at=at, at_timezone="America/Adak")


@pytest.mark.parametrize(
    ("setting", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("JST-9", "UTC+09:00"),
        ("<+0530>-5:30", "UTC+05:30"),
        ("", None),
    ],
)
def test_starts_with_any_tz(setting: str, zone: str | None) -> None:
    with StdioClient("-m", "servers.clock", env={"TZ": setting}) as client:
        data = client.call("get_datetime").data
    assert data["timezone"] == zone or zone is None
    assert "note" not in data


@pytest.mark.parametrize("setting", ["Foo/Bar", "../../etc/passwd", "日本", "XXX-25"])
def test_a_tz_that_is_no_zone_is_told(setting: str) -> None:
    with StdioClient("-m", "servers.clock", env={"TZ": setting}) as client:
        data = client.call("get_datetime").data

    assert data["utc_offset"] == "+00:00"
    assert repr(setting) in data["note"]


def test_works_without_any_time_zone_data(tmp_path: Path) -> None:
    (tmp_path / "tzdata").mkdir()
    (tmp_path / "tzdata" / "__init__.py").write_text("raise ImportError('no tzdata here')")
    settings = {"PYTHONPATH": str(tmp_path), "PYTHONTZPATH": "/nowhere", "TZ": ""}
    with StdioClient("-m", "servers.clock", env=settings) as client:
        assert "datetime" in client.call("get_datetime").data
        assert client.call("get_datetime", timezone="UTC+8").data["utc_offset"] == "+08:00"
        assert "pip install tzdata" in client.fail("get_datetime", timezone="Asia/Tokyo")
