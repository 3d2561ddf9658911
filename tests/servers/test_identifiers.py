"""`get_uuid`, through a real stdio session."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from tests.servers.stdio_client import StdioClient


@pytest.fixture(scope="module")
def identifiers() -> Iterator[StdioClient]:
    with StdioClient("-m", "servers.identifiers") as client:
        yield client


@pytest.mark.parametrize("version", [1, 4, 7])
def test_makes_unique_ids_of_the_version(identifiers: StdioClient, version: int) -> None:
    made = identifiers.call("get_uuid", version=version, count=100).data["uuids"]

    assert len(set(made)) == 100
    for text in made:
        assert str(uuid.UUID(text)) == text
        assert uuid.UUID(text).version == version
        assert uuid.UUID(text).variant == uuid.RFC_4122


def test_the_default_is_one_random_id(identifiers: StdioClient) -> None:
    (made,) = identifiers.call("get_uuid").data["uuids"]

    assert uuid.UUID(made).version == 4


def test_version_7_carries_the_time_and_version_1_hides_the_machine(identifiers: StdioClient) -> None:
    (sorted_by_time,) = identifiers.call("get_uuid", version=7).data["uuids"]
    assert abs((uuid.UUID(sorted_by_time).int >> 80) - time.time() * 1000) < 60_000
    (by_time,) = identifiers.call("get_uuid", version=1).data["uuids"]
    assert uuid.UUID(by_time).node != uuid.getnode()
    assert uuid.UUID(by_time).node >> 40 & 1, "the multicast bit marks a random node"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"version": 5}, "use 4"),
        ({"version": 0}, "use 4"),
        ({"count": 0}, "1 to 100"),
        ({"count": -1}, "1 to 100"),
        ({"count": 10**9}, "1 to 100"),
    ],
)
def test_refuses_with_what_to_ask_for(identifiers: StdioClient, arguments: dict[str, int], says: str) -> None:
    assert says in identifiers.fail("get_uuid", **arguments)
