"""A private copy of a Chroma folder, so that reading never touches the original.

Opening a store with Chroma writes to it: it runs migrations, which upgrade an older store for good, and it
marks its tables even where there is nothing to upgrade. So a search opens a copy in the temporary folder; a
read-only store, and one that another program is writing, are read the same way.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import psutil

from .errors import DocumentsError

DATABASE = "chroma.sqlite3"
ATTEMPTS = 20  # copies of a store that changes meanwhile
_PREFIX = "voice-bridge-documents-"

Signature = tuple[tuple[str, int, int], ...]


def signature(store: Path) -> Signature:
    """What tells one state of a store from another: every file's name, size and modification time."""
    found = []
    for folder, _, names in os.walk(store):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError):
                status = os.stat(path)
                found.append((os.path.relpath(path, store), status.st_size, status.st_mtime_ns))
    return tuple(sorted(entry for entry in found if not entry[0].startswith(".")))


def copy_store(store: Path) -> tuple[Path, Signature]:
    """Copy `store` as it was at one moment into a new temporary folder; returns the folder and its state.

    Raises DocumentsError when the folder cannot be read or copied, or never holds still.
    """
    target = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        for _ in range(ATTEMPTS):
            before = signature(store)
            with suppress(FileNotFoundError):  # a file went away while we copied: the state changed
                _copy(store, target, before)
                if signature(store) == before:
                    return target, before
            shutil.rmtree(target)
            target.mkdir()
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise DocumentsError(
            f"The document store {store} could not be copied for reading: {error.strerror or error}. "
            f"Check its permissions and the free space in {target.parent}."
        ) from error
    shutil.rmtree(target, ignore_errors=True)
    raise DocumentsError(f"The document store {store} is being written to without pause; try again in a moment.")


def _copy(store: Path, target: Path, files: Signature) -> None:
    for name, _, _ in files:
        copied = target / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(store / name, copied)


def schema_version(database: Path, store: Path | None = None) -> dict[str, int]:
    """The newest migration of each part of a store's database, as Chroma numbers them.

    Raises DocumentsError when the file is not a Chroma database; it names `store`, when `database` is in a copy
    of that. Opens it read-only.
    """
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT dir, max(version) FROM migrations GROUP BY dir").fetchall()
    except sqlite3.Error as error:
        raise DocumentsError(
            f"{store / DATABASE if store else database} is not a Chroma database, or is damaged ({error}). Point "
            "DOCMIND_CHROMA_PATH at another folder, or restore it from a backup."
        ) from error
    return {str(part): int(version) for part, version in rows}


def remove_copy(folder: Path) -> None:
    """Delete a copy; whatever cannot be deleted stays for `remove_leftovers`."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers() -> None:
    """Delete the copies of processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = re.match(rf"{_PREFIX}(\d+)-", folder.name)
        if owner and not psutil.pid_exists(int(owner.group(1))):
            remove_copy(folder)
