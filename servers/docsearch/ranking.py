"""Pure arithmetic of search: similarity, and joining ranked lists."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

RRF_K = 60  # Cormack, Clarke, Büttcher: Reciprocal Rank Fusion, SIGIR 2009


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of the angle between two vectors, as a score from 0 (unrelated) to 1 (same direction).

    Taken from the vectors themselves, so it means the same in cosine, l2 and ip collections. A vector of
    zeros is similar to nothing.
    """
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    length = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    if length == 0 or not math.isfinite(dot / length):
        return 0.0
    return min(1.0, max(0.0, dot / length))


def reciprocal_rank_fusion(rankings: Iterable[Sequence[str]], k: int = RRF_K) -> list[str]:
    """Join ranked lists: an item scores the sum of 1 / (k + its rank), ranks counted from 1.

    Ties keep the order in which the items were first seen.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (k + rank)
    return sorted(scores, key=lambda item: -scores[item])
