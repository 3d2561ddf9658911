"""Looks at a statement before the database does, only to refuse it in words that help.

Nothing here protects the data: sqlite.py and postgres.py do, by means of the database itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from servers.sql.limits import QueryError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

Dialect = Literal["sqlite", "postgres"]

MAX_LENGTH = 50_000

_QUERY_WORDS = {
    "sqlite": ("SELECT", "WITH", "VALUES", "EXPLAIN", "PRAGMA"),
    "postgres": ("SELECT", "WITH", "VALUES", "TABLE"),
}
_CHANGES = """
    ALTER ANALYZE ATTACH BEGIN CALL CLUSTER COMMENT COMMIT COPY CREATE DELETE DETACH DISCARD DO DROP EXECUTE GRANT
    IMPORT INSERT LISTEN LOAD LOCK MERGE NOTIFY PREPARE REASSIGN REFRESH REINDEX REPLACE RESET REVOKE ROLLBACK
    SAVEPOINT SECURITY SET START TRUNCATE UPDATE VACUUM
"""
_WRITE_WORDS = frozenset(_CHANGES.split())
_MAIN_VERBS = frozenset({"SELECT", "VALUES", "INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"})
_EXPLAIN = re.compile(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\s+(?:query\s+plan\b)?", re.IGNORECASE | re.DOTALL)


def one_query(sql: str, dialect: Dialect) -> str:
    """Return the single statement in `sql`, without a closing semicolon and what follows it.

    Raises QueryError saying what is wrong: empty, too long, two statements, a write, or not a query.
    """
    if len(sql) > MAX_LENGTH:
        raise QueryError(f"The SQL has {len(sql):,} characters and {MAX_LENGTH:,} are allowed: send a shorter query.")
    if "\0" in sql:
        raise QueryError("The SQL contains a NUL character: remove it.")
    tokens = _tokens(sql, dialect)
    if tokens is None:  # the database words its own syntax errors well
        return sql.strip().rstrip(";")
    words = [index for index, token in enumerate(tokens) if token.token_type.name != "SEMICOLON"]
    if not words:
        raise QueryError("The SQL is empty or only a comment: send one SELECT statement.")
    first, last = words[0], words[-1]
    if last - first + 1 > len(words):
        raise QueryError("The SQL contains two statements: send one statement per call, without ';' between.")
    _refuse_writes(tokens[first : last + 1], dialect)
    return sql[tokens[first].start if first else 0 : tokens[last].end + 1]


def _tokens(sql: str, dialect: Dialect) -> list[Token] | None:
    """Return the tokens outside of comments, None when there is an open quote or the like."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    if dialect == "sqlite":
        # sqlglot does not look inside of EXPLAIN: behind blanks of the same length it reads on.
        sql = _EXPLAIN.sub(lambda match: " " * len(match[0]), sql)
    try:
        return list(sqlglot.tokenize(sql, read=dialect))
    except (SqlglotError, RecursionError):
        return None


def _refuse_writes(words: list[Token], dialect: Dialect) -> None:
    verb = _verb(words)
    allowed = _QUERY_WORDS[dialect]
    if verb in allowed or (verb == "(" and dialect == "postgres"):
        return
    if verb in _WRITE_WORDS:
        raise QueryError(f"This database is read-only and {verb} is not allowed: send one SELECT statement.")
    raise QueryError(f"This is not a query, it begins with {verb[:20]!r}: send one statement that begins with SELECT.")


def _verb(words: list[Token]) -> str:
    """Return the word that says what the statement does; after WITH that is the first one outside of brackets."""
    first = words[0].text.upper()
    if first != "WITH":
        return first
    depth = 0
    for token in words[1:]:
        depth += (token.token_type.name == "L_PAREN") - (token.token_type.name == "R_PAREN")
        if depth == 0 and token.token_type.name in _MAIN_VERBS:
            return token.text.upper()
    return first
