"""`python -m tests.agent.command agent …`: the command line with the agent's commands in it."""

from __future__ import annotations

from collections.abc import Mapping

from voice_bridge import cli


def with_agent(commands: Mapping[str, str]) -> dict[str, str]:
    """The commands and the agent's two."""
    return {**commands, "agent": "agent", "chat": "chat"}


if __name__ == "__main__":
    cli.COMMANDS = with_agent(cli.COMMANDS)  # type: ignore[misc]
    cli.main()
