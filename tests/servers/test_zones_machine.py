"""The clock in this machine's own zone, however it is set, through a real stdio session where that can be had."""

from __future__ import annotations

import importlib.resources
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from servers.zones.machine import local
from tests.servers.stdio_client import StdioClient

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"


def zone_file(name: str) -> bytes:
    """A plain copy of a zone, as containers have it for /etc/localtime."""
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@pytest.fixture
def localtime(tmp_path: Path) -> Path:
    path = tmp_path / "localtime"
    path.write_bytes(zone_file("Europe/Berlin"))
    return path


@pytest.mark.parametrize(
    ("at", "answer", "source"),
    [
        ("2026-01-15 12:00", "2026-01-15T11:00:00+00:00", "UTC+01:00"),
        ("2026-07-15 12:00", "2026-07-15T10:00:00+00:00", "UTC+02:00"),
    ],
)
@pytest.mark.parametrize("setting", ["rule", "file"])
def test_a_date_in_either_half_of_the_year_has_its_own_offset(
    localtime: Path, setting: str, at: str, answer: str, source: str
) -> None:
    with StdioClient("-m", "servers.clock", env={"TZ": BERLIN if setting == "rule" else f":{localtime}"}) as client:
        there = client.call("get_datetime", timezone="UTC", at=at).data
        back = client.call("get_datetime", at=answer).data

    assert there["datetime"] == answer
    assert there["converted_from"].endswith(source)
    assert (back["datetime"][:16], back["timezone"]) == (at.replace(" ", "T"), source)


@pytest.mark.parametrize(
    ("at", "answer", "says"),
    [
        ("2026-03-29 02:30", "2026-03-29T01:30:00+00:00", "does not exist"),
        ("2026-10-25 02:30", "2026-10-25T00:30:00+00:00", "twice"),
    ],
)
def test_a_rule_has_gaps_and_overlaps_too(at: str, answer: str, says: str) -> None:
    with StdioClient("-m", "servers.clock", env={"TZ": BERLIN}) as client:
        data = client.call("get_datetime", timezone="UTC", at=at).data
        second = client.call("get_datetime", at="2026-10-25T01:30Z").data

    assert data["datetime"] == answer
    assert says in data["note"]
    assert second["datetime"] == "2026-10-25T02:30:00+01:00"


def test_a_plain_localtime_is_known_with_all_its_rules(localtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)

    zone = local(localtime)

    assert [datetime(2026, month, 15, tzinfo=zone.tz).strftime("%z") for month in (1, 7)] == ["+0100", "+0200"]


def test_a_linked_localtime_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "")
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")

    assert local(tmp_path / "localtime").name == "Asia/Tokyo"


def test_a_localtime_that_changes_counts_from_then_on(localtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    before = datetime(2026, 7, 15, 12, tzinfo=local(localtime).tz)
    localtime.write_bytes(zone_file("Asia/Tokyo"))
    after = datetime(2026, 7, 15, 12, tzinfo=local(localtime).tz)

    assert (before.strftime("%z"), after.strftime("%z")) == ("+0200", "+0900")


def test_a_file_that_changes_counts_in_a_running_server(localtime: Path) -> None:
    with StdioClient("-m", "servers.clock", env={"TZ": f":{localtime}"}) as client:
        before = client.call("get_datetime", timezone="UTC", at="2026-07-15 12:00").data
        localtime.write_bytes(zone_file("Asia/Tokyo"))
        after = client.call("get_datetime", timezone="UTC", at="2026-07-15 12:00").data

    assert (before["time"], after["time"]) == ("10:00:00", "03:00:00")


def test_a_tz_that_changes_counts_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for setting in ("JST-9", BERLIN, "Asia/Kolkata", "<-03>3"):
        monkeypatch.setenv("TZ", setting)
        seen.append(datetime(2026, 7, 15, 12, tzinfo=local().tz).strftime("%z"))

    assert seen == ["+0900", "+0200", "+0530", "-0300"]


@pytest.mark.parametrize("content", [b"", b"TZif", b"TZif2" + b"\0" * 20, b"root:x:0:0", b"TZif2" + b"\xff" * 100])
def test_a_broken_zone_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken").write_bytes(content)
    setting = str(tmp_path / "broken")
    with StdioClient("-m", "servers.clock", env={"TZ": setting}) as client:
        data = client.call("get_datetime").data
        converted = client.call("get_datetime", timezone="Asia/Tokyo", at="2026-07-15 12:00").data

    assert data["utc_offset"] == "+00:00"
    assert repr(setting) in data["note"]
    assert repr(setting) in converted["note"]


@pytest.mark.parametrize("year", [2007, 2026, 2038, 2500])
def test_a_rule_agrees_with_the_same_zone_in_the_database(year: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    rule, database = local().tz, ZoneInfo("America/New_York")
    moments = [datetime(year, month, 15, 12) for month in range(1, 13)]

    assert [moment.replace(tzinfo=rule).strftime("%z") for moment in moments] == [
        moment.replace(tzinfo=database).strftime("%z") for moment in moments
    ]
