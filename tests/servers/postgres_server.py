"""A real PostgreSQL server on a free loopback port, in a folder of its own, gone after the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCHEMA = """
CREATE TABLE departments(name text PRIMARY KEY, city text);
CREATE TABLE employees(
    id int PRIMARY KEY, name text NOT NULL, department text REFERENCES departments(name), salary numeric(10, 2),
    hired date, photo bytea, tags text[], extra jsonb);
INSERT INTO departments VALUES ('Engineering', 'Singapore');
INSERT INTO employees VALUES
    (1, 'Ada', 'Engineering', 1000.50, '2020-01-02', '\\x00ff', '{a,b}', '{"a": 1.5}'),
    (2, 'Ben', 'Engineering', 2000, 'infinity', NULL, NULL, NULL);
CREATE VIEW failing AS SELECT 1 / (id - id) AS broken FROM employees;
CREATE SCHEMA other;
CREATE TABLE other."Odd name"("a column" int);
CREATE SEQUENCE numbers;
CREATE ROLE writer LOGIN;
GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO writer;
GRANT CREATE ON SCHEMA public TO writer;
CREATE ROLE reader LOGIN;
GRANT SELECT ON employees, departments TO reader;
CREATE ROLE guarded LOGIN PASSWORD 'correct-horse';
"""


def missing() -> str:
    """Return why there can be no server here, or nothing."""
    if os.environ.get("POSTGRES_TEST_URL"):
        return ""
    if _binaries() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql) and POSTGRES_TEST_URL not set"
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        return "PostgreSQL does not run as root, and there is no runuser"
    return ""


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server with SCHEMA and yield a superuser's URL; POSTGRES_TEST_URL names an empty one to use instead."""
    import psycopg

    if given := os.environ.get("POSTGRES_TEST_URL"):
        with psycopg.connect(given, autocommit=True) as connection:
            connection.execute(SCHEMA.encode())
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="postgres-test-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        with _running(folder) as url:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SCHEMA.encode())
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    data = folder / "data"
    _run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync")
    rules = data / "pg_hba.conf"
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    _run("pg_ctl", "-D", data, "-w", "-t", "60", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        _run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def _run(program: str, *arguments: str | Path) -> None:
    binaries = _binaries()
    assert binaries is not None
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*as_user, binaries / program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
        timeout=120,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, f"{program}: {(done.stderr or b'').decode(errors='replace')}"


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None
