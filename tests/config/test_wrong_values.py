"""Whatever stands at any key: settings or a sentence, soon, and the rest of the file goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.config.wrong_values import GOOD_ENDPOINT, GOOD_SERVER, wrong_files
from voice_bridge import config
from voice_bridge.errors import ConfigError

SERVER = {"command": "cat", "args": ["-u"], "env": {"A": "b"}}
ENDPOINT = {"url": "ws://127.0.0.1:9/?token=the-good-token-77"}
CASES = list(wrong_files(SERVER, ENDPOINT))
SOON = 1.0
"""Seconds of the processor, for a file that holds 200,000 letters at most."""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_ENDPOINT", raising=False)
    monkeypatch.delenv("NOBODY_SETS_THIS", raising=False)
    return tmp_path / "mcp_settings.json"


@pytest.mark.parametrize("section", ["the section", "an entry", "a", "mcpServers", "endpoints", "bridge"])
def test_every_wrong_value_at_every_key_is_answered_in_words(path: Path, section: str) -> None:
    cases = [case for case in CASES if case[0].startswith(f"{section} ") or case[0].startswith(f"{section},")]
    assert cases
    for what, text in cases:
        began = time.process_time()
        path.write_text(text, encoding="utf-8")
        try:
            settings = config.load(path)
        except ConfigError as error:
            _check_sentence(what, str(error), path)
        else:
            assert GOOD_SERVER in settings.servers or what.startswith("the section mcpServers"), what
            assert GOOD_ENDPOINT in settings.endpoints or what.startswith("the section endpoints"), what
            for sentence in settings.problems.values():
                _check_sentence(what, sentence, path)
            for sentence in settings.warnings:
                _check_sentence(what, sentence, path)
            for server in settings.servers.values():
                _check_startable(what, settings.environ_for(server))
            assert config.keep_working(settings, settings).servers == settings.servers, what
        assert time.process_time() - began < SOON, what


def _check_sentence(what: str, sentence: str, path: Path) -> None:
    assert sentence.startswith(f"{path}:"), what
    assert len(sentence) < 1500, what
    assert sentence.isprintable(), what
    assert "Traceback" not in sentence, what
    assert "pydantic" not in sentence, what
    assert "the-good-token-77" not in sentence, what


def _check_startable(what: str, environ: dict[str, str]) -> None:
    for name, value in environ.items():
        assert b"\0" not in os.fsencode(name + value), what


def test_the_cases_cover_every_key_of_the_models() -> None:
    named = " ".join(what for what, _ in CASES)
    for key in ("command", "trust", "tools.rename", "startTimeout", "maxResultBytes", "caFile", "log.level", "enabled"):
        assert f" {key}: 2,000 levels" in named


NO_TIMES = ["NaN", "-Infinity", "1e999", "1" * 400, "1" * 5000, "[]", "{}", '"\\u0000"', '"\\ud800"', '"soon"']


@pytest.mark.parametrize("key", ["startTimeout", "callTimeout"])
@pytest.mark.parametrize("value", NO_TIMES)
def test_what_is_no_time_stops_only_its_entry(path: Path, key: str, value: str) -> None:
    path.write_text(f'{{"mcpServers": {{"a": {{"command": "x", "{key}": {value}}}, "b": {{"command": "x"}}}}}}')
    settings = config.load(path)
    assert list(settings.servers) == ["b"]
    assert f"mcpServers a: {key}" in settings.problems["mcpServers.a"]


@pytest.mark.parametrize("value", ["0", "3", "NaN", "false", "[]", '""', '"x"'])
def test_a_bridge_that_is_no_object_is_a_problem_and_the_old_one_stays(path: Path, value: str) -> None:
    path.write_text('{"bridge": {"minBackoff": 7}}')
    old = config.load(path)
    path.write_text(f'{{"bridge": {value}}}')
    new = config.load(path)
    assert "bridge: expected an object in braces, found " in new.problems["bridge"]
    assert config.keep_working(new, old).bridge.min_backoff == 7


@pytest.mark.parametrize("section", ["mcpServers", "endpoints"])
@pytest.mark.parametrize("value", ["5", "[]", '"x"', "NaN", "false"])
def test_a_section_of_the_wrong_kind_is_named_with_its_place(path: Path, section: str, value: str) -> None:
    path.write_text(f'{{\n "{section}": {value}}}')
    with pytest.raises(ConfigError, match=rf":2:2: {section} must be an object of named entries, in braces, not "):
        config.load(path)
