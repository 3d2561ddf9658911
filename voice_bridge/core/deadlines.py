"""What is done when a time is over. Pure."""

from __future__ import annotations

from voice_bridge.core.dialling import Dialling
from voice_bridge.core.effects import Effect, Note, ToServer
from voice_bridge.core.facts import Remark
from voice_bridge.core.handlers import notifications, questions, subscriptions
from voice_bridge.core.keys import EndpointKey
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import (
    Asked,
    Call,
    Delayed,
    Held,
    Own,
    Patience,
    Relisten,
    Reread,
    Retry,
    Settling,
    Timed,
)
from voice_bridge.core.server import Server
from voice_bridge.core.supervisor import Supervisor
from voice_bridge.protocol import jsonrpc


class Deadlines:
    """Does what is due. Times are seconds on the caller's monotonic clock."""

    def __init__(self, peers: Peers, supervisor: Supervisor, dialling: Dialling) -> None:
        self._peers, self._supervisor, self._dialling = peers, supervisor, dialling

    def expire(self, now: float) -> list[Effect]:
        """Late calls are answered, held lists released, lists read again, tries made."""
        return [effect for id_, item in self._peers.pending.due(now) for effect in self._due(id_, item, now)]

    def _due(self, id_: int, item: Timed, now: float) -> list[Effect]:
        if isinstance(item, Call):
            return self._timed_out(id_, item, now)
        self._peers.pending.close(id_)
        match item:
            case Held():
                return self._peers.listing(item.client, item.id, item.kind, now)
            case Delayed():
                name = self._peers.servers[item.server].name
                return self._peers.refuse(item.request, jsonrpc.TIMED_OUT, f"server {name} took too long to begin anew")
            case Asked():
                late = jsonrpc.error(item.id, jsonrpc.TIMED_OUT, "the client did not answer")
                return [ToServer(item.server, late), questions.called_off(id_, item, "timed out")]
            case Patience():
                return self._supervisor.patience(item, now)
            case Settling():
                return self._dialling.settled(item.endpoint)
            case Retry():
                if isinstance(item.who, EndpointKey):
                    return self._dialling.retry(item.who, now)
                return self._supervisor.retry(item.who, now)
            case _:
                return self._due_at_server(item, self._peers.servers[item.server], now)

    def _due_at_server(self, item: Own | Reread | Relisten, server: Server, now: float) -> list[Effect]:
        if isinstance(item, Reread):
            return self._peers.ask_all(server, server.reread(item.kind), now)
        if isinstance(item, Relisten):
            effects = subscriptions.listen_anew(self._peers, server, now) if server.ready else []
            for kind in ("tools", "prompts", "resources", "templates"):  # what was missed meanwhile
                notifications.reread_soon(self._peers, server, kind, now)
            return effects
        if not server.unanswered(item.ask.kind):
            return []
        delay = server.list_backoff.after_failure()
        notifications.reread_soon(self._peers, server, item.ask.kind, now + delay)
        known = f"its list of {item.ask.kind} stays as it was"
        text = f"did not answer {item.ask.method}; {known}, next try in {delay:.0f} s"
        return [Note(Remark(server.name, text, "warning"))]

    def _timed_out(self, id_: int, call: Call, now: float) -> list[Effect]:
        server, what = self._peers.servers[call.server], call.tool or call.method
        told = Note(Remark(server.name, f"gave up on {what} after {call.timeout:g} s", "warning"))
        text = f"server {server.name} did not answer {what} within {call.timeout:g} s"
        cancelled = self._peers.cancel(id_, call, "timed out")
        failed = self._peers.fail(id_, call, jsonrpc.TIMED_OUT, text, "timed_out", now)
        return [told, *failed, *cancelled]
