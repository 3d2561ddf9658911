"""From a settings file and the environment to `Settings`; a wrong entry stops only itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from voice_bridge.config import expand, source
from voice_bridge.config.dotenv import environment
from voice_bridge.config.entries import SettingsReader
from voice_bridge.config.expand import shorter
from voice_bridge.config.models import ServerSettings, Settings
from voice_bridge.config.secrecy import ENDPOINT_VARIABLE
from voice_bridge.errors import UsageError

__all__ = ["environment", "find", "is_script", "keep_working", "load", "load_script", "load_scripts", "select"]

CONFIG_VARIABLE = "MCP_CONFIG"
DEFAULT_FILE = "mcp_settings.json"
_TOP_KEYS = {"mcpServers", "endpoints", "bridge", "$schema"}
_INTERPRETERS = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node", ".sh": "sh"}
_T = TypeVar("_T")


def shipped_settings() -> Path:
    """The settings file that comes with the package: the bundled servers, all on."""
    return Path(__file__).with_name("starter.json")


def find(chosen: Path | None) -> Path | None:
    """The settings file: the chosen one, else `$MCP_CONFIG`, else `./mcp_settings.json`; None when there is none.

    Raises ConfigError for a `.env` that cannot be read.
    """
    if chosen is not None:
        return chosen
    named = environment().get(CONFIG_VARIABLE)
    if named:
        return Path(os.path.expanduser(named))
    return Path(DEFAULT_FILE) if os.path.exists(DEFAULT_FILE) else None


def load(path: Path) -> Settings:
    """The settings in a file.

    Raises ConfigError when the file as a whole, or a `.env`, cannot be used; what is wrong with one entry is in
    `problems`.
    """
    path = Path(os.path.expanduser(path))
    text = source.read_text(path)
    data = source.parse(path, text)
    return _settings(path, text, data, environment(path))


def _settings(path: Path | None, text: str, data: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    reader = SettingsReader(path, text, environ)
    reader.warn_unknown("the settings", data, _TOP_KEYS)
    servers = reader.section("mcpServers", data.get("mcpServers"), reader.server)
    endpoints = reader.distinct(reader.section("endpoints", data.get("endpoints"), reader.endpoint))
    if not data.get("endpoints") and (url := environ.get(ENDPOINT_VARIABLE)):
        default = reader.default_endpoint(url)
        endpoints = {"default": default} if default else {}
    reader.warn_of_unknown_servers(endpoints.values(), data.get("mcpServers") or ())
    return Settings(
        servers=servers,
        endpoints=endpoints,
        bridge=reader.bridge(data.get("bridge")),
        problems=reader.problems,
        warnings=tuple(reader.warnings),
        source=path,
        entries={
            f"{section}.{name}": frozenset(expand.names_in(raw))
            for section in ("mcpServers", "endpoints")
            for name, raw in (data.get(section) or {}).items()
        },
        environ=environ,
    )


def load_script(script: str) -> Settings:
    """Settings for one script as the only server; the endpoint comes from the environment.

    Raises UsageError when there is no such file.
    """
    return load_scripts([script])


def load_scripts(scripts: Sequence[str], taken: Iterable[str] = ()) -> Settings:
    """Settings for some scripts as the only servers; the endpoint comes from the environment.

    Each is called as its file; one whose name another, or one of the names that are taken, has already gets a number:
    `server-2`. A script given twice is one server. Raises UsageError when there is no such file.
    """
    names = set(taken)
    servers: dict[str, ServerSettings] = {}
    for path in dict.fromkeys(_script(script) for script in scripts):
        tries = (path.stem if number == 1 else f"{path.stem}-{number}" for number in count(1))
        name = next(word for word in tries if word not in names)
        names.add(name)
        servers[name] = _script_server(name, path)
    return replace(_settings(None, "", {}, environment()), servers=servers)


def _script(script: str) -> Path:
    path = os.path.expanduser(script)
    if not os.path.isfile(path):
        raise UsageError(f"{shorter(script)}: there is no such file, and no server of that name in the settings")
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{shorter(script)}: cannot be found: {error}") from None


def _script_server(name: str, path: Path) -> ServerSettings:
    interpreter = _INTERPRETERS.get(path.suffix.lower())
    command, args = (interpreter, (str(path),)) if interpreter else (str(path), ())
    try:
        return ServerSettings(name=name, command=command, args=args, cwd=Path.cwd())
    except OSError:
        raise UsageError("the working directory was removed; change to one that exists") from None


def select(settings: Settings, names: Sequence[str]) -> Settings:
    """The same settings with only the named servers, switched on.

    Raises UsageError for a name that the settings do not have.
    """
    chosen: dict[str, ServerSettings] = {}
    for name in names:
        if f"mcpServers.{name}" in settings.problems:
            raise UsageError(settings.problems[f"mcpServers.{name}"])
        if name not in settings.servers:
            known = ", ".join(settings.servers) or "none"
            raise UsageError(f"there is no server {name!r} in {settings.source}; it has: {known}")
        chosen[name] = settings.servers[name].model_copy(update={"disabled": False})
    return replace(settings, servers=chosen)


def is_script(word: str) -> bool:
    """Whether a word of the command line means a file rather than a server's name."""
    return Path(word).suffix.lower() in _INTERPRETERS or os.sep in word or os.path.isfile(word)


def keep_working(new: Settings, old: Settings) -> Settings:
    """The new settings, with the old version of each entry that is wrong in the new ones, at its new place."""
    return replace(
        new,
        servers=_kept("mcpServers", new.servers, old.servers, new),
        endpoints=_kept("endpoints", new.endpoints, old.endpoints, new),
        bridge=old.bridge if "bridge" in new.problems else new.bridge,
        entries={
            entry: names | old.entries.get(entry, frozenset()) if entry in new.problems else names
            for entry, names in new.entries.items()
        },
    )


def _kept(section: str, made: Mapping[str, _T], before: Mapping[str, _T], new: Settings) -> Mapping[str, _T]:
    """A section with the entries that were in use before and are wrong now, each where the file has it."""
    kept = {name: entry for name, entry in before.items() if f"{section}.{name}" in new.problems}
    if not kept:
        return made
    entries = {**kept, **made}
    in_file = [name for entry in new.entries if (name := entry.removeprefix(f"{section}.")) in entries]
    return {name: entries[name] for name in dict.fromkeys((*in_file, *entries))}
