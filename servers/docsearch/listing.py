"""What a Chroma store holds: its collections, and the documents of one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .store import distance_of, recorded_model, records

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

EXCERPT = 80  # characters of a record that names no source


def describe_collections(client: ClientAPI) -> list[dict[str, Any]]:
    """Name, number of passages, vector size, distance and, where recorded, model of each collection."""
    described = []
    for collection in sorted(client.list_collections(), key=lambda each: str(each.name)):
        own = client.get_collection(collection.name, embedding_function=None)
        first = own.get(limit=1, include=["embeddings"])["embeddings"]
        about: dict[str, Any] = {"name": own.name, "passages": own.count(), "distance": distance_of(own)}
        if len(first):
            about["dimension"] = len(first[0])
        if model := recorded_model(own):
            about["model"] = model
        described.append(about)
    return described


def list_sources(
    collection: Collection, limit: int, offset: int, source_of: Callable[[dict[str, Any] | None], str | None]
) -> dict[str, Any]:
    """One page of a collection's documents, by source; a record without one is listed by itself."""
    passages: Counter[str] = Counter()
    alone: list[str] = []
    for record, metadata, _ in records(collection, ["metadatas"]):
        source = source_of(metadata)
        if source is None:
            alone.append(record)
        else:
            passages[source] += 1
    sources = [{"source": source, "passages": count} for source, count in sorted(passages.items())]
    end = offset + limit
    page: list[dict[str, Any]] = sources[offset:end]
    start = max(0, offset - len(sources))
    page += _records(collection, alone[start : max(0, end - len(sources))])
    total = len(sources) + len(alone)
    answer: dict[str, Any] = {"documents": page, "total": total}
    if end < total:
        answer["note"] = f"{total - end} more: ask again with offset {end}."
    if total == 0:
        answer["note"] = f"The collection {collection.name!r} is empty. Fill it with: voice-bridge ingest PATH"
    return answer


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON can say it: NaN and the infinities become words (RFC 8259 §6)."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in metadata.items()
    }


def _records(collection: Collection, ids: list[str]) -> list[dict[str, Any]]:
    if not ids:
        return []
    found = collection.get(ids=ids, include=["documents", "metadatas"])
    listed = []
    for record, document, metadata in zip(found["ids"], found["documents"], found["metadatas"], strict=True):
        about: dict[str, Any] = {"id": record}
        if document:
            about["text"] = document if len(document) <= EXCERPT else document[:EXCERPT].rstrip() + "…"
        if metadata:
            about["metadata"] = plain(metadata)
        listed.append(about)
    return listed
