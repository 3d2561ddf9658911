"""Searching and listing real Chroma stores, our own and other programs'."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from servers.docsearch.embedding import packaged_weights
from servers.docsearch.errors import DocumentsError
from servers.docsearch.search import DocumentSearch
from servers.docsearch.settings import DocumentSettings
from tests.servers.documents_support import (
    TEXTS,
    WAIT,
    Loaded,
    client,
    folder_hash,
    foreign_store,
    model,
    needs_extra,
    search_in,
    unpack,
)
from voice_bridge.cli.ingest import ingest

pytestmark = needs_extra

app = typer.Typer()
app.command()(ingest)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return foreign_store(tmp_path / "store")


def add(store: Path, name: str, **fields: Any) -> None:
    """One more collection, written by plain Chroma."""
    other = client(store)
    collection = other.create_collection(name, embedding_function=None)
    if fields:
        collection.add(**fields)
    other.close()


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_stores_of_other_programs_give_the_same_score_in_any_distance(tmp_path: Path, space: str) -> None:
    folder = foreign_store(tmp_path / "store", space)
    before = folder_hash(folder)
    search = search_in(folder)
    found = search.search("When does the boat to Norderholm sail?")
    assert found["results"][0] == {
        "text": TEXTS[2],
        "score": pytest.approx(0.56, abs=0.15),
        "source": "ferry.txt",
        "page": 3,
    }
    expected = model().encode(["When does the boat to Norderholm sail?"])[0] @ model().encode([TEXTS[2]])[0]
    assert found["results"][0]["score"] == pytest.approx(float(expected), abs=0.001)
    assert search.documents()["collections"][0]["distance"] == space
    search.close()
    assert folder_hash(folder) == before


@pytest.mark.parametrize("version", ["0.4.24", "0.5.23"])
def test_an_older_chromas_store_is_read_and_not_upgraded(tmp_path: Path, version: str) -> None:
    folder = unpack(version, tmp_path / "store")
    before = folder_hash(folder)
    search = search_in(folder)
    assert search.search("07:45")["results"][0]["source"] == "ferry.txt"
    assert search.documents()["collections"] == [{"name": "library", "passages": 3, "distance": "l2", "dimension": 384}]
    search.close()
    assert folder_hash(folder) == before


def test_a_read_only_folder_is_searched(store: Path) -> None:
    before = folder_hash(store)
    paths = [store, *store.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    search = search_in(store)
    try:
        assert search.search("bees")["results"][0]["source"] == "bees.txt"
    finally:
        search.close()
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert folder_hash(store) == before


def test_a_store_that_a_newer_chroma_broke_names_the_upgrade(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store / "chroma.sqlite3")) as database:
        database.execute("INSERT INTO migrations VALUES ('sysdb', 99, '00099-future.sqlite.sql', '', '')")
        database.execute("DROP TABLE collections")
        database.commit()
    with pytest.raises(DocumentsError, match=r"newer Chroma than the installed .* pip install -U chromadb"):
        search_in(store).search("bees")


def test_a_damaged_store_is_told(store: Path) -> None:
    (store / "chroma.sqlite3").write_bytes(b"garbage " * 1000)
    with pytest.raises(DocumentsError, match=f"^{store}/chroma.sqlite3 is not a Chroma database, or is damaged"):
        search_in(store).search("bees")


def test_what_is_written_later_is_found(store: Path) -> None:
    search = search_in(store)
    search.search("bees")
    add(
        store,
        "second",
        ids=["x"],
        embeddings=model().encode(["Otters sleep afloat."]),
        documents=["Otters sleep afloat."],
    )
    pause = threading.Event()
    for _ in range(int(WAIT / 0.1)):  # a copy is used for ten times as long as it took to make
        with contextlib.suppress(DocumentsError):
            assert search.search("otters", collection="second")["results"][0]["text"] == "Otters sleep afloat."
            break
        pause.wait(0.1)
    else:
        pytest.fail("the new collection was never seen")
    search.close()


def test_vectors_of_another_size_name_both_sizes_and_the_setting(store: Path) -> None:
    """The collection was filled with another model."""
    add(store, "large", ids=["x"], embeddings=[[0.1] * 1024], documents=["from a bigger model"])
    search = search_in(store)
    with pytest.raises(DocumentsError, match=r"'large' holds vectors of 1024 numbers.*makes 384.*EMBEDDING_MODEL"):
        search.search("anything", collection="large")
    assert search.search("bees", collection="library")["results"]
    search.close()


def test_another_model_of_the_same_size_is_refused_by_name(store: Path) -> None:
    other = client(store)
    collection = other.create_collection(
        "foreign", embedding_function=None, metadata={"embedding_model": "BAAI/bge-small-en-v1.5"}
    )
    noise = [[((i * 7919) % 101 - 50) / 50 for i in range(n, n + 384)] for n in range(2)]
    collection.add(ids=["x", "y"], embeddings=noise, documents=["One text.", "Another text."])
    other.close()
    search = search_in(store)
    with pytest.raises(
        DocumentsError, match=r"made by the embedding model BAAI/bge-small-en-v1.5.*Set EMBEDDING_MODEL"
    ):
        search.search("text", collection="foreign")
    search.close()


def test_vectors_that_look_unlike_ours_are_searched_with_a_remark(store: Path) -> None:
    add(store, "odd", ids=["x"], embeddings=[[(-1.0) ** i for i in range(384)]], documents=["Some text."])
    search = search_in(store)
    assert "do not look like those of all-MiniLM-L6-v2" in search.search("text", collection="odd")["note"]
    search.close()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Text without metadata, metadata without text, both."""
    folder = tmp_path / "bare"
    other = client(folder)
    collection = other.create_collection("bare", embedding_function=None)
    vectors = model().encode(["pears", "plums", "figs"])
    collection.add(ids=["text"], embeddings=vectors[:1], documents=["Pears ripen in September."])
    collection.add(ids=["meta"], embeddings=vectors[1:2], metadatas=[{"shelf": 7}])
    collection.add(ids=["both"], embeddings=vectors[2:], documents=["Figs are soft."], metadatas=[{"shelf": 9}])
    other.close()
    return folder


def test_a_collection_made_by_chromas_own_embedding_function_is_searched(tmp_path: Path) -> None:
    from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

    weights = packaged_weights()
    other = client(tmp_path / "store")
    collection = other.create_collection(
        "own", embedding_function=SentenceTransformerEmbeddingFunction(model_name=str(weights))
    )
    collection.add(ids=["x"], documents=["Bees dance to tell where flowers are."])
    other.close()
    search = search_in(tmp_path / "store")
    found = search.search("How do bees talk?")
    assert found["results"][0]["text"].startswith("Bees dance")
    assert "note" not in found
    assert search.documents()["collections"][0]["model"] == str(weights)
    search.close()


def test_half_an_emoji_breaks_no_query(bare: Path) -> None:
    assert len(search_in(bare).search("\ud83d figs")["results"]) == 3


def test_records_without_text_or_metadata_are_listed_with_what_they_have(bare: Path) -> None:
    search = search_in(bare)
    assert search.documents()["documents"] == [
        {"id": "text", "text": "Pears ripen in September."},
        {"id": "meta", "metadata": {"shelf": 7}},
        {"id": "both", "text": "Figs are soft.", "metadata": {"shelf": 9}},
    ]
    found = {each["id"]: each for each in search.search("fruit")["results"]}
    assert found["meta"]["text"] == ""
    assert found["meta"]["metadata"] == {"shelf": 7}
    assert found["text"]["text"] == "Pears ripen in September."
    assert type(found["both"]["score"]) is float
    search.close()


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-1, 1), (3, 3), (10_000, 3)])
def test_the_number_of_results_is_clamped(bare: Path, asked: int, given: int) -> None:
    search = search_in(bare)
    found = search.search("fruit", asked)
    assert len(found["results"]) == given
    assert ("n_results is from 1 to 50" in found.get("note", "")) is (asked != given)
    search.close()


@pytest.mark.parametrize("query", ["", "   ", "\n\t"])
def test_an_empty_query_is_refused_in_words(bare: Path, query: str) -> None:
    with pytest.raises(DocumentsError, match="The query is empty"):
        search_in(bare).search(query)


@pytest.mark.parametrize("query", ["🙂", "x" * 50_000, "fig " * 12_500, "\0", '"'])
def test_odd_queries_are_answered(bare: Path, query: str) -> None:
    search = search_in(bare)
    found = search.search(query)
    assert len(found["results"]) == 3
    assert ("first 10000 characters" in found.get("note", "")) is (len(query.strip()) > 10_000)
    search.close()


def test_a_filter_on_a_field_nobody_has_says_which_there_are(bare: Path) -> None:
    search = search_in(bare)
    found = search.search("fruit", where={"colour": "red"})
    assert found["results"] == []
    assert found["note"] == "No passage passes the filter. Its fields are: shelf."
    assert [each["id"] for each in search.search("fruit", where={"shelf": 9})["results"]] == ["both"]
    search.close()


@pytest.mark.parametrize("where", [{"$no": 1}, {"shelf": {"$no": 1}}, {"shelf": []}, {"a": 1, "b": 2}])
def test_a_filter_chroma_does_not_understand_is_explained(bare: Path, where: dict[str, Any]) -> None:
    search = search_in(bare)
    with pytest.raises(DocumentsError, match="filter `where`"):
        search.search("fruit", where=where)
    search.close()


def test_an_unknown_collection_lists_the_names_and_makes_none(store: Path) -> None:
    before = folder_hash(store)
    search = search_in(store)
    refused(lambda: search.search("bees", collection="nope"), r"no collection 'nope'.*There are: library")
    refused(lambda: search.documents("nope"), r"no collection 'nope'.*There are: library")
    search.close()
    assert folder_hash(store) == before


def test_a_store_without_collections_says_so_and_stays_so(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    client(folder).close()
    before = folder_hash(folder)
    search = search_in(folder)
    refused(lambda: search.search("bees"), r"no collections yet in .* voice-bridge ingest")
    refused(search.documents, r"no collections yet in .* voice-bridge ingest")
    search.close()
    assert folder_hash(folder) == before


def test_an_empty_collection_says_how_to_fill_it(tmp_path: Path) -> None:
    add(tmp_path / "store", "empty")
    search = search_in(tmp_path / "store")
    with pytest.raises(DocumentsError, match=r"'empty' is empty. Fill it with: voice-bridge ingest"):
        search.search("bees")
    assert search.documents()["total"] == 0
    search.close()


def test_the_configured_collection_is_used_and_a_wrong_setting_is_named(store: Path) -> None:
    add(store, "other", ids=["x"], embeddings=model().encode(["Moss."]), documents=["Moss."])
    assert search_in(store, "other").search("bees")["collection"] == "other"
    with pytest.raises(DocumentsError, match=r"no collection 'nope' \(DOCUMENTS_COLLECTION\)"):
        search_in(store, "nope").search("bees")
    with pytest.raises(DocumentsError, match=r"no collection 'documents' \(the default\).*library, other"):
        search_in(store).search("bees")


def test_a_long_list_is_given_page_by_page(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    vectors = model().encode(["moss"] * 5)
    add(
        folder,
        "pages",
        ids=list("abcde"),
        embeddings=vectors,
        documents=["moss"] * 5,
        metadatas=[{"source": "s1"}, {"source": "s2"}, {"x": 1}, {"x": 2}, {"source": "s2"}],
    )
    search = search_in(folder)
    first, second = search.documents(limit=3), search.documents(limit=3, offset=3)
    assert [each.get("source") or each["id"] for each in first["documents"]] == ["s1", "s2", "c"]
    assert [each["id"] for each in second["documents"]] == ["d"]
    assert first["total"] == 4
    assert first["note"] == "1 more: ask again with offset 3."
    assert len(search.documents(limit=0, offset=-5)["documents"]) == 1
    search.close()


def refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(DocumentsError, match=sentence):
        call()


@contextlib.contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """`chroma run` on a loopback port, ended by its pid."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(folder)]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, env=environment
    ) as server:
        try:
            assert answers(f"http://127.0.0.1:{port}/api/v2/heartbeat"), "the Chroma server did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=WAIT)


def answers(url: str) -> bool:
    """Whether a server answers within the limit."""
    pause = threading.Event()
    for _ in range(int(WAIT / 0.1)):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=WAIT).close()
            return True
        pause.wait(0.1)
    return False


def test_a_chroma_server_is_searched_and_its_absence_told_without_the_password(store: Path) -> None:
    with chroma_server(store) as url:
        secret = url.replace("://", "://ann:s3cret@")
        search = DocumentSearch(DocumentSettings(Path("unused"), secret), Loaded())
        assert search.search("Norderholm")["results"][0]["source"] == "ferry.txt"
        assert search.documents()["total"] == 3
        with pytest.raises(DocumentsError, match="no collection 'nope'"):
            search.search("bees", collection="nope")
        note = store.parent / "note.md"
        note.write_text("# Tide\n\nHigh water is at noon.\n")
        filled = CliRunner().invoke(app, [str(note), "--collection", "tides"], env={"CHROMA_URL": url})
        assert filled.exit_code == 0, filled.output
        assert search.search("When is high tide?", collection="tides")["results"][0]["source"] == "note.md"
    gone = DocumentSearch(DocumentSettings(Path("unused"), secret), Loaded())
    with pytest.raises(DocumentsError, match=r"No Chroma server of version 1 answers at http://127") as caught:
        gone.search("bees")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(DocumentsError, match="Chroma server") as caught:
        search.search("bees")
    assert "s3cret" not in str(caught.value)
