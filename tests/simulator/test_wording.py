"""The cloud's words for what it sees, and a screen that nothing can take over."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from voice_bridge.simulator.kinds import OFFICIAL, RELAY, Kind
from voice_bridge.simulator.messages import ListedTool, Reply
from voice_bridge.simulator.terminal import PROMPT, CloudScreen, printable
from voice_bridge.simulator.wording import LONGEST, describe_reply, describe_server, describe_tools, shorten


def reply(result: Any = None, error: Any = None, kind: Kind = OFFICIAL) -> Reply:
    return Reply(1, result, error, kind.heard(result) if result else "", 12.34, json.dumps({"result": result}))


TEXT, IMAGE = {"type": "text", "text": "one"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply({"content": [TEXT]}), "one  (12 ms)"),
        (reply({"content": [TEXT], "isError": True}), "the tool reports an error: one  (12 ms)"),
        (reply({"content": [TEXT, IMAGE]}), "one  (12 ms)\n  not read by this cloud: image"),
        (reply({"content": [IMAGE]}), "(nothing to say)  (12 ms)\n  not read by this cloud: image"),
        (reply({"content": [TEXT, TEXT]}), "one\none  (12 ms)"),
        (reply({"content": [TEXT, TEXT]}, kind=RELAY), "one  (12 ms)\n  not read by this cloud: 1 more text block"),
        (
            reply({"content": [], "structuredContent": {"x": 1}}),
            "(nothing to say)  (12 ms)\n  not read by this cloud: structured content without any text",
        ),
        (reply({"content": "odd"}), "(nothing to say)  (12 ms)"),
        (reply({"content": [7, {"type": "text"}]}), "(nothing to say)  (12 ms)"),
        (reply(error={"code": -32602, "message": "no"}), "error -32602: no (12 ms)"),
        (reply(error={"code": 1, "message": "no", "data": {"x": 1}}), 'error 1: no (12 ms)\n  {"x": 1}'),
        (reply(), 'an answer that is no object, which the cloud cannot use: {"result": null} (12 ms)'),
    ],
)
def test_replies(answer: Reply, words: str) -> None:
    assert describe_reply(answer) == words


def test_tools_are_told_with_parameters_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    schema = {"properties": {"a": {}, "b": {}}, "required": ["a"]}
    tools = [
        ListedTool("x.y", "x_y", "First line of many more words indeed.\n\nSecond line.", schema),
        ListedTool("z", "z", "", {}),
    ]
    assert describe_tools(tools, whole=False).split("\n") == [
        "  x_y(a, b?)   (in the bridge's words: x.y)",
        "      First line of many more words …",
        "  z()",
    ]
    assert "Second line." in describe_tools(tools, whole=True)


def test_a_nameless_server_and_an_endless_text() -> None:
    assert describe_server({}) == "nameless"
    assert describe_server({"name": "b", "version": "1"}) == "b 1"
    assert shorten("x" * 5000) == "x" * LONGEST + " … (5000 characters in all)"
    assert shorten(b"\x00\xff") == "binary, 2 bytes: b'\\x00\\xff'"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert printable("a\x1b[2Jb\rc\td\ne\u202ef\u2028g\ud800行🎉") == (
        "a\\x1b[2Jb\\rc\td\ne\\u202ef\\u2028g\\ud800行🎉"
    )


def test_the_prompt_stays_below_what_is_said() -> None:
    out = io.StringIO()
    screen = CloudScreen(out, prompting=True)
    screen.prompt()
    screen.say("hello")
    screen.prompt_answered(by_enter=True)
    screen.say("there")
    screen.prompt()
    screen.prompt_answered(by_enter=False)
    clear = "\r" + " " * len(PROMPT) + "\r"
    assert out.getvalue() == f"{PROMPT}{clear}hello\n{PROMPT}there\n{PROMPT}\n"


def test_a_narrow_console_gets_escapes() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    CloudScreen(out, prompting=False).say("行 →")
    assert raw.getvalue() == b"\\u884c \\u2192\n"
