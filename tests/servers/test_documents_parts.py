"""The pure parts of document search: joining, words, settings, the copy of a store. No extra needed."""

from __future__ import annotations

import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.docsearch import snapshot
from servers.docsearch.embedding import same_model
from servers.docsearch.errors import DocumentsError
from servers.docsearch.keywords import KeywordIndex, match_expression
from servers.docsearch.listing import plain
from servers.docsearch.ranking import reciprocal_rank_fusion, similarity
from servers.docsearch.search import joined, source_of
from servers.docsearch.settings import DocumentSettings, server_place
from servers.docsearch.store import check_folder
from tests.servers.documents_support import folder_hash

numbers = st.floats(-1e6, 1e6)
vectors = st.lists(numbers, min_size=3, max_size=3)
rankings = st.lists(st.lists(st.text(max_size=2), unique=True, max_size=8), max_size=4)


@given(vectors, vectors)
def test_a_score_is_between_zero_and_one_and_the_same_both_ways(one: list[float], other: list[float]) -> None:
    score = similarity(one, other)
    assert 0.0 <= score <= 1.0
    assert math.isclose(score, similarity(other, one), abs_tol=1e-9)


@pytest.mark.parametrize(
    ("other", "score"), [([2.0, 0.0], 1.0), ([0.0, 3.0], 0.0), ([-1.0, 0.0], 0.0), ([0.0, 0.0], 0.0), ([1, 1], 0.7071)]
)
def test_a_score_is_the_cosine_whatever_the_lengths(other: list[float], score: float) -> None:
    assert similarity([1.0, 0.0], other) == pytest.approx(score, abs=1e-4)


@given(rankings)
def test_joined_rankings_hold_every_item_once(lists: list[list[str]]) -> None:
    fused = reciprocal_rank_fusion(lists)
    assert sorted(fused) == sorted({item for ranking in lists for item in ranking})


def test_an_item_in_both_rankings_beats_the_best_of_one() -> None:
    assert reciprocal_rank_fusion([["a", "b"], ["c", "b"]])[0] == "b"


def test_an_exact_number_wins_over_the_nearest_meaning() -> None:
    assert joined("code-0777", ["near"], ["exact"])[0] == "exact"
    assert joined("why is the radiator cold", ["near"], ["exact"])[0] == "near"


PASSAGES = [
    ("boiler", "Error F.28: no ignition of the boiler KX-24C-80731."),
    ("other", "Error F.22: too little water in the boiler."),
    ("chinese", "静音开关在背面。拨到红色一侧时，麦克风的电源被切断。"),
    ("german", "Die Wäsche ist ungleich verteilt."),
    ("empty", ""),
]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("F.28", "boiler"),
        ("What is KX-24C-80731?", "boiler"),
        ("麦克风的电源", "chinese"),
        ("Wasche", "german"),
        ("errors about water", "other"),
    ],
)
def test_words_find_names_numbers_and_other_scripts(query: str, first: str) -> None:
    assert KeywordIndex(PASSAGES).search(query, 5)[0] == first


@pytest.mark.parametrize("query", ["", "   ", "?!", '"', "*", "NEAR(", "🙂", "zzz", "\0"])
def test_a_query_without_known_words_finds_nothing(query: str) -> None:
    assert KeywordIndex(PASSAGES).search(query, 5) == []


@given(st.text(max_size=200))
def test_no_query_breaks_the_word_search(query: str) -> None:
    assert set(KeywordIndex(PASSAGES).search(query, 5)) <= {name for name, _ in PASSAGES}


def test_a_very_long_query_is_cut() -> None:
    assert match_expression(" ".join(f"word{n}" for n in range(5000))).count(" OR ") == 63


def test_word_search_keeps_to_the_passages_allowed() -> None:
    assert KeywordIndex(PASSAGES).search("error boiler", 5, among={"other"}) == ["other"]


def test_settings_come_from_the_environment_and_blank_means_unset(tmp_path: Path) -> None:
    settings = DocumentSettings.from_environment(
        environ={"DOCMIND_CHROMA_PATH": str(tmp_path), "CHROMA_URL": " ", "DOCUMENTS_COLLECTION": "notes"}
    )
    assert settings == DocumentSettings(tmp_path, None, "notes", None)


def test_a_servers_name_never_holds_its_password() -> None:
    assert server_place("https://ann:s3cret@chroma.example:8443/api/?token=x") == "https://chroma.example:8443/api"


@pytest.mark.parametrize("url", ["ftp://s3cret@host", "http://", "http://host:s3cret", "http://[s3cret"])
def test_a_wrong_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(DocumentsError, match="CHROMA_URL is not an address") as caught:
        server_place(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", True),
        ("/models/all-minilm-l6-v2/", "default", True),
        ("C:\\models\\all-MiniLM-L6-v2", "onnx_mini_lm_l6_v2", True),
        ("all-mpnet-base-v2", "all-MiniLM-L6-v2", False),
    ],
)
def test_models_are_compared_by_their_last_name(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same


@pytest.mark.parametrize(
    ("metadata", "source"),
    [
        (None, None),
        ({}, None),
        ({"topic": "bees"}, None),
        ({"file_name": "a.pdf"}, "a.pdf"),
        ({"source": "/home/ann/secret/a.pdf"}, "a.pdf"),
        ({"source": "C:\\Users\\ann\\a.pdf"}, "a.pdf"),
        ({"source": "", "url": "https://example.org/a"}, "https://example.org/a"),
    ],
)
def test_the_source_is_found_under_any_usual_name(metadata: dict[str, str] | None, source: str | None) -> None:
    assert source_of(metadata) == source


def test_metadata_that_json_cannot_say_becomes_words() -> None:
    metadata = {"ratio": math.inf, "share": math.nan, "n": 1, "name": "x", "tags": ["a"]}
    assert plain(metadata) == {"ratio": "inf", "share": "nan", "n": 1, "name": "x", "tags": ["a"]}


def test_a_missing_store_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(DocumentsError, match=r"no collections yet in .*voice-bridge ingest"):
        check_folder(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_in_place_of_a_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DocumentsError, match="must name a folder"):
        check_folder(tmp_path / "file")


def test_a_store_from_before_chroma_0_4_names_the_converter(tmp_path: Path) -> None:
    (tmp_path / "chroma-collections.parquet").touch()
    with pytest.raises(DocumentsError, match="chroma-migrate"):
        check_folder(tmp_path)


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    (tmp_path / snapshot.DATABASE).write_bytes(b"not a database " * 500)
    with pytest.raises(DocumentsError, match="not a Chroma database"):
        snapshot.schema_version(tmp_path / snapshot.DATABASE)


def test_a_copy_leaves_the_original_untouched_and_knows_its_state(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / snapshot.DATABASE)) as database:
        database.execute("CREATE TABLE migrations (dir, version)")
        database.execute("INSERT INTO migrations VALUES ('sysdb', 9)")
        database.commit()
    (tmp_path / "segment").mkdir()
    (tmp_path / "segment" / "data.bin").write_bytes(b"\1\2")
    (tmp_path / ".ingest.lock").touch()
    before = folder_hash(tmp_path)
    copy, state = snapshot.copy_store(tmp_path)
    try:
        assert snapshot.schema_version(copy / snapshot.DATABASE) == {"sysdb": 9}
        assert (copy / "segment" / "data.bin").read_bytes() == b"\1\2"
        assert not (copy / ".ingest.lock").exists()
        assert state == snapshot.signature(tmp_path)
    finally:
        snapshot.remove_copy(copy)
    assert folder_hash(tmp_path) == before
    os.utime(tmp_path / "segment" / "data.bin", (1, 1))
    assert state != snapshot.signature(tmp_path)
