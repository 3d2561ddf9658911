"""The command line: `voice-bridge COMMAND`, `python -m voice_bridge COMMAND`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from voice_bridge import __version__
from voice_bridge.errors import UsageError, VoiceBridgeError
from voice_bridge.observe import log
from voice_bridge.secrets import mask

# Only the module of the command in use is imported: the daemon pays for nothing else.
COMMANDS: Final[Mapping[str, str]] = {
    "run": "run",
    "demo": "demo",
    "cloud": "cloud",
    "tools": "tools",
    "call": "call",
    "check": "check",
    "init": "init",
    "agent": "agent",
    "chat": "chat",
    "ingest": "ingest",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its status: 0 well, 2 usage or configuration, 1 anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    log.configure()
    try:
        status = _app(words)(args=words, prog_name="voice-bridge", standalone_mode=True)
    except UsageError as error:
        _say(error)
        status = 2
    except VoiceBridgeError as error:
        _say(error)
        status = 1
    except KeyboardInterrupt:
        status = 0 if words[:1] == ["run"] else 130  # the daemon had not begun yet
    sys.exit(status)


def _say(error: VoiceBridgeError) -> None:
    print(f"voice-bridge: {mask(str(error))}", file=sys.stderr)


def _app(words: Sequence[str]) -> Any:
    app = typer.Typer(
        help="Lets a cloud voice assistant use the MCP servers on your machine.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    wanted = [words[0]] if words and words[0] in COMMANDS else list(COMMANDS)
    for name in wanted:
        module = importlib.import_module(f"voice_bridge.cli.{COMMANDS[name]}")
        app.command(name)(getattr(module, name))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"voice-bridge {__version__}")
        raise typer.Exit()


def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Only the options; the help is the app's."""
