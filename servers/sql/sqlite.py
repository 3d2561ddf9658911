"""SQLite, read only: enforced by the engine, so that no wording of a statement can get past it.

* the file is opened `mode=ro`;
* an authorizer admits reading, a list of PRAGMAs that only tell, and functions outside a deny-list;
* `setlimit` forbids ATTACH and values over 1 MB; `hard_heap_limit` and in-memory temporaries bound memory and disk;
* a progress handler ends a statement at its deadline.

PRAGMAs that answer: table_info, table_xinfo, table_list, index_list, index_info, index_xinfo, foreign_key_list.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers.sql import sqlite_functions
from servers.sql.limits import Limits, QueryError

HEAP_LIMIT = 96_000_000
"""Bytes that SQLite may allocate in this process."""

MAX_VALUE = 1_000_000
STEPS_BETWEEN_CHECKS = 500

ALLOWED_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
# Full-text search asks for these by itself; without an argument they only tell.
_INTERNAL_PRAGMAS = frozenset({"data_version", "page_size"})
_DENIED_FUNCTIONS = frozenset(
    {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "optimize", "sqlite_log"}
)
_TABLE_FUNCTIONS = ("json_each", "json_tree", *(f"pragma_{name}" for name in sorted(ALLOWED_PRAGMAS)))
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
}
_ACTIONS = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_TRANSACTION: "transactions",
    sqlite3.SQLITE_SAVEPOINT: "transactions",
}


class ReadOnlyConnection:
    """One hardened connection, for one call."""

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self._refused = ""
        self.deadline = time.monotonic() + limits.seconds
        self._harden()

    def run(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the columns' names and the rows of one statement. Raises QueryError, also while rows are read."""
        with self._sentences():
            cursor = self._connection.execute(sql)
        if cursor.description is None:
            raise QueryError("This statement returns no rows: send one SELECT statement.")
        return [column[0] for column in cursor.description], self._rows(cursor)

    def _rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        while True:
            with self._sentences():
                row = cursor.fetchone()
            if row is None:
                return
            yield row

    def _harden(self) -> None:
        connection = self._connection
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute(f"PRAGMA hard_heap_limit={HEAP_LIMIT}")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA query_only=ON")
        self._connect_virtual_tables()
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        sqlite_functions.install(connection)
        connection.set_progress_handler(lambda: time.monotonic() > self.deadline, STEPS_BETWEEN_CHECKS)
        connection.set_authorizer(self._authorize)

    def _connect_virtual_tables(self) -> None:
        """Let SQLite declare its virtual tables now: doing so later would look like a write to the schema."""
        names = list(_TABLE_FUNCTIONS)
        with self._sentences():
            names += [
                name
                for (name,) in self._connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL TABLE%'"
                )
            ]
        for name in names:
            try:
                self._connection.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 0")
            except sqlite3.Error:
                continue  # its module is not in this SQLite; whoever asks for the table hears that

    def _authorize(self, action: int, first: str | None, second: str | None, *_where: str | None) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _DENIED_FUNCTIONS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA:
            name = (first or "").lower()
            if name in ALLOWED_PRAGMAS or (name in _INTERNAL_PRAGMAS and second is None):
                return sqlite3.SQLITE_OK
            self._refused = f"PRAGMA {name}"
        elif action == sqlite3.SQLITE_FUNCTION:
            self._refused = f"the function {second}"
        else:
            self._refused = _ACTIONS.get(action, "a change")
        return sqlite3.SQLITE_DENY

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn what SQLite raises into a QueryError that says what to change."""
        try:
            yield
        except MemoryError:
            raise QueryError("The query needs too much memory: filter earlier, sort less, or add LIMIT.") from None
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise QueryError(self._sentence(error)) from None

    def _sentence(self, error: sqlite3.Error | sqlite3.Warning) -> str:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith("SQLITE_INTERRUPT"):
            return self._limits.too_slow
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return (
                f"The database is busy: another program kept it locked for {self._limits.seconds:g} s. Try again later."
            )
        if name.startswith(("SQLITE_AUTH", "SQLITE_READONLY")):
            what = f" and does not allow {self._refused}" if self._refused else ""
            return f"This database is read-only{what}: send one SELECT statement."
        if name.startswith("SQLITE_TOOBIG"):
            return f"A value is larger than {MAX_VALUE:,} bytes: leave that column out, or ask for its length()."
        if name.startswith("SQLITE_NOMEM"):
            return "The query needs too much memory: filter earlier, sort less, or add LIMIT."
        if "one statement at a time" in str(error):
            return "The SQL contains two statements: send one statement per call."
        if "number of bindings" in str(error):
            return "The SQL has parameters (?): write the values into it instead."
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return f"The database file is damaged or no SQLite database ({error}): check DATABASE_URL."
        hint = " Call describe_database to see the tables and columns." if "no such" in str(error) else ""
        return f"SQLite says: {error}.{hint}"


@contextmanager
def connected(path: Path, limits: Limits) -> Iterator[ReadOnlyConnection]:
    """Open `path` read-only for one call. Raises QueryError when it is missing, busy or cannot be read."""
    if not path.is_file():
        raise QueryError(f"The database file {path} does not exist: set DATABASE_URL to an existing SQLite file.")
    # Even to read a WAL database SQLite needs two more files, and a reader leaves them lying about. While there is no
    # log nobody writes, and the file can be read as it is; that nobody began to write meanwhile is checked afterwards.
    alone = _is_wal(path) and not _log(path).exists()
    before = path.stat()
    connection = _connect(path, limits, immutable=alone) if alone else _open(path, limits)
    try:
        yield ReadOnlyConnection(connection, limits)
    finally:
        connection.close()
    after = path.stat()
    if alone and (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise QueryError("The database was written to while it was read: send the same query again.")


def _open(path: Path, limits: Limits) -> sqlite3.Connection:
    connection = _connect(path, limits)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as error:
        if not (error.sqlite_errorname or "").startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            connection.execute("PRAGMA busy_timeout=0")  # it has waited; ReadOnlyConnection words it
            return connection
        connection.close()
        log = _log(path)
        if _is_wal(path) and not (log.exists() and log.stat().st_size):
            return _connect(path, limits, immutable=True)
        journal = log.name if _is_wal(path) else f"{path.name}-journal"
        raise QueryError(
            f"{path.name} has unfinished changes in {journal}, which cannot be read without write access: open the "
            "database once with the program that writes it."
        ) from None
    except sqlite3.DatabaseError:
        return connection
    return connection


def _is_wal(path: Path) -> bool:
    """Return whether the header asks for a write-ahead log (SQLite file format §1.3.4)."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:20] == b"\x02\x02"
    except OSError as error:
        raise QueryError(
            f"The database file {path} cannot be read ({error.strerror}): check its permissions."
        ) from None


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _connect(path: Path, limits: Limits, *, immutable: bool = False) -> sqlite3.Connection:
    uri = path.resolve().as_uri() + ("?mode=ro&immutable=1" if immutable else "?mode=ro")
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=limits.seconds)


def quoted(name: str) -> str:
    """Return `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
