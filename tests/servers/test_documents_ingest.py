"""`voice-bridge ingest`: what is new, changed, gone, unreadable, interrupted, or done twice at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from servers.docsearch.errors import DocumentsError
from servers.docsearch.settings import DocumentSettings
from servers.docsearch.writing import open_for_writing
from servers.documents import corpus_dir
from tests.servers.documents_support import (
    ROOT,
    WAIT,
    client,
    foreign_store,
    model,
    needs_extra,
    search_in,
    unpack,
)
from tests.servers.test_documents_reading import pdf
from voice_bridge.cli.ingest import ingest

pytestmark = needs_extra

app = typer.Typer()
app.command()(ingest)
PROGRAM = "import typer; from voice_bridge.cli.ingest import ingest; typer.run(ingest)"


def run(store: Path, *arguments: object) -> Any:
    """The command, in this process, which has the libraries loaded."""
    return CliRunner().invoke(app, [*map(str, arguments), "--store", str(store)])


@contextlib.contextmanager
def child(store: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, killed by its pid if a test leaves it running."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments), "--store", str(store)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    ) as process:
        limit = threading.Timer(WAIT, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def stored(store: Path, name: str = "documents") -> dict[str, list[dict[str, Any]]]:
    """Metadata of every passage by source, as Chroma itself reads it."""
    other = client(store)
    found = other.get_collection(name, embedding_function=None).get()
    other.close()
    by_source: dict[str, list[dict[str, Any]]] = {}
    for metadata, text in zip(found["metadatas"], found["documents"], strict=True):
        by_source.setdefault(metadata["source"], []).append(metadata | {"text": text})
    return by_source


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# Apples\n\nApples keep in the cellar.\n")
    (folder / "deep" / "b.txt").write_text("Bees like clover.")
    (folder / "c.pdf").write_bytes(pdf("Cranes migrate in autumn", "and return in spring"))
    (folder / "song.mp3").touch()
    (folder / ".hidden.md").write_text("never")
    return folder


def test_files_and_folders_go_in_and_are_found(tmp_path: Path, files: Path) -> None:
    done = run(tmp_path / "store", files)
    assert done.exit_code == 0, done.output
    assert "3 added, 0 updated, 0 unchanged, 4 passages written, 1 of other kinds left out." in done.output
    search = search_in(tmp_path / "store")
    (crane,) = search.search("cranes migrate", 1)["results"]
    assert (crane["source"], crane["page"], crane["text"]) == ("notes/c.pdf", 1, "Cranes migrate in autumn")
    assert search.search("apples", 1)["results"][0]["heading"] == "Apples"
    assert [each["source"] for each in search.documents()["documents"]] == [
        "notes/a.md",
        "notes/c.pdf",
        "notes/deep/b.txt",
    ]
    search.close()


def test_an_unchanged_file_is_skipped_and_a_changed_one_replaced(tmp_path: Path, files: Path) -> None:
    store = tmp_path / "store"
    (files / "a.md").write_text("".join(f"# Part {n}\n\nText {n}.\n\n" for n in range(5)))
    run(store, files)
    assert len(stored(store)["notes/a.md"]) == 5
    (files / "a.md").write_text("# Pears\n\nPears do not keep.\n")
    done = run(store, files)
    assert "1 updated, 2 unchanged" in done.output
    (only,) = stored(store)["notes/a.md"]
    assert only["text"] == "Pears do not keep."


def test_a_heading_that_is_gone_is_not_kept(tmp_path: Path, files: Path) -> None:
    store = tmp_path / "store"
    run(store, files)
    (files / "a.md").write_text("Pears do not keep.\n")
    run(store, files)
    search = search_in(store)
    (found,) = search.search("pears", 1, where={"source": "notes/a.md"})["results"]
    assert found["heading"] == "a", "not the file's own title"
    search.close()


def test_a_deleted_file_is_reported_and_removed_on_request(tmp_path: Path, files: Path) -> None:
    store = tmp_path / "store"
    run(store, files)
    (files / "a.md").unlink()
    told = run(store, files)
    assert "1 document(s) no longer exist (notes/a.md); --prune removes them" in told.output
    assert "notes/a.md" in stored(store)
    (files / "deep" / "b.txt").unlink()
    assert "1 removed" in run(store, files / "deep", "--prune").output
    assert set(stored(store)) == {"notes/a.md", "notes/c.pdf"}, "only what is under the given folder is pruned"
    assert "1 removed" in run(store, files, "--prune").output
    assert set(stored(store)) == {"notes/c.pdf"}


def test_what_cannot_be_read_is_named_and_the_rest_goes_in(tmp_path: Path, files: Path) -> None:
    (files / "scan.pdf").write_bytes(pdf("", ""))
    (files / "broken.docx").write_bytes(b"nonsense")
    done = run(tmp_path / "store", files)
    assert done.exit_code == 1
    assert "3 added" in done.output
    assert "not read: notes/scan.pdf: a scanned PDF" in done.output
    assert "not read: notes/broken.docx: the file is damaged" in done.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/nowhere/at/all"], "There is no file or folder /nowhere/at/all"),
        ([ROOT / "README.md", "--collection", "a b"], "'a b' cannot be a collection's name"),
    ],
)
def test_a_wrong_argument_is_told_with_status_2(tmp_path: Path, arguments: list[object], sentence: str) -> None:
    done = run(tmp_path / "store", *arguments)
    assert done.exit_code == 2
    assert sentence in done.output


def test_a_folder_with_other_files_is_not_made_a_store(tmp_path: Path, files: Path) -> None:
    done = run(files / "deep", files / "a.md")
    assert done.exit_code == 2
    assert "holds other files and no Chroma store" in done.output
    assert {path.name for path in (files / "deep").iterdir()} - {".ingest.lock"} == {"b.txt"}


def test_an_older_chromas_store_is_upgraded_only_on_request(tmp_path: Path, files: Path) -> None:
    store = unpack("0.5.23", tmp_path / "store")
    database = (store / "chroma.sqlite3").read_bytes()
    refused = run(store, files, "--collection", "library")
    assert refused.exit_code == 2
    assert "made by an older Chroma" in refused.output
    assert "--upgrade-store" in refused.output
    assert (store / "chroma.sqlite3").read_bytes() == database
    done = run(store, files, "--collection", "library", "--upgrade-store")
    assert done.exit_code == 0, done.output
    assert {"ferry.txt", "notes/a.md"} <= set(stored(store, "library"))


def test_a_newer_chromas_store_is_not_written(tmp_path: Path, files: Path) -> None:
    store = foreign_store(tmp_path / "store")
    with contextlib.closing(sqlite3.connect(store / "chroma.sqlite3")) as database:
        database.execute("INSERT INTO migrations VALUES ('sysdb', 99, '00099-future.sqlite.sql', '', '')")
        database.commit()
    done = run(store, files)
    assert done.exit_code == 2
    assert "newer Chroma. Upgrade with: pip install -U chromadb" in done.output


def test_a_collection_of_another_model_is_not_mixed(tmp_path: Path, files: Path) -> None:
    other = client(tmp_path / "store")
    collection = other.create_collection("documents", embedding_function=None)
    collection.add(ids=["x"], embeddings=[[0.5] * 1024], documents=["from a bigger model"])
    other.close()
    done = run(tmp_path / "store", files)
    assert done.exit_code == 2
    assert "vectors of 1024 numbers" in done.output


def numbered(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:04}.md").write_text(f"# Note\n\nN-{number:04}\n")
    return folder


def passages_in(store: Path) -> int:
    """How many passages are written, without disturbing the writer."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{store / 'chroma.sqlite3'}?mode=ro", uri=True)) as database,
    ):
        return int(database.execute("SELECT count(*) FROM embeddings").fetchone()[0])
    return 0


def wait_for_passages(store: Path, process: subprocess.Popen[str], more_than: int) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT / 0.02)):
        if passages_in(store) > more_than:
            return
        assert process.poll() is None, "the ingest ended before it could be interrupted"
        pause.wait(0.02)
    raise AssertionError("the ingest wrote nothing")


def test_a_thousand_files_survive_an_interrupt_and_a_kill(tmp_path: Path) -> None:
    store, notes = tmp_path / "store", numbered(tmp_path / "many", 1000)
    with child(store, notes) as first:
        wait_for_passages(store, first, 0)
        first.send_signal(signal.SIGINT)
        output, _ = first.communicate(timeout=WAIT)
    assert first.returncode == 1
    assert "Stopped." in output
    assert "The same command goes on from here." in output
    written = passages_in(store)
    assert 0 < written < 1000
    with child(store, notes) as second:
        wait_for_passages(store, second, written)
        second.kill()
        second.wait(timeout=WAIT)
    after_kill = passages_in(store)
    assert written < after_kill
    done = run(store, notes)
    assert done.exit_code == 0, done.output
    assert f"{after_kill} unchanged" in done.output
    everything = stored(store)
    assert len(everything) == 1000
    assert all(len(passages) == 1 for passages in everything.values())
    search = search_in(store)
    assert search.search("N-0777", 1)["results"][0]["source"] == "many/0777.md"
    assert search.search("N-0001", 1)["results"][0]["source"] == "many/0001.md"
    search.close()


def test_two_ingests_at_once_take_turns(tmp_path: Path, files: Path) -> None:
    store = tmp_path / "store"
    with contextlib.ExitStack() as first:
        writer = first.enter_context(open_for_writing(DocumentSettings(store), upgrade=False, waiting=lambda: None))
        with child(store, files) as second:
            assert second.stdout is not None
            assert any("Another ingest is writing" in line for line in second.stdout)
            collection = writer.create_collection(
                "documents", embedding_function=None, metadata={"embedding_model": model().name}
            )
            vectors = model().encode(["Moss."])
            collection.add(ids=["x"], embeddings=vectors, documents=["Moss."], metadatas=[{"source": "moss"}])
            first.close()
            output, _ = second.communicate(timeout=WAIT)
    assert second.returncode == 0, output
    assert set(stored(store)) == {"moss", "notes/a.md", "notes/c.pdf", "notes/deep/b.txt"}


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(DocumentsError, match=r"cannot be written: Not a directory.*--store"),
        open_for_writing(DocumentSettings(tmp_path / "file" / "store"), upgrade=False, waiting=lambda: None),
    ):
        pass


def test_the_corpus_answers_what_corrective_rag_is(tmp_path: Path) -> None:
    assert run(tmp_path / "store", corpus_dir()).exit_code == 0
    search = search_in(tmp_path / "store")
    found = search.search("what is corrective RAG?", 3)["results"]
    search.close()
    assert found[0]["source"] == "corpus/agents/corrective-rag.md"
    assert "puts a check between retrieval and generation" in " ".join(found[0]["text"].split())


def test_a_long_file_goes_on_in_the_middle(tmp_path: Path) -> None:
    store, long = tmp_path / "store", tmp_path / "long.md"
    long.write_text("".join(f"# Part {n}\n\nThis is part {n}.\n\n" for n in range(40)))
    run(store, long)
    other = client(store)
    collection = other.get_collection("documents", embedding_function=None)
    ids = sorted(collection.get()["ids"])
    collection.delete(ids=ids[25:])  # what an interruption between two writes leaves
    other.close()
    assert "0 added, 1 updated, 0 unchanged, 15 passages written." in run(store, long).output
    assert [each["text"] for each in stored(store)["long.md"]] == [f"This is part {n}." for n in range(40)]
    assert "1 unchanged" in run(store, long).output
