"""The demo database: a small company, made on first use in the user's data folder."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from servers.sql.limits import QueryError

_SCHEMA = """
CREATE TABLE departments (
    name TEXT PRIMARY KEY,
    city TEXT NOT NULL,
    budget INTEGER NOT NULL
);
CREATE TABLE employees (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    department TEXT NOT NULL REFERENCES departments(name),
    title TEXT NOT NULL,
    salary INTEGER NOT NULL,
    hired_on TEXT NOT NULL
);
"""
_DEPARTMENTS = [
    ("Engineering", "Singapore", 1_200_000),
    ("Finance", "London", 400_000),
    ("Sales", "Taipei", 650_000),
    ("Support", "Osaka", 300_000),
]
_EMPLOYEES = [
    (1, "Ada Lim", "Engineering", "Principal Engineer", 182_000, "2018-03-12"),
    (2, "Ben Okafor", "Engineering", "Senior Engineer", 156_000, "2019-07-01"),
    (3, "Chen Yu", "Engineering", "Engineer", 134_000, "2021-01-18"),
    (4, "Dana Novak", "Engineering", "Engineer", 128_000, "2022-05-09"),
    (5, "Emi Sato", "Engineering", "Junior Engineer", 108_000, "2024-09-02"),
    (6, "Farid Rahman", "Finance", "Head of Finance", 149_000, "2017-11-20"),
    (7, "Grace Kim", "Finance", "Accountant", 92_000, "2020-02-03"),
    (8, "Hugo Martin", "Sales", "Sales Director", 151_000, "2018-08-27"),
    (9, "Ines Costa", "Sales", "Account Manager", 98_000, "2021-06-14"),
    (10, "Jonas Weber", "Sales", "Account Manager", 95_500, "2023-04-11"),
    (11, "Kavya Nair", "Support", "Support Lead", 88_000, "2019-10-07"),
    (12, "Leo Tan", "Support", "Support Specialist", 67_500, "2025-02-17"),
]


def demo_database(folder: Path) -> Path:
    """Return the path of the demo database in `folder`, made if it is missing.

    Raises QueryError when the folder cannot be written.
    """
    path = folder / "demo.sqlite3"
    if path.exists():
        return path
    try:
        # Several servers may start at once: each builds its own file, and a complete one is put in place.
        descriptor, draft = tempfile.mkstemp(prefix="demo-", suffix=".sqlite3", dir=folder)
        os.close(descriptor)
        _fill(draft)
        os.replace(draft, path)
    except (OSError, sqlite3.Error) as error:
        raise QueryError(
            f"The demo database cannot be made in {folder} ({error}): make the folder writable, or set DATABASE_URL."
        ) from None
    return path


def _fill(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMA)
        connection.executemany("INSERT INTO departments VALUES (?, ?, ?)", _DEPARTMENTS)
        connection.executemany("INSERT INTO employees VALUES (?, ?, ?, ?, ?, ?)", _EMPLOYEES)
