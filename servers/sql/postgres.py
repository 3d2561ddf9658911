"""PostgreSQL, read only: enforced by the server, so that no wording of a statement can get past it.

* everything runs in one READ ONLY transaction, fixed by a first query, and is rolled back;
* the statement must survive `PREPARE`, which takes nothing but queries and one at a time, and then `DECLARE CURSOR`
  as a sub-query, which takes no write at all;
* a superuser's statement runs as `pg_read_all_data` (PostgreSQL 14 and later), since READ ONLY alone does not keep a
  superuser from the server's files; the functions that could undo this are refused by name, the one rule here that
  rests on wording, which is why such a role is warned about;
* `statement_timeout` and `lock_timeout` bound time; the cursor shortens values on the server, which bounds memory here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from servers.sql.limits import Limits, QueryError
from servers.sql.values import binary

if TYPE_CHECKING:
    import psycopg

GRACE = 0.5
"""Seconds beyond the deadline in which the server may end a query by itself."""

ROWS_PER_FETCH = 20
MAX_ROW_CHARACTERS = 250_000
_BYTEA = 17
_TEXTS = frozenset({18, 19, 25, 142, 705, 1042, 1043})
"""The oids of "char", name, text, xml, unknown, bpchar and varchar (pg_type.dat)."""

_ESCAPES = re.compile(r"set_config|_to_xml|ts_stat|ts_rewrite|dblink|crosstab|connectby|xpath_table|u&", re.IGNORECASE)
_ROLE = """
SELECT r.rolsuper, r.rolsuper OR EXISTS (
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
      AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER
"""


@dataclass(frozen=True)
class _Column:
    name: str
    oid: int

    def expression(self, alias: str, characters: int) -> str:
        """Return the SQL that fetches this column as text of bounded length."""
        if self.oid == _BYTEA:
            return f"octet_length({alias})::text"
        if self.oid in _TEXTS:
            return f"left({alias}::text, {characters})"
        return f"left(to_jsonb({alias})::text, {characters})"

    def value(self, data: bytes | None, characters: int) -> Any:
        """Return what was fetched as a Python value."""
        if data is None:
            return None
        text = data.decode("utf-8", "replace")
        if self.oid == _BYTEA:
            return binary(int(text))
        if len(text) >= characters:
            return text + "… (shortened)"
        if self.oid in _TEXTS:
            return text
        return json.loads(text, parse_float=Decimal)


class ReadOnlyTransaction:
    """One read-only transaction, for one call."""

    def __init__(self, connection: psycopg.Connection[Any], limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self.deadline = time.monotonic() + limits.seconds
        self.warning = ""
        self._demoted = False
        self._begin()

    def run(self, sql: str) -> tuple[list[str], Iterator[list[Any]]]:
        """Return the columns' names and the rows of one query. Raises QueryError, also while rows are read."""
        if self._demoted and _ESCAPES.search(sql):
            raise QueryError(
                "The role in DATABASE_URL is a superuser, and this statement calls a function that could give its "
                "powers back (set_config, functions that run SQL from text): leave it out."
            )
        with self._sentences():
            columns = self._columns(sql)
            characters = max(100, MAX_ROW_CHARACTERS // len(columns))
            aliases = [f"c{number}" for number in range(len(columns))]
            fetched = ", ".join(
                column.expression(alias, characters) for column, alias in zip(columns, aliases, strict=True)
            )
            # OFFSET 0 keeps the planner from evaluating a column twice.
            self._execute(
                f"DECLARE answer NO SCROLL CURSOR FOR SELECT {fetched} FROM (SELECT * FROM (\n{sql}\n) AS question "
                f"OFFSET 0) AS answer({', '.join(aliases)}) LIMIT {self._limits.rows + 1}"
            )
        return [column.name for column in columns], self._rows(columns, characters)

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query of ours. Raises QueryError."""
        with self._sentences():
            return list(self._execute(sql).fetchall())

    @contextmanager
    def aside(self, seconds: float) -> Iterator[None]:
        """Bound what is run inside to `seconds`, and let the transaction survive its failure."""
        deadline, self.deadline = self.deadline, min(self.deadline, time.monotonic() + seconds)
        with self._sentences():
            self._execute("SAVEPOINT aside")
            self._set_timeout()
        try:
            yield
        finally:
            self.deadline = deadline
            with self._sentences():
                # Prepared statements outlive savepoints, cursors do not.
                self._execute("ROLLBACK TO aside")
                self._set_timeout()

    def _columns(self, sql: str) -> list[_Column]:
        self._execute("DEALLOCATE ALL")
        self._execute(f"PREPARE question AS {sql}")
        result = self._connection.pgconn.describe_prepared(b"question")
        columns = [
            _Column((result.fname(index) or b"").decode("utf-8", "replace"), result.ftype(index))
            for index in range(result.nfields)
        ]
        if not columns:
            raise QueryError("This statement returns no columns: send one SELECT statement.")
        return columns

    def _rows(self, columns: list[_Column], characters: int) -> Iterator[list[Any]]:
        while True:
            with self._sentences():
                self._set_timeout()
                result = self._execute(f"FETCH {ROWS_PER_FETCH} FROM answer").pgresult
            if result is None or not result.ntuples:
                return
            for row in range(result.ntuples):
                yield [column.value(result.get_value(row, at), characters) for at, column in enumerate(columns)]

    def _begin(self) -> None:
        with self._sentences():
            self._execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._set_timeout()
            superuser, writes = self._execute(_ROLE).fetchone() or (False, False)
            if writes:
                self.warning = (
                    f"The role in DATABASE_URL {'is a superuser' if superuser else 'may write'}: queries are read-only "
                    "all the same, but a role that may only SELECT is safer."
                )
                _log_once(self.warning)
            self._demoted = superuser and self._connection.info.server_version >= 140_000
            if self._demoted:
                self._execute("SET LOCAL row_security = off")
                self._execute("SET LOCAL ROLE pg_read_all_data")

    def _set_timeout(self) -> None:
        left = max(1, round((self.deadline - time.monotonic()) * 1000))
        self._execute(
            f"SELECT set_config('statement_timeout', '{left}', true), "
            f"set_config('lock_timeout', '{max(1, left * 9 // 10)}', true)"
        )

    def _execute(self, sql: str) -> psycopg.Cursor[Any]:
        # prepare=True uses the extended protocol, in which the server takes one statement only.
        return self._connection.execute(sql.encode(), prepare=True)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn what psycopg raises into a QueryError that says what to change."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise QueryError(self._sentence(error)) from None

    def _sentence(self, error: psycopg.Error) -> str:
        if error.sqlstate is None and time.monotonic() > self.deadline:
            return self._limits.too_slow
        message = (error.diag.message_primary or "the connection was lost").strip()
        match error.sqlstate:
            case "57014":
                return self._limits.too_slow
            case "55P03":
                return "The database is busy: a table stayed locked by another program. Try again later."
            case "25006" | "42501":
                return f"This database is read-only here ({message}): send one SELECT statement."
            case "08P01" | "42P02":
                return "The SQL has parameters ($1): write the values into it instead."
            case "42P01" | "42703" | "42883":
                hint = error.diag.message_hint or "Call describe_database to see the tables and columns."
                return f"PostgreSQL says: {message}. {hint}"
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        return f"PostgreSQL says: {message}.{hint}"


@cache
def _log_once(warning: str) -> None:
    logging.getLogger(__name__).warning(warning)


@contextmanager
def connected(url: str, limits: Limits) -> Iterator[ReadOnlyTransaction]:
    """Connect for one call. Raises QueryError, which never shows any part of `url`."""
    try:
        import psycopg
    except ImportError:
        raise QueryError(
            'PostgreSQL needs the extra "postgres": run pip install "mcp-voice-bridge[postgres]".'
        ) from None
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=max(2, round(limits.seconds)),
            client_encoding="utf8",
            application_name="mcp-voice-bridge",
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
        )
    except psycopg.ProgrammingError:
        raise QueryError(
            "DATABASE_URL is no valid PostgreSQL URL: write postgresql://user:password@host:5432/name and "
            "percent-encode special characters in the password."
        ) from None
    except psycopg.OperationalError as error:
        raise QueryError(f"The PostgreSQL server in DATABASE_URL cannot be used: {_reason(str(error))}") from None
    # A server in the midst of one giant operation, or behind a dead network, does not heed its own timeout.
    cut = threading.Timer(limits.seconds + GRACE, _hang_up, [connection.fileno()])
    cut.daemon = True
    cut.start()
    try:
        yield ReadOnlyTransaction(connection, limits)
    finally:
        cut.cancel()
        cut.join()
        with suppress(psycopg.Error):
            connection.close()


def _hang_up(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connected:
        connected.shutdown(socket.SHUT_RDWR)


def _reason(text: str) -> str:
    """Return why there is no connection, without libpq's words: they may quote parts of a mistyped password."""
    reasons = {
        "password": "it refused the user or the password.",
        "no pg_hba": "its pg_hba.conf does not admit this user from here.",
        "refused": "nothing listens at that host and port. Start it, or correct the URL.",
        "timeout": "it does not answer in time.",
        "translate host": "its host name is unknown.",
        "does not exist": "the database or role does not exist.",
        "too many": "it has no free connections. Try again later.",
        "starting up": "it is still starting. Try again in a moment.",
    }
    return next((reason for sign, reason in reasons.items() if sign in text), "check host, port, user and database.")
