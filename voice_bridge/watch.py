"""Notices when a settings file was saved. Editors replace files, so the folder is watched, not the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

STEP_MS = 250  # the library looks this often, so it is most of what an idle daemon costs
SETTLE_MS = 1000
_KUBERNETES_SWAP = "..data"  # a mounted ConfigMap changes by swapping this link beside the file


async def watch(path: Path, changed: asyncio.Event) -> None:
    """Sets the event after each burst of writes to the file or to the `.env` beside it, until cancelled."""
    import watchfiles  # loads a native library and starts a thread: only a daemon with a settings file pays for it

    names = {path.name, ".env", _KUBERNETES_SWAP}
    saved = watchfiles.awatch(
        path.parent,
        watch_filter=lambda _, name: Path(name).name in names,
        step=STEP_MS,
        debounce=SETTLE_MS,
        recursive=False,
    )
    async for _ in saved:
        changed.set()
