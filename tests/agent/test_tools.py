"""Tool definitions and results, between MCP and the Messages API."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.messages_api import _check_block, _check_tools
from voice_bridge.agent.history import tool_result
from voice_bridge.agent.results import cut, to_content
from voice_bridge.agent.schemas import UnusableSchema, repair
from voice_bridge.agent.screen import split_paragraphs
from voice_bridge.agent.tools import NoTools, toolbox
from voice_bridge.text import printable

Json = dict[str, Any]
STRING = {"type": "string"}


def test_a_plain_schema_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": STRING}, "required": ["a"], "additionalProperties": False}
    assert repair(schema) == (schema, {})


@pytest.mark.parametrize("schema", [None, True, {}, {"type": ["object", "null"]}, {"properties": None}])
def test_a_schema_that_says_nothing_becomes_an_empty_object(schema: object) -> None:
    assert repair(schema)[0] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("schema", [{"type": "string"}, [], "x", {"$ref": "#/$defs/gone"}, {"$ref": "#"}])
def test_a_schema_of_no_object_is_unusable(schema: object) -> None:
    with pytest.raises(UnusableSchema, match="its input schema"):
        repair(schema)


def test_a_schema_that_refers_to_itself_is_unusable() -> None:
    with pytest.raises(UnusableSchema, match="refers to itself"):
        repair({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})


def test_all_of_is_merged_and_references_are_followed() -> None:
    schema = {
        "$defs": {"base": {"type": "object", "properties": {"a": STRING}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": STRING}}],
        "required": ["b"],
    }
    repaired, _ = repair(schema)
    assert repaired["properties"] == {"a": STRING, "b": STRING}
    assert repaired["required"] == ["b", "a"]
    assert "allOf" not in repaired


def test_alternatives_become_optional_properties_with_a_hint() -> None:
    schema = {
        "oneOf": [
            {"properties": {"id": {"type": "integer"}, "kind": {"const": "id"}}, "required": ["id", "kind"]},
            {"properties": {"name": STRING, "kind": {"const": "name"}}, "required": ["name", "kind"]},
            {"type": "null"},
        ]
    }
    repaired, _ = repair(schema)
    assert set(repaired["properties"]) == {"id", "name", "kind"}
    assert repaired["properties"]["kind"] == {"anyOf": [{"const": "id"}, {"const": "name"}]}
    assert repaired["required"] == ["kind"]
    assert "id and kind; or name and kind" in repaired["description"]


def test_property_names_the_api_refuses_are_renamed_and_told() -> None:
    schema = {
        "type": "object",
        "properties": {"user name": STRING, "user_name": STRING, "名": STRING},
        "required": ["名"],
    }
    repaired, renamed = repair(schema)
    assert renamed == {"user_name_2": "user name", "_": "名"}
    assert repaired["required"] == ["_"]
    assert "(user name)" in repaired["properties"]["user_name_2"]["description"]


_names = st.text(min_size=1, max_size=140)


@given(st.lists(st.fixed_dictionaries({"name": _names, "inputSchema": st.dictionaries(_names, st.none())}), max_size=6))
def test_any_names_give_definitions_the_api_takes(listed: list[Json]) -> None:
    for entry in listed:
        entry["inputSchema"] = {"type": "object", "properties": dict.fromkeys(entry["inputSchema"], STRING)}
    box = toolbox(NoTools(), listed)
    _check_tools({"tools": box.definitions})
    assert len({tool.name for tool in box.tools.values()}) == len({entry["name"] for entry in listed})
    assert len(box.definitions) + len(box.left_out) == len(listed)


class Owned(NoTools):
    """A source whose tools are all of one server."""

    def owner(self, name: str) -> str:
        return "ours"


def test_read_only_is_only_what_a_trusted_server_says_so() -> None:
    listed: list[Json] = [
        {"name": "a", "annotations": {"readOnlyHint": True}},
        {"name": "b", "annotations": {"readOnlyHint": "yes"}},
        {"name": "c", "annotations": "readOnlyHint"},
        {"name": "d", "description": "", "title": "A title"},
    ]
    box = toolbox(Owned(), listed, frozenset({"ours"}))
    assert [tool.read_only for tool in box.tools.values()] == [True, False, False, False]
    assert not any(tool.read_only for tool in toolbox(Owned(), listed, frozenset({"theirs"})).tools.values())
    assert box.definitions[3]["description"] == "A title"
    assert "description" not in box.definitions[0]


def test_a_definition_with_a_number_that_json_does_not_know_is_left_out_and_noted() -> None:
    odd = {"type": "object", "properties": {"a": {"maximum": float("inf")}}}
    box = toolbox(NoTools(), [{"name": "odd", "inputSchema": odd}, {"name": "plain"}])
    assert list(box.tools) == ["plain"]
    assert "'odd'" in box.left_out[0]


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "text", "text": ""}, "(the tool returned nothing)"),
        ({"type": "image", "data": "%%%", "mimeType": "image/png"}, "not valid base64"),
        ({"type": "image", "data": encoded(b"BM123"), "mimeType": "image/bmp"}, "only png, jpeg, gif and webp"),
        ({"type": "image", "data": encoded(b"\xff\xd8\xff" + b"0" * 4_000_000), "mimeType": "image/jpeg"}, "too large"),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio, audio/wav, 3 bytes, not shown]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}, "resource file:///a"),
        ({"type": "resource_link", "uri": "file:///b", "name": "b.txt"}, "[link to b.txt: file:///b]"),
        ({"type": "hologram"}, "type 'hologram'"),
        ("nonsense", "not an object"),
        ({"type": "text", "text": 0}, "0"),
        ({"type": "text", "text": None}, "(the tool returned nothing)"),
        ({"type": "text", "text": {"a": [1]}}, '{"a": [1]}'),
        ({"type": ["text"]}, 'type ["text"]'),
        (None, "[a block that is not an object: null]"),
        ({"text": "a"}, "[a block without a type, not shown]"),
        ({"type": "audio"}, "[audio, unknown type, 0 bytes, not shown]"),
        ({"type": "image"}, "[image, unknown type, not shown: it has no data]"),
        ({"type": "image", "data": encoded(b"BM123")}, "[image, unknown type, 5 bytes, not shown: only"),
        ({"type": "resource"}, "[an embedded resource without content]"),
        ({"type": "resource", "resource": {"text": 7}}, "7"),
        ({"type": "resource", "resource": {"blob": "AAAA"}}, "[resource without a name, unknown type, 3 bytes"),
        ({"type": "resource_link", "uri": "file:///b"}, "[link to file:///b]"),
        ({"type": "resource_link"}, "[link to an unnamed resource]"),
        ({"type": "text", "text": 10**5000}, "(unreadable)"),
        ({"type": "text", "text": "half a pair \ud83d"}, "half a pair \ufffd"),
    ],
)
def test_every_block_becomes_text_the_api_takes(item: Any, said: str) -> None:
    content, shown = to_content({"content": [item]}, 1_000)
    assert said in shown
    _check_block(tool_result("x", content, is_error=False), "user", "here")
    json.dumps(content, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("words", "words"),
        ({"type": "text", "text": "words"}, "words"),
        ({"answer": 1}, '{"answer": 1}'),
        (7, "7"),
        (False, "false"),
        (None, "(the tool returned nothing)"),
    ],
)
def test_content_that_is_no_list_is_told_all_the_same(content: Any, said: str) -> None:
    assert to_content({"content": content}, 1_000)[1] == said


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_members = ("text", "data", "uri", "name", "title", "blob", "mimeType")
_blocks = _json | st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link"]) | _json},
    optional=dict.fromkeys(_members, _json) | {"resource": st.dictionaries(st.sampled_from(_members), _json) | _json},
)


@given(st.lists(_blocks, max_size=3) | _json, _json)
def test_any_content_becomes_blocks_the_api_takes_and_never_says_none(content: Any, structured: Any) -> None:
    blocks, shown = to_content({"content": content, "structuredContent": structured}, 10_000)
    _check_block(tool_result("x", blocks, is_error=False), "user", "here")
    assert "None" not in shown or "None" in json.dumps([content, structured])


@pytest.mark.parametrize("raw", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBP"])
def test_the_four_kinds_of_image_go_as_images_by_what_they_are(raw: bytes) -> None:
    (block,), _ = to_content({"content": [{"type": "image", "data": encoded(raw), "mimeType": "image/wrong"}]}, 1_000)
    assert block["type"] == "image"
    _check_block(block, "user", "here")


def test_structured_content_alone_is_text() -> None:
    (block,), _ = to_content({"content": [], "structuredContent": {"ü": 1}}, 1_000)
    assert block["text"] == '{"ü": 1}'


@given(st.text(max_size=500), st.integers(min_value=0, max_value=300))
def test_a_cut_text_keeps_head_and_tail_and_counts_the_rest(text: str, limit: int) -> None:
    short = cut(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        head, tail = limit * 2 // 3, limit - limit * 2 // 3
        assert short.startswith(text[:head])
        assert short.endswith(text[len(text) - tail :])
        assert f"{len(text) - limit:,} characters left out" in short


def test_what_steers_a_terminal_is_escaped_and_what_joins_letters_is_not() -> None:
    assert printable("a\x1b[2Jb\u202ec\x07\n\t") == "a\\x1b[2Jb\\u202ec\\x07\n\t"
    family = "\U0001f468\u200d\U0001f469"
    assert printable(family) == family


def test_a_paragraph_is_whole_at_a_blank_line_outside_of_code() -> None:
    assert split_paragraphs("one\n\ntwo") == ("one\n\n", "two")
    assert split_paragraphs("```\na\n\nb") == ("", "```\na\n\nb")
    assert split_paragraphs("```\na\n\nb\n```\n\nc") == ("```\na\n\nb\n```\n\n", "c")
