"""From a settings file and the environment to `Settings`; a wrong entry stops only itself."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from dotenv import dotenv_values
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from voice_bridge.config import expand, source
from voice_bridge.config.models import (
    PACKAGE_RUNNERS,
    BridgeSettings,
    EndpointSettings,
    ServerSettings,
    Settings,
    ToolRules,
)
from voice_bridge.errors import ConfigError, UsageError
from voice_bridge.secrets import keep_secret

ENDPOINT_VARIABLE = "MCP_ENDPOINT"
CONFIG_VARIABLE = "MCP_CONFIG"
DEFAULT_FILE = "mcp_settings.json"
_TOP_KEYS = {"mcpServers", "endpoints", "bridge", "$schema"}
_SERVER_SPELLINGS = {"type", "transport", "transportType", "enabled"}
_FOREIGN_SERVER_KEYS = {
    "alwaysAllow", "autoApprove", "comment", "description", "disabledTools", "envFile", "gallery", "icon", "id",
    "oauth", "timeout", "title", "version",
}  # fmt: skip
_INTERPRETERS = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node", ".sh": "sh"}
_Model = TypeVar("_Model", bound=BaseModel)


def environment(config: Path | None = None) -> dict[str, str]:
    """The process's environment over the `.env` beside the settings file, over the `.env` of the working directory."""
    values: dict[str, str] = {}
    for folder in (Path.cwd(), *([config.absolute().parent] if config else [])):
        found = dotenv_values(folder / ".env", encoding="utf-8-sig") if (folder / ".env").is_file() else {}
        values.update({key: value for key, value in found.items() if value is not None})
    return {**values, **os.environ}


def shipped_settings() -> Path:
    """The settings file that comes with the package: the bundled servers, all on."""
    return Path(__file__).with_name("starter.json")


def find(chosen: Path | None) -> Path | None:
    """The settings file: the chosen one, else `$MCP_CONFIG`, else `./mcp_settings.json`; None when there is none."""
    if chosen is not None:
        return chosen
    named = environment().get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    here = Path(DEFAULT_FILE)
    return here if here.exists() else None


def load(path: Path) -> Settings:
    """The settings in a file.

    Raises ConfigError when the file as a whole cannot be used; what is wrong with one entry is in `problems`.
    """
    path = path.expanduser()
    text = source.read_text(path)
    data = source.parse(path, text)
    return _Loader(path, text, data, environment(path)).settings()


def load_script(script: str) -> Settings:
    """Settings for one script as the only server; the endpoint comes from the environment.

    Raises UsageError when there is no such file.
    """
    path = Path(script).expanduser()
    if not path.is_file():
        raise UsageError(f"{script}: there is no such file, and no server of that name in the settings")
    interpreter = _INTERPRETERS.get(path.suffix.lower())
    whole = str(path.resolve())
    command, args = (interpreter, (whole,)) if interpreter else (whole, ())
    server = ServerSettings(name=path.stem, command=command, args=args, cwd=Path.cwd())
    loader = _Loader(None, "", {}, environment())
    return replace(loader.settings(), servers={server.name: server})


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
    return Path(word).suffix.lower() in _INTERPRETERS or os.sep in word or Path(word).is_file()


class _Loader:
    def __init__(self, path: Path | None, text: str, data: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.path, self.text, self.data, self.environ = path, text, data, environ
        # Not resolved: a mounted ConfigMap is a link into a folder that lives until its next change.
        self.folder = path.absolute().parent if path else Path.cwd()
        self.problems: dict[str, str] = {}
        self.warnings: list[str] = []

    def settings(self) -> Settings:
        self._warn_unknown("the settings", self.data, _TOP_KEYS)
        servers = self._section("mcpServers", self._server)
        endpoints = self._section("endpoints", self._endpoint)
        if not self.data.get("endpoints") and (url := self.environ.get(ENDPOINT_VARIABLE)):
            endpoints = {"default": self._checked(EndpointSettings(name="default", url=url))}
        endpoints = self._distinct(endpoints)
        self._warn_of_unknown_servers(endpoints.values())
        bridge = self._build(BridgeSettings, ("bridge",), self.data.get("bridge") or {})
        return Settings(
            servers=servers,
            endpoints=endpoints,
            bridge=bridge or BridgeSettings(),
            problems=self.problems,
            warnings=tuple(self.warnings),
            source=self.path,
            child_environ=self._child_environ(endpoints.values()),
        )

    def _section(self, section: str, build: Callable[[str, Any], _Model | None]) -> dict[str, _Model]:
        entries = self.data.get(section)
        if entries is None:
            return {}
        if not isinstance(entries, Mapping):
            raise ConfigError(f"{self._at(section)}: {section} must be an object of named entries")
        return {name: made for name, raw in entries.items() if (made := build(name, raw)) is not None}

    def _server(self, name: str, raw: Any) -> ServerSettings | None:
        where = ("mcpServers", name)
        self._warn_unknown(f"server {name!r}", raw, _keys(ServerSettings) | _SERVER_SPELLINGS, _FOREIGN_SERVER_KEYS)
        if isinstance(raw, Mapping):
            self._warn_unknown(f"server {name!r}, tools", raw.get("tools"), _keys(ToolRules))
            if raw.get("disabled") is True or raw.get("enabled") is False:
                raw = {"disabled": True}
        server = self._build(ServerSettings, where, raw, name=name)
        if server is None:
            return None
        keep_secret(*server.headers.values())
        extra: dict[str, Any] = {"cwd": self.folder / server.cwd}
        if "start_timeout" not in server.model_fields_set and Path(server.command).stem in PACKAGE_RUNNERS:
            extra["start_timeout"] = 300.0
        return server.model_copy(update=extra)

    def _endpoint(self, name: str, raw: Any) -> EndpointSettings | None:
        raw = {"url": raw} if isinstance(raw, str) else raw
        self._warn_unknown(f"endpoint {name!r}", raw, _keys(EndpointSettings))
        if isinstance(raw, Mapping) and raw.get("disabled") is True:
            return EndpointSettings(name=name, url="", disabled=True)
        endpoint = self._build(EndpointSettings, ("endpoints", name), raw, name=name)
        if endpoint is None:
            return None
        if endpoint.ca_file:
            endpoint = endpoint.model_copy(update={"ca_file": self.folder / endpoint.ca_file})
        try:
            return self._checked(endpoint)
        except UsageError as error:
            self.problems[f"endpoints.{name}"] = str(error)
            return None

    def _distinct(self, endpoints: Mapping[str, EndpointSettings]) -> dict[str, EndpointSettings]:
        """The endpoints without those whose address an earlier one has: the two would throw each other out."""
        owners: dict[str, str] = {}
        distinct: dict[str, EndpointSettings] = {}
        for name, endpoint in endpoints.items():
            owner = name if endpoint.disabled else owners.setdefault(endpoint.url, name)
            if owner == name:
                distinct[name] = endpoint
            else:
                where = self._at("endpoints", name)
                self.problems[f"endpoints.{name}"] = f"{where}: endpoints {name}: it has the same address as {owner!r}"
        return distinct

    def _checked(self, endpoint: EndpointSettings) -> EndpointSettings:
        """The endpoint with a usable address, its secrets known to the log."""
        url = endpoint.url.strip().strip("\"'")
        keep_secret(url, *endpoint.headers.values())
        parts = urlsplit(url)
        keep_secret(*(value for _, value in parse_qsl(parts.query)), parts.password or "")
        where = f"endpoint {endpoint.name!r}"
        if parts.scheme in ("http", "https"):
            scheme = parts.scheme.replace("http", "ws")
            raise UsageError(
                f"{where}: the address begins with {parts.scheme}://; a WebSocket's begins with {scheme}://"
            )
        try:
            usable = parts.scheme in ("ws", "wss") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise UsageError(
                f"{where}: the address is not like 'wss://HOST/mcp/?token=…'; paste it anew from the console"
            )
        return endpoint.model_copy(update={"url": url})

    def _build(self, model: type[_Model], where: tuple[str, ...], raw: Any, **fixed: Any) -> _Model | None:
        try:
            if not isinstance(raw, Mapping):
                raise ValueError(f"expected an object in braces, found {type(raw).__name__}")
            values = {field: expand.expand(value, self.environ, field) for field, value in raw.items()}
            return model.model_validate({**values, **fixed})
        except ValidationError as error:
            self.problems[".".join(where)] = f"{self._at(*where)}: {' '.join(where)}: {'; '.join(_sentences(error))}"
        except ValueError as error:
            self.problems[".".join(where)] = f"{self._at(*where)}: {' '.join(where)}: {error}"
        return None

    def _warn_unknown(self, what: str, raw: Any, known: set[str], tolerated: Iterable[str] = ()) -> None:
        if not isinstance(raw, Mapping):
            return
        for key in raw.keys() - known - set(tolerated):
            if key.startswith(("//", "_", "#")):
                continue
            near = difflib.get_close_matches(key, known, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            self.warnings.append(f'{self._at(key)}: {what}: unknown key "{key}" is ignored{hint}')

    def _warn_of_unknown_servers(self, endpoints: Iterable[EndpointSettings]) -> None:
        known = [*(self.data.get("mcpServers") or {}), "*"]
        for endpoint in endpoints:
            for name in (word.removeprefix("!") for word in endpoint.servers):
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f'; did you mean "{near[0]}"?' if near else ""
                    where = self._at("endpoints", endpoint.name)
                    self.warnings.append(f'{where}: endpoint {endpoint.name!r}: there is no server "{name}"{hint}')

    def _at(self, *keys: str) -> str:
        return f"{self.path}:{source.place_of(self.text, *keys)}" if self.path else "the settings"

    def _child_environ(self, endpoints: Iterable[EndpointSettings]) -> dict[str, str]:
        """The bridge's environment without its own secrets: those named so, and those an endpoint was built from."""
        secret = expand.names_in(self.data.get("endpoints") or {}) | {ENDPOINT_VARIABLE}
        urls = {endpoint.url for endpoint in endpoints}
        tokens = {value for url in urls for _, value in parse_qsl(urlsplit(url).query) if len(value) >= 6}
        return {
            name: value
            for name, value in self.environ.items()
            if name not in secret
            and not name.startswith("ANTHROPIC_")
            and value not in tokens
            and not any(url in value for url in urls if url)
        }


def _keys(model: type[BaseModel]) -> set[str]:
    names = set(model.model_fields) - {"name"}
    return names | {to_camel(name) for name in names}


def _sentences(error: ValidationError) -> Iterable[str]:
    """One sentence for each mistake; a value is shown only where it cannot be a secret."""
    for mistake in error.errors(include_url=False):
        place = ".".join(str(part) for part in mistake["loc"])
        text = mistake["msg"].removeprefix("Value error, ").replace("valid tuple", "list in square brackets")
        given = mistake["input"]
        shown = f" (it is {given!r})" if isinstance(given, bool | int | float) or place in _OPEN_FIELDS else ""
        yield f"{place}: {text}{shown}" if place else text


_OPEN_FIELDS = {"disabled", "enabled", "isolate", "connection", "refresh"}


def keep_working(new: Settings, old: Settings) -> Settings:
    """The new settings, with the old version of each entry that is wrong in the new ones."""
    servers = {**new.servers, **{n: s for n, s in old.servers.items() if f"mcpServers.{n}" in new.problems}}
    endpoints = {**new.endpoints, **{n: e for n, e in old.endpoints.items() if f"endpoints.{n}" in new.problems}}
    return replace(new, servers=servers, endpoints=endpoints)
