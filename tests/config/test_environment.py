"""Which variables settings are filled in from, whatever a `.env` is, and which of them a server's process may have."""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voice_bridge import config
from voice_bridge.config import Settings
from voice_bridge.config.loader import environment
from voice_bridge.errors import ConfigError, UsageError

PY = {"command": "python3"}
Load = Callable[[dict[str, Any]], Settings]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_ENDPOINT", raising=False)
    monkeypatch.delenv("MCP_CONFIG", raising=False)

    def write(data: dict[str, Any]) -> Settings:
        path = tmp_path / "mcp_settings.json"
        path.write_text(json.dumps(data))
        return config.load(path)

    return write


class TestDotEnv:
    @pytest.mark.parametrize(
        "data",
        [
            "KEY=wörd".encode(),
            codecs.BOM_UTF8 + "KEY=wörd".encode(),
            codecs.BOM_UTF16_LE + "KEY=wörd\r\n".encode("utf-16-le"),
            codecs.BOM_UTF16_BE + "KEY=wörd\r\n".encode("utf-16-be"),
        ],
        ids=["utf-8", "utf-8 bom", "utf-16-le bom", "utf-16-be bom"],
    )
    def test_every_usual_encoding_is_read(self, load: Load, tmp_path: Path, data: bytes) -> None:
        (tmp_path / ".env").write_bytes(data)
        assert load({"mcpServers": {"a": {**PY, "args": ["${KEY}"]}}}).servers["a"].args == ("wörd",)

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"A=1\nB=2\nKEY=w\xf6rd\n", r"/\.env:3: byte 13 is not UTF-8; save it as UTF-8"),
            (b"A=1\n\nKEY=a\0b\n", r"/\.env:3: it holds a NUL"),
            (b"A=1\n'a=b'=2\n", r"/\.env:2: 'a=b' cannot be a variable's name"),
        ],
        ids=["latin-1", "nul", "an impossible name"],
    )
    def test_what_no_environment_can_hold_is_named_with_its_line(
        self, load: Load, tmp_path: Path, data: bytes, words: str
    ) -> None:
        (tmp_path / ".env").write_bytes(data)
        with pytest.raises(ConfigError, match=words):
            load({})
        with pytest.raises(ConfigError, match=words):
            config.find(None)
        (tmp_path / "s.py").write_text("")
        with pytest.raises(ConfigError, match=words):
            config.load_script("s.py")

    def test_one_that_may_not_be_read_is_named(self, tmp_path: Path) -> None:
        said = _unprivileged(tmp_path, lambda: (tmp_path / ".env").chmod(0), "config.load(Path('c.json'))")
        assert "/.env: cannot be read: permission denied" in said

    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["a virtual environment", "a pipe"])
    def test_what_is_no_file_is_none(self, load: Load, tmp_path: Path, make: Callable[[Path], None]) -> None:
        make(tmp_path / ".env")
        assert list(load({"mcpServers": {"a": PY}}).servers) == ["a"]


def _unprivileged(folder: Path, close: Callable[[], object], call: str) -> str:
    """What a call says, in words or as the end of a traceback, for a user from whom something was closed."""
    for path in (folder, *folder.parents):
        if path.stat().st_uid == os.getuid() and path != Path("/") and path.is_relative_to(Path("/tmp")):
            path.chmod(path.stat().st_mode | 0o055)
    (folder / "c.json").write_text('{"mcpServers": {"a": {"command": "x", "cwd": "closed/in"}}}')
    (folder / ".env").write_text("A=1\n")
    (folder / "closed" / "in").mkdir(parents=True)
    close()
    code = (
        "import os; from pathlib import Path; from voice_bridge import config\n"
        "if os.getuid() == 0: os.setegid(65534); os.seteuid(65534)\n"
        f"print({call})"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(config.__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return ended.stdout + ended.stderr


class TestPaths:
    def test_a_folder_that_is_closed_to_us_stops_only_its_entry(self, tmp_path: Path) -> None:
        said = _unprivileged(
            tmp_path, lambda: (tmp_path / "closed").chmod(0), "config.load(Path('c.json')).problems['mcpServers.a']"
        )
        assert "mcpServers a: cwd: " in said
        assert said.rstrip().endswith("closed/in cannot be used: permission denied")
        (tmp_path / "closed").chmod(0o700)

    @pytest.mark.parametrize("key", ["cwd", "command"])
    @pytest.mark.parametrize(
        ("value", "words"),
        [("n" * 300, "cannot be used: file name too long"), ("a\0b", r"holds the character \u0000")],
        ids=["300 letters", "nul"],
    )
    def test_a_name_that_no_system_takes_stops_only_its_entry(
        self, load: Load, key: str, value: str, words: str
    ) -> None:
        settings = load({"mcpServers": {"odd": {**PY, key: value}, "good": PY}})
        assert list(settings.servers) == ["good"]
        assert f"mcpServers odd: {key}" in settings.problems["mcpServers.odd"]
        assert words in settings.problems["mcpServers.odd"]

    def test_a_folder_that_does_not_exist_yet_is_no_mistake_of_the_settings(self, load: Load) -> None:
        assert not load({"mcpServers": {"a": {**PY, "cwd": "later"}}}).problems

    def test_a_certificate_of_an_impossible_name_stops_only_its_endpoint(self, load: Load) -> None:
        settings = load({"endpoints": {"a": {"url": "wss://h/", "caFile": "n" * 300}, "b": "wss://h/"}})
        assert "caFile: " in settings.problems["endpoints.a"]
        assert list(settings.endpoints) == ["b"]

    @pytest.mark.parametrize("word", ["n" * 300, "a\0b", "\ud800", "~nobody-of-this-name/x", "/" + "n" * 300, ""])
    def test_any_word_of_the_command_line_is_answered(
        self, load: Load, monkeypatch: pytest.MonkeyPatch, word: str
    ) -> None:
        settings = load({"mcpServers": {"a": PY}})
        assert config.is_script(word) == ("/" in word)
        with pytest.raises(UsageError, match="there is no such file, and no server of that name"):
            config.load_script(word)
        with pytest.raises(UsageError, match="there is no server"):
            config.select(settings, [word])
        with pytest.raises(ConfigError):
            config.load(Path(word))

    def test_settings_named_by_the_environment_may_have_any_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MCP_CONFIG", "~nobody-of-this-name/c.json")
        found = config.find(None)
        assert found == Path("~nobody-of-this-name/c.json")
        with pytest.raises(ConfigError, match="there is no such file"):
            config.load(found)

    def test_a_removed_working_directory_concerns_only_what_is_relative_to_it(
        self, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load({"mcpServers": {"a": PY}})
        (tmp_path / ".env").write_text("A=beside\n")
        (tmp_path / "s.py").write_text("")
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        settings = config.load(tmp_path / "mcp_settings.json")
        assert settings.environ["A"] == "beside"
        assert list(settings.servers) == ["a"]
        assert config.find(None) is None
        assert "PATH" in environment()
        with pytest.raises(ConfigError, match="there is no such file"):
            config.load(Path("mcp_settings.json"))
        with pytest.raises(UsageError, match="the working directory was removed"):
            config.load_script(str(tmp_path / "s.py"))

    def test_a_file_without_an_end_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="larger than 16 MiB"):
            config.load(Path("/dev/zero"))


class TestWhatAChildInherits:
    DOT_ENV = (
        "NOTES_TOKEN=notes-secret-1\nWEB_TOKEN=web-secret-22\nWEB_COPY=web-secret-22\n"
        "LOOSE_KEY=loose-1\nMODE=production\n"
    )

    def environ(self, load: Load, tmp_path: Path, entries: dict[str, Any], name: str = "notes") -> dict[str, str]:
        (tmp_path / ".env").write_text(self.DOT_ENV)
        settings = load({"mcpServers": entries})
        return settings.environ_for(settings.servers[name])

    def test_an_entry_has_its_own_variables_and_those_of_nobody(self, load: Load, tmp_path: Path) -> None:
        entries = {
            "notes": {**PY, "env": {"TOKEN": "${NOTES_TOKEN}"}},
            "web": {"url": "http://h/", "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}},
        }
        has = self.environ(load, tmp_path, entries)
        assert (has["NOTES_TOKEN"], has["LOOSE_KEY"]) == ("notes-secret-1", "loose-1")
        assert not has.keys() & {"WEB_TOKEN", "WEB_COPY"}, "another server's token, under any name"

    @pytest.mark.parametrize(
        "other",
        [
            {**PY, "args": ["--token=${WEB_TOKEN}"]},
            {**PY, "env": {"A": "${WEB_TOKEN:-none}"}, "disabled": True},
            {**PY, "env": {"A": "${WEB_TOKEN}"}, "startTimeout": "wrong"},
            {"url": "https://h/?key=${WEB_TOKEN}"},
        ],
        ids=["in a list", "switched off", "wrong", "in an address"],
    )
    def test_every_member_of_every_other_entry_counts(self, load: Load, tmp_path: Path, other: dict[str, Any]) -> None:
        has = self.environ(load, tmp_path, {"notes": PY, "other": other})
        assert "WEB_TOKEN" not in has
        assert "NOTES_TOKEN" in has

    def test_what_two_entries_refer_to_both_have(self, load: Load, tmp_path: Path) -> None:
        both = {**PY, "env": {"A": "${WEB_TOKEN}"}}
        assert self.environ(load, tmp_path, {"notes": both, "b": both})["WEB_TOKEN"] == "web-secret-22"

    def test_what_every_program_needs_stays_though_others_mention_it(
        self, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
        monkeypatch.setenv("ALSO_MODE", "production")
        other = {**PY, "args": ["${HOME}/docs", "${PATH}", "${HTTPS_PROXY}", "${MODE}"]}
        has = self.environ(load, tmp_path, {"notes": PY, "other": other})
        assert has["HOME"] == os.environ["HOME"]
        assert {"PATH", "HTTPS_PROXY", "ALSO_MODE"} <= has.keys(), "an ordinary word is no copy of a secret"
        assert "MODE" not in has

    def test_the_bridges_own_secrets_reach_nobody(
        self, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
        monkeypatch.setenv("MCP_ENDPOINT", "wss://h/?token=tok-of-the-cloud-1")
        monkeypatch.setenv("BARE", "tok-of-the-cloud-1")
        entry = {**PY, "env": {"A": "${ANTHROPIC_API_KEY}", "B": "${MCP_ENDPOINT}"}}
        has = self.environ(load, tmp_path, {"notes": entry})
        assert not has.keys() & {"ANTHROPIC_API_KEY", "MCP_ENDPOINT", "BARE"}

    def test_an_entry_that_is_wrong_on_reload_keeps_its_secrets_to_itself(self, load: Load, tmp_path: Path) -> None:
        (tmp_path / ".env").write_text("WEB_TOKEN=web-secret-22\nCLOUD=wss://h/?token=cloud-secret-3\n")
        old = load(
            {"mcpServers": {"notes": PY, "web": {**PY, "args": ["${WEB_TOKEN}"]}}, "endpoints": {"e": "${CLOUD}"}}
        )
        kept = config.keep_working(load({"mcpServers": {"notes": PY, "web": 5}, "endpoints": {"e": 5}}), old)
        assert not kept.environ_for(kept.servers["notes"]).keys() & {"WEB_TOKEN", "CLOUD"}
        assert "WEB_TOKEN" in kept.environ_for(kept.servers["web"])
