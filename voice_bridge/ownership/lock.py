"""One bridge for each endpoint on this machine: two would throw each other out of the cloud for ever."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from voice_bridge.errors import UsageError
from voice_bridge.paths import data_dir
from voice_bridge.ports.servers import process as platforms


class EndpointLock:
    """Holds an endpoint's address for this process. The system drops the lock when the process ends, however it does.

    Raises UsageError with the other bridge's process id when the address is taken.
    """

    def __init__(self, name: str, url: str) -> None:
        self._file: IO[str] | None = None
        self.remark = ""
        try:
            folder = data_dir() / "locks"
            folder.mkdir(exist_ok=True)
            file = open(folder / hashlib.sha256(url.encode()).hexdigest()[:32], "a+", encoding="ascii")  # noqa: SIM115
        except OSError as error:
            self.remark = f"cannot tell whether another bridge uses this endpoint: {error.strerror}"
            return
        if not platforms.lock(file):
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            file.close()
            served = f"endpoint {name!r} is already served by another bridge on this machine"
            raise UsageError(f"{served} (process {holder}); stop that one first")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Lets the address go."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
