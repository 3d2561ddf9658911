"""What people call a place, and what is told when it could be another, through a real stdio session."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.zones import gazetteer
from servers.zones.places import folded
from servers.zones.resolve import iana_names
from tests.servers.stdio_client import ROOT, StdioClient


@pytest.fixture(scope="module")
def clock() -> Iterator[StdioClient]:
    with StdioClient("-m", "servers.clock", env={"TZ": "Europe/Berlin"}) as client:
        yield client


@pytest.mark.parametrize(
    ("names", "zone"),
    [
        ("北京 北京市 深圳 上海 広州 广州 廣州 成都 武汉 武漢 西安 重庆", "Asia/Shanghai"),
        ("大阪 大阪市 おおさか 오사카 京都 札幌 名古屋 横浜 福岡 Osaka Kyoto", "Asia/Tokyo"),
        ("부산 釜山 서울 首尔 首爾 Busan", "Asia/Seoul"),
        ("Mumbai Bombay 孟买 孟買 ムンバイ 뭄바이 मुंबई Bangalore Bengaluru 班加罗尔 Chennai", "Asia/Kolkata"),
        ("Seattle 西雅图 西雅圖 シアトル 시애틀 旧金山 舊金山 洛杉矶", "America/Los_Angeles"),
        ("Munich München Muenchen ミュンヘン 慕尼黑 Köln Cologne Hamburg Hanover Hannover", "Europe/Berlin"),
        ("Москва モスクワ 莫斯科 Moskva", "Europe/Moscow"),
        ("Wien Vienna", "Europe/Vienna"),
        ("Genève Geneva Zürich Bern", "Europe/Zurich"),
        ("القاهرة Cairo", "Africa/Cairo"),
        ("Miami Boston Atlanta NYC ET EST5EDT", None),
    ],
)
def test_knows_large_cities_in_many_languages(clock: StdioClient, names: str, zone: str | None) -> None:
    answers = {name: clock.call("get_datetime", timezone=name) for name in names.split()}

    assert [(name, answer.text) for name, answer in answers.items() if answer.failed] == []
    assert [(name, answer.data) for name, answer in answers.items() if "note" in answer.data] == []
    assert zone is None or {answer.data["timezone"] for answer in answers.values()} == {zone}


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("San Francisco", "America/Los_Angeles"),
        ("LA", "America/Los_Angeles"),
        ("L.A.", "America/Los_Angeles"),
        ("PT", "America/Los_Angeles"),
        ("US West Coast", "America/Los_Angeles"),
        ("MT", "America/Denver"),
        ("CT", "America/Chicago"),
        ("Texas", "America/Chicago"),
        ("TX", "America/Chicago"),
        ("ET", "America/New_York"),
        ("NYC", "America/New_York"),
        ("US East", "America/New_York"),
        ("New York, NY", "America/New_York"),
        ("Portland, Maine", "America/New_York"),
        ("Washington, D.C.", "America/New_York"),
        ("London, Canada", "America/Toronto"),
        ("LA, California", "America/Los_Angeles"),
        ("Paris, France", "Europe/Paris"),
        ("Birmingham, UK", "Europe/London"),
        ("England", "Europe/London"),
        ("UK", "Europe/London"),
        ("London", "Europe/London"),
        ("MYT", "Asia/Kuala_Lumpur"),
        ("UAE", "Asia/Dubai"),
        ("Korea", "Asia/Seoul"),
        ("Cancun", "America/Cancun"),
        ("Broken Hill", "Australia/Broken_Hill"),
        ("Bridgetown", "America/Barbados"),
        ("Monaco", "Europe/Monaco"),
    ],
)
def test_means_what_people_mean(clock: StdioClient, name: str, zone: str) -> None:
    data = clock.call("get_datetime", timezone=name).data

    assert data["timezone"] == zone
    assert "note" not in data


@pytest.mark.parametrize(
    ("name", "zone", "other"),
    [
        ("Samoa", "Pacific/Apia", "Pacific/Pago_Pago"),
        ("Birmingham", "Europe/London", "America/Chicago"),
        ("Portland", "America/Los_Angeles", "America/New_York"),
        ("Hyderabad", "Asia/Kolkata", "Asia/Karachi"),
        ("Valencia", "America/Caracas", "Europe/Madrid"),
        ("Odessa", "Europe/Kyiv", "America/Chicago"),
        ("Newcastle", "Australia/Sydney", "Europe/London"),
        ("San Juan", "America/Puerto_Rico", "America/Argentina/San_Juan"),
        ("Norfolk", "America/New_York", "Pacific/Norfolk"),
        ("奥克兰", "Pacific/Auckland", "America/Los_Angeles"),
        ("Washington", "America/New_York", "America/Los_Angeles"),
        ("Georgia", "Asia/Tbilisi", "America/New_York"),
        ("Ontario", "America/Toronto", "America/Los_Angeles"),
        ("Tennessee", "America/Chicago", "America/New_York"),
        ("Bali", "Asia/Makassar", "Asia/Kolkata"),
        ("IL", "Asia/Jerusalem", "America/Chicago"),
    ],
)
def test_a_name_of_two_places_is_answered_with_a_note(clock: StdioClient, name: str, zone: str, other: str) -> None:
    data = clock.call("get_datetime", timezone=name).data

    assert data["timezone"] == zone
    assert data["note"].startswith(f"{name} is taken as ")
    assert f"send {other}" in data["note"]


def test_a_note_counts_for_the_zone_of_the_given_time_too(clock: StdioClient) -> None:
    data = clock.call("get_datetime", timezone="Portland", at="12:00", at_timezone="Birmingham").data
    same = clock.call("get_datetime", timezone="Portland", at="12:00 Portland").data

    assert "Birmingham is taken as" in data["note"]
    assert "Portland is taken as" in data["note"]
    assert same["note"].count("Portland is taken as") == 1


def test_a_country_with_many_clocks_names_the_state_of_the_same_letters(clock: StdioClient) -> None:
    assert "for the state of California, send America/Los_Angeles" in clock.fail("get_datetime", timezone="CA")


@pytest.mark.parametrize("name", ["Paris, Texas", "Nowhere, France", "Tokyo, France", "CT, France", ",", "36", "ok"])
def test_a_place_that_is_not_there_is_refused(clock: StdioClient, name: str) -> None:
    assert "not a known time zone" in clock.fail("get_datetime", timezone=name)


@pytest.mark.parametrize(
    ("at", "answer", "other"),
    [
        ("2026-12-01 12:00 EDT", "2026-12-01T16:00:00+00:00", "America/New_York has UTC-05:00"),
        ("2026-07-01 12:00 EST", "2026-07-01T17:00:00+00:00", "America/New_York has UTC-04:00"),
        ("2026-07-01 12:00 CET", "2026-07-01T11:00:00+00:00", "Europe/Brussels has UTC+02:00"),
        ("2026-12-01 12:00 BST", "2026-12-01T11:00:00+00:00", "Europe/London has UTC+00:00"),
        ("2026-12-01 12:00 AEST", "2026-12-01T02:00:00+00:00", "Australia/Sydney has UTC+11:00"),
        ("2026-12-01 12:00 EST", "2026-12-01T17:00:00+00:00", ""),
        ("2026-07-01 12:00 EDT", "2026-07-01T16:00:00+00:00", ""),
        ("2026-12-01 12:00 est", "2026-12-01T17:00:00+00:00", ""),
        ("2026-12-01 9am PT", "2026-12-01T17:00:00+00:00", ""),
        ("2026-07-01 9am PT", "2026-07-01T16:00:00+00:00", ""),
        # An abbreviation tells which of two it is.
        ("2026-11-01 01:30 EDT", "2026-11-01T05:30:00+00:00", ""),
        ("2026-11-01 01:30 EST", "2026-11-01T06:30:00+00:00", ""),
    ],
)
def test_an_abbreviation_is_taken_at_its_word_and_told_when_it_is_out_of_season(
    clock: StdioClient, at: str, answer: str, other: str
) -> None:
    data = clock.call("get_datetime", timezone="UTC", at=at).data

    assert data["datetime"] == answer
    assert other in data.get("note", "")
    assert bool(other) == ("note" in data)


def test_an_abbreviation_out_of_season_can_be_asked_for(clock: StdioClient) -> None:
    data = clock.call("get_datetime", timezone="EDT", at="2026-12-01 12:00", at_timezone="UTC").data

    assert (data["datetime"], data["timezone"]) == ("2026-12-01T08:00:00-04:00", "UTC-04:00")
    assert "send America/New_York" in data["note"]


@pytest.mark.parametrize("at", ["12 Mar", "12 MAR", "12 March 2026", "3 Sun", "12 May 15:00", "1 Sept.", "12 dec"])
def test_a_date_in_words_is_no_hour_in_a_country(clock: StdioClient, at: str) -> None:
    sentence = clock.fail("get_datetime", timezone="UTC", at=at)

    assert repr(at) in sentence
    assert "YYYY-MM-DD" in sentence


@pytest.mark.parametrize("at", ["15:00 today", "15:00 tomorrow", "12 noon", "15 Uhr", "3 o'clock", "15:00 sharp"])
def test_a_word_that_is_no_place_is_not_passed_over(clock: StdioClient, at: str) -> None:
    assert "not a known time zone" in clock.fail("get_datetime", timezone="UTC", at=at)


def test_two_zones_for_one_time_are_told(clock: StdioClient) -> None:
    told = clock.call("get_datetime", timezone="UTC", at="2026-11-30 15:00 London", at_timezone="Asia/Tokyo").data
    same = clock.call("get_datetime", timezone="UTC", at="2026-11-30T15:00+09:00", at_timezone="Asia/Tokyo").data

    assert told["datetime"] == "2026-11-30T15:00:00+00:00"
    assert "Asia/Tokyo" in told["note"]
    assert "note" not in same


@pytest.mark.parametrize("offset", ["UTC-13", "UTC-12:30", "UTC+14:30", "+0960"])
def test_an_offset_that_nobody_has_is_refused(clock: StdioClient, offset: str) -> None:
    assert "no offset in use" in clock.fail("get_datetime", timezone=offset)


def test_a_city_in_a_zone_that_the_machine_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "tzdata").mkdir()
    (tmp_path / "tzdata" / "__init__.py").write_text("raise ImportError('no tzdata here')")
    (tmp_path / "zones" / "Europe").mkdir(parents=True)
    london = importlib.resources.files("tzdata").joinpath("zoneinfo", "Europe", "London").read_bytes()
    (tmp_path / "zones" / "Europe" / "London").write_bytes(london)
    settings = {"PYTHONPATH": str(tmp_path), "PYTHONTZPATH": str(tmp_path / "zones"), "TZ": "Europe/London"}
    with StdioClient("-m", "servers.clock", env=settings) as client:
        assert client.call("get_datetime", timezone="Manchester, UK").data["timezone"] == "Europe/London"
        assert "update tzdata" in client.fail("get_datetime", timezone="Seattle")
        assert "update tzdata" in client.fail("get_datetime", timezone="Portland")


def test_the_gazetteer_is_whole() -> None:
    lines = [line.split("\t") for line in gazetteer._text().splitlines()]
    keys = [(name, key) for _, _, _, name, *found in lines for key in found[:-1] if not key.startswith("=")]

    assert gazetteer.FILE.stat().st_size < 300_000
    assert "Attribution 4.0" in gazetteer.FILE.with_name("LICENCE.md").read_text()
    assert len(lines) > 5_000
    assert [int(line[0]) for line in lines] == sorted((int(line[0]) for line in lines), reverse=True)
    assert {line[2] for line in lines} <= set(iana_names().values())
    assert [(name, key) for name, key in keys if folded(key) != key] == []


def test_the_gazetteer_is_not_read_before_a_name_needs_it() -> None:
    script = "import sys, servers.clock as c; c.moment('Asia/Tokyo', None, None); print('babel' in sys.modules)"
    script += "; from servers.zones import gazetteer; print(gazetteer._text.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["False", "0"], done.stderr
