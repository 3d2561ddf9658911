"""What the owner writes down is understood, and a wrong entry stops only itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voice_bridge import config
from voice_bridge.cli.options import settings_for
from voice_bridge.config import Settings
from voice_bridge.errors import ConfigError, UsageError
from voice_bridge.secrets import mask

Load = Callable[..., Settings]
PY = {"command": "python3"}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes a settings file into an empty folder and loads it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_ENDPOINT", raising=False)

    def write(data: dict[str, Any]) -> Settings:
        path = tmp_path / "mcp_settings.json"
        path.write_text(json.dumps(data))
        return config.load(path)

    return write


def test_a_block_of_another_program_works_unchanged(load: Load, tmp_path: Path) -> None:
    settings = load(
        {
            "mcpServers": {
                "cline": {
                    "command": "npx",
                    "args": ["-y", "x"],
                    "disabled": False,
                    "autoApprove": ["a"],
                    "timeout": 60,
                },
                "cursor": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer abcdefghij"}},
                "desktop": {"command": "uvx", "args": ["y"], "env": {"PORT": 8080, "DEBUG": True}},
                "sample": {"type": "stdio", "command": "python", "args": ["-m", "calculator"]},
            }
        }
    )
    assert not settings.problems
    assert not settings.warnings
    assert [server.transport for server in settings.servers.values()] == ["stdio", "http", "stdio", "stdio"]
    assert settings.servers["desktop"].env == {"PORT": "8080", "DEBUG": "true"}
    assert settings.servers["desktop"].cwd == tmp_path
    assert settings.servers["desktop"].start_timeout == 300, "a first uvx run downloads"


@pytest.mark.parametrize("key", ["type", "transport", "transportType"])
@pytest.mark.parametrize(
    ("word", "transport"),
    [
        ("stdio", "stdio"),
        ("http", "http"),
        ("HTTP", "http"),
        ("streamableHttp", "http"),
        ("streamable-http", "http"),
        ("streamable_http", "http"),
        ("sse", "sse"),
    ],
)
def test_every_spelling_of_a_transport_means_the_same(load: Load, key: str, word: str, transport: str) -> None:
    entry = {"command": "x"} if transport == "stdio" else {"url": "http://127.0.0.1:1/"}
    assert load({"mcpServers": {"a": {**entry, key: word}}}).servers["a"].transport == transport


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"command": "x", "type": "carrier-pigeon"},
            "'carrier-pigeon' is not a transport; use one of: stdio, sse, http",
        ),
        ({"comment": "nothing here"}, "it has neither a command nor a url"),
        ({"url": "http://x", "type": "stdio"}, 'type "stdio" needs a command'),
        ({"command": "x", "type": "sse"}, 'type "sse" needs a url'),
        ({"command": "x", "disabled": "true"}, "disabled: Input should be true or false (it is 'true')"),
        ({"command": "x", "enabled": "no"}, "enabled must be true or false, not 'no'"),
        (
            {"command": "x", "type": "stdio", "transport": "sse"},
            "type, transport and transportType disagree: 'stdio', 'sse'",
        ),
        ({"command": 7}, "command: Input should be text in quotes (it is 7)"),
        ({"command": "x", "startTimeout": 0}, "startTimeout: Input should be greater than 0"),
        ("python server.py", "expected an object in braces, found text"),
        ({"command": "x", "args": "one two"}, "args"),
    ],
)
def test_a_wrong_entry_stops_only_itself_and_says_where_and_why(load: Load, entry: Any, words: str) -> None:
    settings = load({"mcpServers": {"good": PY, "odd": entry}})
    assert list(settings.servers) == ["good"]
    assert words in settings.problems["mcpServers.odd"]
    assert "mcp_settings.json:1:" in settings.problems["mcpServers.odd"]


@pytest.mark.parametrize(
    "switch",
    [
        {"disabled": True},
        {"enabled": False},
        {"disabled": True, "enabled": True},
        {"disabled": False, "enabled": False},
    ],
)
def test_off_wins_and_an_entry_that_is_off_is_not_judged(load: Load, switch: dict[str, bool]) -> None:
    settings = load({"mcpServers": {"a": {**switch, "command": "${NOPE}"}, "b": PY}})
    assert [server.name for server in settings.enabled_servers] == ["b"]
    assert settings.servers["a"].disabled
    assert not settings.problems


def test_variables_are_filled_in_where_they_may_stand(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("TOK", "t-123456")
    monkeypatch.delenv("NOPE", raising=False)
    entry = {
        "command": "~/bin/x",
        "args": ["~/docs", "--t=${TOK}", "$HOME", "a~/b", "${NOPE:-}"],
        "env": {"A": "${HOME}/db.sqlite", "C": "${NOPE:-d}", "D": "cost $5", "E": "~/k"},
        "cwd": "${HOME}",
    }
    server = load({"mcpServers": {"a": entry}}).servers["a"]
    assert server.command == "/home/me/bin/x"
    assert server.args == ("/home/me/docs", "--t=t-123456", "$HOME", "a~/b", "")
    assert server.env == {"A": "/home/me/db.sqlite", "C": "d", "D": "cost $5", "E": "/home/me/k"}
    assert server.cwd == Path("/home/me")


def test_an_unset_variable_fails_that_server_alone_and_is_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    settings = load({"mcpServers": {"a": {**PY, "env": {"B": "${NOPE}"}}, "b": PY}})
    assert list(settings.servers) == ["b"]
    assert "a: env.B needs the variable NOPE, which is not set" in settings.problems["mcpServers.a"]


def test_unknown_keys_are_answered_with_the_nearest_known_one(load: Load) -> None:
    settings = load(
        {
            "mcpServer": {},
            "mcpServers": {"a": {"command": "x", "argz": [], "tools": {"exclud": []}}},
            "endpoints": {"e": {"url": "wss://h/?token=abcdef", "maxResultByte": 9}},
        }
    )
    text = "\n".join(settings.warnings)
    assert 'unknown key "mcpServer" is ignored; did you mean "mcpServers"?' in text
    assert 'unknown key "argz" is ignored; did you mean "args"?' in text
    assert 'unknown key "exclud" is ignored; did you mean "exclude"?' in text
    assert 'unknown key "maxResultByte" is ignored; did you mean "maxResultBytes"?' in text
    assert list(settings.servers) == ["a"]


class TestEndpoints:
    def test_without_the_block_there_is_one_from_the_environment(
        self, load: Load, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MCP_ENDPOINT", ' "wss://host/mcp/?token=secret-token-1" ')
        assert load({}).endpoints["default"].url == "wss://host/mcp/?token=secret-token-1"

    def test_env_files_are_read_beside_the_settings_and_in_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("MCP_ENDPOINT", raising=False)
        monkeypatch.delenv("MCP_CONFIG", raising=False)
        here, beside = tmp_path / "here", tmp_path / "beside"
        here.mkdir()
        beside.mkdir()
        monkeypatch.chdir(here)
        (here / ".env").write_text(f"MCP_CONFIG={beside / 'c.json'}\nTOOL_KEY=1\n")
        (beside / ".env").write_text("MCP_ENDPOINT=wss://host/mcp/?token=abcdefgh\n")
        (beside / "c.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
        found = config.find(None)
        assert found == beside / "c.json"
        settings = config.load(found)
        assert settings.endpoints["default"].url == "wss://host/mcp/?token=abcdefgh"
        assert settings.child_environ["TOOL_KEY"] == "1"
        assert "MCP_ENDPOINT" not in settings.child_environ

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("https://h/mcp/?token=hush-hush", "begins with https://; a WebSocket's begins with wss://"),
            ("h/mcp/?token=hush-hush", "is not like 'wss://HOST/mcp/?token=…'"),
            ("wss:///?token=hush-hush", "is not like 'wss://HOST/mcp/?token=…'"),
            ("ws://h:99999/?token=hush-hush", "is not like 'wss://HOST/mcp/?token=…'"),
            ("${UNSET_ENDPOINT}", "url needs the variable UNSET_ENDPOINT"),
        ],
    )
    def test_an_address_that_cannot_be_one_is_explained_without_its_token(
        self, load: Load, url: str, words: str
    ) -> None:
        settings = load({"endpoints": {"e": {"url": url}, "f": "wss://h/?token=123456"}})
        assert list(settings.endpoints) == ["f"]
        assert words in settings.problems["endpoints.e"]
        assert "hush" not in settings.problems["endpoints.e"]

    def test_a_server_that_an_endpoint_names_must_exist(self, load: Load) -> None:
        servers = {"clock": {"command": "x"}, "wrong": {}}
        settings = load(
            {"mcpServers": servers, "endpoints": {"e": {"url": "wss://h/", "servers": ["clok", "!wrong", "!zzz", "*"]}}}
        )
        assert [text.partition("endpoint ")[2] for text in settings.warnings] == [
            '\'e\': there is no server "clok"; did you mean "clock"?',
            "'e': there is no server \"zzz\"",
        ]

    def test_an_empty_list_of_endpoints_is_none_at_all(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MCP_ENDPOINT", "wss://h/?token=123456")
        assert list(load({"endpoints": {}}).endpoints) == ["default"]

    def test_a_word_where_a_list_belongs_is_told_without_jargon(self, load: Load) -> None:
        settings = load({"mcpServers": {"a": {"command": "x", "args": "y"}}})
        assert settings.problems["mcpServers.a"].endswith("args: Input should be a list in square brackets")

    def test_of_two_endpoints_with_one_address_the_first_counts(self, load: Load) -> None:
        same = "wss://h/?token=123456"
        settings = load({"endpoints": {"off": {"url": same, "disabled": True}, "a": same, "b": {"url": same}}})
        assert [endpoint.name for endpoint in settings.enabled_endpoints] == ["a"]
        assert settings.problems["endpoints.b"].endswith("endpoints b: it has the same address as 'a'")

    @pytest.mark.parametrize("url", ["https://h/?token=hush-hush", "wss://[::1/?token=hush-hush", "wss://h\udc80/"])
    def test_a_wrong_address_in_the_environment_is_a_problem_of_that_endpoint_alone(
        self, load: Load, monkeypatch: pytest.MonkeyPatch, url: str
    ) -> None:
        monkeypatch.setenv("MCP_ENDPOINT", "wss://h/?token=good-one-77")
        old = load({"mcpServers": {"a": PY}})
        monkeypatch.setenv("MCP_ENDPOINT", url)
        new = load({"mcpServers": {"a": PY}})
        assert new.problems["endpoints.default"].startswith("MCP_ENDPOINT: endpoint 'default': the address ")
        assert "hush" not in new.problems["endpoints.default"]
        assert list(new.servers) == ["a"]
        assert config.keep_working(new, old).endpoints == old.endpoints

    def test_secrets_never_pass_through_to_children_or_texts(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LIVING", "wss://h/mcp/?token=tok-of-the-living-room")
        monkeypatch.setenv("COPY", "see wss://h/mcp/?token=tok-of-the-living-room")
        monkeypatch.setenv("BARE", "tok-of-the-living-room")
        monkeypatch.setenv("HEADER", "header-secret-1")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
        monkeypatch.setenv("MCP_ENDPOINT", "wss://other")
        monkeypatch.setenv("KEEP", "me")
        settings = load({"endpoints": {"a": {"url": "${LIVING}", "headers": {"X-Key": "${HEADER}"}}}})
        left = settings.child_environ
        assert left["KEEP"] == "me"
        assert not left.keys() & {"LIVING", "COPY", "BARE", "HEADER", "ANTHROPIC_API_KEY", "MCP_ENDPOINT"}
        assert mask("a tok-of-the-living-room b header-secret-1") == "a *** b ***"
        assert "living-room" not in repr(settings).replace("'living-room'", "")


class TestCommandLine:
    def test_a_script_is_a_server_of_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "my_server.py").write_text("")
        server = config.load_script("my_server.py").servers["my_server"]
        assert (server.command, server.args) == (sys.executable, (str(tmp_path / "my_server.py"),))

    def test_scripts_of_one_name_all_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for folder in ("a", "b", "c"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "server.py").write_text("")
        servers = config.load_scripts(["a/server.py", "b/server.py", "./a/server.py", "c/server.py"]).servers
        assert {name: Path(server.args[0]).parent.name for name, server in servers.items()} == {
            "server": "a",
            "server-2": "b",
            "server-3": "c",
        }
        assert all(server.name == name for name, server in servers.items())
        assert list(config.load_scripts(["a/server.py"], taken=["server"]).servers) == ["server-2"]

    def test_a_script_runs_beside_the_server_of_its_name(self, load: Load, tmp_path: Path) -> None:
        load({"mcpServers": {"clock": PY}})
        (tmp_path / "clock.py").write_text("")
        settings = settings_for(["clock", "clock.py"], tmp_path / "mcp_settings.json")
        assert list(settings.servers) == ["clock", "clock-2"]

    def test_a_script_that_is_not_there(self) -> None:
        with pytest.raises(UsageError, match=r"nowhere\.py: there is no such file"):
            config.load_script("nowhere.py")

    def test_named_servers_run_even_if_they_are_off(self, load: Load) -> None:
        settings = load({"mcpServers": {"a": PY, "b": {**PY, "disabled": False}, "bad": {}}})
        assert [server.name for server in config.select(settings, ["b"]).enabled_servers] == ["b"]
        with pytest.raises(UsageError, match=r"there is no server 'c' in .*; it has: a, b"):
            config.select(settings, ["c"])
        with pytest.raises(UsageError, match="neither a command nor a url"):
            config.select(settings, ["bad"])


def test_the_section_itself_must_be_an_object(load: Load) -> None:
    with pytest.raises(ConfigError, match="mcpServers must be an object of named entries"):
        load({"mcpServers": ["a"]})


def test_the_shipped_settings_work_and_are_the_ones_in_the_repository() -> None:
    shipped = config.shipped_settings()
    settings = config.load(shipped)
    assert not settings.problems
    assert not settings.warnings
    assert settings.enabled_servers
    root = Path(__file__).parents[2] / "mcp_settings.json"
    assert root.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")


def test_a_wrong_entry_on_reload_leaves_its_old_version_in_use(load: Load) -> None:
    old = load({"mcpServers": {"a": PY, "b": PY}, "endpoints": {"e": "wss://h/?token=123456"}})
    new = load({"mcpServers": {"a": {**PY, "disabled": 3}}, "endpoints": {"e": "ftp://h"}})
    kept = config.keep_working(new, old)
    assert kept.servers["a"] == old.servers["a"]
    assert "b" not in kept.servers
    assert kept.endpoints["e"] == old.endpoints["e"]


def test_an_entry_that_is_wrong_on_reload_keeps_the_place_the_file_gives_it(load: Load) -> None:
    """The first server in the file owns a tool's name that several have."""
    a, b = "wss://h/?token=123456a", "wss://h/?token=123456b"
    old = load({"mcpServers": {"a": PY, "b": PY, "c": PY}, "endpoints": {"a": a, "b": b}})
    new = load({"mcpServers": {"c": PY, "a": 5, "new": PY, "b": []}, "endpoints": {"b": "x", "a": a}})
    kept = config.keep_working(new, old)
    assert list(kept.servers) == ["c", "a", "new", "b"]
    assert list(kept.endpoints) == ["b", "a"]
    assert list(config.keep_working(config.select(new, ["new", "c"]), config.select(old, ["c"])).servers) == [
        "new",
        "c",
    ]


@pytest.mark.parametrize("url", ["http://[::1/mcp", "http://h:99999/", "http://h:x/", f"http://{'h' * 300}/mcp"])
def test_an_address_that_cannot_be_taken_apart_stops_only_its_server(load: Load, url: str) -> None:
    settings = load({"mcpServers": {"odd": {"url": url}, "good": PY}})
    assert list(settings.servers) == ["good"]
    assert "mcpServers odd: url: it is not like 'https://HOST/mcp'" in settings.problems["mcpServers.odd"]


@pytest.mark.parametrize("word", [[], {}, 5, True, ["stdio"]])
def test_a_type_that_is_no_word_is_named(load: Load, word: Any) -> None:
    settings = load({"mcpServers": {"odd": {**PY, "type": word, "transport": "stdio"}, "good": PY}})
    assert list(settings.servers) == ["good"]
    assert "is not a transport; use one of: stdio" in settings.problems["mcpServers.odd"]


@pytest.mark.parametrize(("name", "value"), [("X Y", "a"), ("X", "a\nb"), ("X", "ä-s3cret"), ("", "a")])
def test_a_header_that_cannot_be_sent_stops_only_its_endpoint(load: Load, name: str, value: str) -> None:
    settings = load({"endpoints": {"e": {"url": "wss://h/", "headers": {name: value}}, "f": "wss://h/"}})
    assert list(settings.endpoints) == ["f"]
    assert "endpoints e: headers: " in settings.problems["endpoints.e"]
    assert "s3cret" not in settings.problems["endpoints.e"]


def test_trust_is_off_unless_given_and_changing_it_restarts_nothing(load: Load) -> None:
    settings = load({"mcpServers": {"a": PY, "b": {**PY, "trust": True}, "c": {**PY, "trust": "yes"}}})
    assert (settings.servers["a"].trust, settings.servers["b"].trust) == (False, True)
    assert "trust: Input should be true or false (it is 'yes')" in settings.problems["mcpServers.c"]
    assert settings.servers["a"].same_process(settings.servers["a"].model_copy(update={"trust": True}))


def test_what_comes_with_the_package_is_trusted() -> None:
    servers = config.load(config.shipped_settings()).servers
    bundled = [server for server in servers.values() if "servers." in " ".join(server.args)]
    assert len(bundled) == 5
    assert all(server.trust for server in bundled)
    assert not servers["memory"].trust


def test_the_log_can_be_json_and_more_or_less_of_it(load: Load) -> None:
    log = load({"bridge": {"log": {"format": "json", "level": "debug"}}}).bridge.log
    assert (log.format, log.level) == ("json", "debug")
    assert (load({}).bridge.log.format, load({}).bridge.log.level) == ("text", "info")
    settings = load({"bridge": {"log": {"levl": "debug"}, "minBackof": 1}})
    assert 'did you mean "minBackoff"?' in settings.warnings[0]
    assert 'did you mean "level"?' in settings.warnings[1]
    assert "log.level: " in load({"bridge": {"log": {"level": "loud"}}}).problems["bridge"]
    assert "log: Input should be an object in braces" in load({"bridge": {"log": 5}}).problems["bridge"]


def test_thousands_of_unknown_keys_are_counted_instead_of_shown(load: Load) -> None:
    warnings = load({f"x{number}": 1 for number in range(20_000)}).warnings
    assert len(warnings) == 21
    assert "19,980 more unknown keys are ignored" in warnings[-1]


def test_keys_that_only_other_programs_read_are_not_judged(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    assert not load({"mcpServers": {"a": {**PY, "description": "needs ${NOPE}"}}}).problems
