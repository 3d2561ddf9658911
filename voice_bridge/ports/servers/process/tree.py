"""A child with everything it started, and the two signals that end it."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Final

from voice_bridge.ports.servers.process.system import in_group, reap_group, signal_group

if TYPE_CHECKING:
    import psutil

MARK: Final = "VOICE_BRIDGE_SERVER"


class Tree:
    """Everything a child started: its process group, and what left the group but descends from it or bears its mark."""

    def __init__(self, pid: int, mark: str = "") -> None:
        self._pid, self._mark = pid, mark
        self._strays: list[psutil.Process] = []
        self._gone: type[Exception] = OSError

    def look(self) -> None:
        """Notes the members outside the group; once their parents are gone nobody could name them.

        The mark finds those whose parent has crashed already: the system made them children of this process.
        """
        import psutil

        self._gone = psutil.Error
        members: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error, OSError):
            members.update(psutil.Process(self._pid).children(recursive=True))
        with contextlib.suppress(psutil.Error, OSError):
            members.update(process for process in psutil.Process().children(recursive=True) if self._marks(process))
        self._strays = [
            process for process in members if process.pid != self._pid and not in_group(process.pid, self._pid)
        ]

    def _marks(self, process: psutil.Process) -> bool:
        with contextlib.suppress(self._gone, OSError):
            return bool(self._mark) and process.environ().get(MARK) == self._mark
        return False

    def terminate(self) -> None:
        """Asks all of it to end."""
        self._signal("SIGTERM")

    def kill(self) -> None:
        """Ends all of it."""
        self._signal("SIGKILL")

    def lives(self) -> bool:
        """Whether anything is left. Only to be asked when the leader itself has been waited for."""
        reap_group(self._pid, [process.pid for process in self._strays])
        return signal_group(self._pid, 0) or any(process.is_running() for process in self._strays)

    def _signal(self, name: str) -> None:
        signal_group(self._pid, getattr(signal, name, signal.SIGTERM))
        for process in self._strays:
            with contextlib.suppress(self._gone):
                process.kill() if name == "SIGKILL" else process.terminate()
