"""`voice-bridge init`: a commented settings file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voice_bridge.config import shipped_settings
from voice_bridge.errors import UsageError


def init(
    path: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write it.")] = Path("mcp_settings.json"),
) -> None:
    """Write a commented settings file with the bundled servers. An existing file is never touched."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(shipped_settings().read_text(encoding="utf-8"))
    except FileExistsError:
        raise UsageError(f"{path} exists already; it was left as it is") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    print(f"Wrote {path}. Next: put your address into MCP_ENDPOINT, then `voice-bridge check` and `voice-bridge run`.")
