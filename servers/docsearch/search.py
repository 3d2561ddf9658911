"""Hybrid search over a collection: by meaning (vectors) and by words (BM25), joined by rank."""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from .embedding import EmbeddingModel, ModelInBackground, same_model
from .errors import DocumentsError
from .keywords import KeywordIndex
from .listing import describe_collections, list_sources, plain
from .ranking import reciprocal_rank_fusion, similarity
from .settings import DocumentSettings
from .store import choose_collection, open_store, recorded_model, records

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

MAX_RESULTS = 50
CANDIDATES = 20  # of each kind that are joined; see bench/retrieval.py
MAX_QUERY = 10_000  # characters; far beyond the model's 256 tokens
MODEL_PATIENCE = 45.0  # seconds a search waits for the model
ALIEN = 0.25  # a passage this unlike its own vector was embedded by another model
SAMPLE = 5
IDENTIFIER = re.compile(r"\d|[a-z][A-Z]|[A-Z]{3}|\w[-_./:]\w")  # KX-24, SelfCheckGPT, set_timer

# Metadata that says where a passage is from, in the spellings in use.
SOURCE_KEYS = ("source", "file_name", "filename", "file", "file_path", "path", "url", "title", "document")
PAGE_KEYS = ("page", "page_number", "page_label")
HEADING_KEYS = ("heading", "section", "title")
# What our own ingest writes for itself.
OWN_KEYS = frozenset({"path", "file_hash", "chunk", "chunks"})


@dataclass
class _Prepared:
    """What is worked out once per state of a collection."""

    mark: Hashable
    index: KeywordIndex | None = None
    notes: dict[str, str | None] = field(default_factory=dict)


class DocumentSearch:
    """Answers the two tools' calls. Safe to use from several threads."""

    def __init__(self, settings: DocumentSettings, model: ModelInBackground | None = None) -> None:
        self._settings = settings
        self._model = model or ModelInBackground(settings.model, MODEL_PATIENCE)
        self._store = open_store(settings)
        self._lock = threading.RLock()
        self._prepared: dict[str, _Prepared] = {}

    def warm_up(self) -> None:
        """Load the model in the background; index the collection's words meanwhile."""
        self._model.start()
        with self._lock:
            collection, mark = self._collection(None)
            self._index(collection, mark)

    def close(self) -> None:
        """Give up the store's copy."""
        with self._lock:
            self._store.close()

    def search(
        self, query: str, n_results: int = 5, collection: str | None = None, where: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The best passages for `query`, as plain JSON values.

        `n_results` is clamped to 1…50. Raises DocumentsError: an empty query, no or an unknown collection,
        an empty one, vectors of another size or a recorded model that is not ours, a bad filter.
        """
        question = query.encode("utf-8", "replace").decode().strip()  # half an emoji is no text
        if not question:
            raise DocumentsError("The query is empty. Ask a question or give the words to look for.")
        wanted = min(max(n_results, 1), MAX_RESULTS)
        with self._lock:
            self._collection(collection)  # a missing collection is told before the model is waited for
        model = self._model.get()
        vector = model.encode([question[:MAX_QUERY]])[0].tolist()
        with self._lock:
            chosen, mark = self._collection(collection)
            note = self._check_model(chosen, mark, model)
            near, words = self._rankings(chosen, mark, question[:MAX_QUERY], vector, wanted, where or None)
            results = _results(chosen, joined(question, near, words)[:wanted], vector)
        notes = [
            note,
            f"n_results is from 1 to {MAX_RESULTS}; {wanted} was used." if wanted != n_results else None,
            f"Only the first {MAX_QUERY} characters of the query were used." if len(question) > MAX_QUERY else None,
            _nothing_found(chosen, where) if not results else None,
        ]
        answer: dict[str, Any] = {"collection": chosen.name, "results": results}
        if said := " ".join(filter(None, notes)):
            answer["note"] = said
        return answer

    def documents(self, collection: str | None = None, limit: int = 50, offset: int = 0) -> dict[str, Any]:
        """The collections, and one page of the documents in the chosen one. Needs no model.

        `limit` is clamped to 1…200. Raises DocumentsError: no or an unknown collection.
        """
        with self._lock:
            client, _ = self._store.current()
            answer = {"collections": describe_collections(client)}
            chosen = choose_collection(client, collection, self._settings.collection, self._settings.place)
            page = list_sources(chosen, min(max(limit, 1), 200), max(offset, 0), source_of)
        return answer | {"collection": chosen.name} | page

    def rankings(self, query: str, limit: int = CANDIDATES) -> tuple[list[str], list[str]]:
        """Ids of the passages nearest by meaning, and of those by words, each best first."""
        vector = self._model.get().encode([query])[0].tolist()
        with self._lock:
            return self._rankings(*self._collection(None), query, vector, limit, None)

    def _rankings(
        self,
        collection: Collection,
        mark: Hashable,
        query: str,
        vector: list[float],
        wanted: int,
        where: dict[str, Any] | None,
    ) -> tuple[list[str], list[str]]:
        pool = max(CANDIDATES, wanted)
        among = None
        if where is not None:
            among = set(_filtered(collection, where))
            if not among:
                return [], []
        near = collection.query(
            query_embeddings=[vector], n_results=min(pool, collection.count()), where=where, include=[]
        )
        words = self._index(collection, mark).search(query, pool, among)
        return near["ids"][0], words

    def _collection(self, name: str | None) -> tuple[Collection, Hashable]:
        client, mark = self._store.current()
        chosen = choose_collection(client, name, self._settings.collection, self._settings.place)
        count = chosen.count()
        if count == 0:
            raise DocumentsError(f"The collection {chosen.name!r} is empty. Fill it with: voice-bridge ingest PATH")
        return chosen, (mark, count)

    def _prepare(self, collection: Collection, mark: Hashable) -> _Prepared:
        known = self._prepared.get(str(collection.id))
        if known is None or known.mark != mark:
            known = self._prepared[str(collection.id)] = _Prepared(mark)
        return known

    def _index(self, collection: Collection, mark: Hashable) -> KeywordIndex:
        prepared = self._prepare(collection, mark)
        if prepared.index is None:
            prepared.index = KeywordIndex(
                (record, searchable(metadata, document))
                for record, metadata, document in records(collection, ["documents", "metadatas"])
            )
        return prepared.index

    def _check_model(self, collection: Collection, mark: Hashable, model: EmbeddingModel) -> str | None:
        notes = self._prepare(collection, mark).notes
        if model.name not in notes:
            notes[model.name] = check_model(collection, model)
        return notes[model.name]


def joined(query: str, near: list[str], words: list[str]) -> list[str]:
    """The two rankings joined by reciprocal rank fusion.

    The best of either score the same where neither list has the other's; then a query that contains a number
    or an identifier means the words, any other the meaning.
    """
    return reciprocal_rank_fusion([words, near] if IDENTIFIER.search(query) else [near, words])


def check_model(collection: Collection, model: EmbeddingModel) -> str | None:
    """Whether `model` can search `collection`: None, or a remark where its vectors only look unlike.

    Raises DocumentsError when the vectors have another size, or when another model is on record and the
    vectors are not what ours makes of the same passages.
    """
    sample = collection.get(limit=SAMPLE, include=["documents", "embeddings"])
    vectors = sample["embeddings"]
    size = len(vectors[0])
    recorded = recorded_model(collection)
    if size != model.dimension:
        made_by = f" (made by {recorded})" if recorded else ""
        raise DocumentsError(
            f"The collection {collection.name!r} holds vectors of {size} numbers{made_by}, but the embedding "
            f"model {model.name} makes {model.dimension}. Set EMBEDDING_MODEL to the model that made the "
            "collection, or choose another collection."
        )
    pairs = [(d, v) for d, v in zip(sample["documents"] or [], vectors, strict=False) if d and d.strip()]
    if not pairs:
        return None
    own = model.encode([document for document, _ in pairs]).tolist()
    alike = max(similarity(ours, theirs.tolist()) for ours, (_, theirs) in zip(own, pairs, strict=True))
    if alike >= ALIEN:
        return None
    if recorded and not same_model(recorded, model.name):
        raise DocumentsError(
            f"The collection {collection.name!r} was made by the embedding model {recorded}, and a search "
            f"with {model.name} finds nothing in it. Set EMBEDDING_MODEL to {recorded}."
        )
    return (
        f"The vectors of this collection do not look like those of {model.name}; if results seem unrelated, "
        "set EMBEDDING_MODEL to the model that made it."
    )


def searchable(metadata: dict[str, Any] | None, document: str | None) -> str:
    """The words by which a passage is found: its text, and the names and headings it stands under."""
    extra = [str(v) for k, v in (metadata or {}).items() if k in ("source", "title", "heading")]
    return "\n".join([*dict.fromkeys(extra), document or ""])


def source_of(metadata: dict[str, Any] | None) -> str | None:
    """Where a passage is from, whatever its maker called that; a full path is cut to its file's name."""
    value = next((str(metadata[key]) for key in SOURCE_KEYS if metadata.get(key)), None) if metadata else None
    if value and (value.startswith(("/", "\\\\")) or value[1:3] == ":\\"):
        return PurePath(value.replace("\\", "/")).name
    return value


def _filtered(collection: Collection, where: dict[str, Any]) -> list[str]:
    try:
        ids: list[str] = collection.get(where=where, include=[])["ids"]
    except Exception as error:
        if type(error).__name__ not in ("ValueError", "InvalidArgumentError"):
            raise
        raise DocumentsError(
            f'The filter `where` is not one Chroma understands: {error}. Write it like {{"source": "notes.md"}}, '
            'two of them as {"$and": […, …]}, or leave it out.'
        ) from error
    return ids


def _results(collection: Collection, ids: list[str], vector: list[float]) -> list[dict[str, Any]]:
    if not ids:
        return []
    found = collection.get(ids=ids, include=["documents", "metadatas", "embeddings"])
    place = {record: number for number, record in enumerate(found["ids"])}
    results = []
    for record in ids:
        if (number := place.get(record)) is None:  # deleted on the server a moment ago
            continue
        metadata = found["metadatas"][number] or {}
        score = similarity(vector, found["embeddings"][number].tolist())
        results.append(_result(record, found["documents"][number], metadata, score))
    return results


def _result(record: str, document: str | None, metadata: dict[str, Any], score: float) -> dict[str, Any]:
    result: dict[str, Any] = {"text": document or "", "score": round(score, 3)}
    if not document:
        result["text_missing"] = True
    if source := source_of(metadata):
        result["source"] = source
    else:
        result["id"] = record
    for name, keys in (("page", PAGE_KEYS), ("heading", HEADING_KEYS)):
        value = next((metadata[key] for key in keys if metadata.get(key) not in (None, "")), None)
        if value is not None:
            result[name] = value
    if "file_hash" not in metadata:  # another program's: all it knows may matter
        used = {*SOURCE_KEYS, *PAGE_KEYS, *HEADING_KEYS, *OWN_KEYS}
        if rest := plain({key: value for key, value in metadata.items() if key not in used}):
            result["metadata"] = rest
    return result


def _nothing_found(collection: Collection, where: dict[str, Any] | None) -> str:
    if not where:
        return "Nothing was found."
    sample = collection.get(limit=100, include=["metadatas"])["metadatas"] or []
    fields = sorted({key for metadata in sample for key in (metadata or {}) if key not in OWN_KEYS})
    return f"No passage passes the filter. Its fields are: {', '.join(fields) or 'none'}."
