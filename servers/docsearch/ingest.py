"""Filling a collection: which files are new, changed or gone, and writing their passages.

A file's passages are written in order, each with the file's hash and how many there are, and the old ones are
deleted last. So after an interruption, even a kill, a file is in with its old passages, in with its new ones,
or seen to be incomplete and taken up where it was. One ingest at a time writes to a folder: Chroma's embedded
store is not made for two writers.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chunking import Chunker, Passage
from .embedding import EmbeddingModel
from .errors import DocumentsError
from .reading import MAX_BYTES, READERS, read_document
from .store import records

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

BATCH_PASSAGES = 256  # embedded and written together; an interruption loses at most these


@dataclass(frozen=True)
class SourceFile:
    """A file to ingest, and how results call it: its path from the folder that was named."""

    path: Path
    label: str


@dataclass
class Report:
    """What an ingest did; `failed` pairs a label with the reason."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    pruned: int = 0
    passages: int = 0
    skipped: int = 0  # files of kinds that are not read
    gone: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Known:
    """What the collection holds of one file."""

    hashes: set[str] = field(default_factory=set)
    found: int = 0
    expected: int = 0
    label: str = ""


@dataclass(frozen=True)
class _Prepared:
    file: SourceFile
    file_hash: str
    passages: list[Passage]
    first: int  # those before are in already
    replaces: bool


def find_files(paths: Iterable[Path], report: Report, missing_ok: bool = False) -> list[SourceFile]:
    """The files under `paths`, folders searched deeply; hidden ones are left out.

    Raises DocumentsError when a path does not exist, unless `missing_ok`. Other kinds of files in folders
    are counted.
    """
    found: dict[Path, SourceFile] = {}
    for path in paths:
        resolved = path.expanduser().resolve()
        if resolved.is_dir():
            for file in _walk(resolved):
                if file.suffix.lower() in READERS:
                    label = f"{resolved.name}/{file.relative_to(resolved).as_posix()}"
                    found.setdefault(file, SourceFile(file, label))
                else:
                    report.skipped += 1
        elif resolved.exists():
            found.setdefault(resolved, SourceFile(resolved, resolved.name))
        elif not missing_ok:
            raise DocumentsError(f"There is no file or folder {path}.")
    return list(found.values())


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))


def open_collection(client: ClientAPI, name: str, model: EmbeddingModel) -> Collection:
    """The collection to fill, made if it is missing (cosine).

    Raises DocumentsError when the name is not allowed.
    """
    if name in [collection.name for collection in client.list_collections()]:
        return client.get_collection(name, embedding_function=None)
    try:
        return client.get_or_create_collection(
            name,
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine"}},
            metadata={"embedding_model": model.name},
        )
    except Exception as error:
        if type(error).__name__ not in ("InvalidArgumentError", "ValueError"):
            raise
        raise DocumentsError(f"{name!r} cannot be a collection's name: {error}") from error


class Ingest:
    """One run over a list of files into one collection."""

    def __init__(self, collection: Collection, model: EmbeddingModel, max_batch: int) -> None:
        self._collection = collection
        self._model = model
        self._max_batch = max_batch
        self._chunker = Chunker(model)
        self._known = _known_files(collection)

    def run(self, files: list[SourceFile], report: Report, advance: Callable[[int], None]) -> None:
        """Bring the collection up to date with `files`; `advance(n)` after each n files are done.

        A file that cannot be read is put in the report and the rest go on. May be interrupted anywhere.
        """
        batch: list[_Prepared] = []
        for file in files:
            prepared = self._prepare(file, report)
            if prepared is None:
                advance(1)
                continue
            batch.append(prepared)
            if sum(len(each.passages) for each in batch) >= BATCH_PASSAGES:
                self._write(batch, report, advance)
                batch = []
        if batch:
            self._write(batch, report, advance)

    def missing(self, roots: Iterable[Path]) -> dict[str, str]:
        """Path and label of each file in the collection that is under `roots` but no longer exists."""
        tops = [root.expanduser().resolve() for root in roots]
        return {
            path: known.label
            for path, known in self._known.items()
            if not Path(path).exists() and any(Path(path).is_relative_to(top) for top in tops)
        }

    def prune(self, paths: Iterable[str]) -> None:
        """Delete the passages of the files at `paths`."""
        for path in paths:
            self._collection.delete(where={"path": path})

    def _prepare(self, file: SourceFile, report: Report) -> _Prepared | None:
        try:
            str(file.path).encode()
            content = _content(file.path)
            file_hash = hashlib.sha256(content).hexdigest()
            known = self._known.get(str(file.path))
            if known and known.hashes == {file_hash} and known.found == known.expected:
                report.unchanged += 1
                return None
            passages = self._chunker.passages(read_document(file.path, content))
        except UnicodeEncodeError:
            report.failed.append((repr(file.label), "its name is not valid UTF-8; rename it"))
            return None
        except (OSError, DocumentsError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            report.failed.append((file.label, reason))
            return None
        first = known.found if known and known.hashes == {file_hash} else 0
        return _Prepared(file, file_hash, passages, min(first, len(passages)), known is not None)

    def _write(self, batch: list[_Prepared], report: Report, advance: Callable[[int], None]) -> None:
        rows = [
            (each, number, passage)
            for each in batch
            for number, passage in enumerate(each.passages)
            if number >= each.first
        ]
        size = min(2 * BATCH_PASSAGES, self._max_batch)  # only a long file makes more than one part
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            self._collection.upsert(
                ids=[_passage_id(each.file.path, number) for each, number, _ in part],
                embeddings=self._model.encode([self._chunker.embedded(passage) for _, _, passage in part]),
                documents=[passage.text for _, _, passage in part],
                metadatas=[_metadata(each, number, passage) for each, number, passage in part],
            )
        for each in batch:
            if each.replaces:
                self._collection.delete(
                    where={"$and": [{"path": str(each.file.path)}, {"file_hash": {"$ne": each.file_hash}}]}
                )
                report.updated += 1
            else:
                report.added += 1
        report.passages += len(rows)
        advance(len(batch))


def _content(path: Path) -> bytes:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DocumentsError("not a regular file")
    size = status.st_size
    if size > MAX_BYTES:
        raise DocumentsError(f"{size // 2**20} MiB, more than the {MAX_BYTES // 2**20} MiB that are read")
    return path.read_bytes()


def _known_files(collection: Collection) -> dict[str, _Known]:
    known: dict[str, _Known] = {}
    for _, metadata, _ in records(collection, ["metadatas"]):
        if not metadata or "file_hash" not in metadata or "path" not in metadata:
            continue
        entry = known.setdefault(str(metadata["path"]), _Known())
        entry.hashes.add(str(metadata["file_hash"]))
        entry.found += 1
        entry.expected = int(metadata.get("chunks", 0))
        entry.label = str(metadata.get("source", metadata["path"]))
    return known


def _passage_id(path: Path, number: int) -> str:
    return f"{hashlib.sha256(str(path).encode('utf-8', 'surrogateescape')).hexdigest()[:24]}-{number:05}"


def _metadata(each: _Prepared, number: int, passage: Passage) -> dict[str, Any]:
    return {
        "source": each.file.label,
        "title": passage.title,
        "path": str(each.file.path),
        "file_hash": each.file_hash,
        "chunk": number,
        "chunks": len(each.passages),
        # None takes away what an earlier passage of this id had: Chroma's upsert merges metadata.
        "heading": passage.heading or None,
        "page": passage.page,
    }
