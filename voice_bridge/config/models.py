"""What may stand in `mcp_settings.json`, and how it is understood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, field_validator, model_validator
from pydantic.alias_generators import to_camel

from voice_bridge.config import secrecy
from voice_bridge.config.expand import shown

_YEAR = 31_536_000  # beyond it the timers of operating systems overflow
_MOST_BYTES = 2**40
Seconds = Annotated[float, Field(gt=0, le=_YEAR)]
SecondsFromZero = Annotated[float, Field(ge=0, le=_YEAR)]
Transport = Literal["stdio", "sse", "http"]

TRANSPORT_WORDS = "stdio, sse, http (also streamable-http, streamableHttp)"
_SPELLINGS: Mapping[str, Transport] = {"stdio": "stdio", "sse": "sse", "http": "http", "streamablehttp": "http"}
PACKAGE_RUNNERS = {"npx", "uvx", "bunx", "pnpx", "pipx", "docker", "podman"}


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")


class ToolRules(_Model):
    """Which tools of a server are shown, and how. Globs match the server's own names."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = {}
    describe: Mapping[str, str] = {}


def _transport(word: object) -> Transport:
    plain = word.lower().replace("-", "").replace("_", "").replace(" ", "") if isinstance(word, str) else ""
    if plain not in _SPELLINGS:
        raise ValueError(f"{shown(word)} is not a transport; use one of: {TRANSPORT_WORDS}")
    return _SPELLINGS[plain]


class ServerSettings(_Model):
    """One MCP server. `start_timeout` and `call_timeout` are seconds.

    `trust`: what the server says of its own tools (readOnlyHint) may spare the agent's user a question.
    """

    name: str
    transport: Annotated[Transport, BeforeValidator(_transport)] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: Path = Path()
    url: str = ""
    headers: Mapping[str, str] = {}
    disabled: StrictBool = False
    start_timeout: Seconds = 120
    call_timeout: Seconds | None = None
    isolate: StrictBool = False
    trust: StrictBool = False
    tools: ToolRules = ToolRules()

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, data: Any) -> Any:
        """`type`, `transport` and `transportType` mean the same, `enabled: false` is `disabled: true`; off wins."""
        data = dict(data)
        words = [word for key in ("type", "transport", "transportType") if (word := data.pop(key, None)) is not None]
        if len({_transport(word) for word in words}) > 1:
            raise ValueError(f"type, transport and transportType disagree: {', '.join(map(shown, words))}")
        if words:
            data["transport"] = words[0]
        else:
            data["transport"] = "stdio" if data.get("command") or not data.get("url") else "http"
        enabled = data.pop("enabled", True)
        if not isinstance(enabled, bool):
            raise ValueError(f"enabled must be true or false, not {shown(enabled)}")
        if not enabled:
            data["disabled"] = True
        return data

    @field_validator("env", "headers", mode="before")
    @classmethod
    def _plain_text(cls, value: object) -> object:
        """Numbers, true and false are taken as people write them; the environment and headers hold text."""
        if not isinstance(value, Mapping):
            return value
        return {key: _as_text(item) for key, item in value.items()}

    @model_validator(mode="after")
    def _has_what_its_transport_needs(self) -> ServerSettings:
        if self.disabled:
            return self
        if not self.command and not self.url:
            raise ValueError("it has neither a command nor a url")
        if self.transport == "stdio" and not self.command:
            raise ValueError('type "stdio" needs a command')
        if self.transport != "stdio" and not self.url:
            raise ValueError(f'type "{self.transport}" needs a url')
        return self

    def same_process(self, other: ServerSettings) -> bool:
        """Whether a running process or session of the other settings may go on under these."""
        ours_alone = {"tools", "call_timeout", "start_timeout", "trust"}
        return self.model_dump(exclude=ours_alone) == other.model_dump(exclude=ours_alone)


def _as_text(item: object) -> object:
    if isinstance(item, bool):
        return "true" if item else "false"
    return str(item) if isinstance(item, int | float) and math.isfinite(item) else item


class EndpointSettings(_Model):
    """One WebSocket address of a cloud. `url` holds a token: it is never logged."""

    name: str
    url: str = Field(repr=False)
    servers: tuple[str, ...] = ("*",)
    connection: Literal["shared", "per-server"] = "shared"
    refresh: Literal["notify", "reconnect"] = "notify"
    max_result_bytes: Annotated[int, Field(ge=256, le=_MOST_BYTES)] | None = None
    call_timeout: Seconds | None = None
    headers: Mapping[str, str] = Field(default={}, repr=False)
    ca_file: Path | None = None
    disabled: StrictBool = False

    def same_connection(self, other: EndpointSettings) -> bool:
        """Whether an open connection of the other settings may go on under these."""
        return all(getattr(self, name) == getattr(other, name) for name in ("url", "headers", "ca_file", "connection"))


class LogSettings(_Model):
    """What is logged on stderr, and how; `json` is one object a line."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class BridgeSettings(_Model):
    """The daemon itself; times are seconds."""

    min_backoff: Seconds = 1
    max_backoff: Seconds = 600
    stable_after: SecondsFromZero = 30
    dial_after: SecondsFromZero = 5
    ping_interval: Seconds = 20
    ping_timeout: Seconds = 20
    max_message_bytes: Annotated[int, Field(ge=1024, le=_MOST_BYTES)] = 67_108_864
    log: LogSettings = LogSettings()


@dataclass(frozen=True, slots=True)
class Settings:
    """A settings file as understood: what can run, and a sentence for each entry that cannot.

    `entries` has every entry of the file in its order, wrong ones too, as `mcpServers.NAME` or `endpoints.NAME`, with
    the variables it refers to. `environ` is the bridge's own environment, with all secrets.
    """

    servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    endpoints: Mapping[str, EndpointSettings] = field(default_factory=dict)
    bridge: BridgeSettings = field(default_factory=BridgeSettings)
    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    source: Path | None = None
    entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def enabled_servers(self) -> list[ServerSettings]:
        """The servers to run, in the order of the file."""
        return [server for server in self.servers.values() if not server.disabled]

    @property
    def enabled_endpoints(self) -> list[EndpointSettings]:
        """The endpoints to dial, in the order of the file."""
        return [endpoint for endpoint in self.endpoints.values() if not endpoint.disabled]

    @property
    def child_environ(self) -> dict[str, str]:
        """What every child may inherit: the bridge's environment without the bridge's own secrets."""
        of_endpoints = [names for entry, names in self.entries.items() if entry.startswith("endpoints.")]
        urls = [endpoint.url for endpoint in self.endpoints.values()]
        return secrecy.without_own(self.environ, set().union(*of_endpoints), urls)

    def environ_for(self, server: ServerSettings) -> dict[str, str]:
        """What a child process of this server inherits.

        Kept back are the bridge's own secrets (the endpoints' variables, their addresses and tokens under any name, and
        ANTHROPIC_*), and the secrets of other servers (`secrecy.without_others`), switched off or wrong ones too. What
        this entry refers to, and what no entry refers to, it has: servers read their keys by name.
        """
        mine = self.entries.get(f"mcpServers.{server.name}", frozenset())
        others = [
            names
            for entry, names in self.entries.items()
            if entry.startswith("mcpServers.") and entry != f"mcpServers.{server.name}"
        ]
        return secrecy.without_others(self.child_environ, mine, set().union(*others))
