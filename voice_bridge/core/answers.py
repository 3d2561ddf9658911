"""What becomes of a server's answer: passed on, made fit for its client, or taken by the bridge that asked. Pure."""

from __future__ import annotations

from msgspec import UNSET, Raw

from voice_bridge.core import budget
from voice_bridge.core.effects import Effect, Note
from voice_bridge.core.facts import Noise, Outcome, Remark
from voice_bridge.core.handlers import subscriptions
from voice_bridge.core.keys import ServerKey
from voice_bridge.core.peers import Peers
from voice_bridge.core.pending import Call, Own, minted
from voice_bridge.core.server import Ask, Server, error_text
from voice_bridge.core.supervisor import Supervisor
from voice_bridge.protocol import era, jsonrpc
from voice_bridge.quota import Quota


class Answers:
    """Closes what servers owe. Times are seconds on the caller's monotonic clock."""

    def __init__(self, peers: Peers, supervisor: Supervisor) -> None:
        self._peers, self._supervisor = peers, supervisor

    def take(self, server: Server, message: jsonrpc.Envelope, now: float) -> list[Effect]:
        """An answer to a request of a client, or of the bridge itself."""
        id_ = minted(message.id)
        item = self._peers.pending.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            return limited(server.log_quota, server.name, "dropped an answer that nobody waits for", now)
        self._peers.pending.close(id_)
        result = None if message.result is UNSET else message.result
        error = None if message.error is UNSET else message.error
        if error is not None and result is not None:  # not legal, but seen: a null beside the real one
            result, error = (result, None) if bytes(error) == jsonrpc.NULL else (None, error)
        if isinstance(item, Own):
            return self._own_answered(server, item.ask, result, error, now)
        done = self._delivered(id_, item, server, result, now) if result is not None else None
        if done is None:
            done = self._failed(id_, item, server, error, now)
        return [*done, *self._supervisor.tell_more(server, now)] if server.to_be_told else done

    def _delivered(self, id_: int, call: Call, server: Server, result: bytes | Raw, now: float) -> list[Effect]:
        client, given = call.client, result
        if client.modern:
            result = era.completed(result, call.method)
        elif server.modern and era.needs_input(result):
            text = f"server {server.name} {era.NEEDS_INPUT}"
            return self._peers.fail(id_, call, jsonrpc.INVALID_REQUEST, text, "error", now)
        limit = client.view.max_result_bytes
        if limit is not None and call.method == "tools/call":
            result = budget.fit(bytes(result), limit - len(call.id) - budget.FRAME)
        outcome: Outcome = "tool_error" if call.tool and budget.is_error(result) else "ok"
        cut = len(result) < len(given)
        ended = self._peers.ended(id_, call, outcome, now, len(result), cut=cut)
        return [*self._peers.result_to(client, call.id, result, now), ended]

    def _failed(self, id_: int, call: Call, server: Server, error: Raw | None, now: float) -> list[Effect]:
        if error is not None and jsonrpc.is_error(error):
            return self._peers.error_to(id_, call, error, "error", now, error_text(error))
        said = "neither a result nor an error" if error is None else f"an odd error: {error_text(error)}"
        text = f"server {server.name} answered with {said}"
        return self._peers.fail(id_, call, jsonrpc.INTERNAL_ERROR, text, "error", now)

    def _own_answered(
        self, server: Server, ask: Ask, result: Raw | None, error: Raw | None, now: float
    ) -> list[Effect]:
        if ask.method == subscriptions.LISTEN:
            if error is not None:
                return []  # it cannot; nothing to listen to
            return subscriptions.listening_ended(self._peers, server, now)
        effects = self._peers.ask_all(server, server.answered(ask, result, error), now)
        return [*effects, *self._supervisor.listed(server, now)] if ask.kind != "own" else effects

    def unreadable(self, server: Server, data: bytes, why: str, now: float) -> list[Effect]:
        """An answer that cannot be used, as far as its id can still be read; `data` may be its two ends only."""
        id_ = jsonrpc.salvage_id(data)
        item = self._peers.pending.get(id_)
        if id_ is None or not isinstance(item, Call | Own) or item.server != server.key:
            return noise(server, data, now)
        self._peers.pending.close(id_)
        told: list[Effect] = [Note(Remark(server.name, why, "warning"))]
        if isinstance(item, Call):
            text = f"server {server.name}: {why}"
            return [*told, *self._peers.fail(id_, item, jsonrpc.SERVER_DOWN, text, "error", now)]
        failure = Raw(jsonrpc.dump({"code": jsonrpc.INTERNAL_ERROR, "message": why}))
        return [*told, *self._own_answered(server, item.ask, None, failure, now)]

    def undelivered(self, key: ServerKey, data: bytes, now: float) -> list[Effect]:
        """A message could not be handed to a server that does not read its input: its call is answered."""
        message = jsonrpc.parse(data)
        id_ = minted(message.id)
        call = self._peers.pending.get(id_)
        if message.method is UNSET or id_ is None or not isinstance(call, Call) or call.server != key:
            return []
        self._peers.pending.close(id_)
        text = f"server {self._peers.servers[key].name} does not read its input"
        return self._peers.fail(id_, call, jsonrpc.SERVER_DOWN, text, "error", now)


def noise(server: Server, data: bytes, now: float) -> list[Effect]:
    """Tells what a server wrote to its output that is no message."""
    text = data[:2000].decode("utf-8", "replace").strip()
    return limited(server.log_quota, server.name, f"not a message: {text}", now) if text else []


def limited(quota: Quota, subject: str, text: str, now: float) -> list[Effect]:
    """A line about somebody who makes us write it; floods are counted, not told."""
    admitted, held = quota.admit(now)
    return [Note(Noise(subject, text, held))] if admitted else []
