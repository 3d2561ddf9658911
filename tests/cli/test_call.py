"""`voice-bridge call` with what people type and what servers answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, child, python, write_settings

SAYS = """
import json, sys
listed = {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]}
hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "0"}}
for line in sys.stdin:
    message = json.loads(line)
    answers = {"initialize": json.dumps(hello), "tools/list": json.dumps(listed), "tools/call": sys.argv[1]}
    if "id" in message:
        answer = answers[message["method"]]
        print('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(message["id"]), answer), flush=True)
"""


def call(settings: Path, *words: str | bytes, **extra: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "voice_bridge", "call", *words, "--config", str(settings)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        env={"HOME": str(settings.parent), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **extra},
    )  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A server whose tool `line` returns the call as it came."""
    return write_settings(tmp_path, {"good": child("line")})


def saying(folder: Path, result: str) -> Path:
    """Settings with a server whose tool `say` answers with this JSON."""
    return write_settings(folder, {"odd": python(SAYS, result)})


def test_numbers_reach_the_server_as_written(settings: Path) -> None:
    written = '{"a":1180591620717411303424,"b":1.10,"c":1e400,"d":[-0.0,1E5,0.1000000000000000055511151231257827]}'
    ended = call(settings, "line", written)
    assert ended.returncode == 0, ended.stderr
    assert f'"arguments":{written}' in ended.stdout


def test_arguments_over_several_lines_are_one_message(settings: Path) -> None:
    ended = call(settings, "line", '{\n  "a": 1,\r\n  "b": "x"\n}')
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["params"]["arguments"] == {"a": 1, "b": "x"}


def test_brackets_in_a_text_are_no_depth(settings: Path) -> None:
    ended = call(settings, "line", json.dumps({"a": '\\"' + "[" * 5_000}))
    assert json.loads(ended.stdout)["params"]["arguments"] == {"a": '\\"' + "[" * 5_000}


def test_half_an_emoji_becomes_a_replacement_character(settings: Path) -> None:
    ended = call(settings, "line", b'{"a": "caf\xe9", "b": "\\ud83d"}')
    assert json.loads(ended.stdout)["params"]["arguments"] == {"a": "caf\ufffd", "b": "\ufffd"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ('{"x": NaN}', "the arguments hold NaN"),
        ('{"x": [1, -Infinity]}', "the arguments hold -Infinity"),
        ('{"a": {"x": 1, "x": 2}}', "give 'x' twice"),
        ('{"a\\u0062": 1, "ab": 2}', "give 'ab' twice"),
        ("[" * 5_000 + "]" * 5_000, "nested too deeply"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested too deeply"),
        ("[" * 5_000, "nested too deeply"),
        ('{"a":' + "[" * 970 + "]" * 970 + "}", "nested too deeply"),
        ("", "the arguments are not JSON"),
        ("null", "must be a JSON object"),
        ('{"a": 01}', "the arguments are not JSON"),
    ],
)
def test_arguments_that_are_none_are_refused_in_a_sentence(settings: Path, arguments: str, sentence: str) -> None:
    ended = call(settings, "line", arguments)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert sentence in ended.stderr
    assert ended.stdout == ""


BIG = "[\n  1e400,\n  1180591620717411303424\n]"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ('{"content":[{"type":"text","text":1.10}]}', "1.10"),
        ('{"content":[{"type":"text","text":null}]}', ""),
        ('{"content":[{"type":"text"}]}', "[text]"),
        ('{"content":[{"type":"text","text":{"a":1e400}}]}', '{"a":1e400}'),
        ('{"content":[{"type":"hologram","data":1}]}', "[hologram]"),
        ('{"content":[{"type":7},{}]}', "[unknown]\n[a block that is no object: {}]"),
        ('{"content":[5,"x"]}', '[a block that is no object: 5]\n[a block that is no object: "x"]'),
        ('{"content":[null,[]]}', "[a block that is no object: null]\n[a block that is no object: []]"),
        ('{"content":[{"type":"image","data":"AAAA","mimeType":["png"]}]}', "[image]"),
        ('{"content":[{"type":"text","text":{"\\u00e9":[1.10,1e400,true]}}]}', '{"é":[1.10,1e400,true]}'),
        ('{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"inside","n":1e400}}]}', "inside"),
        ('{"content":[{"type":"resource","resource":{"uri":"file:///a","blob":"AA"}}]}', "[resource file:///a]"),
        ('{"content":[{"type":"resource","resource":null}]}', "[resource]"),
        ('{"content":[{"type":"resource_link","uri":"file:///b","name":"b"}]}', "[resource_link b file:///b]"),
        ('{"content":[{"type":null,"mimeType":null,"name":null}]}', "[unknown]"),
        ('{"content":"words","structuredContent":null}', '"words"'),
        ('{"content":{"type":"text","text":1.10}}', '{\n  "type": "text",\n  "text": 1.10\n}'),
        ('{"content":7}', "7"),
        ('"words"', '"words"'),
        ('{"content":[],"structuredContent":[1e400,1180591620717411303424]}', BIG),
        ('{"content":[],"structuredContent":' + "9" * 5_000 + "}", "9" * 5_000),
        ("{}", "{}"),
    ],
)  # fmt: skip
def test_odd_content_is_shown_and_never_a_traceback(tmp_path: Path, result: str, shown: str) -> None:
    ended = call(saying(tmp_path, result), "say")
    assert "Traceback" not in ended.stderr
    assert (ended.stdout, ended.returncode) == (f"{shown}\n", 0)


STEERING = "a\x1b[31mred\x1b]0;owned\x07 b\bc\u202ed\u2066e\u009bf\u2028g"
HARMLESS = "\U0001f468\u200d\U0001f469 مرحبا\n\tend"


def test_what_steers_a_terminal_is_escaped_and_the_rest_intact(tmp_path: Path) -> None:
    result = json.dumps({"content": [{"type": "text", "text": STEERING + HARMLESS}, {"type": STEERING}]})
    ended = call(saying(tmp_path, result), "say")
    assert not set(ended.stdout) & set("\x1b\x07\b\u202e\u2066\u009b\u2028")
    assert "a\\x1b[31mred" in ended.stdout
    assert HARMLESS in ended.stdout


def test_as_json_a_result_is_escaped_but_the_same(tmp_path: Path) -> None:
    text = STEERING + HARMLESS
    result = json.dumps({"content": [{"type": "text", "text": text}], "n": 1}, ensure_ascii=False)
    ended = call(saying(tmp_path, result), "say", "--json")
    assert not set(ended.stdout) & set("\x1b\x07\b\u202e\u2066\u009b\u2028")
    assert json.loads(ended.stdout)["content"][0]["text"] == text
    assert "مرحبا" in ended.stdout


def test_as_json_numbers_are_as_the_server_wrote_them(tmp_path: Path) -> None:
    ended = call(saying(tmp_path, '{"content":[],"structuredContent":{"a":1e400,"b":1.10}}'), "say", "--json")
    assert '"a": 1e400' in ended.stdout
    assert '"b": 1.10' in ended.stdout


def test_an_unwritable_data_folder_does_not_matter(settings: Path) -> None:
    ended = call(settings, "line", VOICE_BRIDGE_DATA=str(settings / "no folder"))
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)


def test_an_unknown_tool_is_told_without_escapes(tmp_path: Path) -> None:
    ended = call(saying(tmp_path, "{}"), "\x1b[31mnope")
    assert ended.returncode == 2
    assert "\x1b" not in ended.stderr
    assert "the servers offer: say" in ended.stderr
