"""The SQLite file that keeps conversations.

Each message is written as it happens and each tool result as it arrives, so that after a crash nothing
but the reply in the making is missing.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from voice_bridge.agent.conversation import Conversation
from voice_bridge.agent.errors import StoreError
from voice_bridge.agent.events import Usage
from voice_bridge.agent.history import Message, is_question, repair, spoken
from voice_bridge.agent.results import Block
from voice_bridge.errors import UsageError
from voice_bridge.text import encodable

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE conversation (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_creation_input_tokens INTEGER NOT NULL DEFAULT 0, cache_read_input_tokens INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE message (
    conversation TEXT NOT NULL, position INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
    question INTEGER NOT NULL,
    PRIMARY KEY (conversation, position)
) WITHOUT ROWID;
CREATE TABLE finished (
    conversation TEXT NOT NULL, tool_use_id TEXT NOT NULL, block TEXT NOT NULL,
    PRIMARY KEY (conversation, tool_use_id)
) WITHOUT ROWID;
CREATE TABLE approval (
    conversation TEXT NOT NULL, tool TEXT NOT NULL, allowed INTEGER NOT NULL,
    PRIMARY KEY (conversation, tool)
) WITHOUT ROWID;
"""
_TABLES = {"conversation", "message", "finished", "approval"}
_INSERT = "INSERT INTO message (conversation, position, role, content, question) VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Summary:
    """One line of the list of conversations; `updated` is in seconds since 1970."""

    id: str
    title: str
    updated: float
    questions: int


class Store:
    """Every conversation of this user, in one SQLite file. Each method raises `StoreError`.

    `notice` is a sentence where a damaged file had to be set aside, else empty.
    """

    def __init__(self, path: Path | None) -> None:
        """Opens the file, making it if it is missing; only its owner may read it.

        A damaged file is renamed and a new one begun. Without a path everything is kept until the program ends.
        """
        self.path = path
        self.notice = ""
        with self._explained():
            if path is not None and path.exists():
                self.notice = _without_damage(path)
            self._open()

    def _open(self) -> None:
        if self.path is not None:
            self.path.touch(mode=0o600)
        self._database = sqlite3.connect(self.path or ":memory:", isolation_level=None, timeout=5)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._migrate()
        except sqlite3.Error:
            self._database.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def summaries(self, limit: int = 50) -> list[Summary]:
        """The latest conversations, newest first."""
        with self._explained():
            rows = self._database.execute(
                "SELECT id, title, updated, (SELECT ifnull(sum(question), 0) FROM message WHERE conversation = id)"
                " FROM conversation ORDER BY updated DESC, rowid DESC LIMIT ?",
                (limit,),
            ).fetchall()
        return [Summary(*row) for row in rows]

    def new(self) -> Conversation:
        """A conversation that will be kept from its first message on."""
        return Conversation(store=self)

    def latest(self) -> str | None:
        """The id of the conversation that was used last."""
        summaries = self.summaries(1)
        return summaries[0].id if summaries else None

    def load(self, prefix: str) -> tuple[Conversation, list[str]]:
        """The conversation whose id begins with `prefix`, repaired, and notes on what was damaged.

        Raises `UsageError` when no conversation, or more than one, begins so.
        """
        with self._explained():
            found = self._database.execute(
                "SELECT id FROM conversation WHERE substr(id, 1, length(?1)) = ?1", (encodable(prefix).strip(),)
            ).fetchall()
            if len(found) != 1 or not prefix.strip():
                problem = "more than one conversation begins" if len(found) > 1 else "no conversation begins"
                raise UsageError(f"{problem} with {prefix!r}; `voice-bridge chat --list` shows their ids")
            return self._read(found[0][0])

    def _read(self, id_: str) -> tuple[Conversation, list[str]]:
        database = self._database
        columns = "input_tokens, output_tokens, cache_creation_input_tokens, cache_read_input_tokens"
        usage = database.execute(f"SELECT {columns} FROM conversation WHERE id = ?", (id_,)).fetchone()
        rows = database.execute(
            "SELECT role, content FROM message WHERE conversation = ? ORDER BY position", (id_,)
        ).fetchall()
        results = database.execute("SELECT tool_use_id, block FROM finished WHERE conversation = ?", (id_,))
        finished = {call: parsed for call, block in results if isinstance(parsed := _parsed(block), dict)}
        messages = [{"role": role, "content": _parsed(content)} for role, content in rows]
        repaired, notes = repair(messages, finished, "interrupted")
        conversation = Conversation(id=id_, messages=repaired, usage=Usage(*usage), store=self, stored=len(repaired))
        conversation.approvals = {
            tool: bool(allowed)
            for tool, allowed in database.execute("SELECT tool, allowed FROM approval WHERE conversation = ?", (id_,))
        }
        if repaired != messages:
            self._replace_messages(conversation)
        return conversation, notes

    def add_message(self, conversation: Conversation, message: Message) -> None:
        """Writes one message at the conversation's next position."""
        now = time.time()
        with self._explained(), self._transaction():
            title = " ".join(spoken(message).split())[:80]
            self._database.execute(
                "INSERT INTO conversation (id, title, created, updated) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET updated = excluded.updated",
                (conversation.id, title, now, now),
            )
            self._database.execute(_INSERT, _row(conversation.id, conversation.stored, message))
            if message["role"] == "user":
                self._database.execute("DELETE FROM finished WHERE conversation = ?", (conversation.id,))

    def add_finished(self, conversation: Conversation, call_id: str, block: Block) -> None:
        """Writes a tool result that waits for the others of its turn."""
        with self._explained():
            self._database.execute(
                "INSERT OR REPLACE INTO finished VALUES (?, ?, ?)",
                (conversation.id, call_id, json.dumps(block, ensure_ascii=False)),
            )

    def add_approval(self, conversation: Conversation, tool: str, allowed: bool) -> None:
        """Writes a decision."""
        with self._explained():
            self._database.execute(
                "INSERT OR REPLACE INTO approval VALUES (?, ?, ?)", (conversation.id, tool, int(allowed))
            )

    def drop_messages(self, conversation: Conversation) -> None:
        """Deletes the messages beyond those the conversation counts."""
        with self._explained():
            self._database.execute(
                "DELETE FROM message WHERE conversation = ? AND position >= ?",
                (conversation.id, conversation.stored),
            )

    def set_usage(self, conversation: Conversation) -> None:
        """Writes the sums of tokens."""
        usage = conversation.usage
        with self._explained():
            self._database.execute(
                "UPDATE conversation SET input_tokens = ?, output_tokens = ?, cache_creation_input_tokens = ?,"
                " cache_read_input_tokens = ? WHERE id = ?",
                (
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.cache_creation_input_tokens,
                    usage.cache_read_input_tokens,
                    conversation.id,
                ),
            )

    def _replace_messages(self, conversation: Conversation) -> None:
        with self._transaction():
            self._database.execute("DELETE FROM message WHERE conversation = ?", (conversation.id,))
            self._database.execute("DELETE FROM finished WHERE conversation = ?", (conversation.id,))
            rows = [_row(conversation.id, position, m) for position, m in enumerate(conversation.messages)]
            self._database.executemany(_INSERT, rows)

    def _migrate(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise sqlite3.DatabaseError("it was written by a newer version of this program")
        if version == 0:
            # Two chats may start at once: whoever takes the write lock second finds the tables made.
            self._database.execute("BEGIN IMMEDIATE")
            if self._database.execute("PRAGMA user_version").fetchone() == (0,):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            self._database.execute("COMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what SQLite and the file system say into a sentence with a remedy."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise StoreError(
                "another chat has written to this conversation since it was opened here; "
                "open it again with /resume, or start afresh with /new"
            ) from error
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"the conversations in {self.path} cannot be used: {error}; "
                "move the file away, or set VOICE_BRIDGE_DATA to a folder you can write to"
            ) from error


def _without_damage(path: Path) -> str:
    """Sets a damaged file aside; the sentence that says so, empty for a sound file."""
    if not _damage(path):
        return ""
    # Two chats may start at once: whoever comes second finds the file that the first has begun, and leaves it.
    with closing(sqlite3.connect(f"{path}.lock", isolation_level=None, timeout=20)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        damage = _damage(path)
        return _set_aside(path, damage) if damage else ""


def _damage(path: Path) -> str:
    """What SQLite says is wrong with the file; empty for a sound one, and for one that is only out of reach."""
    try:
        # In the mode that makes no file where there is none any more.
        address = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=5)) as database:
            (said,) = database.execute("PRAGMA quick_check(1)").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        kind = getattr(error, "sqlite_errorcode", 0) & 0xFF  # Python's own errors have none
        return str(error) if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) else ""
    if said != "ok":
        return str(said)
    return "its tables are gone" if version == _SCHEMA_VERSION and not tables >= _TABLES else ""


def _set_aside(path: Path, damage: str) -> str:
    """Renames the file and what SQLite keeps beside it; the sentence that says so."""
    name = aside = f"{path}.damaged-{time.strftime('%Y-%m-%d')}"
    count = 1
    while Path(aside).exists():
        count += 1
        aside = f"{name}-{count}"
    path.rename(aside)
    for beside in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{beside}").rename(f"{aside}{beside}")
    return (
        f"The file of conversations was damaged ({damage}): it was set aside as {aside}, and a new one is begun. "
        "Earlier conversations are in the old one only."
    )


def _row(conversation: str, position: int, message: Message) -> tuple[str, int, str, str, bool]:
    content = json.dumps(message["content"], ensure_ascii=False)
    return conversation, position, message["role"], content, is_question(message)


def _parsed(text: str) -> Any:
    """Stored JSON; None where it is damaged, which `repair` drops with a note."""
    try:
        return json.loads(text)
    except ValueError:
        return None
