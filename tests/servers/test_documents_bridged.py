"""Document search through the bridge's runtime when its model cannot be had: it says so, and nobody else waits."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from pathlib import Path

import pytest

from tests.support import Json, running, said

pytestmark = pytest.mark.skipif(importlib.util.find_spec("chromadb") is None, reason="needs the documents extra")


def server(module: str, **env: str) -> Json:
    return {"command": sys.executable, "args": ["-m", f"servers.{module}"], "env": env, "cwd": str(Path.cwd())}


async def test_a_missing_model_fails_its_own_call_and_delays_no_other(tmp_path: Path) -> None:
    import chromadb

    store = chromadb.PersistentClient(str(tmp_path / "store"))
    store.create_collection("documents").add(ids=["1"], documents=["a text"], embeddings=[[0.1] * 384])
    environ = {
        "DOCMIND_CHROMA_PATH": str(tmp_path / "store"),
        "EMBEDDING_MODEL": "nobody/has-this-model",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "empty-cache"),
    }
    servers = {"documents": server("documents", **environ), "math": server("math_evaluator")}
    async with running(tmp_path, servers) as (runtime, client):
        assert {status.name: status.tools for status in runtime.statuses()} == {"documents": 2, "math": 1}
        async with asyncio.TaskGroup() as group:
            search = group.create_task(client.call("search_documents", {"query": "a text"}, timeout=120))
            slowest = 0.0
            while not search.done():
                began = time.monotonic()
                assert said(await client.call("calculate", {"expression": "6*7"}, timeout=10))
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.05)
        answer = search.result()
        assert answer["isError"] is True
        assert "nobody/has-this-model" in said(answer)
        assert "EMBEDDING_MODEL" in said(answer)
        assert slowest < 3, "two cores are busy with imports, but the calculator is not kept waiting for the model"
