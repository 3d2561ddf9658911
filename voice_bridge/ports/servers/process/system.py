"""The one place that asks which system this is. Both modules offer the same names."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from voice_bridge.ports.servers.process.windows import (
        adopt_orphans,
        allow_files,
        in_group,
        reap_group,
        reap_orphans,
        signal_group,
        start,
    )
else:
    from voice_bridge.ports.servers.process.posix import (
        adopt_orphans,
        allow_files,
        in_group,
        reap_group,
        reap_orphans,
        signal_group,
        start,
    )

__all__ = ["adopt_orphans", "allow_files", "in_group", "reap_group", "reap_orphans", "signal_group", "start"]
