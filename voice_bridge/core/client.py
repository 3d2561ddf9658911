"""One MCP client as the core sees it: a cloud's connection, or a caller in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from voice_bridge.core.catalog import Catalog
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.quota import Quota

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(frozen=True, slots=True)
class View:
    """What a client may see and how it is to be treated. `servers` are keys in the order of the settings file."""

    name: str
    servers: tuple[ServerKey, ...]
    call_timeout: float | None = None
    max_result_bytes: int | None = None
    redial_on_change: bool = False


@dataclass(frozen=True, slots=True)
class Listen:
    """An open `subscriptions/listen` of a client: the request's raw id and what it wants to hear of."""

    id: bytes
    methods: frozenset[str]
    uris: frozenset[str]


@dataclass(slots=True)
class Client:
    """A connection. `announced` is the catalog it was last shown; names in it keep their owners.

    `log_level` is the rank of the level it asked for, None when it never asked. `answered` says that it asked for
    something and got a result.
    """

    key: ClientKey
    view: View
    endpoint: EndpointKey | None = None
    initialized: bool = False
    modern: bool = False
    answered: bool = False
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    log_level: int | None = None
    catalog: Catalog | None = None
    announced: Catalog | None = None
    notified: Catalog | None = None
    listens: dict[bytes, Listen] = field(default_factory=dict)
    log_quota: Quota = field(default_factory=Quota)
