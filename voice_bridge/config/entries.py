"""One entry of a settings file at a time: from what is written to what is meant, or to a sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from voice_bridge.config import addresses, expand, secrecy, sentences, source
from voice_bridge.config.expand import kind, shorter, shown
from voice_bridge.config.models import (
    PACKAGE_RUNNERS,
    BridgeSettings,
    EndpointSettings,
    LogSettings,
    ServerSettings,
    ToolRules,
)
from voice_bridge.errors import ConfigError
from voice_bridge.secrets import keep_secret

_SERVER_SPELLINGS = {"type", "transport", "transportType", "enabled"}
_FOREIGN_SERVER_KEYS = {
    "alwaysAllow", "autoApprove", "comment", "description", "disabledTools", "envFile", "gallery", "icon", "id",
    "oauth", "timeout", "title", "version",
}  # fmt: skip
_JUDGED_LATER = {"args", "tools"}  # for odd characters: the start of the program, and the list of tools, allow for them
_MOST_WARNINGS = 20
_FIRST_START = 300.0  # seconds: it downloads
_Model = TypeVar("_Model", bound=BaseModel)


class SettingsReader:
    """Reads the entries of one file; what is wrong with them gathers in `problems` and `warnings`."""

    def __init__(self, path: Path | None, text: str, environ: Mapping[str, str]) -> None:
        self.path, self.text, self.environ = path, text, environ
        # Not resolved: a mounted ConfigMap is a link into a folder that lives until its next change.
        self.folder = path.absolute().parent if path else Path()
        self.problems: dict[str, str] = {}
        self.warnings: list[str] = []

    def section(self, name: str, entries: Any, read: Callable[[str, Any], _Model | None]) -> dict[str, _Model]:
        """The entries that can be used, in the order of the file. Raises ConfigError for a section that has none."""
        if entries is None:
            return {}
        if not isinstance(entries, Mapping):
            where = self.at(name)
            raise ConfigError(f"{where}: {name} must be an object of named entries, in braces, not {kind(entries)}")
        return {entry: made for entry, raw in entries.items() if (made := read(entry, raw)) is not None}

    def server(self, name: str, raw: Any) -> ServerSettings | None:
        """An entry of `mcpServers`; None when it is wrong."""
        what = f"server {shown(name)}"
        self.warn_unknown(what, raw, sentences.keys(ServerSettings) | _SERVER_SPELLINGS, _FOREIGN_SERVER_KEYS)
        if isinstance(raw, Mapping):
            self.warn_unknown(f"{what}, tools", raw.get("tools"), sentences.keys(ToolRules))
            if raw.get("disabled") is True or raw.get("enabled") is False:
                raw = {"disabled": True}
        return self._build(ServerSettings, ("mcpServers", name), raw, self._finish_server, _SERVER_SPELLINGS)

    def _finish_server(self, server: ServerSettings, raw: Mapping[str, Any]) -> ServerSettings:
        for member in ("headers", "env"):
            written = raw.get(member)
            keep_secret(*secrecy.in_members(written, getattr(server, member), self.environ))
        keep_secret(*secrecy.in_address(server.url))
        extra: dict[str, Any] = {"cwd": self.folder / server.cwd}
        if server.disabled:
            return server.model_copy(update=extra)
        if server.transport == "stdio":
            addresses.check_path("cwd", extra["cwd"])
            addresses.check_path("command", extra["cwd"] / server.command)
        else:
            addresses.check_http(server.url)
        if "start_timeout" not in server.model_fields_set and Path(server.command).stem in PACKAGE_RUNNERS:
            extra["start_timeout"] = _FIRST_START
        return server.model_copy(update=extra)

    def endpoint(self, name: str, raw: Any) -> EndpointSettings | None:
        """An entry of `endpoints`; None when it is wrong."""
        raw = {"url": raw} if isinstance(raw, str) else raw
        self.warn_unknown(f"endpoint {shown(name)}", raw, sentences.keys(EndpointSettings))
        if isinstance(raw, Mapping) and raw.get("disabled") is True:
            raw = {"url": "", "disabled": True}
        return self._build(EndpointSettings, ("endpoints", name), raw, self._finish_endpoint)

    def _finish_endpoint(self, endpoint: EndpointSettings, raw: Mapping[str, Any]) -> EndpointSettings:
        if endpoint.disabled:
            return endpoint
        url = endpoint.url.strip().strip("\"'")
        keep_secret(url, *secrecy.in_address(url))
        keep_secret(*secrecy.in_members(raw.get("headers"), endpoint.headers, self.environ))
        addresses.check_websocket(url)
        addresses.check_headers(endpoint.headers)
        ca_file = self.folder / endpoint.ca_file if endpoint.ca_file else None
        if ca_file:
            addresses.check_path("caFile", ca_file)
        return endpoint.model_copy(update={"url": url, "ca_file": ca_file})

    def default_endpoint(self, url: str) -> EndpointSettings | None:
        """The endpoint at the environment's address; None when it is wrong."""
        try:
            expand.refuse_odd(url, "the address")  # the environment's bytes need not be UTF-8
            return self._finish_endpoint(EndpointSettings(name="default", url=url), {})
        except ValueError as error:
            self.problems["endpoints.default"] = f"{secrecy.ENDPOINT_VARIABLE}: endpoint 'default': {error}"
            return None

    def bridge(self, raw: Any) -> BridgeSettings:
        """The section `bridge`; what it is by default when it is missing or wrong."""
        if raw is None:
            return BridgeSettings()
        self.warn_unknown("bridge", raw, sentences.keys(BridgeSettings))
        if isinstance(raw, Mapping):
            self.warn_unknown("bridge, log", raw.get("log"), sentences.keys(LogSettings))
        return self._build(BridgeSettings, ("bridge",), raw, lambda bridge, _: bridge) or BridgeSettings()

    def distinct(self, endpoints: Mapping[str, EndpointSettings]) -> dict[str, EndpointSettings]:
        """The endpoints without those whose address an earlier one has: the two would throw each other out."""
        owners: dict[str, str] = {}
        distinct: dict[str, EndpointSettings] = {}
        for name, endpoint in endpoints.items():
            owner = name if endpoint.disabled else owners.setdefault(endpoint.url, name)
            if owner == name:
                distinct[name] = endpoint
            else:
                self._problem(("endpoints", name), f"it has the same address as {shown(owner)}")
        return distinct

    def warn_of_unknown_servers(self, endpoints: Iterable[EndpointSettings], known: Iterable[str]) -> None:
        """A warning for each server that an endpoint names and the file does not have."""
        names = dict.fromkeys((*known, "*"))
        for endpoint in endpoints:
            missing = [word for server in endpoint.servers if (word := server.removeprefix("!")) not in names]
            for name in islice(missing, _MOST_WARNINGS):
                where = f"{self.at('endpoints', endpoint.name)}: endpoint {shown(endpoint.name)}"
                self.warnings.append(f'{where}: there is no server "{shorter(name)}"{sentences.near(name, names)}')

    def warn_unknown(self, what: str, raw: Any, known: set[str], tolerated: Iterable[str] = ()) -> None:
        """A warning for each key of an object that has no meaning here; a comment's is none."""
        if not isinstance(raw, Mapping):
            return
        unknown = list(sentences.unknown(raw, known | set(tolerated)))
        for key in unknown[:_MOST_WARNINGS]:
            hint = sentences.near(key, known)
            self.warnings.append(f'{self.at(key)}: {what}: unknown key "{shorter(key)}" is ignored{hint}')
        if len(unknown) > _MOST_WARNINGS:
            self.warnings.append(
                f"{self.at()}: {what}: {len(unknown) - _MOST_WARNINGS:,} more unknown keys are ignored"
            )

    def at(self, *path: str) -> str:
        """Where something stands, for the beginning of a sentence."""
        return f"{self.path}:{source.place_of(self.text, *path)}" if self.path else "the settings"

    def _build(
        self,
        model: type[_Model],
        where: tuple[str, ...],
        raw: Any,
        finish: Callable[[_Model, Mapping[str, Any]], _Model],
        spellings: Iterable[str] = (),
    ) -> _Model | None:
        try:
            if not isinstance(raw, Mapping):
                raise ValueError(f"expected an object in braces, found {kind(raw)}")
            named = {"name": _name(where[1])} if len(where) > 1 else {}
            known = sentences.keys(model) | set(spellings)
            values = {key: self._filled_in(key, value) for key, value in raw.items() if key in known}
            return finish(model.model_validate({**values, **named}), raw)
        except ValidationError as error:
            self._problem(where, sentences.mistakes(error))
        except ValueError as error:
            self._problem(where, str(error))
        return None

    def _filled_in(self, key: str, value: Any) -> Any:
        if key not in _JUDGED_LATER:
            expand.refuse_odd(value, key)
        return expand.expand(value, self.environ, key)

    def _problem(self, where: tuple[str, ...], sentence: str) -> None:
        self.problems[".".join(where)] = f"{self.at(*where)}: {' '.join(map(shorter, where))}: {sentence}"


def _name(name: str) -> str:
    expand.refuse_odd(name, "its name")
    if not name.strip():
        raise ValueError("its name is empty; give it one")
    return name
