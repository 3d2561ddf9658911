"""The tables of a PostgreSQL database that the role may read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from servers.sql.limits import QueryError
from servers.sql.postgres import ReadOnlyTransaction
from servers.sql.schema import MAX_TABLES, SAMPLE_ROWS, SECONDS_PER_COUNT, Column, Table, column, sample

_KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table"}
_TABLES = f"""
SELECT c.oid::text, n.nspname::text, c.relname::text, c.relkind::text,
       quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname <> 'public', 2, 3 LIMIT {MAX_TABLES + 1}
"""
_COLUMNS = """
SELECT a.attrelid::text, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull::int::text,
       (SELECT count(*) FROM pg_catalog.pg_constraint p
        WHERE p.conrelid = a.attrelid AND p.contype = 'p' AND a.attnum = ANY (p.conkey))::text,
       (SELECT f.confrelid::regclass::text || '.' || r.attname
        FROM pg_catalog.pg_constraint f
        JOIN pg_catalog.pg_attribute r ON r.attrelid = f.confrelid
             AND r.attnum = f.confkey[array_position(f.conkey, a.attnum)]
        WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey) LIMIT 1)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (ARRAY[{oids}]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


def tables(transaction: ReadOnlyTransaction) -> Iterator[Table]:
    """Yield every readable table and view with its columns, row count and three rows. Raises QueryError."""
    found = transaction.read(_TABLES)
    columns = _columns(transaction, [row[0] for row in found])
    for oid, schema, name, kind, quoted in found:
        yield _table(transaction, name if schema == "public" else f"{schema}.{name}", kind, quoted, columns[oid])


def _columns(transaction: ReadOnlyTransaction, oids: list[str]) -> dict[str, list[Column]]:
    columns: dict[str, list[Column]] = defaultdict(list)
    # The identifiers are the server's own numbers.
    for oid, name, kind, not_null, in_key, references in transaction.read(_COLUMNS.format(oids=",".join(oids))):
        columns[oid].append(
            column(name, kind, primary_key=in_key != "0", not_null=not_null == "1", references=references)
        )
    return columns


def _table(transaction: ReadOnlyTransaction, name: str, kind: str, quoted: str, columns: list[Column]) -> Table:
    table: Table = {
        "name": name,
        "kind": _KINDS.get(kind, kind),
        "columns": columns,
        "row_count": None,
        "sample_rows": [],
    }
    try:
        with transaction.aside(SECONDS_PER_COUNT):
            table["sample_rows"] = sample(transaction.run(f"SELECT * FROM {quoted} LIMIT {SAMPLE_ROWS}")[1])
    except QueryError as error:
        table["note"] = str(error)  # a view that fails, say: the others are still worth hearing about
    try:
        with transaction.aside(SECONDS_PER_COUNT):
            table["row_count"] = int(transaction.read(f"SELECT count(*) FROM {quoted}")[0][0])
    except QueryError:
        table["row_count"] = None
    return table
