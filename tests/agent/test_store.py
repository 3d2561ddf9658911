"""Conversations on disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from voice_bridge.agent import history
from voice_bridge.agent.errors import StoreError
from voice_bridge.agent.events import Usage
from voice_bridge.agent.store import Store
from voice_bridge.errors import UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


def test_everything_about_a_conversation_comes_back(path: Path) -> None:
    store = Store(path)
    conversation = store.new()
    conversation.append(history.user_message("grüße\nan alle"))
    conversation.append({"role": "assistant", "content": [{"type": "text", "text": "hi"}]})
    conversation.allow("server/tool", True)
    conversation.add_usage(Usage(1, 2, 3, 4))
    store.close()
    loaded, notes = Store(path).load(conversation.id[:4])
    assert notes == []
    assert loaded.messages == conversation.messages
    assert loaded.approvals == {"server/tool": True}
    assert loaded.usage == Usage(1, 2, 3, 4)
    (summary,) = Store(path).summaries()
    assert (summary.id, summary.title, summary.questions) == (conversation.id, "grüße an alle", 1)


def test_a_conversation_without_messages_is_not_kept(path: Path) -> None:
    store = Store(path)
    store.new()
    assert store.summaries() == []
    assert store.latest() is None


@pytest.mark.parametrize("prefix", ["", "zz", "%", "_"])
def test_an_unknown_id_is_a_usage_error(path: Path, prefix: str) -> None:
    store = Store(path)
    store.new().append(history.user_message("x"))
    with pytest.raises(UsageError, match="--list"):
        store.load(prefix)


def test_damage_is_repaired_once_and_told_once(path: Path) -> None:
    store = Store(path)
    conversation = store.new()
    conversation.append(history.user_message("x"))
    call = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
    conversation.append({"role": "assistant", "content": [call]})
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO message VALUES (?, 2, 'user', '[{\"type\": \"te', 1)", (conversation.id,))
    store = Store(path)
    loaded, notes = store.load(conversation.id)
    assert len(notes) == 2
    assert [message["role"] for message in loaded.messages] == ["user", "assistant", "user"]
    loaded.append(history.user_message("goes on"))
    again, notes = store.load(conversation.id)
    assert notes == []
    assert again.messages == loaded.messages


def test_two_chats_cannot_mix_their_words(path: Path) -> None:
    store = Store(path)
    conversation = store.new()
    conversation.append(history.user_message("x"))
    other, _ = Store(path).load(conversation.id)
    other.append({"role": "assistant", "content": [{"type": "text", "text": "theirs"}]})
    with pytest.raises(StoreError, match="another chat has written"):
        conversation.append({"role": "assistant", "content": [{"type": "text", "text": "mine"}]})


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda whole: bytes(len(whole)),
    "words": lambda whole: b"this is not a database, by no means at all" * 200,
    "cut": lambda whole: whole[: len(whole) // 2],
    "a page of noise": lambda whole: whole[:4096] + b"\xa5" * 4096 + whole[8192:],
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_set_aside_whole_and_a_new_one_begun(path: Path, kind: str) -> None:
    with Store(path) as store:
        store.new().append(history.user_message("x" * 20_000))
    damaged = DAMAGES[kind](path.read_bytes())
    path.write_bytes(damaged)
    Path(f"{path}-wal").write_bytes(b"left by a crash")
    with Store(path) as store:
        assert store.summaries() == []
        store.new().append(history.user_message("y"))
        (aside,) = path.parent.glob("conversations.db.damaged-????-??-??")
        assert f"set aside as {aside}" in store.notice
    assert aside.read_bytes() == damaged
    with Store(path) as store:
        assert (len(store.summaries()), store.notice) == (1, "")


def test_a_second_damaged_file_of_a_day_does_not_replace_the_first(path: Path) -> None:
    for content in (b"one" * 500, b"two" * 500):
        path.write_bytes(content)
        Store(path).close()
    kept = sorted(file.read_bytes() for file in path.parent.glob("conversations.db.damaged-*"))
    assert kept == [b"one" * 500, b"two" * 500]


def test_a_file_whose_tables_are_gone_is_set_aside(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE message")
    with Store(path) as store:
        assert "its tables are gone" in store.notice
        assert store.summaries() == []


def test_of_two_chats_at_once_only_the_first_sets_the_file_aside(path: Path) -> None:
    path.write_bytes(bytes(4096))
    stores: list[Store] = []

    def start() -> None:
        barrier.wait(20)
        stores.append(Store(path))

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert [store.path.stat().st_size > 0 for store in stores if store.path] == [True] * 4
    assert [file.read_bytes() for file in path.parent.glob("conversations.db.damaged-????-??-??*")] == [bytes(4096)]


def test_a_file_in_use_by_another_chat_is_not_damaged(path: Path) -> None:
    with Store(path) as first:
        first.new().append(history.user_message("x"))
        with Store(path) as second:
            assert (second.notice, len(second.summaries())) == ("", 1)


def test_without_a_file_conversations_last_as_long_as_the_store() -> None:
    with Store(None) as store:
        conversation = store.new()
        conversation.append(history.user_message("x"))
        assert store.load(conversation.id)[0].messages == conversation.messages


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="VOICE_BRIDGE_DATA"):
        Store(tmp_path / "missing" / "conversations.db")


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer version"):
        Store(path)
