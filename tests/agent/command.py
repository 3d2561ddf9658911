"""`python -m tests.agent.command agent …`: the command line with the agent's commands in it."""

from __future__ import annotations

from voice_bridge import cli

if __name__ == "__main__":
    cli.COMMANDS = {**cli.COMMANDS, "agent": "agent", "chat": "chat"}  # type: ignore[misc]
    cli.main()
