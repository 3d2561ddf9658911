"""One bridge for each endpoint on this machine: two would throw each other out of the cloud for ever.

The system holds the lock, not the process id in the file: that is only for people, and may be anybody's by now.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from voice_bridge.errors import EndpointTaken, UsageError
from voice_bridge.paths import REMEDY, data_dir

_UNKNOWN = "cannot tell whether another bridge uses this endpoint"

if sys.platform == "win32":
    import msvcrt

    def try_lock(file: BinaryIO) -> bool:
        """Locks an open file until it is closed; False when somebody else has locked it.

        Raises OSError where files cannot be locked.
        """
        file.seek(1 << 20)  # past the text, which others may read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

else:
    import fcntl

    def try_lock(file: BinaryIO) -> bool:
        """Locks an open file until it is closed; False when somebody else has locked it.

        Raises OSError where files cannot be locked, as on some network disks (ENOLCK).
        """
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class EndpointLock:
    """Holds an endpoint's address for this process. The system drops the lock when the process ends, however it does.

    Raises EndpointTaken when another process holds it, and nothing else: where no lock can be had, `remark` says why.
    """

    def __init__(self, name: str, url: str) -> None:
        self.remark = ""
        self._file: BinaryIO | None = None
        try:
            self._file = _lock(name, lock_file(url))
        except EndpointTaken:
            raise
        except UsageError as error:
            self.remark = f"{_UNKNOWN}: {error}"
        except OSError as error:
            self.remark = f"{_UNKNOWN}: the locks in the data folder cannot be used: {error.strerror}; {REMEDY}"

    def release(self) -> None:
        """Lets the address go."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)
            with suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_file(url: str) -> Path:
    """The file that stands for an address, whose token it does not tell. Raises UsageError or OSError."""
    folder = data_dir() / "locks"
    folder.mkdir(exist_ok=True)
    return folder / hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _lock(name: str, path: Path) -> BinaryIO:
    file = open(path, "a+b", buffering=0)  # noqa: SIM115 - it stays open as long as the lock is held
    try:
        if not try_lock(file):
            raise EndpointTaken(name, _holder(file))
    except BaseException:
        file.close()
        raise
    with suppress(OSError):  # on a full disk the lock holds all the same
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    return file


def _holder(file: BinaryIO) -> str:
    with suppress(OSError):
        file.seek(0)
        if (text := file.read(20).decode("ascii", "replace").strip()).isdigit():
            return text
    return "unknown"
