"""Keeps servers running for as long as the settings want them. Pure.

It is told what happened to processes and remote sessions and decides, by the table in `lifecycle`, what is to be
started, ended, and when to try again.
"""

from __future__ import annotations

from typing import Final

from voice_bridge.config import BridgeSettings
from voice_bridge.core.dialling import Dialling
from voice_bridge.core.effects import Effect, Note, Start
from voice_bridge.core.facts import Remark
from voice_bridge.core.handlers.lists import release
from voice_bridge.core.handlers.logs import ask_level
from voice_bridge.core.handlers.questions import called_off
from voice_bridge.core.handlers.subscriptions import restore
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.lifecycle import Event, State
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Asked, Call, Delayed, Patience, Retry
from voice_bridge.core.server import Manner, Server
from voice_bridge.protocol import capabilities, jsonrpc

LIST_GRACE: Final = 5.0
STILL_STARTING_EVERY: Final = 15.0


class Supervisor:
    """Decides over servers. Times are seconds on the caller's monotonic clock."""

    def __init__(self, peers: Peers, dialling: Dialling, list_grace: float = LIST_GRACE) -> None:
        self._peers, self._dialling, self._list_grace = peers, dialling, list_grace
        self._bridge = BridgeSettings()

    def settings(self, bridge: BridgeSettings) -> None:
        """New settings of the bridge, for what runs as for what will."""
        self._bridge = bridge
        for server in self._peers.servers.values():
            self._pace(server)

    def _pace(self, server: Server) -> None:
        bridge = self._bridge
        server.retry.backoff.pace(bridge.min_backoff, bridge.max_backoff, bridge.stable_after)

    # What the settings want

    def wanted(self, key: ServerKey, manner: Manner, now: float) -> list[Effect]:
        """A server shall run; one that is just being ended is started again when it is gone."""
        server = self._peers.servers.get(key)
        if server is None:
            server = self._peers.servers[key] = Server(key, manner)
        server.retry.begin_anew(remote=manner.remote)
        server.manner, server.settled = manner, False
        server.hold_lists_until = now + self._list_grace
        self._pace(server)
        self._peers.forget_catalogs()
        return self._advance(server, Event.WANTED, now)

    def treated(self, key: ServerKey, manner: Manner) -> list[Effect]:
        """The settings changed how a server's tools are shown or how long it may take; it runs on."""
        server = self._peers.servers[key]
        before, after = server.manner.rules.rename, manner.rules.rename
        renamed = {tool for tool in before.keys() | after.keys() if before.get(tool) != after.get(tool)}
        for client in self._peers.viewers(server):
            if client.announced is not None:
                client.announced = client.announced.without(key, renamed)
        server.manner = manner
        return [*self._peers.remarks(server), *self._peers.changed(server)]

    def renewed(self, key: ServerKey, manner: Manner, now: float, reason: str) -> list[Effect]:
        """A server shall begin anew, under other settings; who listens to it and what its names are stays."""
        server = self._peers.servers[key]
        server.manner = manner
        server.retry.begin_anew(remote=manner.remote)
        self._pace(server)
        server.hold_lists_until = now + self._list_grace
        return [*self._let_go(server, reason, now), *self._advance(server, Event.RENEWED, now, reason)]

    def unwanted(self, key: ServerKey, now: float, reason: str) -> list[Effect]:
        """A server shall not run any more."""
        server = self._peers.servers[key]
        effects = [*self._let_go(server, reason, now), *self._advance(server, Event.UNWANTED, now, reason)]
        server.lists = {}
        effects += self._shown(server, now)
        if not server.life.running:
            self._forget(server)
        return effects

    def nudge(self, now: float) -> list[Effect]:
        """Somebody thinks that it may work now: nothing waits for its next try."""
        return [
            effect for server in list(self._peers.servers.values()) for effect in self._advance(server, Event.DUE, now)
        ]

    # What happened

    def opened(self, key: ServerKey, pid: int | None, now: float) -> list[Effect]:
        """The process or the remote session is up; the handshake begins."""
        server = self._peers.servers[key]
        server.pid, server.to_be_told, server.life.reason = pid, False, ""
        began = server.begin(capabilities.union(client.capabilities for client in self._peers.viewers(server)))
        return [Note(server.state_fact()), *self._peers.ask_all(server, began, now)]

    def failed(self, key: ServerKey, reason: str, now: float, *, passing: bool) -> list[Effect]:
        """It could not be started at all; `passing` when the cause may go away by itself."""
        server = self._peers.servers[key]
        server.life.running = False
        event, delay = server.retry.after_failed_start(passing=passing)
        return self._down(server, event, reason, delay, now)

    def ended(self, key: ServerKey, reason: str, now: float) -> list[Effect]:
        """It can no longer answer."""
        server = self._peers.servers[key]
        if not server.ready and not server.starting:
            return []
        event, delay = server.retry.after_death(now - server.life.since if server.ready else None)
        return self._down(server, event, reason, delay, now)

    def gone(self, key: ServerKey, now: float) -> list[Effect]:
        """Nothing of it runs any more."""
        server = self._peers.servers[key]
        effects = self._advance(server, Event.GONE, now)
        if server.life.state is State.STOPPED:
            self._forget(server)
        return effects

    def listed(self, server: Server, now: float) -> list[Effect]:
        """The handshake is over, well or not, or a list was read again."""
        if server.failure is not None:
            return self.ended(server.key, server.failure, now) if server.starting else []
        if not server.listed:
            return []
        effects: list[Effect] = [self._peers.lists_changed(server), *self._peers.remarks(server)]
        if server.starting:
            self._close_patience(server)
            server.settled, server.renewing = True, False
            effects += self._advance(server, Event.ANSWERED, now)
            effects += [*restore(self._peers, server, now), *ask_level(self._peers, server, now)]
            effects += self._go_on(server, now)
        return [*effects, *self._shown(server, now), *self.tell_more(server, now)]

    def tell_more(self, server: Server, now: float) -> list[Effect]:
        """Lets a server know that a client has come who can do more than it was told.

        In the new era each request says so; before, only a new beginning can, and it waits until no call is open.
        """
        wanted = self._peers.declared_to(server)
        server.to_be_told = not capabilities.covers(server.declared, wanted)
        if server.to_be_told and server.modern:
            server.declared, server.to_be_told = wanted, False
        if not server.to_be_told or not server.ready or self._busy(server):
            return []
        server.renewing = True
        server.hold_lists_until = now + self._list_grace
        self._drop_own(server)
        return self._advance(server, Event.RENEWED, now, "begins anew, to be told what a new client can do")

    def patience(self, item: Patience, now: float) -> list[Effect]:
        """A server still starts: a word on it, or the end of its time."""
        server = self._peers.servers.get(item.server)
        if server is None or not server.starting or server.began != item.began:
            return []
        if now >= item.until:
            limit = server.manner.start_timeout
            return self.ended(server.key, f"was not ready within {limit:g} s (startTimeout)", now)
        self._watch(server, now)
        return [Note(Remark(server.name, f"still starting after {now - server.began:.0f} s"))]

    def retry(self, key: ServerKey, now: float) -> list[Effect]:
        """A wait is over; one that was overtaken means nothing."""
        server = self._peers.servers.get(key)
        if server is None or server.life.next_try is None or server.life.next_try > now:
            return []
        return self._advance(server, Event.DUE, now)

    # Inner

    def _shown(self, server: Server, now: float) -> list[Effect]:
        """Whoever sees the server, or waited for it, learns what it offers now."""
        settled = self._dialling.servers_settled(now)
        return [*self._peers.changed(server), *release(self._peers, now), *settled]

    def _advance(
        self, server: Server, event: Event, now: float, reason: str = "", delay: float | None = None
    ) -> list[Effect]:
        effects = server.advance(event, now, reason, delay)
        if any(isinstance(effect, Start) for effect in effects):
            self._watch(server, now)
        return effects

    def _watch(self, server: Server, now: float) -> None:
        until = server.began + server.manner.start_timeout
        deadline = min(until, now + STILL_STARTING_EVERY)
        self._peers.pending.add(Patience(server.key, server.began, until, deadline))

    def _close_patience(self, server: Server) -> None:
        for id_, item in self._peers.pending.of_server(server.key):
            if isinstance(item, Patience):
                self._peers.pending.close(id_)

    def _down(self, server: Server, event: Event, reason: str, delay: float, now: float) -> list[Effect]:
        """While it is to be started again soon its tools stay listed."""
        effects = self._let_go(server, reason, now)
        server.settled, server.renewing = True, False
        if event is Event.GAVE_UP:
            server.lists = {}
        effects += self._advance(server, event, now, reason, delay)
        self._peers.pending.add(Retry(server.key, now + delay))
        return [*effects, *self._shown(server, now)]

    def _let_go(self, server: Server, reason: str, now: float) -> list[Effect]:
        """Everybody who waits for it is told that it will not answer."""
        effects: list[Effect] = []
        text = f"server {server.name} {reason}"
        for id_, item in self._peers.pending.of_server(server.key):
            self._peers.pending.close(id_)
            if isinstance(item, Call):
                effects += self._peers.fail(id_, item, jsonrpc.SERVER_DOWN, text, "server_died", now)
            elif isinstance(item, Delayed):
                effects += self._peers.refuse(item.request, jsonrpc.SERVER_DOWN, text)
            elif isinstance(item, Asked):
                effects.append(called_off(id_, item, text))
        return effects

    def _drop_own(self, server: Server) -> None:
        """What the bridge itself asked of it is void."""
        for id_, item in self._peers.pending.of_server(server.key):
            if not isinstance(item, Delayed):
                self._peers.pending.close(id_)

    def _go_on(self, server: Server, now: float) -> list[Effect]:
        """The calls that waited for it take their way."""
        effects: list[Effect] = []
        for id_, item in self._peers.pending.of_server(server.key):
            if isinstance(item, Delayed):
                self._peers.pending.close(id_)
                effects += self._peers.forward(item.request._replace(now=now), server, item.tool)
        return effects

    def _busy(self, server: Server) -> bool:
        return any(isinstance(item, Call) for _, item in self._peers.pending.of_server(server.key))

    def _forget(self, server: Server) -> None:
        self._close_patience(server)
        del self._peers.servers[server.key]
        self._peers.forget_catalogs()
