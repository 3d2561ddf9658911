"""Where the documents are and which model reads them: the environment, read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from voice_bridge.errors import UsageError
from voice_bridge.paths import data_dir

from .errors import DocumentsError

DEFAULT_COLLECTION = "documents"


@dataclass(frozen=True)
class DocumentSettings:
    """What the environment says; None where it says nothing."""

    path: Path  # the folder of an embedded Chroma store
    url: str | None = None  # a Chroma server instead of the folder
    collection: str | None = None
    model: str | None = None  # a folder or a hub name

    @classmethod
    def from_environment(cls, store: Path | None = None, environ: Mapping[str, str] = os.environ) -> DocumentSettings:
        """Read DOCMIND_CHROMA_PATH, CHROMA_URL, DOCUMENTS_COLLECTION and EMBEDDING_MODEL; blank means unset.

        `store`, a folder, wins over both of the first two.

        Raises DocumentsError when the default folder cannot be made.
        """
        chosen = {name: environ.get(name, "").strip() or None for name in _NAMES}
        path = store or chosen["DOCMIND_CHROMA_PATH"]
        return cls(
            path=Path(path).expanduser() if path else _own_folder(),
            url=None if store else chosen["CHROMA_URL"],
            collection=chosen["DOCUMENTS_COLLECTION"],
            model=chosen["EMBEDDING_MODEL"],
        )

    @property
    def place(self) -> str:
        """The store's name for messages; a URL without its user name and password."""
        return server_place(self.url) if self.url else str(self.path)


def _own_folder() -> Path:
    try:
        return data_dir() / "documents"
    except UsageError as error:
        raise DocumentsError(f"{error}; or set DOCMIND_CHROMA_PATH to a folder of your own.") from error


_NAMES = ("DOCMIND_CHROMA_PATH", "CHROMA_URL", "DOCUMENTS_COLLECTION", "EMBEDDING_MODEL")


def server_place(url: str) -> str:
    """A Chroma server's address without credentials, query and fragment.

    Raises DocumentsError when `url` is no http(s) address; the message never repeats it.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DocumentsError("CHROMA_URL is not an address. Write it like http://127.0.0.1:8000")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
