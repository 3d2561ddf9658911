"""Which values of the settings never reach a log, and which are too ordinary to be kept from one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voice_bridge import config, secrets
from voice_bridge.secrets import mask

Load = Callable[[dict[str, Any]], None]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(secrets, "_secrets", set[str]())
    monkeypatch.setattr(secrets, "_by_four", dict[str, set[str]]())
    monkeypatch.setenv("TOK", "tok+from/env 77")
    monkeypatch.setenv("WORD", "production")
    monkeypatch.setenv("HOME", "/home/somebody-7")

    def write(data: dict[str, Any]) -> None:
        path = tmp_path / "mcp_settings.json"
        path.write_text(json.dumps(data))
        settings = config.load(path)
        assert not settings.problems

    return write


def remote(name: str, value: str) -> dict[str, Any]:
    return {"mcpServers": {"a": {"url": "http://h/", "headers": {name: value}}}}


@pytest.mark.parametrize(
    ("name", "value", "line", "masked"),
    [
        ("Authorization", "Bearer s3cret-77", "said s3cret-77", "said ***"),
        ("authorization", "s3cret-77", "said s3cret-77", "said ***"),
        ("Cookie", "sid=s3cret-77; lang=english", "sid s3cret-77, english", "sid ***, english"),
        ("X-Api-Key", "s3cret-77", "xs3cret-77x", "x***x"),
        ("X-Client", "v1 ${TOK}", "only tok+from/env 77", "only ***"),
        ("X-Client", "${TOK}", "https://h/?t=tok%2Bfrom%2Fenv%2077&b", "https://h/?t=***&b"),
    ],
)
def test_credentials_and_what_comes_from_a_variable_are_masked(
    load: Load, name: str, value: str, line: str, masked: str
) -> None:
    load(remote(name, value))
    assert mask(line) == masked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Accept", "application/json, text/event-stream"),
        ("X-Client", "server ready"),
        ("X-Client", "some-client-1.2.3"),
        ("X-Token-Type", "bearer"),
        ("X-Auth-Mode", "server"),
        ("X-Key-Count", "1234567"),
        ("X-Mode", "${WORD}"),
        ("X-Where", "${HOME}/docs"),
    ],
)
def test_ordinary_values_stay_readable(load: Load, name: str, value: str) -> None:
    load(remote(name, value))
    line = f"server ready; the server exited: bearer, text/plain 1234567 production /home/somebody-7/docs {value}"
    assert mask(line) == line


def test_a_variable_in_env_is_masked_and_a_literal_under_a_credentials_name_too(load: Load) -> None:
    env = {"A": "x ${TOK}", "API_KEY": "sk-literal-1", "LEVEL": "warning", "PORT": "8080000"}
    load({"mcpServers": {"a": {"command": "x", "env": env}}})
    assert mask("tok+from/env 77, sk-literal-1, warning 8080000") == "***, ***, warning 8080000"


def test_an_addresses_token_is_masked_as_written_and_as_meant_but_not_its_words(load: Load) -> None:
    load(
        {
            "endpoints": {"e": "wss://u:p%40ss-1@h/?token=a%2Fb%2Bc-77&room=livingroom"},
            "mcpServers": {"a": {"url": "https://h/?apikey=k%2Fey-88"}},
        }
    )
    assert mask("a/b+c-77 a%2Fb%2Bc-77 p@ss-1 k/ey-88 k%2Fey-88") == "*** *** *** *** ***"
    assert mask("livingroom: connected") == "livingroom: connected"


def test_half_a_million_letters_are_judged_at_once(load: Load) -> None:
    for name in ("Cookie", "Authorization", "X-Key", "X"):
        load(remote(name, "ab" * 250_000))
        load(remote(name, "a " * 250_000 + "${WORD}"))
    assert mask("a b a") == "a b a"
