"""What is typed at the cloud's prompt is understood, or answered with what to type instead."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_bridge.simulator.commands import (
    CallTool,
    Command,
    CommandError,
    Drop,
    Help,
    ListTools,
    Quit,
    ShowFrames,
    needs_bridge,
    parse,
    usage,
)
from voice_bridge.simulator.kinds import RELAY
from voice_bridge.simulator.messages import ListedTool


def tool(name: str, required: tuple[str, ...] = (), **properties: object) -> ListedTool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ListedTool(name, RELAY.spoken_name(name), "", schema)


STRING, NUMBER = {"type": "string"}, {"type": "number"}
OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
TOOLS = [
    tool("calculate", ("expression",), expression=STRING),
    tool("clock", timezone=OPTIONAL),
    tool("mix", n=NUMBER, on={"type": "boolean"}, items={"type": "array"}, either={"type": ["string", "integer"]}),
    tool("bare"),
    tool("tools", x=STRING),
    tool("get.time"),
]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("tools", ListTools()),
        ("  help ", Help()),
        ("?", Help()),
        ("quit", Quit()),
        ("exit", Quit()),
        ("frames on", ShowFrames(True)),
        ("frames off", ShowFrames(False)),
        ("drop", Drop(1012)),
        ("drop 4004", Drop(4004)),
        ("drop 1006", Drop(1006)),
    ],
)
def test_the_words(line: str, command: object) -> None:
    assert parse(line, TOOLS) == command


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ('calculate {"expression": "1004 * 328"}', "calculate", {"expression": "1004 * 328"}),
        ('call calculate {"expression": "1"}', "calculate", {"expression": "1"}),
        ('calculate expression="1004 * 328"', "calculate", {"expression": "1004 * 328"}),
        ("calculate expression=2=2", "calculate", {"expression": "2=2"}),
        ("calculate expression=15", "calculate", {"expression": "15"}),
        ("calculate expression=", "calculate", {"expression": ""}),
        ("clock", "clock", {}),
        ("clock timezone=null", "clock", {"timezone": "null"}),
        ("mix n=1e3 on=true items=[1,2]", "mix", {"n": 1000.0, "on": True, "items": [1, 2]}),
        ("mix either=5", "mix", {"either": 5}),
        ("mix either=five", "mix", {"either": "five"}),
        ("bare unknown=7 other=word", "bare", {"unknown": 7, "other": "word"}),
        ("bare max-results=3 a.b=x", "bare", {"max-results": 3, "a.b": "x"}),
        ("call tools x=1", "tools", {"x": "1"}),
        ("get_time", "get.time", {}),
        ("get.time", "get.time", {}),
        ("call  bare", "bare", {}),
    ],
)
def test_calls(line: str, name: str, arguments: dict[str, Any]) -> None:
    command = parse(line, TOOLS)
    assert isinstance(command, CallTool)
    assert (command.tool.name, command.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("calculat expression=1", "there is no tool or command called calculat; did you mean calculate?"),
        ("zzzz", "there is no tool or command called zzzz; `tools` lists the tools"),
        ("call", "call whom? Type: call NAME key=value"),
        ("frames", "type `frames on` or `frames off`"),
        ("drop 1005", "1005 is no close code"),
        ("drop now", "now is no close code"),
        ("calculate 1004 * 328", 'Type: calculate expression="…"   or: calculate {"expression": "…"}'),
        ("clock Asia/Tokyo", 'Type: clock timezone="…"'),
        ("bare 5", "bare takes no arguments: type its name alone"),
        ("calculate expression=it's", "a quotation mark is never closed"),
        ("calculate expression=1 expression=2", "expression is given twice"),
        ("mix n=many", "n must be of type number, and 'many' is not"),
        ("mix n=NaN", "NaN is no number that JSON can carry"),
        ('calculate {"expression": NaN}', "NaN is no number that JSON can carry"),
        ("calculate {" + '"a":{' * 100_000, "nested too deeply"),
        ('calculate {"expression": -1e999}', "-1e999 is no number that JSON can carry"),
        ('calculate {"expression": ' + "9" * 5000 + "}", "999999999999… is no number that JSON can carry"),
        ("mix n=1e999", "1e999 is no number"),
        ("calculate 2=2", "2=2 is not key=value"),
        ("calculate [1]", "[1] is not key=value"),
    ],
)
def test_mistakes_are_answered_with_the_remedy(line: str, sentence: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse(line, TOOLS)
    assert sentence in str(caught.value)


def test_bad_json_is_pointed_at() -> None:
    with pytest.raises(CommandError) as caught:
        parse('calculate {"expression": 1 2}', TOOLS)
    assert str(caught.value).split("\n") == [
        "the JSON is wrong at column 18: expecting ',' delimiter",
        '  {"expression": 1 2}',
        "                   ^",
    ]


@given(st.text(min_size=1).filter(str.strip))
def test_any_line_is_understood_or_refused_in_words(line: str) -> None:
    for text in (line, "calculate " + line, "calculate {" + line, "mix n=" + line):
        assert needs_bridge(text) in (True, False)
        with suppress(CommandError):
            assert isinstance(parse(text, TOOLS), Command)


def test_usage_marks_the_optional() -> None:
    assert [usage(tool) for tool in TOOLS[:2]] == ["calculate(expression)", "clock(timezone?)"]
