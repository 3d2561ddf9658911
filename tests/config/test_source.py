"""The settings file as people write and save it: any encoding, comments, and mistakes that can be found."""

from __future__ import annotations

import codecs
import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_bridge import config
from voice_bridge.config import source
from voice_bridge.errors import ConfigError

COMMENTED = """{ // my servers
 "mcpServers": { "a": {"command":"python3","args":["stub.py","https://x//y /* no */"],}, /* off */ }, }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mcp_settings.json"


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + COMMENTED.encode(),
        COMMENTED.encode(),
        codecs.BOM_UTF16_LE + COMMENTED.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + COMMENTED.encode("utf-16-be"),
        COMMENTED.encode("utf-16-le"),
        COMMENTED.encode("utf-16-be"),
        COMMENTED.replace("\n", "\r\n").encode(),
    ],
    ids=["utf-8 bom", "utf-8", "utf-16-le bom", "utf-16-be bom", "utf-16-le", "utf-16-be", "crlf"],
)
def test_comments_trailing_commas_and_every_encoding_are_read(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    server = config.load(path).servers["a"]
    assert server.args == ("stub.py", "https://x//y /* no */")
    assert path.read_bytes() == data, "the file is never rewritten"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "the file is empty"),
        ("  \n ", "1:1", "the file is empty"),
        ('{\n\n\n\n\n\n "mcpServers" {}}', "7:15", "unexpected"),
        ('{"a": [1,2}', "1:", "unexpected"),
        ("[1]", "1:1", "expected an object in braces"),
        ('{"mcpServers": {\n "x": {"command": "a"},\n "x": {"command": "b"}}}', "3:2", 'the key "x" stands twice'),
        (
            '{ // c\n"mcpServers": {\n "x": {"command": "a"},\n "x": {"command": "b"}}}',
            "4:2",
            'the key "x" stands twice',
        ),
    ],
)
def test_a_mistake_is_named_with_file_line_and_column(path: Path, text: str, place: str, words: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert str(caught.value).startswith(f"{path}:{place}")
    assert words in str(caught.value)


def test_a_mistake_in_a_very_long_file_is_found_at_once(path: Path) -> None:
    path.write_text('{\n"x": "' + "y" * 2_000_000 + '",,}')
    began = time.process_time()
    with pytest.raises(
        ConfigError, match=r":2:\d+: not JSON: .*; comments and trailing commas are understood up to 300,000"
    ):
        config.load(path)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "1" * 5000, "0x" + "f" * 5000, "1e999", "NaN", "+Infinity"])
def test_a_number_beyond_all_in_a_file_with_comments_stops_only_its_entry(path: Path, number: str) -> None:
    path.write_text(
        f'{{"mcpServers": {{"a": {{"command": "x", "callTimeout": {number}, /* c */}}, "b": {{"command": "x"}}}}}}'
    )
    settings = config.load(path)
    assert list(settings.servers) == ["b"]
    assert "callTimeout: " in settings.problems["mcpServers.a"]


def test_another_encoding_is_refused_with_the_line(path: Path) -> None:
    path.write_bytes('{"mcpServers": {},\n"x": "中文"}'.encode("gbk"))
    with pytest.raises(ConfigError, match=r":2: byte \d+ is not UTF-8; save it as UTF-8"):
        config.load(path)


def test_a_missing_file_says_how_to_get_one(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file; `voice-bridge init` writes a starter"):
        config.load(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert isinstance(source.parse(path, source.read_text(path)), dict)


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), Json, max_size=5))
def test_plain_json_is_read_as_json(value: dict[str, object]) -> None:
    assert source.parse(Path("x"), json.dumps(value)) == value
