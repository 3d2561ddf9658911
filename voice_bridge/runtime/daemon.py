"""The daemon: servers and endpoints at work, the settings followed, an end on signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from voice_bridge import config
from voice_bridge.config import Settings
from voice_bridge.core.facts import Remark, SettingsApplied, SettingsRefused
from voice_bridge.errors import UsageError
from voice_bridge.ports.servers import process
from voice_bridge.runtime.board import Reader
from voice_bridge.runtime.runtime import Runtime
from voice_bridge.runtime.watch import watch

NO_ENDPOINT = (
    "no endpoint: set MCP_ENDPOINT to the wss:// address from your cloud's console "
    "(`make demo` and `voice-bridge demo` need none)"
)
REAP_EVERY = 2.0
Reload = Callable[[], Settings]


class Bridge:
    """Everything that runs. `reload` reads the settings again, if they come from a file."""

    def __init__(self, settings: Settings, reload: Reload | None = None, readers: Iterable[Reader] = ()) -> None:
        self.runtime = Runtime(settings, dial=True, readers=readers)
        self._reload = reload
        self._changed = asyncio.Event()
        self._asked = False
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Bridges until SIGINT or SIGTERM.

        Raises UsageError when there is no endpoint or no server that can be used, or when other bridges on this
        machine serve every endpoint.
        """
        settings, tell = self.runtime.settings, self.runtime.board.tell
        tell(SettingsApplied(tuple(settings.problems.values()), settings.warnings, changed=False))
        self._check(settings)
        with process.on_signals(self._stopping.set, self._ask):
            async with self.runtime:
                tasks = self.runtime.tasks
                kept = [tasks.keep("reload", self._follow_changes), tasks.keep("reaper", _reap)]
                if self._reload is not None and settings.source is not None:
                    kept.append(tasks.keep("watcher", self._watch))
                await self._stopping.wait()
                tell(Remark("bridge", "stopping"))
                for task in kept:
                    task.cancel()

    def _check(self, settings: Settings) -> None:
        if not settings.enabled_endpoints:
            raise UsageError(_all_wrong(settings, "endpoint") or NO_ENDPOINT)
        if not settings.enabled_servers:
            nothing = f"no server is switched on in {settings.source}"
            raise UsageError(_all_wrong(settings, "server") or nothing)
        _allow_files(settings)
        taken = [self.runtime.connections.own(endpoint) for endpoint in settings.enabled_endpoints]
        if all(taken):
            raise UsageError(taken[0])

    # Reload

    def _ask(self) -> None:
        """A signal asks to read the settings again, and to try again at once what waits."""
        self._asked = True
        self._changed.set()

    async def _watch(self) -> None:
        source = self.runtime.settings.source
        assert source is not None
        await watch(source, self._changed.set, lambda text: self.runtime.board.tell(Remark("bridge", text, "warning")))

    async def _follow_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            asked, self._asked = self._asked, False
            self._read_again()
            if asked:
                self.runtime.nudge()

    def _read_again(self) -> None:
        """Goes over to the settings as they are now; a file that cannot be used changes nothing."""
        old, tell = self.runtime.settings, self.runtime.board.tell
        if self._reload is None:
            tell(Remark("bridge", "there is no settings file to read again"))
            return
        try:
            new = config.keep_working(self._reload(), old)
        except UsageError as error:
            tell(SettingsRefused(str(error)))
            return
        if new != old:
            tell(SettingsApplied(tuple(new.problems.values()), new.warnings))
            _allow_files(new)
            self.runtime.apply(new)


async def _reap() -> None:
    """Keeps orphans of servers, which the system gives to us as their new parent, from staying as zombies."""
    while True:
        await asyncio.sleep(REAP_EVERY)
        process.reap_orphans()


def _allow_files(settings: Settings) -> None:
    process.allow_files(256 + 4 * len(settings.enabled_endpoints) + 8 * len(settings.enabled_servers))


def _all_wrong(settings: Settings, what: str) -> str:
    """Why nothing is left to run, if it is because every entry is wrong."""
    section = "endpoints." if what == "endpoint" else "mcpServers."
    wrong = [text for key, text in settings.problems.items() if key.startswith(section)]
    return f"no {what} can be used: {wrong[0]}" if wrong else ""
