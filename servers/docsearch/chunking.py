"""Sections cut into passages that the embedding model sees whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .embedding import EmbeddingModel
from .reading import Document, Section

PASSAGE_TOKENS = 200  # leaves room for the heading under the model's 256, and answers stay short enough to say
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
HEADING_TOKENS = 40


@dataclass(frozen=True)
class Passage:
    """A stretch of a document, as it is stored."""

    text: str
    title: str
    heading: str
    page: int | None

    @property
    def context(self) -> str:
        """Where the passage stands, for the embedding: its title and headings."""
        path = self.heading if self.heading.startswith(self.title) else f"{self.title} > {self.heading}"
        return path.removesuffix(" > ")


class Chunker:
    """Cuts documents on their structure: blocks, sentences, words, in that order of preference."""

    def __init__(self, model: EmbeddingModel) -> None:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter

        self._tokenizer: Any = model.tokenizer()
        self._limit = model.max_tokens - SPECIAL_TOKENS
        capacity = min(PASSAGE_TOKENS, max(16, self._limit - HEADING_TOKENS))
        self._text: Callable[[str], list[str]]
        self._text = TextSplitter.from_huggingface_tokenizer(self._tokenizer, capacity).chunks
        self._markdown: Callable[[str], list[str]]
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(self._tokenizer, capacity).chunks

    def passages(self, document: Document) -> list[Passage]:
        """The document's passages in order; none is empty."""
        return [
            Passage(text, document.title, section.heading, section.page)
            for section in document.sections
            for text in self._cut(section)
            if text.strip()
        ]

    def _cut(self, section: Section) -> list[str]:
        return self._markdown(section.text) if section.markdown else self._text(section.text)

    def embedded(self, passage: Passage) -> str:
        """What the model reads: the passage under its title and headings, within the model's tokens."""
        room = min(HEADING_TOKENS, self._limit - self._count(passage.text) - 1)
        context = passage.context
        offsets = self._tokenizer.encode(context, add_special_tokens=False).offsets
        if len(offsets) > room:
            context = context[: offsets[room - 1][1]] if room > 0 else ""
        return f"{context}\n{passage.text}" if context else passage.text

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
