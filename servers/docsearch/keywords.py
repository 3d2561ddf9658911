"""BM25 over passages, in memory: SQLite's FTS5, so that exact names and numbers are found."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Collection, Iterable
from itertools import pairwise

MAX_TERMS = 64  # of one query; the rest adds time, not precision
KEPT_SHARE = 0.5  # of the best score; see bench/retrieval.py

# Scripts written without spaces: every character becomes a word, a query matches neighbouring pairs.
_UNSPACED = re.compile("[\u2e80-\u2fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f]")
_WORD = re.compile(r"[^\W_]+(?:[-_.'’/@:+&#][^\W_]+)*")
_RUN = re.compile(rf"{_UNSPACED.pattern}+|(?:(?!{_UNSPACED.pattern})[^\W_])+")
# Words of questions, not of answers.
_STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a an and are as at be by can could did do does for from had has have how i if in is it its me my
    of on or our should so tell than that the their them then there these they this to was we were
    what when where which who whom whose why will with would you your
        """,
    )
)


class KeywordIndex:
    """Passages by their words; built once, then only searched. Safe to use from several threads."""

    def __init__(self, passages: Iterable[tuple[str, str]]) -> None:
        """Index (id, text) pairs."""
        self._ids: list[str] = []
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(
            "CREATE VIRTUAL TABLE passage USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2')"
        )
        self._db.executemany("INSERT INTO passage(rowid, text) VALUES (?, ?)", self._rows(passages))

    def __len__(self) -> int:
        return len(self._ids)

    def _rows(self, passages: Iterable[tuple[str, str]]) -> Iterable[tuple[int, str]]:
        for number, (passage_id, text) in enumerate(passages):
            self._ids.append(passage_id)
            yield number, _UNSPACED.sub(r" \g<0> ", text)

    def search(
        self, query: str, limit: int, among: Collection[str] | None = None, kept: float = KEPT_SHARE
    ) -> list[str]:
        """Ids of the passages that share words with `query`, best first (BM25, k1 = 1.2, b = 0.75).

        Only passages with at least the share `kept` of the best score: the rest share but the common words,
        and in a joined ranking they would push down what is near by meaning.
        """
        expression = match_expression(query)
        if not expression or limit < 1:
            return []
        with self._lock:
            rows = self._db.execute(
                "SELECT rowid, -rank FROM passage WHERE passage MATCH ? ORDER BY rank LIMIT ?",
                (expression, limit if among is None else -1),
            ).fetchall()
        hits = [(self._ids[row], score) for row, score in rows]
        if among is not None:
            hits = [hit for hit in hits if hit[0] in among][:limit]
        return [passage for passage, score in hits if score >= kept * hits[0][1]]

    def close(self) -> None:
        """Free the memory."""
        with self._lock:
            self._db.close()


def match_expression(query: str) -> str:
    """An FTS5 expression (SQLite FTS5 §3) that matches any word, compound or CJK pair of `query`."""
    words = _WORD.findall(query[:20_000])
    terms = [term for word in words for term in _terms(word)]
    if not terms:  # nothing but words of questions: better than nothing
        terms = [f'"{word}"' for word in words]
    return " OR ".join(list(dict.fromkeys(terms))[:MAX_TERMS])


def _terms(word: str) -> list[str]:
    """A compound counts as a phrase and as its parts, a run of an unspaced script as its pairs."""
    terms: list[str] = []
    runs = _RUN.findall(word)
    if len(runs) > 1 and not _UNSPACED.search(word):
        terms.append(f'"{word}"')
    for run in runs:
        if _UNSPACED.match(run):
            terms += [f'"{a} {b}"' for a, b in pairwise(run)] or [f'"{run}"']
        elif run.lower() not in _STOPWORDS:
            terms.append(f'"{run}"')
    return terms
