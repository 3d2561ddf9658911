"""Notices when a settings file was saved. Editors replace files, so the folder is watched, not the file."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

STEP_MS = 250  # the library looks this often, so it is most of what an idle daemon costs
SETTLE_MS = 1000
LOOK_AGAIN = 1.0
_KUBERNETES_SWAP = "..data"  # a mounted ConfigMap changes by swapping this link beside the file


async def watch(path: Path, changed: asyncio.Event) -> None:
    """Sets the event after each burst of writes to the file or to the `.env` beside it, until cancelled.

    Where the file is a link, what it leads to is followed too.
    """
    import watchfiles  # loads a native library and starts a thread: only a daemon with a settings file pays for it

    while True:
        real, folders = _places(path)
        names = {path.name, real.name, ".env", _KUBERNETES_SWAP}
        if not folders:  # a volume that is not mounted at the moment
            await asyncio.sleep(LOOK_AGAIN)
            continue

        def ours(_: watchfiles.Change, name: str, names: set[str] = names) -> bool:
            return Path(name).name in names

        saved = watchfiles.awatch(*folders, watch_filter=ours, step=STEP_MS, debounce=SETTLE_MS, recursive=False)
        async with aclosing(saved):
            async for _ in saved:
                changed.set()
                if _places(path) != (real, folders):
                    break  # the link leads elsewhere now


def _places(path: Path) -> tuple[Path, set[Path]]:
    """Where a file really is, and the folders to watch for it."""
    real = path.resolve()
    return real, {folder for folder in (path.absolute().parent, real.parent) if folder.is_dir()}
