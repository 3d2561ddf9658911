"""The documents server as its clients see it: a real child process on stdio."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import psutil
import pytest

from servers.docsearch.embedding import ModelInBackground
from servers.docsearch.errors import INGEST_MODULES, INSTALL_COMMAND, DocumentsError
from tests.servers.documents_support import ROOT, WAIT, foreign_store, needs_extra, running_server, text_of

EXTRA_PACKAGES = {"torch", "chromadb", "sentence_transformers", "transformers"}


@pytest.fixture
def bare_libraries(tmp_path: Path) -> str:
    """This environment without the documents extra: links to every installed package but those of the extra."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    unwanted = {*INGEST_MODULES, *EXTRA_PACKAGES}
    for kind in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(kind).iterdir():
            if entry.name.split(".")[0].split("-")[0] not in unwanted and entry.suffix != ".pth":
                (folder / entry.name).symlink_to(entry)
    return str(folder)


@pytest.mark.parametrize(
    "arguments", [["-S", "-m", "servers.documents"], ["-S", str(ROOT / "servers" / "documents.py")]]
)
async def test_without_the_extra_the_tools_are_listed_and_name_the_command(
    bare_libraries: str, arguments: list[str], tmp_path: Path
) -> None:
    settings = {"PYTHONPATH": os.pathsep.join([bare_libraries, str(ROOT)]), "DOCMIND_CHROMA_PATH": str(tmp_path / "s")}
    async with asyncio.timeout(WAIT), running_server(settings, arguments) as session:
        tools = (await session.list_tools()).tools
        assert [tool.name for tool in tools] == ["search_documents", "list_documents"]
        for name, given in (("search_documents", {"query": "x"}), ("list_documents", {})):
            result = await session.call_tool(name, given)
            assert result.is_error
            assert INSTALL_COMMAND in text_of(result)
            assert "chromadb" in text_of(result)
    assert not (tmp_path / "s").exists()


def test_without_the_extra_ingest_names_the_command(bare_libraries: str, tmp_path: Path) -> None:
    program = "import typer; from voice_bridge.cli.ingest import ingest; typer.run(ingest)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(ROOT / "README.md"), "--store", str(tmp_path / "s")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([bare_libraries, str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == 2
    assert INSTALL_COMMAND in done.stderr
    assert not (tmp_path / "s").exists()


def test_the_server_itself_never_imports_the_heavy_libraries() -> None:
    program = (
        "import sys, servers.documents, servers.docsearch.search, servers.docsearch.ingest, voice_bridge.cli.ingest;"
        f"print(sorted({EXTRA_PACKAGES!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert done.stdout.strip() == "[]", done.stderr


@needs_extra
async def test_tools_are_listed_while_the_model_loads_and_an_early_search_waits_with_notices(tmp_path: Path) -> None:
    store = foreign_store(tmp_path / "store")
    notices: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        notices.append(progress)

    script = [str(ROOT / "servers" / "documents.py")]
    async with asyncio.timeout(WAIT), running_server({"DOCMIND_CHROMA_PATH": str(store)}, script, tmp_path) as session:
        order: list[str] = []

        async def search() -> Any:
            result = await session.call_tool("search_documents", {"query": "07:45"}, progress_callback=note)
            order.append("search")
            return result

        async def tools() -> None:
            await session.list_tools()
            order.append("tools")

        async with asyncio.TaskGroup() as tasks:
            found = tasks.create_task(search())
            tasks.create_task(tools())
        assert order == ["tools", "search"]
        assert notices == sorted(notices)
        assert notices
        answer = found.result().structured_content
        assert answer["results"][0]["source"] == "ferry.txt"
        assert json.loads(text_of(found.result())) == answer
        unknown = await session.call_tool("list_documents", {"collection": "nope"})
        assert unknown.is_error
        assert "There are: library" in text_of(unknown)


def copies_in(folder: Path) -> list[str]:
    """The private copies of stores that are there."""
    return [name for name in os.listdir(folder) if name.startswith("voice-bridge-documents-")]


@needs_extra
async def test_nothing_but_messages_reaches_stdout_and_the_search_process_leaves_with_the_server(
    tmp_path: Path,
) -> None:
    store = foreign_store(tmp_path / "store")
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "servers.documents",
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"DOCMIND_CHROMA_PATH": str(store), "HF_HUB_OFFLINE": "1", "TMPDIR": str(tmp_path)},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "search_documents", "arguments": {"query": "bees"}}
    try:
        for message in (
            {"id": 0, "method": "initialize", "params": hello},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": call},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        lines = [json.loads(await asyncio.wait_for(server.stdout.readline(), WAIT)) for _ in range(2)]
        assert [line["id"] for line in lines] == [0, 1]
        assert not lines[1]["result"].get("isError"), lines[1]
        (worker,) = psutil.Process(server.pid).children()
        assert len(copies_in(tmp_path)) == 1
    finally:
        server.kill()  # not even a chance to tidy up
        await asyncio.wait_for(server.wait(), WAIT)
    rest = await asyncio.wait_for(server.stdout.read(), WAIT)
    assert rest == b""
    await asyncio.to_thread(worker.wait, WAIT)
    assert copies_in(tmp_path) == []


@needs_extra
def test_a_model_that_is_nowhere_names_the_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    missing = ModelInBackground("BAAI/bge-small-en-v1.5", WAIT)
    with pytest.raises(DocumentsError, match=r"bge-small-en-v1.5 is missing.*Set EMBEDDING_MODEL to a folder"):
        missing.get()
    with pytest.raises(DocumentsError, match="names the folder /nowhere/model, which does not exist"):
        ModelInBackground("/nowhere/model", WAIT).get()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentsError, match=r"empty cannot be loaded.*Set EMBEDDING_MODEL"):
        ModelInBackground(str(tmp_path / "empty"), WAIT).get()


@needs_extra
def test_a_hub_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    """A black hole of a network: a search ends within its own limit."""
    program = (
        "from servers.docsearch.embedding import ModelInBackground\n"
        "from servers.docsearch.errors import DocumentsError\n"
        "import os, sentence_transformers\n"
        "try: ModelInBackground('BAAI/bge-small-en-v1.5', 1.0).get()\n"
        "except DocumentsError as error: print(error, flush=True)\n"
        "os._exit(0)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        runtime = {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HOME": str(tmp_path)}
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"} | runtime
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT
        )
    assert "is not loaded after 1 s; it may still be downloading" in done.stdout, done.stderr
    assert "EMBEDDING_MODEL" in done.stdout
