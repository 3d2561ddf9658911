"""What the document tests share: real stores, the real model loaded once, the real server as a child."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from servers.docsearch.embedding import EmbeddingModel, ModelInBackground, load_model
from servers.docsearch.errors import INGEST_MODULES
from servers.docsearch.search import DocumentSearch
from servers.docsearch.settings import DocumentSettings

ROOT = Path(__file__).resolve().parents[2]
STORES = Path(__file__).with_name("documents_stores")
WAIT = 60.0  # seconds; the limit of every wait

MISSING = [name for name in INGEST_MODULES if importlib.util.find_spec(name) is None]
needs_extra = pytest.mark.skipif(bool(MISSING), reason=f"the documents extra is not installed: no {', '.join(MISSING)}")

TEXTS = [
    "The lighthouse keeper wrote the weather into a blue book every evening.",
    "Bees find their way home by the position of the sun.",
    "The ferry to Norderholm leaves at 07:45 from pier 3.",
]


@functools.cache
def model() -> EmbeddingModel:
    """all-MiniLM-L6-v2 from the package that carries its weights, with the runtime switched off."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return load_model(None)


class Loaded(ModelInBackground):
    """The model of `model()`, so that the suite loads it once."""

    def __init__(self) -> None:
        super().__init__(None, WAIT)

    def _load(self, future: Any) -> None:
        future.set_result(model())


def search_in(store: Path, collection: str | None = None) -> DocumentSearch:
    """A search over the store in a folder."""
    return DocumentSearch(DocumentSettings(store, collection=collection), Loaded())


def client(store: Path) -> Any:
    """Chroma itself, as another program would open it."""
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(str(store), settings=Settings(anonymized_telemetry=False))


def foreign_store(store: Path, space: str = "cosine", name: str = "library") -> Path:
    """A store that another program made: plain Chroma, MiniLM vectors, its own metadata."""
    other = client(store)
    collection = other.create_collection(name, embedding_function=None, configuration={"hnsw": {"space": space}})
    collection.add(
        ids=["a", "b", "c"],
        embeddings=model().encode(TEXTS),
        documents=TEXTS,
        metadatas=[{"source": "lighthouse.txt"}, {"source": "bees.txt"}, {"source": "ferry.txt", "page": 3}],
    )
    other.close()
    return store


def unpack(version: str, folder: Path) -> Path:
    """A store made by an older Chroma, as it left it."""
    with zipfile.ZipFile(STORES / f"chroma-{version}.zip") as archive:
        archive.extractall(folder)
    return folder


def folder_hash(folder: Path) -> str:
    """A hash over every file's path, content and modification time."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_mtime_ns}\n".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@asynccontextmanager
async def running_server(
    settings: dict[str, str], arguments: list[str] | None = None, cwd: Path = ROOT, log: TextIO = sys.stderr
) -> AsyncIterator[ClientSession]:
    """The documents server as a real child, initialized; its stderr goes to `log`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CHROMA", "DOC"))}
    environment |= {"HF_HUB_OFFLINE": "1"} | settings
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments or ["-m", "servers.documents"], env=environment, cwd=cwd
    )
    async with stdio_client(parameters, errlog=log) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


def text_of(result: Any) -> str:
    """The first text of a tool's result."""
    return str(result.content[0].text)
