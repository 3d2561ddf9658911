"""Keeps endpoints connected for as long as the settings want them. Pure.

It is told what happened to ownership and sockets and decides, by the table in `lifecycle`, what is to be dialled,
closed, and when to try again.
"""

from __future__ import annotations

from typing import Final

from voice_bridge.config import BridgeSettings
from voice_bridge.core.effects import Acquire, Effect
from voice_bridge.core.endpoint import Endpoint
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.lifecycle import Event, State
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Retry, Settling
from voice_bridge.core.retry import Verdict

OWNED_ELSEWHERE_TRY: Final = 10.0


class Dialling:
    """Decides over endpoints. Times are seconds on the caller's monotonic clock."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._bridge = BridgeSettings()

    def settings(self, bridge: BridgeSettings) -> None:
        """New settings of the bridge, for what is connected as for what will be."""
        self._bridge = bridge
        for endpoint in self._peers.endpoints.values():
            self._pace(endpoint)

    def _pace(self, endpoint: Endpoint) -> None:
        bridge = self._bridge
        endpoint.retry.backoff.pace(bridge.min_backoff, bridge.max_backoff, bridge.stable_after)

    # What the settings want

    def wanted(self, key: EndpointKey, servers: tuple[ServerKey, ...], now: float) -> list[Effect]:
        """An endpoint shall be connected, once its servers are ready or have had their time."""
        endpoint = self._peers.endpoints.get(key)
        if endpoint is None:
            endpoint = self._peers.endpoints[key] = Endpoint(key, servers)
        endpoint.servers, endpoint.waits_for_servers = servers, True
        self._pace(endpoint)
        self._peers.pending.add(Settling(key, now + self._bridge.dial_after))
        return [*endpoint.advance(Event.WANTED, now), *self.servers_settled(now)]

    def renewed(self, key: EndpointKey, servers: tuple[ServerKey, ...], now: float) -> list[Effect]:
        """An endpoint has another address: the connection to the old one is closed before the new one is dialled."""
        endpoint = self._peers.endpoints[key]
        endpoint.retry.rejections = 0
        endpoint.servers = servers
        self._pace(endpoint)
        return [*endpoint.advance(Event.RENEWED, now, "its address changed"), *self._acquire(endpoint)]

    def unwanted(self, key: EndpointKey, now: float, reason: str) -> list[Effect]:
        """An endpoint shall not be connected any more."""
        endpoint = self._peers.endpoints[key]
        effects = endpoint.advance(Event.UNWANTED, now, reason)
        if not endpoint.life.running:
            del self._peers.endpoints[key]
        return effects

    def nudge(self, now: float) -> list[Effect]:
        """Somebody thinks that it may work now: nothing waits for its next try."""
        return [effect for endpoint in self._peers.endpoints.values() for effect in self._again(endpoint, now)]

    # Before the dial

    def servers_settled(self, now: float) -> list[Effect]:
        """Endpoints whose servers are all ready or have failed once need not wait for them."""
        effects: list[Effect] = []
        for endpoint in self._peers.endpoints.values():
            if endpoint.waiting and all(self._settled(key) for key in endpoint.servers):
                effects += self._acquire(endpoint)
        return effects

    def _settled(self, key: ServerKey) -> bool:
        server = self._peers.servers.get(key)
        return server is None or server.settled

    def settled(self, key: EndpointKey) -> list[Effect]:
        """The time to wait for servers is over."""
        endpoint = self._peers.endpoints.get(key)
        return self._acquire(endpoint) if endpoint is not None and endpoint.waiting else []

    def _acquire(self, endpoint: Endpoint) -> list[Effect]:
        endpoint.waits_for_servers = False
        return [Acquire(endpoint.key)]

    def granted(self, key: EndpointKey, now: float) -> list[Effect]:
        """This bridge may dial the endpoint."""
        return self._peers.endpoints[key].advance(Event.GRANTED, now)

    def withheld(self, key: EndpointKey, reason: str, now: float) -> list[Effect]:
        """Somebody else serves the endpoint: it is asked for again after a while."""
        endpoint = self._peers.endpoints[key]
        if endpoint.life.state is not State.WAITING:
            return []
        told = endpoint.life.reason == reason
        endpoint.life.reason, endpoint.life.next_try = reason, now + OWNED_ELSEWHERE_TRY
        self._peers.pending.add(Retry(key, now + OWNED_ELSEWHERE_TRY))
        return [] if told else [endpoint.noted(OWNED_ELSEWHERE_TRY)]

    # What happened

    def opened(self, key: EndpointKey, client: ClientKey, now: float) -> list[Effect]:
        """Its socket is up; the client on it is known already."""
        endpoint = self._peers.endpoints[key]
        endpoint.client, endpoint.opened_at, endpoint.answered = client, now, False
        return endpoint.advance(Event.OPENED, now)

    def lost(self, key: EndpointKey, verdict: Verdict, now: float) -> list[Effect]:
        """Its socket is closed, or never came about."""
        endpoint = self._peers.endpoints[key]
        lived = None if endpoint.opened_at is None else now - endpoint.opened_at
        endpoint.client = endpoint.opened_at = None
        if endpoint.life.closing:
            return self.gone(key, now)
        endpoint.life.running = False
        event, delay = endpoint.retry.after(verdict, lived, answered=endpoint.answered, now=now)
        text = verdict.text
        if verdict.kind == "replaced" and endpoint.retry.quarrels(now):
            text += "; again and again: another bridge seems to use this token"
        self._peers.pending.add(Retry(key, now + delay))
        return endpoint.advance(event, now, text, delay, lived=lived, code=verdict.code)

    def gone(self, key: EndpointKey, now: float) -> list[Effect]:
        """What was to be closed is closed."""
        endpoint = self._peers.endpoints[key]
        endpoint.client = endpoint.opened_at = None
        effects = endpoint.advance(Event.GONE, now)
        if endpoint.life.state is State.STOPPED:
            del self._peers.endpoints[key]
        return effects

    def retry(self, key: EndpointKey, now: float) -> list[Effect]:
        """A wait is over; one that was overtaken means nothing."""
        endpoint = self._peers.endpoints.get(key)
        if endpoint is None or endpoint.life.next_try is None or endpoint.life.next_try > now:
            return []
        return self._again(endpoint, now)

    def _again(self, endpoint: Endpoint, now: float) -> list[Effect]:
        if endpoint.life.state is State.WAITING:
            return [] if endpoint.waits_for_servers else self._acquire(endpoint)
        return endpoint.advance(Event.DUE, now)
