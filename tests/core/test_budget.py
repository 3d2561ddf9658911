"""Results for a voice: within the budget, cut where a listener would not mind, nothing lost silently."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_bridge.core import budget as shaping
from voice_bridge.text import spoken


def result(*texts: str, **members: Any) -> bytes:
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps({"content": content, **members}).encode()


def fit(raw: bytes, limit: int = 2000) -> tuple[str, dict[str, Any]]:
    shaped = shaping.fit(raw, limit)
    assert len(shaped) <= limit
    value = json.loads(shaped)
    assert [block["type"] for block in value["content"]] == ["text"]
    return value["content"][0]["text"], value


def test_a_small_text_stays_as_it_is() -> None:
    assert fit(result("329312", isError=False)) == (
        "329312",
        {"content": [{"type": "text", "text": "329312"}], "isError": False},
    )


def test_text_is_sent_unescaped_so_that_it_takes_a_third_of_the_bytes() -> None:
    escaped = json.dumps({"content": [{"type": "text", "text": "读" * 600}]}).encode()
    assert len(escaped) > 3600
    assert fit(escaped, 1900)[0] == "读" * 600


def test_three_thousand_characters_are_cut_between_characters_with_a_note_to_be_said() -> None:
    text, _ = fit(result("汉" * 3000), 8192)
    head, _, note = text.partition(" … ")
    assert set(head) == {"汉"}
    assert note == f"(shortened, {len(head):,} of 3,000 characters)"
    assert len(head) > 2600


def test_twenty_thousand_rows_become_as_many_whole_rows_as_fit() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(20_000)]
    text, _ = fit(result(json.dumps({"columns": ["id", "name"], "rows": rows})), 1000)
    data, _, note = text.rpartition("\n")
    kept = json.loads(data)["rows"]
    assert kept == rows[: len(kept)]
    assert len(kept) >= 10
    assert note == f"(shortened, {len(kept)} of 20,000 rows)"


def test_rows_keep_their_numbers_as_they_were_written() -> None:
    text, _ = fit(result("[" + ",".join(["1180591620717411303424, 1.10"] * 300) + "]"), 500)
    assert text.startswith("[1180591620717411303424,1.10,1180591620717411303424")


def test_lines_are_cut_at_a_line() -> None:
    text, _ = fit(result("\n".join(f"line {n}" for n in range(5000))), 600)
    *kept, note = text.split("\n")
    assert kept == [f"line {n}" for n in range(len(kept))]
    assert note == f"(shortened, {len(kept)} of 5,000 lines)"


def test_a_sentence_is_not_cut_when_its_end_is_near() -> None:
    text, _ = fit(result("This is a sentence of words. " * 200), 700)
    assert text.partition(" … ")[0].endswith("words.")


@pytest.mark.parametrize("joined", ["e\u0301", "👍🏽", "👩\u200d👩\u200d👧"])
def test_no_character_is_torn_from_its_accent(joined: str) -> None:
    for limit in range(400, 440):
        head = fit(result(joined * 200), limit)[0].partition(" … ")[0]
        assert not head or (joined * 200)[len(head)] not in "\u0301\u200d🏽"
        assert not head.endswith("\u200d")


def test_an_image_beside_a_sentence_becomes_a_short_line() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"x" * 2_000_000).decode()}
    raw = json.dumps({"content": [{"type": "text", "text": "Here you are."}, image]}).encode()
    assert fit(raw)[0] == "Here you are.\n(an image was left out)"


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "(a sound was left out)"),
        ({"type": "resource_link", "uri": "file:///x", "name": "x"}, "(a link: x)"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "file:///a", "blob": "AA"}}, "(a file was left out: file:///a)"),
        ({"type": "hologram"}, "(something of the type hologram was left out)"),
        ({"type": "resource_link", "uri": None, "name": {"a": 1}}, "(a link)"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": 7}}, "7"),
        ({"type": "resource", "resource": {"text": None, "blob": "AA"}}, "(a file was left out)"),
        ({"type": "resource", "resource": "file:///a"}, "(a file was left out)"),
        ({"type": "resource"}, "(a file was left out)"),
        ({"type": "text", "text": None}, ""),
        ({"type": "text"}, ""),
        ({"type": "text", "text": 7}, "7"),
        ({"type": "text", "text": True}, "true"),
        ({"type": "text", "text": ["é", None]}, '["é", null]'),
        ({"type": None, "text": "a"}, "(something unreadable was left out)"),
        ({"type": ["text"]}, "(something unreadable was left out)"),
        ({"text": "a"}, "(something unreadable was left out)"),
        ({}, "(something unreadable was left out)"),
        ("odd", "(something unreadable was left out)"),
        (None, "(something unreadable was left out)"),
        (["text"], "(something unreadable was left out)"),
    ],
)
def test_blocks_that_cannot_be_spoken_are_named(block: object, line: str) -> None:
    assert fit(json.dumps({"content": [block]}).encode())[0] == line


@pytest.mark.parametrize("number", ["1180591620717411303424", "1.10", "1e400", "-0.0", "9" * 500])
def test_a_text_that_is_a_number_is_said_as_it_was_written(number: str) -> None:
    assert fit(f'{{"content":[{{"type":"text","text":{number}}}]}}'.encode())[0] == number


def test_a_text_that_is_an_object_keeps_its_numbers_and_loses_its_escapes() -> None:
    written = rb'{"content":[{"type":"text","text":{"\u00e9":[1.10,1e400,1180591620717411303424]}}]}'
    assert fit(written)[0] == '{"é":[1.10,1e400,1180591620717411303424]}'


def test_a_member_that_cannot_be_read_does_not_cost_the_text_beside_it() -> None:
    inside = b'{"content":[{"type":"resource","resource":{"size":1e400,"text":"words"}}]}'
    assert fit(inside)[0] == "words"
    assert fit(b'{"content":[{"_meta":{"size":1e400},"type":"text","text":"words"}]}')[0] == "words"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('"words"', "words"),
        ('{"type":"text","text":"words"}', "words"),
        ('{"type":"image","data":"AAAA"}', "(an image was left out)"),
        ('{"answer":1.10}', '{"answer":1.10}'),
        ('{"type":7,"text":"words"}', '{"type":7,"text":"words"}'),
        ("{}", "{}"),
        ("1180591620717411303424", "1180591620717411303424"),
        ("false", "false"),
        ('""', ""),
        ("null", ""),
    ],
)
def test_content_that_is_no_list_is_said_all_the_same(content: str, said: str) -> None:
    text, value = fit(f'{{"content":{content},"isError":true}}'.encode())
    assert (text, value["isError"]) == (said, True)


@given(st.text(min_size=1).filter(lambda text: spoken(text).strip()) | st.integers() | st.booleans())
def test_whatever_stands_in_place_of_the_list_stands_beside_structured_data(content: Any) -> None:
    text, value = fit(json.dumps({"content": content, "structuredContent": {"more": 1}}).encode(), 100_000)
    assert text == (spoken(content) if isinstance(content, str) else json.dumps(content))
    assert value["structuredContent"] == {"more": 1}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_members = ("type", "text", "data", "resource", "uri", "name", "title", "blob", "mimeType")
_blocks = _json | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link"]) | _json},
    optional=dict.fromkeys(_members[1:], _json) | {"resource": st.dictionaries(st.sampled_from(_members), _json)},
)


@given(st.lists(_blocks, max_size=3) | _json)
def test_any_content_becomes_text_that_never_says_none(content: Any) -> None:
    text, _ = fit(json.dumps({"content": content}).encode("utf-8", "replace"), 100_000)
    assert "None" not in text or "None" in json.dumps(content)


def test_structured_data_that_is_null_is_none_at_all() -> None:
    assert fit(b'{"content":[],"structuredContent":null}') == ("", {"content": [{"type": "text", "text": ""}]})


def test_structured_data_alone_becomes_text() -> None:
    assert fit(json.dumps({"content": [], "structuredContent": {"answer": 42}}).encode())[0] == '{"answer": 42}'


@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ('{"value": 7}', {"value": 7}),
        ("7", {"result": 7}),
        ("word", {"result": "word"}),
        ("[1, 2]", {"result": [1, 2]}),
    ],
)
def test_structured_data_that_says_the_same_is_left_out(text: str, structured: object) -> None:
    assert "structuredContent" not in fit(result(text, structuredContent=structured))[1]


def test_structured_data_that_says_more_is_kept_while_it_fits() -> None:
    assert fit(result("two rows", structuredContent={"rows": [1, 2]}))[1]["structuredContent"] == {"rows": [1, 2]}
    assert "structuredContent" not in fit(result("many rows", structuredContent={"rows": list(range(900))}))[1]


def test_a_long_error_is_cut_and_keeps_its_code() -> None:
    shaped = shaping.fit_error(json.dumps({"code": -5, "message": "no " * 2000, "data": [1] * 999}).encode(), 500)
    assert len(shaped) <= 500
    assert json.loads(shaped)["code"] == -5
    assert json.loads(shaped)["message"].startswith("no no no")


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.lists(st.text(max_size=800), max_size=4), st.integers(256, 2000), st.booleans())
def test_any_text_fits_any_budget_and_stays_a_beginning(texts: list[str], limit: int, is_error: bool) -> None:
    raw = result(*(text.encode("utf-8", "replace").decode() for text in texts), isError=is_error)
    text, value = fit(raw, limit)
    assert value["isError"] is is_error
    whole = "\n".join(block["text"] for block in json.loads(raw)["content"])
    assert text == spoken(whole) or "(shortened, " in text


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000, '{"a":' * 5000, "-" + "9" * 4301])
def test_thousands_of_digits_or_brackets_are_cut_like_any_text(text: str) -> None:
    """Python refuses to read such numbers and such depth, whoever wrote them."""
    for structured in ('{"result":1}', '{"result":' + "9" * 5000 + "}", '{"a":{"b":' + "8" * 4400 + "}}"):
        raw = b'{"content":[' + json.dumps({"type": "text", "text": text}).encode() + b'],"structuredContent":'
        assert "(shortened, " in fit(raw + structured.encode() + b"}", 800)[0]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"code":true,"message":"no"}', {"code": -32603, "message": "no"}),
        ('{"code":1e400,"message":"no"}', {"code": -32603, "message": "no"}),
        ('{"code":-5,"message":null}', {"code": -5, "message": "unknown error"}),
        ('{"code":-5,"message":[null]}', {"code": -5, "message": "unknown error"}),
        ("[]", {"code": -32603, "message": "unknown error"}),
    ],
)
def test_an_odd_error_still_says_what_it_can(written: str, said: object) -> None:
    data = ',"data":"' + "x" * 500 + '"}'
    long = written[:-1] + data if written.endswith("}") else "[" + "1," * 400 + "1]"
    assert json.loads(shaping.fit_error(long.encode(), 200)) == said


def test_an_error_loses_its_data_before_its_words() -> None:
    error = json.dumps({"code": -5, "message": "no such row", "data": "x" * 500}).encode()
    assert json.loads(shaping.fit_error(error, 200)) == {"code": -5, "message": "no such row"}
