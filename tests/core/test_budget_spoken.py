"""What a voice is given to say: no escape sequence, no control character, and every word and emoji that was there."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_bridge.core import budget as shaping
from voice_bridge.text import spoken

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
ARABIC = "مرحبا \u200fبالعالم\u200c"
TURNED = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;5;196;1mred\x1b[m", "red"),
        ("\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]0;a title\x1b\\text", "text"),
        ("\x1b]8;;https://example.com/\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        ("\x9d0;a title\x9ctext", "text"),
        ("\x1bPq#0~~\x1b\\after a picture", "after a picture"),
        ("\x1b_an order\x1b\\text", "text"),
        ("\x1b]0;a title without an end\nthe next line", "\nthe next line"),
        ("\x1b(Btext\x1bc", "text"),
        ("cut off \x1b[3", "cut off "),
        ("cut off \x1b", "cut off "),
        ("\x1b\x1b[31mred", "red"),
        ("bell\x07 null\0 delete\x7f", "bell null delete"),
        ("a\bb", "b"),
        ("abc\b\b", "abc"),
        ("\b\ba", "a"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("|\b/\b-\b\\\bdone", "done"),
        ("\r50%\r100%", "100%"),
        ("100%\r5%", "5%"),
        ("50%\r\x1b[K60%\r", "60%"),
        ("one\r\ntwo\r\r\nthree", "one\ntwo\nthree"),
        ("10%\r20%\nnext 1\rnext 2", "20%\nnext 2"),
        ("\r\r", ""),
        ("one\x0btwo\x0cthree\x85four\u2028five\u2029six", "one\ntwo\nthree\nfour\nfive\nsix"),
        ("file\u202etxt.exe", "filetxt.exe"),
        (f"a{TURNED}b", "ab"),
        ("half \ud83d", "half "),
    ],
)
def test_what_steers_a_terminal_is_not_said(written: str, said: str) -> None:
    assert spoken(written) == said


@pytest.mark.parametrize(
    "text",
    ["", "plain", "two\nlines\tand a tab", FAMILY, ARABIC, "e\u0301", "🏴\U000e0067\U000e007f", "  spaces  \n\n"],
)
def test_what_can_be_said_stays_as_it_is(text: str) -> None:
    assert spoken(text) == text
    assert spoken(f"\x1b[1m{text}\x1b[0m") == text


def test_text_that_was_decoded_wrongly_loses_no_words() -> None:
    """UTF-8 read as Latin-1 is full of one-character forms of escape sequences."""
    wrong = "He said “now” – and left."
    assert re.sub("[^a-z]", "", spoken(wrong.encode().decode("latin-1"))) == "esaidnowandleft"


pieces = st.sampled_from(
    ["\x1b", "\x1b[", "\x1b]", "\x1bP", "\x9b", "\x9d", "\x07", "\x1b\\", "\x9c", "\b", "\r", "\n", "\t", "\u202e",
     "31", "m", ";", "word", FAMILY, ARABIC]
)  # fmt: skip


@given(st.lists(pieces | st.text(max_size=3), max_size=12).map("".join))
def test_nothing_that_is_said_steers_and_saying_it_twice_changes_nothing(text: str) -> None:
    said = spoken(text)
    assert {char for char in said if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")} <= {"\n", "\t"}
    assert not set(said) & set(TURNED)
    assert spoken(said) == said


@pytest.mark.parametrize(
    "piece", ["\x1b", "\x1b[", "\x1b[1", "\x1b]", "\x1b]a", "\x9b1", "\x9d", "\x9d1", "a\b", "a\r", "\x1b "]
)
def test_a_hundred_thousand_pieces_take_no_longer_than_reading_them(piece: str) -> None:
    """Time that grew with the square would be minutes."""
    begun = time.process_time()
    spoken(piece * 100_000)
    spoken(piece + "1" * 1_000_000)
    assert time.process_time() - begun < 5


# In a result


def shaped(raw: object) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(shaping.fit(json.dumps(raw).encode(), 2000))
    return value


def said(*texts: str, **members: object) -> str:
    text = shaped({"content": [{"type": "text", "text": text} for text in texts], **members})["content"][0]["text"]
    assert isinstance(text, str)
    return text


def test_a_result_for_a_voice_is_clean() -> None:
    assert said("\x1b[31mred\x1b[0m", f"\r50%\r100% {FAMILY}", ARABIC) == f"red\n100% {FAMILY}\n{ARABIC}"


def test_names_in_the_line_for_another_block_are_clean() -> None:
    link = {"type": "resource_link", "uri": "file:///x", "name": "\x1b[1mx\u202e"}
    assert shaped({"content": [link, {"type": "\x07holo"}]})["content"][0]["text"] == (
        "(a link: x)\n(something of the type holo was left out)"
    )


def test_structured_data_is_clean_and_keeps_its_numbers_as_they_were_written() -> None:
    raw = rb'{"content":[],"structuredContent":{"line":"\u001b[31mred\u202e\u001b[0m","n":1.10,"m":1E+2}}'
    text = json.loads(shaping.fit(raw, 2000))["content"][0]["text"]
    assert text == '{"line":"red","n":1.10,"m":1E+2}'
    beside = shaped({"content": [{"type": "text", "text": "a"}], "structuredContent": {"b": "\x1b[1mb"}})
    assert beside["structuredContent"] == {"b": "b"}


def test_a_text_that_is_json_is_clean_within_and_still_says_the_same_as_the_data() -> None:
    data = {"path": 'C:\\b "quoted"', "line": "\x1b[31mred\x1b[0m"}
    value = shaped({"content": [{"type": "text", "text": json.dumps(data)}], "structuredContent": data})
    assert json.loads(value["content"][0]["text"]) == {"path": 'C:\\b "quoted"', "line": "red"}
    assert "structuredContent" not in value


def test_a_text_that_only_looks_like_json_is_left_alone() -> None:
    assert said(r'[INFO] opened "C:\bin\u001b"') == r'[INFO] opened "C:\bin\u001b"'


def test_an_error_is_clean_with_the_rest_as_it_was_written() -> None:
    raw = rb'{"code":-5, "message":"\u001b[31mno\u001b[0m such row", "data":{"n":1.10,"twice":1,"twice":2}}'
    assert shaping.fit_error(raw, 500) == b'{"code":-5, "message":"no such row", "data":{"n":1.10,"twice":1,"twice":2}}'
    long = json.dumps({"code": -5, "message": "\x1b[31m" + "no " * 900}).encode()
    assert json.loads(shaping.fit_error(long, 300))["message"].startswith("no no")


_words = st.text(st.characters(categories=["L", "N", "So"]), max_size=9)


@given(st.recursive(_words | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(_words, inner)))
def test_a_clean_error_is_passed_on_byte_for_byte(data: object) -> None:
    for ascii_only in (True, False):
        raw = json.dumps({"code": -5, "message": "no", "data": data}, ensure_ascii=ascii_only, indent=1).encode()
        assert shaping.fit_error(raw, len(raw)) == raw
