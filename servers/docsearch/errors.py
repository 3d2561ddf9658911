"""The one error of document search."""

from __future__ import annotations

import importlib.util

from voice_bridge.errors import VoiceBridgeError

INSTALL_COMMAND = "pip install 'mcp-voice-bridge[documents]'"

# What the search needs at run time, and what filling a collection needs besides.
SEARCH_MODULES = ("chromadb", "sentence_transformers", "torch")
INGEST_MODULES = (*SEARCH_MODULES, "semantic_text_splitter", "pypdf", "mammoth", "markdownify")


class DocumentsError(VoiceBridgeError):
    """The documents cannot be searched, listed or filled; the message is for the person who asked."""


def require_extra(modules: tuple[str, ...] = SEARCH_MODULES) -> None:
    """Check that the `documents` extra is installed, importing none of it.

    Raises DocumentsError naming the missing modules and the command that installs them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise DocumentsError(
            f"Document search is not installed: {', '.join(missing)} not found. Install it with: {INSTALL_COMMAND}"
        )
