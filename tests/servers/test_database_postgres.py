"""`query_database` and `describe_database` on a real PostgreSQL server, through a real stdio session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import postgres_server
from tests.servers.stdio_client import StdioClient

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")
pytestmark = pytest.mark.skipif(bool(postgres_server.missing()), reason=postgres_server.missing() or "-")

STATE = """
SELECT (SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM employees t),
       (SELECT md5(string_agg(t::text, '|' ORDER BY name)) FROM departments t),
       (SELECT md5(string_agg(oid::text || relname, '|' ORDER BY oid)) FROM pg_class WHERE oid >= 16384),
       (SELECT md5(string_agg(proname || oid, '|' ORDER BY oid)) FROM pg_proc WHERE oid >= 16384),
       (SELECT md5(string_agg(rolname || rolsuper || coalesce(rolpassword, ''), '|' ORDER BY rolname)) FROM pg_authid),
       (SELECT md5(string_agg(extname, '|' ORDER BY extname)) FROM pg_extension),
       (SELECT md5(string_agg(name || setting, '|' ORDER BY name)) FROM pg_file_settings),
       (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_prepared_xacts),
       (SELECT last_value FROM numbers)
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_server.postgres() as found:
        yield found


def _server(url: str, role: str) -> StdioClient:
    settings = {"DATABASE_URL": url.replace("//postgres@", f"//{role}@"), "DATABASE_TIMEOUT": "1.5"}
    return StdioClient("-m", "servers.database", env=settings)


@pytest.fixture(scope="module")
def superuser(url: str) -> Iterator[StdioClient]:
    with _server(url, "postgres") as client:
        yield client


@pytest.fixture(scope="module")
def writer(url: str) -> Iterator[StdioClient]:
    with _server(url, "writer") as client:
        yield client


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT 1;", [[1]]),
        ("SELECT 1 ; -- end", [[1]]),
        ("-- note\nSELECT 1 -- first; then drop", [[1]]),
        ("/* a /* nested */ */ SELECT 'a;b'", [["a;b"]]),
        ("SELECT $$a;b$$", [["a;b"]]),
        ("SELECT E'a\\';b'", [["a';b"]]),
        ("SELECT '\\';", [["\\"]]),
        ("WITH t2 AS (SELECT 1 x) SELECT x FROM t2 ORDER BY x", [[1]]),
        ("VALUES (1), (2)", [[1], [2]]),
        ("TABLE departments", [["Engineering", "Singapore"]]),
        ("(SELECT 1) UNION (SELECT 2) ORDER BY 1", [[1], [2]]),
        ("SELECT 'create and attach the item'", [["create and attach the item"]]),
        ("SELECT avg(salary), sum(salary) FROM employees", [[1500.25, 3000.5]]),
        ("SELECT id FROM employees ORDER BY id DESC", [[2], [1]]),
    ],
)
def test_answers_harmless_queries(writer: StdioClient, sql: str, rows: list[list[Any]]) -> None:
    answer = writer.call("query_database", sql=sql)

    assert not answer.failed, answer.text
    assert answer.data["rows"] == rows


def test_values_survive(superuser: StdioClient) -> None:
    data = superuser.call("query_database", sql="SELECT * FROM employees ORDER BY id").data
    assert data["rows"] == [
        [1, "Ada", "Engineering", 1000.5, "2020-01-02", "(binary, 2 bytes)", ["a", "b"], {"a": 1.5}],
        [2, "Ben", "Engineering", 2000, "infinity", None, None, None],
    ]
    data = superuser.call(
        "query_database",
        sql="SELECT 9223372036854775807 AS a, 1 AS a, 'Infinity'::float8 AS f, 'NaN'::numeric AS n, "
        "1e30::numeric AS big, timestamptz '2026-11-30 12:00+00' AS at, true AS yes, NULL AS missing, "
        "'naïve 日本' AS text",
    ).data
    assert data["columns"] == ["a", "a_2", "f", "n", "big", "at", "yes", "missing", "text"]
    assert data["rows"][0][:5] == [9223372036854775807, 1, "Infinity", "NaN", 10**30]
    assert data["rows"][0][5].startswith("2026-11-30T")
    assert data["rows"][0][6:] == [True, None, "naïve 日本"]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT 1; SELECT 2", "two statements"),
        ("SELECT 1;DROP TABLE employees", "two statements"),
        ("-- only a comment", "empty"),
        ("DELETE FROM employees", "DELETE is not allowed"),
        ("SHOW server_version", "not a query"),
        ("SELECT * FROM nowhere", "describe_database"),
        ("SELECT wrong FROM employees", "describe_database"),
        ("SELECT $1", "parameters"),
        ("SELECT FROM employees", "no columns"),
        ("SELECT 1 +", "PostgreSQL says"),
        ("SELECT 1 / 0", "division by zero"),
        ("SELECT * FROM failing", "division by zero"),
        ("SELECT pg_sleep(60)", "longer than 1.5 s"),
    ],
)
def test_refuses_naming_the_real_reason(writer: StdioClient, sql: str, says: str) -> None:
    assert says in writer.fail("query_database", sql=sql)


ATTACKS = [
    "COPY (SELECT 1) TO '{folder}/new'",
    "COPY (SELECT 1) TO PROGRAM 'touch {folder}/new'",
    "COPY employees FROM PROGRAM 'touch {folder}/new'",
    "VACUUM FULL employees",
    "SET default_transaction_read_only = off",
    "SET TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "RESET ROLE",
    "BEGIN READ WRITE",
    "COMMIT",
    "ROLLBACK; DELETE FROM employees",
    "SELECT 1; COMMIT; DELETE FROM employees",
    "SELECT ';'; DELETE FROM employees",
    "SELECT $$;$$; DELETE FROM employees",
    "SELECT E'\\''; DELETE FROM employees --'",
    "SELECT 1) AS question OFFSET 0) AS answer(c1); DELETE FROM employees; --",
    "SELECT 1) AS q; COMMIT; DELETE FROM employees; SELECT * FROM (SELECT 1",
    "DELETE FROM employees RETURNING *",
    "/* x */ dElEtE FROM employees",
    "/* /* */ DELETE FROM employees */ DELETE FROM employees",
    "WITH d AS (DELETE FROM employees RETURNING *) SELECT * FROM d",
    "WITH i AS (INSERT INTO departments VALUES ('x') RETURNING *) SELECT * FROM i",
    "WITH x AS (SELECT 1) UPDATE employees SET salary = 0",
    "EXPLAIN ANALYZE DELETE FROM employees",
    "INSERT INTO departments VALUES ('x', 'y')",
    "UPDATE pg_class SET relname = 'x' WHERE relname = 'employees'",
    "TRUNCATE employees",
    "DROP TABLE employees CASCADE",
    "CREATE TABLE n(a int)",
    "CREATE TEMP TABLE n AS SELECT 1",
    "SELECT * INTO n FROM employees",
    "CREATE EXTENSION adminpack",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER ROLE writer SUPERUSER",
    "ALTER SYSTEM SET work_mem = '1GB'",
    "LOAD 'auto_explain'",
    "DO $$ BEGIN DELETE FROM employees; END $$",
    "CALL nothing()",
    "PREPARE p AS DELETE FROM employees",
    "EXECUTE question",
    "DEALLOCATE ALL",
    "LOCK TABLE employees",
    "NOTIFY x",
    "SELECT * FROM employees FOR UPDATE",
    "SELECT nextval('numbers')",
    "SELECT setval('numbers', 99)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '{folder}/new')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_reload_conf()",
    "SELECT pg_create_restore_point('x')",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('role', 'none', true), lo_export(1, '{folder}/new')",
    "SELECT query_to_xml('DELETE FROM employees', true, true, '')",
    "SELECT query_to_xml('COPY (SELECT 1) TO ''{folder}/new''', true, true, '')",
    "SELECT * FROM pg_create_physical_replication_slot('x')",
]


@pytest.mark.parametrize("role", ["superuser", "writer"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_changes_anything(
    request: pytest.FixtureRequest, url: str, role: str, attack: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    client: StdioClient = request.getfixturevalue(role)
    with psycopg.connect(url, autocommit=True) as witness:
        before = witness.execute(STATE).fetchone()
        assert before is not None

        assert client.fail("query_database", sql=attack.replace("{folder}", str(tmp_path)))

        assert witness.execute(STATE).fetchone() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT set_config('role', 'none', true), query_to_xml('select pg_read_file(''/x'')', true, true, '')",
        "SELECT \"set_config\"('session_authorization', 'postgres', true)",
        "SELECT U&\"\\0073et_config\"('role', 'none', true)",
        "SELECT query_to_xml('select set_' || 'config(''role'', ''none'', true)', true, true, '')",
        "SELECT * FROM ts_stat('select set_con' || 'fig(''role'', ''none'', true)::tsvector')",
    ],
)
def test_a_superuser_cannot_take_its_powers_back(superuser: StdioClient, sql: str) -> None:
    assert "superuser" in superuser.fail("query_database", sql=sql)
    assert superuser.call("query_database", sql="SELECT current_user").data["rows"] == [["pg_read_all_data"]]


@pytest.mark.parametrize("sql", ["SELECT lo_create(0)", "SELECT lo_from_bytea(0, 'x')", "SELECT pg_notify('x', 'y')"])
def test_what_read_only_lets_through_is_rolled_back(url: str, writer: StdioClient, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as witness:
        witness.execute("LISTEN x")
        before = witness.execute(STATE).fetchone()

        assert writer.call("query_database", sql=sql).text  # older servers answer it, newer ones refuse

        assert witness.execute(STATE).fetchone() == before
        assert list(witness.notifies(timeout=0, stop_after=1)) == []


BOMBS = [
    "SELECT repeat('x', 1000000000)",
    "SELECT lpad('x', 100000000)",
    "SELECT string_agg(repeat('x', 100000), '') FROM generate_series(1, 5000)",
    "SELECT array_agg(n) FROM generate_series(1, 5000000) n",
    "SELECT repeat('x', 100000) FROM generate_series(1, 100000)",
    "SELECT decode(repeat('00', 10000000), 'hex') FROM generate_series(1, 100)",
    "SELECT jsonb_agg(repeat('x', 1000)) FROM generate_series(1, 50000)",
    "SELECT " + ", ".join(f"repeat('x', 100000) AS c{number}" for number in range(1000)),
    "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM r) SELECT x FROM r",
    "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
    "SELECT set_config('statement_timeout', '0', false), pg_sleep(60)",
    "SELECT 9999999999 ^ 9999999999",
    "SELECT factorial(100000)",
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb[:60])
def test_no_bomb_takes_the_server_along(writer: StdioClient, bomb: str) -> None:
    answer = writer.call("query_database", sql=bomb)

    assert len(answer.text) < 1_001_000
    assert writer.call("query_database", sql="SELECT 1").data["rows"] == [[1]]
    assert writer.memory < 300_000_000


def test_the_same_limits_hold(writer: StdioClient) -> None:
    data = writer.call("query_database", sql="SELECT * FROM generate_series(1, 501)").data
    assert (data["row_count"], data["truncated"]) == (500, True)
    data = writer.call("query_database", sql="SELECT n, repeat('x', 40000) FROM generate_series(1, 100) n").data
    assert (data["row_count"], data["truncated"]) == (24, True)
    data = writer.call("query_database", sql="SELECT repeat('x', 400000)").data
    assert data["rows"][0][0].endswith("x… (shortened)")


def test_a_locked_table_is_called_busy(url: str, writer: StdioClient) -> None:
    with psycopg.connect(url) as locker:
        locker.execute("LOCK TABLE departments IN ACCESS EXCLUSIVE MODE")
        assert "busy" in writer.fail("query_database", sql="SELECT * FROM departments")
    assert writer.call("query_database", sql="SELECT count(*) FROM departments").data["rows"] == [[1]]


def test_describes_what_the_role_may_read_and_warns_when_it_may_write(url: str, superuser: StdioClient) -> None:
    data = superuser.call("describe_database").data

    tables = {table["name"]: table for table in data["tables"]}
    assert set(tables) == {"departments", "employees", "failing", "other.Odd name"}
    assert tables["employees"]["row_count"] == 2
    assert {"name": "department", "type": "text", "references": "departments.name"} in tables["employees"]["columns"]
    assert {"name": "id", "type": "integer", "primary_key": True, "not_null": True} in tables["employees"]["columns"]
    assert tables["employees"]["sample_rows"][0][:2] == [1, "Ada"]
    assert "division by zero" in tables["failing"]["note"]
    assert tables["failing"]["row_count"] == 2
    assert tables["other.Odd name"]["columns"] == [{"name": "a column", "type": "integer"}]
    assert "superuser" in data["warning"]
    with _server(url, "reader") as reader:
        data = reader.call("describe_database").data
        assert {table["name"] for table in data["tables"]} == {"departments", "employees"}
        assert "warning" not in data
        assert reader.stderr == []
    with _server(url, "writer") as client:
        assert "may write" in client.call("describe_database").data["warning"]


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ("guarded:wr0ng-secret@", "refused the user or the password"),
        ("nobody-of-that-name:s3cret@", "does not exist"),
        ("guarded:p@ss:w0rd/secret@", "cannot be used"),
        ("guarded:s3cret%zz@", "no valid PostgreSQL URL"),
    ],
)
def test_a_refused_login_never_shows_the_password(url: str, login: str, says: str) -> None:
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": url.replace("postgres@", login)}) as client:
        sentence = client.fail("query_database", sql="SELECT 1")

    assert says in sentence
    shown = sentence + b"".join(client.stderr).decode()
    for secret in ("secret", "s3cret", "w0rd", "ss:w"):
        assert secret not in shown


def test_the_right_password_works(url: str) -> None:
    good = url.replace("postgres@", "guarded:correct-horse@").replace("postgresql://", "postgresql+psycopg://")
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": good}) as client:
        assert client.call("query_database", sql="SELECT current_user").data["rows"] == [["guarded"]]


def test_a_server_that_is_down_is_named_as_such() -> None:
    nobody = "postgresql://u:geheim@127.0.0.1:1/x"
    with StdioClient("-m", "servers.database", env={"DATABASE_URL": nobody}) as client:
        sentence = client.fail("query_database", sql="SELECT 1")

    assert "nothing listens" in sentence
    assert "geheim" not in sentence
