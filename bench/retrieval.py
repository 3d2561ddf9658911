"""What document search finds and how fast: `python -m bench.retrieval [--backends] [--json]`.

Finds: hit rate at 5 and mean reciprocal rank of vectors, BM25 and the two joined, over the questions in
retrieval_questions.json and the corpus that ships with the servers. A question counts as answered at the rank
of the first passage from the document that answers it.

Fast: the first answer of a new search process, the median and 95th percentile of later ones, and passages per
second at ingest. `--backends` also compares ways to run the model. Needs the documents extra; stays on this
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers.docsearch.embedding import EmbeddingModel, load_model, quieten
from servers.docsearch.ingest import Ingest, Report, SourceFile, find_files, open_collection
from servers.docsearch.keywords import KeywordIndex
from servers.docsearch.process import WORKER
from servers.docsearch.search import CANDIDATES, DocumentSearch, joined, searchable
from servers.docsearch.settings import DEFAULT_COLLECTION, DocumentSettings
from servers.docsearch.store import records
from servers.docsearch.writing import open_for_writing
from servers.documents import corpus_dir

QUESTIONS = Path(__file__).with_name("retrieval_questions.json")
K = 5
COPIES = 4  # of the corpus, for the ingest figure
ROUNDS = 2  # over all questions, for the latency figure

Ranks = list[tuple[str, int | None]]  # kind of question, rank of the first right passage


@contextmanager
def filled(files: list[SourceFile], model: EmbeddingModel) -> Iterator[tuple[DocumentSettings, Any, float, int]]:
    """A fresh store with `files` in it: its settings, its collection, seconds and passages of the ingest."""
    with tempfile.TemporaryDirectory() as folder:
        settings = DocumentSettings(Path(folder) / "store")
        with open_for_writing(settings, upgrade=False, waiting=lambda: None) as client:
            collection = open_collection(client, DEFAULT_COLLECTION, model)
            report = Report()
            run = Ingest(collection, model, client.get_max_batch_size())
            started = time.perf_counter()
            run.run(files, report, lambda done: None)
            yield settings, collection, time.perf_counter() - started, report.passages


def quality(settings: DocumentSettings, collection: Any) -> dict[str, dict[str, Any]]:
    """Hit rate at 5 and MRR of each way to search, over all questions and by kind."""
    entries = list(records(collection, ["documents", "metadatas"]))
    document = {record: Path(metadata["source"]).name for record, metadata, _ in entries}
    index = KeywordIndex((record, searchable(metadata, text)) for record, metadata, text in entries)
    search = DocumentSearch(settings)
    ranks: dict[str, Ranks] = defaultdict(list)
    for question in json.loads(QUESTIONS.read_text("utf-8")):
        near, words = search.rankings(question["question"])
        ways = {
            "dense": near,
            "BM25": index.search(question["question"], CANDIDATES, kept=0),
            "hybrid": joined(question["question"], near, words),
        }
        for way, found in ways.items():
            sources = [document[record] for record in found]
            right = question["source"]
            rank = sources.index(right) + 1 if right in sources else None
            ranks[way].append((question["kind"], rank))
    search.close()
    return {way: _figures(all_ranks) for way, all_ranks in ranks.items()}


def _figures(ranks: Ranks) -> dict[str, Any]:
    kinds = ["all", *dict.fromkeys(kind for kind, _ in ranks)]
    figures = {}
    for kind in kinds:
        own = [rank for each, rank in ranks if kind in ("all", each)]
        hits = sum(rank is not None and rank <= K for rank in own) / len(own)
        mrr = sum(1 / rank for rank in own if rank) / len(own)
        figures[kind] = {"questions": len(own), "hit@5": round(hits, 3), "mrr": round(mrr, 3)}
    return figures


def warm_latency(settings: DocumentSettings) -> dict[str, float]:
    """Milliseconds of a whole search in a process that is ready."""
    search = DocumentSearch(settings)
    questions = [each["question"] for each in json.loads(QUESTIONS.read_text("utf-8"))]
    search.search(questions[0])
    took = []
    for question in questions * ROUNDS:
        started = time.perf_counter()
        search.search(question)
        took.append(1000 * (time.perf_counter() - started))
    search.close()
    return {"p50": round(statistics.median(took), 1), "p95": round(statistics.quantiles(took, n=20)[18], 1)}


def cold_latency(settings: DocumentSettings) -> float:
    """Seconds from starting a search process to its first answer: the imports, the model, the store."""
    request = {"id": 1, "op": "search", "args": {"query": "What is corrective RAG?"}}
    environment = {**os.environ, "DOCMIND_CHROMA_PATH": str(settings.path)}
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        took = time.perf_counter() - started
        child.stdin.close()
        child.wait(timeout=10)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return round(took, 2)


def many_files(folder: Path) -> list[SourceFile]:
    """Copies of the corpus, each file different, so that none is skipped."""
    files = []
    for file in find_files([corpus_dir()], Report()):
        for number in range(COPIES):
            copy = folder / f"{number}-{file.path.name}"
            copy.write_bytes(file.path.read_bytes() + f"\n\nCopy {number}.\n".encode())
            files.append(SourceFile(copy, copy.name))
    return files


def passages_of_corpus(model: EmbeddingModel) -> list[str]:
    """What the model reads of the corpus."""
    from servers.docsearch.chunking import Chunker
    from servers.docsearch.reading import read_document

    chunker = Chunker(model)
    return [
        chunker.embedded(passage)
        for file in find_files([corpus_dir()], Report())
        for passage in chunker.passages(read_document(file.path, file.path.read_bytes()))
    ]


def backends(model: EmbeddingModel) -> dict[str, float]:
    """Passages per second of several ways to run the same weights, best of three; those not installed are left out."""
    import torch

    texts = passages_of_corpus(model)
    inner = model._model
    rates = {}

    def rate(name: str, encode: Callable[[], object]) -> None:
        encode()
        took = []
        for _ in range(3):
            started = time.perf_counter()
            encode()
            took.append(time.perf_counter() - started)
        rates[name] = round(len(texts) / min(took), 1)

    def plain(each: Any, batch: int) -> Callable[[], object]:
        return lambda: each.encode(texts, batch_size=batch, show_progress_bar=False)

    threads = torch.get_num_threads()
    for batch in (1, 8, 32, 128):
        rate(f"torch, {threads} threads, batches of {batch} by length", plain(inner, batch))
    rate(f"torch, {threads} threads, batches of 32 as they come", lambda: _as_they_come(inner, texts, 32))
    torch.set_num_threads(1)
    rate("torch, 1 thread, batches of 32 by length", plain(inner, 32))
    torch.set_num_threads(threads)
    for name, other in _other_backends(inner):
        rate(f"{name}, batches of 32 by length", plain(other, 32))
    return rates


def _as_they_come(model: Any, texts: list[str], batch: int) -> None:
    for start in range(0, len(texts), batch):
        model.encode(texts[start : start + batch], batch_size=batch, show_progress_bar=False)


def _other_backends(inner: Any) -> Iterator[tuple[str, Any]]:
    import copy

    import torch

    quantized = copy.deepcopy(inner)
    torch.ao.quantization.quantize_dynamic(quantized, {torch.nn.Linear}, inplace=True)
    yield "torch, int8 linear layers", quantized
    half = copy.deepcopy(inner).bfloat16()
    yield "torch, bfloat16", half
    try:
        from optimum.onnxruntime import ORTQuantizer
        from optimum.onnxruntime.configuration import AutoQuantizationConfig
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as folder:
        inner.save(folder)
        onnx = SentenceTransformer(folder, backend="onnx", device="cpu", local_files_only=True)
        yield "ONNX", onnx
        onnx.save_pretrained(folder)
        quantizer = ORTQuantizer.from_pretrained(Path(folder) / "onnx", file_name="model.onnx")
        settings = AutoQuantizationConfig.avx2(is_static=False, per_channel=False)
        quantizer.quantize(quantization_config=settings, save_dir=Path(folder) / "onnx")
        yield (
            "ONNX, int8",
            SentenceTransformer(
                folder,
                backend="onnx",
                device="cpu",
                local_files_only=True,
                model_kwargs={"file_name": "onnx/model_quantized.onnx"},
            ),
        )


def measure(with_backends: bool) -> dict[str, Any]:
    """All figures."""
    quieten()
    model = load_model(os.environ.get("EMBEDDING_MODEL") or None)
    result: dict[str, Any] = {}
    with filled(find_files([corpus_dir()], Report()), model) as (settings, collection, _, _):
        result["quality"] = quality(settings, collection)
        result["query warm, ms"] = warm_latency(settings)
        result["query cold, s"] = cold_latency(settings)
    with (
        tempfile.TemporaryDirectory() as folder,
        filled(many_files(Path(folder)), model) as (_, _, seconds, count),
    ):
        result["ingest, passages per second"] = round(count / seconds, 1)
    if with_backends:
        result["embedding alone, passages per second"] = backends(model)
    return result


def show(result: dict[str, Any]) -> None:
    """Print the figures as Markdown."""
    quality_figures = result["quality"]
    counts = {kind: each["questions"] for kind, each in quality_figures["hybrid"].items()}
    kinds = list(counts)
    print(f"| hit@{K} / MRR | {' | '.join(f'{kind} ({count})' for kind, count in counts.items())} |")
    print("|---|" + "---|" * len(kinds))
    for way, figures in quality_figures.items():
        cells = " | ".join(f"{figures[kind]['hit@5']:.3f} / {figures[kind]['mrr']:.3f}" for kind in kinds)
        print(f"| {way} | {cells} |")
    print()
    for name, value in result.items():
        if name != "quality":
            print(f"{name}: {value if not isinstance(value, dict) else ''}")
            for part, figure in value.items() if isinstance(value, dict) else ():
                print(f"  {part}: {figure}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backends", action="store_true", help="compare ways to run the model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = measure(options.backends)
    print(json.dumps(result, indent=2)) if options.json else show(result)
    hybrid, *others = (result["quality"][way]["all"] for way in ("hybrid", "dense", "BM25"))
    if any(hybrid[figure] < max(other[figure] for other in others) for figure in ("hit@5", "mrr")):
        raise SystemExit("hybrid search is worse than one of its parts")


if __name__ == "__main__":
    main()
