"""A Chroma store opened for writing: one writer at a time, and no upgrade by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import DocumentsError
from .settings import DocumentSettings
from .snapshot import DATABASE, schema_version
from .store import check_folder, connect, is_newer, is_older, open_folder

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

LOCK = ".ingest.lock"  # hidden, so that no reader takes it for part of the store
LOCK_PATIENCE = 600.0  # seconds that a second ingest waits for the first


@contextmanager
def open_for_writing(settings: DocumentSettings, upgrade: bool, waiting: Callable[[], None]) -> Iterator[ClientAPI]:
    """A client that may write; the folder is made if it is missing.

    `waiting` is called once when another ingest holds the store. The lock is the operating system's, so it
    ends with its process. Raises DocumentsError: the folder cannot be written, is busy for ten minutes, or
    belongs to another version of Chroma and `upgrade` is not given.
    """
    if settings.url:
        yield connect(settings.url)
        return
    with _locked(settings.path, waiting):
        client = _open(settings.path, upgrade)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def _locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire(timeout=LOCK_PATIENCE)
    except Timeout as error:
        raise DocumentsError(
            f"Another ingest has been writing to {folder} for {LOCK_PATIENCE / 60:.0f} minutes. Wait for it or end it."
        ) from error
    except OSError as error:
        raise DocumentsError(
            f"The document store {folder} cannot be written: {error.strerror}. Set DOCMIND_CHROMA_PATH or "
            "--store to a folder of your own."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _open(folder: Path, upgrade: bool) -> ClientAPI:
    version: dict[str, int] = {}
    if any(entry.name != LOCK for entry in folder.iterdir()):
        if not (folder / DATABASE).is_file():
            check_folder_for_writing(folder)
        else:
            version = schema_version(folder / DATABASE)
    if version and is_newer(version):
        raise DocumentsError(
            f"The document store {folder} was made by a newer Chroma. Upgrade with: pip install -U chromadb"
        )
    if version and is_older(version) and not upgrade:
        raise DocumentsError(
            f"The document store {folder} was made by an older Chroma. Writing would upgrade it for good, and "
            "the program that made it may no longer open it. Back it up and add --upgrade-store, or choose "
            "another folder with --store."
        )
    return open_folder(folder, folder, version)


def check_folder_for_writing(folder: Path) -> None:
    """Refuse to make a store among other files. Raises DocumentsError."""
    try:
        check_folder(folder)
    except DocumentsError as error:
        if "before 0.4" in str(error):
            raise
    raise DocumentsError(
        f"The folder {folder} holds other files and no Chroma store. Choose an empty or new folder with --store."
    )
