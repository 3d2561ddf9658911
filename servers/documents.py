"""MCP server: search in the owner's documents, by meaning and by words.

The two tools are listed at once; the model loads in a process of its own meanwhile (docsearch/process.py).
Settings come from the environment: DOCMIND_CHROMA_PATH, DOCUMENTS_COLLECTION, CHROMA_URL, EMBEDDING_MODEL.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

if not __package__:
    # Run as a script: the servers folder comes first on the path, and its modules would shadow others.
    _here = Path(__file__).resolve().parent
    sys.path[:] = [str(_here.parent), *(entry for entry in sys.path if entry != str(_here))]

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from servers.docsearch.errors import DocumentsError, require_extra
from servers.docsearch.process import SearchProcess
from servers.serving import serve

READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def corpus_dir() -> Path:
    """The folder of sample documents that ships with the package."""
    return Path(__file__).with_name("corpus")


def register(server: MCPServer, search: SearchProcess | None = None) -> None:
    """Add `search_documents` and `list_documents` to `server`; the search process starts on first use."""
    process = search or SearchProcess()

    async def ask(ctx: Context, operation: str, arguments: dict[str, Any]) -> Any:
        try:
            require_extra()
            return await process.ask(operation, arguments, _progress(ctx))
        except DocumentsError as error:
            raise ToolError(str(error)) from None

    @server.tool(title="Search documents", annotations=READ_ONLY)
    async def search_documents(
        query: str,
        ctx: Context,
        n_results: int = 5,
        collection: str | None = None,
        where: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Find passages in the user's own documents that answer a question or contain a name or number.

        query: the question in plain words. n_results: 1 to 50. collection: only if the user names one.
        where: Chroma metadata filter, rarely needed.
        """
        arguments = {"query": query, "n_results": n_results, "collection": collection, "where": where}
        answer: dict[str, Any] = await ask(ctx, "search", arguments)
        return answer

    @server.tool(title="List documents", annotations=READ_ONLY)
    async def list_documents(
        ctx: Context, collection: str | None = None, limit: int = 50, offset: int = 0
    ) -> dict[str, Any]:
        """List the collections and the documents in one of them, with how many passages each has."""
        arguments = {"collection": collection, "limit": limit, "offset": offset}
        answer: dict[str, Any] = await ask(ctx, "list", arguments)
        return answer


def _progress(ctx: Context) -> Callable[[float], Awaitable[None]]:
    async def notify(seconds: float) -> None:
        await ctx.report_progress(round(seconds, 1), None, f"loading the search model ({seconds:.0f} s so far)")

    return notify


def main() -> None:
    """Serve on stdio, loading the model in the background."""
    process = SearchProcess()
    server = MCPServer("documents", title="Documents", log_level="WARNING")
    register(server, process)
    with suppress(DocumentsError):  # the missing extra is told in each tool's result
        require_extra()
        process.start()
    serve(server)


if __name__ == "__main__":
    main()
