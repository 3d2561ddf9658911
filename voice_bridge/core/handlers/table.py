"""Which handler each method of a client has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from voice_bridge.core.effects import Effect
from voice_bridge.core.handlers import handshake, lists, logs, prompts, resources, subscriptions, tools
from voice_bridge.core.peers import Peers
from voice_bridge.core.request import Request

Handler = Callable[[Peers, Request], list[Effect]]

REQUESTS: Final[Mapping[str, Handler]] = {
    "initialize": handshake.initialize,
    "server/discover": handshake.discover,
    "ping": handshake.ping,
    "tools/list": lists.of("tools"),
    "tools/call": tools.call,
    "prompts/list": lists.of("prompts"),
    "prompts/get": prompts.get,
    "resources/list": lists.of("resources"),
    "resources/templates/list": lists.of("templates"),
    "resources/read": resources.read,
    "resources/subscribe": resources.subscribe,
    "resources/unsubscribe": resources.unsubscribe,
    "completion/complete": prompts.complete,
    "logging/setLevel": logs.set_level,
    "subscriptions/listen": subscriptions.listen,
}
