"""Notices when a settings file was saved. Editors replace files, so folders are watched, not files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

STEP_MS = 250  # the library looks this often, so it is most of what an idle daemon costs
SETTLE_MS = 1000
LOOK_EVERY = 1.0
_KUBERNETES_SWAP = "..data"  # a mounted ConfigMap changes by swapping this link beside the file
_ENV = ".env"


async def watch(path: Path, changed: Callable[[], None], told: Callable[[str], None]) -> None:
    """Calls back after each burst of writes to the file or a `.env` that is read with it, until cancelled.

    It does so too whenever it begins to watch: at first, and when the file or its folder was out of reach for a while.
    Where the file is a link, what it leads to is followed too. Where the system cannot watch (its inotify instances
    are used up, a network disk) the files are looked at every second; `told` hears of that once.
    """
    try:
        await _watched(path, changed)
    except (OSError, RuntimeError, ImportError) as error:
        told(f"the system cannot watch {path.name} ({_why(error)}); it is looked at every {LOOK_EVERY:g} s instead")
        await _looked_at(path, changed)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__


async def _watched(path: Path, changed: Callable[[], None]) -> None:
    while True:
        real, folders = _places(path)
        if not folders:  # a volume that is not mounted at the moment
            await asyncio.sleep(LOOK_EVERY)
            continue
        if _is_lasting(path):
            changed()  # what was saved while nobody watched
        async with aclosing(_bursts(folders, {path.name, real.name, _ENV, _KUBERNETES_SWAP})) as bursts:
            async for _ in bursts:
                changed()
                if _places(path) != (real, folders):
                    break  # the link leads elsewhere now


async def _bursts(folders: set[Path], names: set[str]) -> AsyncGenerator[object, None]:
    import watchfiles  # loads a native library and starts a thread: only a daemon with a settings file pays for it

    def ours(_: watchfiles.Change, name: str) -> bool:
        return Path(name).name in names

    saved = watchfiles.awatch(*folders, watch_filter=ours, step=STEP_MS, debounce=SETTLE_MS, recursive=False)
    async with aclosing(saved):
        async for burst in saved:
            yield burst


async def _looked_at(path: Path, changed: Callable[[], None]) -> None:
    before = _looks(path)
    while True:
        await asyncio.sleep(LOOK_EVERY)
        now = _looks(path)
        if now != before:
            before = now
            changed()


def _looks(path: Path) -> list[tuple[int, int, int] | None]:
    """What tells whether one of the files was written or replaced."""
    return [_look(file) for file in (path, path.absolute().parent / _ENV, Path(_ENV))]


def _look(file: Path) -> tuple[int, int, int] | None:
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _is_lasting(path: Path) -> bool:
    """Whether a file can be read again; a pipe (`--config <(…)`) gives what it has only once."""
    return os.path.isfile(path)


def _places(path: Path) -> tuple[Path, set[Path]]:
    """Where a file really is, and the folders to watch for it and for the `.env` of the working directory."""
    try:
        real = path.resolve()
        folders = {path.absolute().parent, real.parent, *([Path.cwd()] if Path(_ENV).exists() else [])}
        return real, {folder for folder in folders if folder.is_dir()}
    except (OSError, RuntimeError):  # a loop of links, a folder that may not be entered
        return path, set()
