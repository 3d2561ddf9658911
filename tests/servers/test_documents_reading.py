"""Files become sections, sections become passages that the model sees whole."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from servers.docsearch.chunking import Chunker
from servers.docsearch.errors import DocumentsError
from servers.docsearch.reading import Document, decode, read_document
from tests.servers.documents_support import model, needs_extra

pytestmark = needs_extra


def pdf(*pages: str) -> bytes:
    """A PDF (ISO 32000-1) with one line of Helvetica on each page; an empty string makes a page without text."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET" if page else "0 0 100 100 re f"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def docx(*paragraphs: tuple[str, str]) -> bytes:
    """A Word file (ECMA-376) with (style, text) paragraphs."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{main}.styles+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/styles" Target="styles.xml"/></Relationships>',
        "word/styles.xml": f'<w:styles xmlns:w="{word}">{styles}</w:styles>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def read(name: str, content: bytes | str) -> Document:
    return read_document(Path(name), content.encode() if isinstance(content, str) else content)


def test_markdown_is_cut_at_its_headings() -> None:
    text = "---\ntags: x\n---\n# Boat\nintro\n## Sails *red*\nred sails\n```\n# no heading\n```\nMast\n----\nwood\n"
    document = read("boat.md", text)
    assert document.title == "Boat"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("Boat", "intro"),
        ("Boat > Sails red", "red sails\n```\n# no heading\n```"),
        ("Boat > Mast", "wood"),
    ]


def test_html_keeps_structure_and_drops_scripts() -> None:
    page = (
        "<html><head><title>Trees</title><style>p{}</style></head><body><nav>menu</nav><h1>Oak</h1>"
        "<p>Old <b>oak</b>.</p><script>alert(1)</script><ul><li>acorn</li></ul></body></html>"
    )
    document = read("trees.html", page)
    assert document.title == "Trees"
    assert document.sections[0].heading == "Oak"
    assert document.sections[0].text.split() == ["Old", "**oak**.", "*", "acorn"]


def test_html_is_read_in_the_encoding_it_declares() -> None:
    page = '<meta charset="iso-8859-1"><p>Blåbær</p>'.encode("latin-1")
    assert read("berries.html", page).sections[0].text == "Blåbær"


def test_pdf_pages_are_counted_from_one() -> None:
    document = read("two.pdf", pdf("first page", "second page"))
    assert [(s.page, s.text.strip()) for s in document.sections] == [(1, "first page"), (2, "second page")]


def test_word_headings_become_headings() -> None:
    document = read("w.docx", docx(("Heading1", "Garden"), ("Heading2", "Roses"), ("Normal", "Cut them in March.")))
    assert document.title == "Garden"
    assert [(s.heading, s.text) for s in document.sections] == [("Garden > Roses", "Cut them in March.")]


def encrypted() -> bytes:
    from pypdf import PdfWriter

    writer = PdfWriter(clone_from=io.BytesIO(pdf("secret")))
    writer.encrypt("password", algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("scan.pdf", pdf("", ""), r"a scanned PDF: its 2 page\(s\) are pictures.*ocrmypdf"),
        ("broken.pdf", b"%PDF-1.4 nonsense", "damaged"),
        ("cut.pdf", pdf("text")[:200], "damaged"),
        ("empty.pdf", b"", "damaged"),
        ("fake.docx", b"no zip", "damaged or not what its name says"),
        ("odd.docx", b"PK\x05\x06" + bytes(18), "damaged or not what its name says"),
        ("picture.txt", b"\x89PNG\0\0", "binary"),
        ("empty.txt", b"", "has no text"),
        ("blank.md", b"# \n\n", "has no text"),
        ("song.mp3", b"x", "not a kind of file"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(name: str, content: bytes, reason: str) -> None:
    with pytest.raises(DocumentsError, match=reason):
        read(name, content)


def test_a_protected_pdf_asks_for_a_copy_without_password() -> None:
    with pytest.raises(DocumentsError, match="password"):
        read("secret.pdf", encrypted())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfplain", "plain"),
        ("größer".encode("utf-16"), "größer"),
        ("größer".encode("cp1252"), "größer"),
        ("größer".encode(), "größer"),
    ],
)
def test_text_is_decoded_as_it_was_written(content: bytes, text: str) -> None:
    assert decode(content) == text


LONG = "# Sea\n\n" + "\n\n".join(f"Wave {n} rolls slowly over the grey sand and back again." for n in range(120))


def test_every_passage_fits_the_model_and_nothing_is_lost() -> None:
    chunker = Chunker(model())
    passages = chunker.passages(read("sea.md", LONG))
    count = model().tokenizer()
    assert len(passages) > 5
    assert all(len(count.encode(chunker.embedded(passage)).ids) <= model().max_tokens for passage in passages)
    words = " ".join(passage.text for passage in passages).split()
    assert words == LONG.removeprefix("# Sea").split()
    assert {passage.heading for passage in passages} == {"Sea"}


def test_a_word_without_spaces_and_a_huge_heading_still_fit() -> None:
    chunker = Chunker(model())
    count = model().tokenizer()
    document = read("odd.md", f"# {'very long heading ' * 60}\n\n{'x' * 3000}\n")
    for passage in chunker.passages(document):
        assert len(count.encode(chunker.embedded(passage)).ids) <= model().max_tokens
