"""`query_database` and `describe_database` on SQLite, through a real stdio session, asked well, badly and in malice."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from servers.sql.limits import Limits
from tests.servers.stdio_client import StdioClient

SCHEMA = """
CREATE TABLE t(name, update_date, "delete", [drop]);
INSERT INTO t VALUES ('a name', '2026-11-30', 1, 2), ('b', NULL, 3, 4);
CREATE TABLE posts(body);
INSERT INTO posts VALUES ('50% off; today'), ('nothing');
CREATE VIRTUAL TABLE notes USING fts5(body);
INSERT INTO notes VALUES ('hello world');
CREATE TABLE big(data BLOB);
INSERT INTO big VALUES (zeroblob(3000000));
CREATE VIEW broken AS SELECT * FROM missing;
CREATE TABLE numbers(n INTEGER PRIMARY KEY);
INSERT INTO numbers WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 2000) SELECT x FROM r;
"""


class Database:
    """A database file, a server that reads it, and proof that nothing else happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(SCHEMA)
        self.files = self._files()
        settings = {"DATABASE_URL": f"sqlite:///{path}", "DATABASE_TIMEOUT": "1.5"}
        self.client = StdioClient("-m", "servers.database", env=settings)

    def _files(self) -> dict[str, str]:
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in self.path.parent.iterdir()}

    def unchanged(self) -> bool:
        """Whether the file's hash is the same and no new file stands beside it."""
        return self._files() == self.files

    def rows(self, sql: str) -> list[list[Any]]:
        answer = self.client.call("query_database", sql=sql)
        assert not answer.failed, answer.text
        rows: list[list[Any]] = answer.data["rows"]
        return rows

    def refused(self, sql: str) -> str:
        return self.client.fail("query_database", sql=sql)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    found = Database(tmp_path_factory.mktemp("sqlite") / "shop.db")
    with found.client:
        yield found


HARMLESS = [
    ("-- note\nSELECT 1", [[1]]),
    ("/* a */ SELECT 1", [[1]]),
    ("WITH t2 AS (SELECT 1 x) SELECT x FROM t2", [[1]]),
    ("VALUES(1)", [[1]]),
    ("PRAGMA table_info(posts)", [[0, "body", "", 0, None, 0]]),
    ("SELECT name FROM pragma_table_info('posts')", [["body"]]),
    ("SELECT 1;", [[1]]),
    ("SELECT 1 ; -- end", [[1]]),
    ("SELECT 'a;b'", [["a;b"]]),
    ("SELECT count(*) FROM posts WHERE body LIKE '%;%'", [[1]]),
    ("SELECT 'create and attach the item'", [["create and attach the item"]]),
    ('SELECT update_date, "delete", [drop] FROM t', [["2026-11-30", 1, 2], [None, 3, 4]]),
    ("SELECT replace(name,'a','b') FROM t", [["b nbme"], ["b"]]),
    ("SELECT 1 -- first; then drop", [[1]]),
    ("SELECT 'it''s; DROP TABLE t'", [["it's; DROP TABLE t"]]),
    ("SELECT * FROM notes WHERE notes MATCH 'hello'", [["hello world"]]),
    ("SELECT value FROM json_each('[1, 2]')", [[1], [2]]),
    ("WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 3) SELECT sum(x) FROM r", [[6]]),
    ("SELECT length(data) FROM big", [[3000000]]),
    ("SELECT instr('hello', 'l'), instr('hello', 'z'), instr(NULL, 'l')", [[3, 0, None]]),
    (
        "SELECT trim('xxhixx', 'x'), ltrim('xxhi', 'x'), rtrim('hixx', 'x'), trim('  hi ')",
        [["hi", "hi", "hi", "hi"]],
    ),
    ("SELECT replace(2.0, '.', ','), replace('a', '', 'b'), replace(NULL, 'a', 'b')", [["2,0", "a", None]]),
]


@pytest.mark.parametrize(("sql", "rows"), HARMLESS)
def test_answers_harmless_queries(database: Database, sql: str, rows: list[list[Any]]) -> None:
    assert database.rows(sql) == rows


@pytest.mark.parametrize("sql", ["explain query plan select 1", "/* ; */ EXPLAIN QUERY PLAN SELECT ';' ; -- x"])
def test_explains_a_query_plan(database: Database, sql: str) -> None:
    assert database.rows(sql)[0][3] == "SCAN CONSTANT ROW"


REFUSALS = [
    ("SELECT 1; SELECT 2", "two statements"),
    ("SELECT 1;DROP TABLE t", "two statements"),
    ("SELECT '--'\n; DELETE FROM t", "two statements"),
    ("", "empty"),
    (";", "empty"),
    ("-- only a comment", "empty"),
    ("/* only a comment */ ;", "empty"),
    ("/* x */ DELETE FROM t", "DELETE is not allowed"),
    ("WITH x AS (SELECT 1) DELETE FROM t", "DELETE is not allowed"),
    ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM t", "INSERT is not allowed"),
    ("EXPLAIN DELETE FROM t", "DELETE is not allowed"),
    ("ATTACH 'x.db' AS y", "ATTACH is not allowed"),
    ("VACUUM INTO 'y.db'", "VACUUM is not allowed"),
    ("PRAGMA journal_mode=DELETE", "PRAGMA journal_mode"),
    ("SELECT load_extension('x')", "load_extension"),
    ("hello", "not a query"),
    ("what is the average salary?", "not a query"),
    ("SELECT * FROM nowhere", "describe_database"),
    ("SELECT salary FROM t", "describe_database"),
    ("SELECT", "SQLite says"),
    ("SELECT 'open", "SQLite says"),
    ("SELECT ?", "parameters"),
    ("SELECT data FROM big", "larger than"),
    ("SELECT '\0'", "NUL"),
    ("SELECT " + "1," * 40_000 + "1", "send a shorter query"),
]


@pytest.mark.parametrize(("sql", "says"), REFUSALS, ids=lambda text: repr(text[:40]))
def test_refuses_naming_the_real_reason(database: Database, sql: str, says: str) -> None:
    assert says in database.refused(sql)
    assert database.unchanged()


ATTACKS = [
    "ATTACH DATABASE '{folder}/new.db' AS n",
    "ATTACH ':memory:' AS n",
    "SELECT 1; ATTACH '{folder}/new.db' AS n",
    "VACUUM",
    "VACUUM INTO '{folder}/copy.db'",
    "/**/VACUUM/**/INTO/**/'{folder}/copy.db'",
    "PRAGMA query_only=0",
    "PRAGMA query_only(0)",
    "PRAGMA main.query_only=OFF",
    "PRAGMA writable_schema=1",
    "PRAGMA writable_schema=RESET",
    "PRAGMA journal_mode=WAL",
    "PRAGMA journal_mode=OFF",
    "PRAGMA temp_store_directory='{folder}'",
    "PRAGMA hard_heap_limit=0",
    "PRAGMA user_version=7",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA optimize",
    "PRAGMA page_size=1024",
    "PRAGMA data_version=1",
    "SELECT * FROM pragma_query_only",
    "SELECT * FROM pragma_writable_schema(1)",
    "UPDATE sqlite_master SET sql = ''",
    "INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, '')",
    "DELETE FROM t",
    "dElEtE/**/FROM t RETURNING *",
    "-- x\nDELETE FROM t",
    "REPLACE INTO t VALUES (1, 2, 3, 4)",
    "INSERT INTO notes(notes) VALUES ('optimize')",
    "WITH x AS (SELECT 1) UPDATE t SET name = 1",
    "WITH x AS (SELECT 1) REPLACE INTO t VALUES (1, 2, 3, 4)",
    "CREATE TABLE n(a)",
    "CREATE TEMP TABLE n AS SELECT 1",
    "CREATE VIRTUAL TABLE n USING fts5(a)",
    "DROP TABLE t",
    "ALTER TABLE t ADD COLUMN x",
    "REINDEX",
    "ANALYZE",
    "BEGIN IMMEDIATE",
    "SAVEPOINT s",
    "COMMIT",
    "SELECT load_extension('{folder}/x.so')",
    "SELECT Load_Extension('{folder}/x.so', 'y')",
    "SELECT \"load_extension\"('x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT writefile('{folder}/new', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x', 'vi')",
    "SELECT 1\u0000; DELETE FROM t",
    "\ufeffDELETE FROM t",
    "EXPLAIN DELETE FROM t",
    "SELECT 1 UNION SELECT 2; DELETE FROM t --",
    "SELECT ';' ; DELETE FROM t",
    'SELECT ";" ; DELETE FROM t',
    "SELECT [;] ; DELETE FROM t",
    "SELECT `;` ; DELETE FROM t",
    "SELECT 'x' /* ; */ ; DELETE FROM t",
    "SELECT 'x\\' ; DELETE FROM t --'",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_changes_anything(database: Database, attack: str) -> None:
    before = set(os.listdir("/tmp"))
    answer = database.client.call("query_database", sql=attack.format(folder=database.path.parent))

    assert answer.failed or attack == "SELECT 'x\\' ; DELETE FROM t --'", answer.text
    assert database.unchanged()
    assert database.rows("SELECT count(*) FROM t") == [[2]]
    assert not {name for name in set(os.listdir("/tmp")) - before if "sqlite" in name or "etilqs" in name}


BOMBS = [
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r ORDER BY x DESC",
    "WITH RECURSIVE r(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM r) SELECT * FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT group_concat(hex(randomblob(999))) FROM r",
    "SELECT count(*) FROM numbers a, numbers b, numbers c, numbers d",
    "SELECT zeroblob(1000000000)",
    "SELECT randomblob(1000000000)",
    "SELECT hex(zeroblob(900000))",
    "SELECT printf('%1000000000d', 1)",
    "SELECT format('%.1000000000f', 1)",
    "SELECT printf('%.*c%.*c', 2000000000, 'x', 2000000000, 'x')",
    "SELECT format('" + "%.999999c" * 5_000 + "', 'x')",
    "SELECT printf('%-*.*c', 1, '2000000000', 'x')",
    "SELECT replace(hex(zeroblob(400000)), '0', hex(zeroblob(1000)))",
    "SELECT replace(hex(zeroblob(490000)), hex(zeroblob(240000)) || '1', '')",
    "SELECT instr(hex(zeroblob(490000)), hex(zeroblob(240000)) || '1') FROM numbers",
    "SELECT trim(hex(zeroblob(490000)), hex(zeroblob(400000)))",
    "SELECT group_concat(hex(zeroblob(400000))) FROM numbers",
    "SELECT a.n, b.n, c.n FROM numbers a, numbers b, numbers c ORDER BY a.n * b.n * c.n",
    "SELECT json_group_array(hex(zeroblob(400000))) FROM numbers",
    "SELECT hex(zeroblob(490000)) LIKE '%' || replace('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 'x', '0%') || '1' FROM numbers",
    "SELECT hex(zeroblob(490000)) GLOB '*' || replace('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx', 'x', '0*') || '1' FROM numbers",
    "SELECT trim(hex(zeroblob(490000)), '0') FROM numbers",
    "SELECT * FROM t WHERE name LIKE replace(hex(zeroblob(1000)), '0', '%')",
    "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
    "SELECT " + "+".join(["1"] * 20_000),
    " UNION ALL ".join(["SELECT 1"] * 3_000),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:60])
def test_no_bomb_takes_the_server_along(database: Database, bomb: str) -> None:
    answer = database.client.call("query_database", sql=bomb)

    assert len(answer.text) < 1_001_000
    assert database.rows("SELECT 1") == [[1]]
    assert database.client.memory < 300_000_000
    assert database.unchanged()


@pytest.mark.parametrize("bomb", [bomb for bomb in BOMBS if "999c" in bomb or "*c" in bomb], ids=lambda bomb: bomb[:60])
def test_a_width_is_refused_before_it_is_counted_to(database: Database, bomb: str) -> None:
    began = time.monotonic()
    assert "larger than 1,000,000 bytes" in database.refused(bomb)
    assert time.monotonic() - began < 1


def test_printf_is_still_sqlites_own(database: Database) -> None:
    sql = "SELECT printf('%05.1f|%,d|%-*s|%q|%%', 2.25, 12345678, 4, 'a', 'it''s'), format('%s', NULL), printf(NULL)"
    assert database.rows(sql) == [["002.3|12,345,678|a   |it''s|%", "", None]]


def test_an_endless_query_is_stopped_after_5_seconds_by_default() -> None:
    assert Limits.from_environment({}) == Limits(rows=500, size=1_000_000, seconds=5.0)


def test_an_endless_query_is_stopped_at_the_limit(database: Database) -> None:
    assert "longer than 1.5 s" in database.refused(BOMBS[0])


def test_at_most_500_rows_come_back(database: Database) -> None:
    data = database.client.call("query_database", sql="SELECT n FROM numbers").data

    assert (data["row_count"], len(data["rows"]), data["truncated"]) == (500, 500, True)
    assert "first 500" in data["note"]
    data = database.client.call("query_database", sql="SELECT n FROM numbers LIMIT 500").data
    assert (data["row_count"], data["truncated"]) == (500, False)


def test_at_most_one_megabyte_comes_back(database: Database) -> None:
    answer = database.client.call("query_database", sql="SELECT n, hex(zeroblob(20000)) FROM numbers LIMIT 100")

    assert answer.data["truncated"] is True
    assert answer.data["row_count"] == 24
    assert len(answer.text) <= 1_000_200


def test_values_survive(database: Database) -> None:
    data = database.client.call(
        "query_database",
        sql="SELECT 9223372036854775807 big, 1 a, 2 a, 3 a, NULL missing, x'00ff' data, 9e999 high, -9e999 low, "
        "CAST(x'61ff62' AS TEXT) odd, 'naïve 日本' text, 1.5 real",
    ).data

    assert data["columns"] == ["big", "a", "a_2", "a_3", "missing", "data", "high", "low", "odd", "text", "real"]
    assert data["rows"] == [
        [
            *(9223372036854775807, 1, 2, 3, None, "(binary, 2 bytes)", "Infinity", "-Infinity", "a\ufffdb"),
            *("naïve 日本", 1.5),
        ]
    ]


def test_describes_tables_views_and_odd_ones(database: Database) -> None:
    data = database.client.call("describe_database").data

    tables = {table["name"]: table for table in data["tables"]}
    assert data["database"] == "SQLite"
    assert set(tables) == {"t", "posts", "notes", "big", "broken", "numbers"}
    assert tables["t"]["row_count"] == 2
    assert [column["name"] for column in tables["t"]["columns"]] == ["name", "update_date", "delete", "drop"]
    assert tables["t"]["sample_rows"] == [["a name", "2026-11-30", 1, 2], ["b", None, 3, 4]]
    assert tables["numbers"]["columns"] == [{"name": "n", "type": "INTEGER", "primary_key": True}]
    assert tables["numbers"]["sample_rows"] == [[1], [2], [3]]
    assert tables["big"]["sample_rows"] == [["(3000000 long)"]]
    assert "missing" in tables["broken"]["note"]
    assert database.unchanged()


def test_the_demo_company_is_made_on_first_use(tmp_path: Path) -> None:
    with StdioClient("-m", "servers.database", env={"VOICE_BRIDGE_DATA": str(tmp_path), "DATABASE_URL": ""}) as client:
        assert list(tmp_path.iterdir()) == []
        engineering = "SELECT count(*), sum(salary), avg(salary) FROM employees WHERE department = 'Engineering'"
        assert client.call("query_database", sql=engineering).data["rows"] == [[5, 708000, 141600]]
        tables = {table["name"]: table for table in client.call("describe_database").data["tables"]}

    assert {name: table["row_count"] for name, table in tables.items()} == {"departments": 4, "employees": 12}
    assert {"name": "department", "type": "TEXT", "not_null": True, "references": "departments.name"} in tables[
        "employees"
    ]["columns"]
    assert [file.name for file in tmp_path.iterdir()] == ["demo.sqlite3"]


def test_a_locked_database_is_waited_for_and_then_called_busy(tmp_path: Path) -> None:
    path = tmp_path / "locked.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        with StdioClient(
            "-m", "servers.database", env={"DATABASE_URL": str(path), "DATABASE_TIMEOUT": "0.5"}
        ) as client:
            writer.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            assert "busy" in client.fail("query_database", sql="SELECT * FROM t")
            assert time.monotonic() - began < 0.9, "it waited twice"
            writer.execute("COMMIT")
            assert client.call("query_database", sql="SELECT * FROM t").data["rows"] == [[1]]


def test_limits_are_settable_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("CREATE TABLE n(a); INSERT INTO n VALUES (1), (2), (3)")
    url = {"DATABASE_URL": str(path)}
    with StdioClient("-m", "servers.database", env={**url, "DATABASE_MAX_ROWS": "2"}) as client:
        assert client.call("query_database", sql="SELECT * FROM n").data["row_count"] == 2
    with StdioClient("-m", "servers.database", env={**url, "DATABASE_MAX_BYTES": "many"}) as client:
        assert "DATABASE_MAX_BYTES is 'many'" in client.fail("query_database", sql="SELECT 1")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:////nowhere/at/all.db", "does not exist"),
        ("/nowhere/at/all.db", "does not exist"),
        ("mysql://user:geheim@host/db", "mysql://, which is not supported"),
        ("postgres//user:geheim@host/db", "write sqlite:///path or postgresql://"),
        ("/etc/passwd", "no SQLite database"),
        ("/tmp", "does not exist"),
    ],
)
def test_a_wrong_url_is_explained_when_it_is_used(url: str, says: str) -> None:
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": url}) as client:
        for sentence in (client.fail("query_database", sql="SELECT 1"), client.fail("describe_database")):
            assert says in sentence
            assert "geheim" not in sentence


@pytest.fixture
def readonly(tmp_path: Path) -> Iterator[Path]:
    """A folder that a test may make read-only."""
    yield tmp_path
    tmp_path.chmod(0o755)


def _unprivileged(url: Path) -> StdioClient:
    """A server that cannot write where the mode forbids it, as root otherwise could."""
    command = [sys.executable, "-m", "servers.database"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write anywhere, and there is no setpriv to change that")
        command = ["setpriv", "--bounding-set=-dac_override", *command]
    return StdioClient(command=command, env={"DATABASE_URL": str(url)})


def _wal_database(folder: Path) -> Path:
    path = folder / "wal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES (1)")
    path.chmod(0o444)
    return path


def test_a_wal_database_in_a_read_only_folder_is_read(readonly: Path) -> None:
    folder = readonly
    path = _wal_database(folder)
    folder.chmod(0o555)
    with _unprivileged(path) as client:
        assert client.call("query_database", sql="SELECT * FROM t").data["rows"] == [[1]]
    assert [file.name for file in folder.iterdir()] == ["wal.db"]


def test_a_wal_database_at_rest_is_read_without_a_trace(tmp_path: Path) -> None:
    path = _wal_database(tmp_path)
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": str(path)}) as client:
        assert client.call("query_database", sql="SELECT * FROM t").data["rows"] == [[1]]
        assert client.call("describe_database").data["tables"][0]["row_count"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["wal.db"]


def test_a_wal_that_cannot_be_read_is_explained(readonly: Path) -> None:
    folder = readonly
    path = _wal_database(folder)
    path.chmod(0o644)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        shutil.copy(path, folder / "copy.db")
        shutil.copy(f"{path}-wal", folder / "copy.db-wal")
    folder.chmod(0o555)
    with _unprivileged(folder / "copy.db") as client:
        assert "unfinished changes in copy.db-wal" in client.fail("query_database", sql="SELECT * FROM t")


def test_an_interrupted_write_is_explained_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript("PRAGMA cache_size=5; CREATE TABLE t(a)")
        writer.execute(
            "INSERT INTO t WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT 20000) "
            "SELECT hex(zeroblob(50)) FROM r"
        )
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET a = 'half done'")
        for name in ("shop.db", "shop.db-journal"):
            shutil.copy(tmp_path / name, tmp_path / name.replace("shop", "crashed"))
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": str(tmp_path / "crashed.db")}) as client:
        assert "unfinished changes in crashed.db-journal" in client.fail("query_database", sql="SELECT * FROM t")


def test_the_missing_driver_is_told_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    settings = {"DATABASE_URL": "postgresql://u:geheim@127.0.0.1/x", "PYTHONPATH": str(tmp_path)}
    with StdioClient("-m", "servers.database", env=settings) as client:
        assert 'pip install "mcp-voice-bridge[postgres]"' in client.fail("query_database", sql="SELECT 1")


def test_a_wal_database_in_use_is_read_with_its_latest_changes(tmp_path: Path) -> None:
    path = _wal_database(tmp_path)
    path.chmod(0o644)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        with StdioClient("-m", "servers.database", env={"DATABASE_URL": str(path)}) as client:
            assert client.call("query_database", sql="SELECT a FROM t").data["rows"] == [[1], [2]]


def test_nothing_heavy_is_imported_before_the_first_call(tmp_path: Path) -> None:
    heavy = ("sqlite3", "sqlglot", "psycopg", "babel", "anthropic", "chromadb", "torch")
    check = (
        "import sys, servers.math_evaluator, servers.clock, servers.identifiers, servers.database, servers.toolserver; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
