"""Files turned into sections of plain text or Markdown: PDF, Markdown, text, HTML and Word."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from .errors import DocumentsError

MAX_BYTES = 200 * 1024 * 1024  # of one file


@dataclass(frozen=True)
class Section:
    """A stretch of a document under one heading or on one page."""

    text: str
    heading: str = ""  # the path of headings, "Chapter > Part"
    page: int | None = None  # counted from 1
    markdown: bool = False


@dataclass(frozen=True)
class Document:
    """A file's text."""

    title: str
    sections: list[Section]


def read_document(path: Path, content: bytes) -> Document:
    """The sections of a file, by its suffix.

    Raises DocumentsError when the kind is unknown, the file is damaged, protected, binary or has no text.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DocumentsError(f"{path.suffix or 'no suffix'}: not a kind of file that is read ({KINDS})")
    try:
        document = reader(path, content)
    except DocumentsError:
        raise
    except Exception as error:  # the parsers raise whatever a damaged file makes them stumble over
        raise DocumentsError(
            f"the file is damaged or not what its name says ({type(error).__name__} while reading it)"
        ) from error
    sections = [section for section in document.sections if section.text.strip()]
    if not sections:
        raise DocumentsError("the file has no text")
    return Document(document.title or path.stem, sections)


def _read_text(path: Path, content: bytes) -> Document:
    return Document(path.stem, [Section(decode(content))])


def _read_markdown(path: Path, content: bytes) -> Document:
    return _from_markdown(decode(content), "")


def _read_html(path: Path, content: bytes) -> Document:
    from bs4 import BeautifulSoup

    # Given bytes, the parser finds the encoding that the page declares.
    return _from_soup(BeautifulSoup(content, "html.parser"))


def _read_docx(path: Path, content: bytes) -> Document:
    import mammoth
    from bs4 import BeautifulSoup

    return _from_soup(BeautifulSoup(mammoth.convert_to_html(BytesIO(content)).value, "html.parser"))


def _read_pdf(path: Path, content: bytes) -> Document:
    import logging

    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.ERROR)
    try:
        reader = PdfReader(BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentsError("the PDF asks for a password; save a copy without one")
        pages = [_tidy(page.extract_text()) for page in reader.pages]
        title = (reader.metadata and reader.metadata.title) or ""
    except DependencyError as error:
        raise DocumentsError("the PDF is encrypted with AES; save a copy without encryption") from error
    if pages and not any(page.strip() for page in pages):
        raise DocumentsError(
            f"a scanned PDF: its {len(pages)} page(s) are pictures without text. "
            "Run it through a text recogniser (for example ocrmypdf) and ingest the result"
        )
    return Document(str(title).strip(), [Section(text, page=n) for n, text in enumerate(pages, start=1)])


def _tidy(page: str) -> str:
    """A page's text with words hyphenated at a line's end made whole."""
    return re.sub(r"(?<=[^\W\d_])-\n(?=[a-zäöüß])", "", page.replace("\r\n", "\n"))


def _from_soup(soup: object) -> Document:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    assert isinstance(soup, BeautifulSoup)
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for tag in soup(["script", "style", "noscript", "template", "svg", "head", "nav"]):
        tag.decompose()
    converter = MarkdownConverter(heading_style="ATX", strip=["a", "img"], escape_misc=False)
    return _from_markdown(str(converter.convert_soup(soup)), title)


def _from_markdown(text: str, title: str) -> Document:
    """Cut Markdown at its headings (CommonMark §4.2, §4.3; a `#` in a code block is none)."""
    from markdown_it import MarkdownIt

    text = re.sub(r"\A---\n.*?\n(?:---|\.\.\.)\n", "", text.replace("\r\n", "\n"), flags=re.DOTALL)
    lines = text.split("\n")
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    start = 0
    tokens = MarkdownIt("commonmark").parse(text)
    for position, token in enumerate(tokens):
        if token.type != "heading_open" or token.map is None or token.level > 0:
            continue
        sections.append(_section(lines[start : token.map[0]], path))
        level, name = int(token.tag[1]), _plain_heading(tokens[position + 1].content)
        path = [*(entry for entry in path if entry[0] < level), (level, name)]
        start = token.map[1]
        title = title or name
    sections.append(_section(lines[start:], path))
    return Document(title, sections)


def _section(lines: list[str], path: list[tuple[int, str]]) -> Section:
    heading = " > ".join(name for _, name in path if name)
    return Section("\n".join(lines).strip("\n"), heading, markdown=True)


def _plain_heading(text: str) -> str:
    return re.sub(r"[*_`]{1,3}(\S(?:.*?\S)?)[*_`]{1,3}", r"\1", text).strip()


def decode(content: bytes) -> str:
    """Text of a file in UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252.

    Raises DocumentsError for binary content.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    if b"\0" in content:
        raise DocumentsError("binary content, not text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


READERS: dict[str, Callable[[Path, bytes], Document]] = {
    ".pdf": _read_pdf,
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".txt": _read_text,
    ".text": _read_text,
    ".rst": _read_text,
    ".html": _read_html,
    ".htm": _read_html,
    ".docx": _read_docx,
}
KINDS = "PDF, Markdown, text, HTML, docx"
