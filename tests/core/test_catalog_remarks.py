"""What cannot be shown is left out with a remark, so that nothing is lost in silence."""

from __future__ import annotations

import json

import pytest

from tests.core.stage import tool
from voice_bridge.config import ToolRules
from voice_bridge.core.catalog import Catalog, CatalogRemark, Entry, Offer, merge
from voice_bridge.core.keys import ServerKey


def remarks(*raw: bytes, exclude: tuple[str, ...] = ()) -> tuple[Catalog, list[str]]:
    """The catalog of one server's tools, and what is said about it."""
    catalog = merge([Offer(ServerKey("key"), "notes", ToolRules(exclude=exclude), tools=raw)])
    assert {remark.server for remark in catalog.remarks} <= {"notes"}
    return catalog, [remark.text for remark in catalog.remarks]


def test_nothing_is_said_of_a_list_in_order() -> None:
    assert remarks(b'{"name":"a"}', b'{"name":"b"}')[1] == []


def test_a_tool_without_a_name_is_told_by_its_beginning() -> None:
    assert remarks(b'{"title":"x"}')[1] == ['left out a tool that has no name: {"title":"x"}']
    (text,) = remarks(b'{"title":"' + "é".encode() * 500 + b'"}')[1]
    assert text == 'left out a tool that has no name: {"title":"' + "é" * 70


def test_a_second_tool_of_one_name_is_told_by_its_name() -> None:
    assert remarks(b'{"name":"x"}', b'{"name":"x"}')[1] == ["left out a second tool called 'x'"]


def test_the_same_is_said_once() -> None:
    assert remarks(*[b'{"name":"x"}'] * 9, b"{}", b"{}")[1] == [
        "left out a second tool called 'x'",
        "left out a tool that has no name: {}",
    ]


def test_prompts_resources_and_templates_have_their_own_remarks() -> None:
    offers = [
        Offer(ServerKey("a"), "a", prompts=[b"{}"], resources=[b'{"uri":"x://1"}', b'{"uri":7}'], templates=[b"{}"]),
        Offer(ServerKey("b"), "b", prompts=[b'{"name":"p"}'] * 2, resources=[b'{"uri":"x://1"}']),
    ]
    assert merge(offers).remarks == (
        CatalogRemark("a", "left out a prompt that has no name: {}"),
        CatalogRemark("b", "left out a second prompt called 'p'"),
        CatalogRemark("a", 'left out a resource that has no uri: {"uri":7}'),
        CatalogRemark("b", "left out a second resource with the uri 'x://1'"),
        CatalogRemark("a", "left out a resource template that has no uriTemplate: {}"),
    )


def test_a_remark_makes_no_list_another_one() -> None:
    before, after = remarks(b'{"name":"x"}')[0], remarks(b'{"name":"x"}', b"{}")[0]
    assert after.remarks
    assert after.differences(before) == []
    assert after == before


def test_a_long_name_does_not_make_a_long_remark() -> None:
    raw = json.dumps({"name": "x" * 100_000}).encode()
    assert len(remarks(raw, raw)[1][0]) < 300


# Tools that cannot be called


@pytest.mark.parametrize(
    ("support", "listed"), [("required", []), ("optional", ["t"]), ("forbidden", ["t"]), (7, ["t"])]
)
def test_a_tool_that_runs_only_as_a_task_is_left_out(support: object, listed: list[str]) -> None:
    catalog, texts = remarks(json.dumps(tool("t", execution={"taskSupport": support})).encode())
    assert list(catalog.tools) == listed
    assert [text.partition(":")[0] for text in texts] == ([] if listed else ["left out the tool 't'"])


@pytest.mark.parametrize("execution", [None, [], "required", {}, {"taskSupport": None}])
def test_odd_words_about_tasks_cost_no_tool(execution: object) -> None:
    catalog, texts = remarks(json.dumps(tool("t", execution=execution)).encode())
    assert list(catalog.tools) == ["t"]
    assert texts == []


def test_a_tool_that_a_rule_hides_needs_no_remark() -> None:
    raw = json.dumps(tool("t", execution={"taskSupport": "required"})).encode()
    assert remarks(raw, exclude=("t",))[1] == []


# One name for the rules and for the call


TWO_NAMES = (
    b'{"name":"safe","name":"delete_all"}',
    b'{"name":"delete_all","name":"safe"}',
    rb'{"name":"safe","n\u0061me":"delete_all"}',
    b'{"name":"safe","Name":"delete_all"}',
    b'{"NAME":"delete_all","name":"safe"}',
    b'{"name":"safe","inputSchema":{"name":1},"name":"safe"}',
)


@pytest.mark.parametrize("raw", TWO_NAMES)
def test_a_tool_that_readers_would_name_differently_is_left_out(raw: bytes) -> None:
    """A client may show one name, the rules judge another, and the server run a third."""
    catalog, texts = remarks(raw, b'{"name":"good"}')
    assert list(catalog.tools) == ["good"]
    (text,) = texts
    assert "is its name" in text


def test_a_name_in_other_case_is_no_name() -> None:
    catalog, texts = remarks(b'{"Name":"delete_all"}')
    assert catalog.tools == {}
    assert texts == ['left out a tool that has no name: {"Name":"delete_all"}']


def test_a_name_deeper_down_is_no_second_name() -> None:
    raw = b'{"name":"t","inputSchema":{"type":"object","properties":{"name":{},"Name":{}}},"x":1,"x":2}'
    catalog, texts = remarks(raw)
    assert catalog.tools == {"t": Entry(ServerKey("key"), "t", raw)}
    assert texts == []


def test_a_left_out_twin_does_not_take_the_name_of_the_right_one() -> None:
    assert list(remarks(b'{"name":"x","name":"x"}', b'{"name":"x"}')[0].tools) == ["x"]
