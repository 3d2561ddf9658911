"""An endpoint as the core sees it: its life, and the words for it."""

from __future__ import annotations

from voice_bridge.backoff import Backoff
from voice_bridge.core.effects import Dial, Effect, HangUp, Note
from voice_bridge.core.facts import EndpointState
from voice_bridge.core.keys import ClientKey, EndpointKey, ServerKey
from voice_bridge.core.lifecycle import ENDPOINT, Act, Event, Life, State
from voice_bridge.core.retry import EndpointRetry


class Endpoint:
    """One WebSocket to a cloud, wanted by the settings. `servers` are those it waits for before the first dial."""

    def __init__(self, key: EndpointKey, servers: tuple[ServerKey, ...]) -> None:
        self.key, self.servers = key, servers
        self.life = Life(ENDPOINT)
        self.retry = EndpointRetry(Backoff())
        self.client: ClientKey | None = None
        self.opened_at: float | None = None
        self.answered = False
        self.waits_for_servers = True

    @property
    def waiting(self) -> bool:
        """Whether it waits for its servers."""
        return self.life.state is State.WAITING and self.waits_for_servers

    def advance(
        self,
        event: Event,
        now: float,
        reason: str = "",
        delay: float | None = None,
        *,
        lived: float | None = None,
        code: int | None = None,
    ) -> list[Effect]:
        """Takes an event of its life: what is to be dialled or closed, and the fact."""
        act = self.life.take(event, now, reason, None if delay is None else now + delay)
        if act is None:
            return []
        effects: list[Effect] = []
        if event is not Event.GONE:
            effects.append(self.noted(delay, lived, code))
        if act is Act.OPEN:
            effects.append(Dial(self.key))
        elif act is Act.CLOSE:
            effects.append(HangUp(self.key))
        return effects

    def noted(self, next_try_in: float | None = None, lived: float | None = None, code: int | None = None) -> Note:
        """Its state as a fact."""
        return Note(EndpointState(str(self.key), self.life.state, self.life.reason, next_try_in, lived, code))
