"""Chroma, read: the embedded store of a folder or a Chroma server, and its collections."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from . import snapshot
from .errors import DocumentsError
from .settings import DEFAULT_COLLECTION, DocumentSettings, server_place

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

PAGE = 1000  # records per request
REST_FACTOR = 10  # a copy that took 1 s to make is used for 10 s, whatever is written meanwhile
SERVER_REST = 300.0  # seconds; a Chroma server does not tell when records change in place

FILL = "Fill it with: voice-bridge ingest PATH"


class Store(Protocol):
    """A Chroma store that is only read."""

    def current(self) -> tuple[ClientAPI, Hashable]:
        """A client on the store's present state, and a mark that differs when the state does."""

    def close(self) -> None:
        """Give up what it holds."""


def open_store(settings: DocumentSettings) -> Store:
    """The store that the settings name; nothing is contacted or read yet."""
    return ServerStore(settings.url) if settings.url else FolderStore(settings.path)


class FolderStore:
    """An embedded store, read through a private copy (see snapshot.py). Used under the caller's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: ClientAPI | None = None
        self._copy: Path | None = None
        self._state: snapshot.Signature = ()
        self._rest_until = 0.0
        snapshot.remove_leftovers()

    def current(self) -> tuple[ClientAPI, Hashable]:
        """Raises DocumentsError where there is no readable store."""
        resting = time.monotonic() < self._rest_until
        if self._client is None or not (resting or snapshot.signature(self._path) == self._state):
            self._reopen()
        assert self._client is not None
        return self._client, self._state

    def close(self) -> None:
        """Close the client and delete the copy."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._copy is not None:
            snapshot.remove_copy(self._copy)
            self._copy = None

    def _reopen(self) -> None:
        check_folder(self._path)
        self.close()
        started = time.monotonic()
        self._copy, self._state = snapshot.copy_store(self._path)
        self._rest_until = time.monotonic() + REST_FACTOR * (time.monotonic() - started)
        version = snapshot.schema_version(self._copy / snapshot.DATABASE, self._path)
        self._client = open_folder(self._copy, self._path, version)


class ServerStore:
    """A Chroma server, reached by HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: ClientAPI | None = None

    def current(self) -> tuple[ClientAPI, Hashable]:
        """Raises DocumentsError when the server does not answer."""
        if self._client is not None:
            try:
                self._client.heartbeat()
            except Exception:  # noqa: BLE001 — any failure means: connect anew, and tell what is wrong
                self._client = None
        if self._client is None:
            self._client = connect(self._url)
        return self._client, int(time.monotonic() / SERVER_REST)

    def close(self) -> None:
        """Forget the connection."""
        self._client = None


def check_folder(path: Path) -> None:
    """Check that `path` holds an embedded Chroma store. Raises DocumentsError with the remedy."""
    if path.is_file():
        raise DocumentsError(f"DOCMIND_CHROMA_PATH must name a folder; {path} is a file.")
    try:
        if (path / snapshot.DATABASE).is_file():
            return
        old = (path / "chroma-collections.parquet").exists() or (path / "index").is_dir()
    except PermissionError as error:
        raise DocumentsError(f"The document store {path} may not be read: {error.strerror}.") from error
    if old:
        raise DocumentsError(
            f"The document store {path} was made by Chroma before 0.4, which later versions cannot read. "
            "Convert it with the chroma-migrate tool, or ingest the documents again into another folder."
        )
    raise DocumentsError(f"There are no collections yet in {path}. {FILL}, or set DOCMIND_CHROMA_PATH.")


def open_folder(folder: Path, name: Path, version: dict[str, int]) -> ClientAPI:
    """Open an embedded store for reading and writing; upgrades its database where it is older.

    `name` is how messages call it. Raises DocumentsError when Chroma cannot read it.
    """
    import chromadb
    from chromadb.config import Settings

    try:
        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        client.list_collections()  # a schema it cannot read shows only here
        return client
    except Exception as error:  # Chroma's bindings raise bare errors of many kinds
        raise DocumentsError(_unreadable(name, version, error)) from error


def _unreadable(name: Path, version: dict[str, int], error: Exception) -> str:
    import chromadb

    if is_newer(version):
        return (
            f"The document store {name} was made by a newer Chroma than the installed {chromadb.__version__}, "
            "which cannot read it. Upgrade with: pip install -U chromadb"
        )
    return (
        f"The document store {name} cannot be read by Chroma {chromadb.__version__}: {error}. Restore it from "
        "a backup, or ingest the documents again into another folder."
    )


@cache
def known_schema() -> dict[str, int]:
    """The schema of the installed Chroma, from a store it just made."""
    with tempfile.TemporaryDirectory(prefix="voice-bridge-schema-") as folder:
        open_folder(Path(folder), Path(folder), {}).close()
        return snapshot.schema_version(Path(folder) / snapshot.DATABASE)


def is_newer(version: dict[str, int]) -> bool:
    """Whether a store has migrations that the installed Chroma does not know."""
    return any(number > known_schema().get(part, 0) for part, number in version.items())


def is_older(version: dict[str, int]) -> bool:
    """Whether the installed Chroma would upgrade a store by opening it."""
    return any(number > version.get(part, 0) for part, number in known_schema().items())


def connect(url: str) -> ClientAPI:
    """A client of the Chroma server at `url`; a user name and password in it are sent as HTTP Basic.

    Raises DocumentsError; the credentials never appear in it.
    """
    import base64

    import chromadb
    from chromadb.config import Settings

    place = server_place(url)
    parts = urlsplit(url if "://" in url else f"http://{url}")
    headers = {}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    try:
        return chromadb.HttpClient(
            host=place if parts.path.strip("/") else str(parts.hostname),
            port=parts.port or (443 if parts.scheme == "https" else 80 if "://" in url else 8000),
            ssl=parts.scheme == "https",
            headers=headers,
            settings=Settings(anonymized_telemetry=False),
        )
    except Exception as error:  # no connection, TLS, refused, wrong version: all raise alike
        raise DocumentsError(
            f"No Chroma server of version 1 answers at {place} (CHROMA_URL): {_safe(error, url)}. Start it "
            "with `chroma run`, correct CHROMA_URL, or unset it to use the local folder."
        ) from error


def _safe(error: Exception, url: str) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
    parts = urlsplit(url)
    for secret in filter(None, (parts.password, parts.username, parts.query)):
        text = text.replace(secret, "…")
    return text


def choose_collection(client: ClientAPI, asked: str | None, configured: str | None, place: str) -> Collection:
    """The collection asked for, else the configured one, else `documents`, else the only one there is.

    Raises DocumentsError listing the names there are. Never creates one.
    """
    names = sorted(collection.name for collection in client.list_collections())
    if not names:
        raise DocumentsError(f"There are no collections yet in {place}. {FILL}")
    wanted = asked or configured
    if wanted is None:
        wanted = DEFAULT_COLLECTION if DEFAULT_COLLECTION in names or len(names) > 1 else names[0]
    if wanted not in names:
        source = "" if asked else " (DOCUMENTS_COLLECTION)" if configured else " (the default)"
        raise DocumentsError(
            f"There is no collection {wanted!r}{source} in {place}. There are: {', '.join(names)}. Name one of "
            "them as `collection`, or set DOCUMENTS_COLLECTION."
        )
    return client.get_collection(wanted, embedding_function=None)


def recorded_model(collection: Collection) -> str | None:
    """The model that a collection's maker wrote down, or None."""
    metadata = collection.metadata or {}
    if metadata.get("embedding_model"):
        return str(metadata["embedding_model"])
    function = (collection.configuration_json or {}).get("embedding_function") or {}
    name = function.get("name")
    config = function.get("config") or {}
    model = config.get("model_name") or config.get("model")
    # "default" says only that nobody chose: its maker may well have brought vectors of another kind.
    return str(model or name) if name and name not in ("default", "legacy") else None


def distance_of(collection: Collection) -> str:
    """The collection's distance: cosine, l2 or ip. The metadata of old stores wins over their configuration."""
    metadata = collection.metadata or {}
    configuration = collection.configuration_json or {}
    space = (configuration.get("hnsw") or configuration.get("spann") or {}).get("space")
    return str(metadata.get("hnsw:space") or space or "l2")


def records(collection: Collection, include: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Every record as (id, metadata, document), read page by page."""
    offset = 0
    while True:
        page = collection.get(limit=PAGE, offset=offset, include=include)
        ids = page["ids"]
        metadatas = page["metadatas"] or [None] * len(ids)
        documents = page["documents"] or [None] * len(ids)
        yield from zip(ids, metadatas, documents, strict=True)
        if len(ids) < PAGE:
            return
        offset += PAGE
