"""`voice-bridge agent "question"`: one question, answered with the tools of the settings."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from voice_bridge.cli.alone import settings_alone
from voice_bridge.cli.options import ConfigOption
from voice_bridge.cli.shown import safe_json, write
from voice_bridge.config import Settings
from voice_bridge.errors import UsageError, VoiceBridgeError
from voice_bridge.ports.servers import process as platforms
from voice_bridge.signals import until_signal

if TYPE_CHECKING:
    from voice_bridge.agent.events import Event
    from voice_bridge.agent.startup import Options
    from voice_bridge.agent.store import Store

Model = Annotated[str | None, typer.Option("--model", help="Model; default: the newest Sonnet.")]
MaxIterations = Annotated[int, typer.Option("--max-iterations", min=1, help="Rounds of tool calls at most.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Longest reply, in tokens.")]
Yes = Annotated[bool, typer.Option("--yes", help="Let every tool run without asking.")]
Deny = Annotated[
    list[str] | None, typer.Option("--deny", metavar="GLOB", help="Tools never to run, as TOOL or SERVER/TOOL.")
]
Latest = Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last conversation.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Go on with this conversation.")]


def agent(
    question: Annotated[
        str | None, typer.Argument(help="The question; '-' or nothing reads it from standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    model: Model = None,
    max_iterations: MaxIterations = 8,
    max_tokens: MaxTokens = 16_000,
    yes: Yes = False,
    deny: Deny = None,
    latest: Latest = False,
    resume: Resume = None,
    config: ConfigOption = None,
) -> None:
    """Answer one question with the tools of every enabled server.

    Prints the answer, the number of rounds and the tool calls. Needs a key in ANTHROPIC_API_KEY, or a local server
    in ANTHROPIC_BASE_URL. Exit status 2 when something is set up wrongly, 1 when there is no answer or a tool was
    refused.
    """
    from voice_bridge.agent.startup import Options, open_store

    options = Options(model, max_iterations, max_tokens, yes, tuple(deny or ()), latest, resume)
    outcome = _Outcome(as_json)
    try:
        asked, settings = _read_question(question), settings_alone([], config)
        with open_store(needed=latest or resume is not None) as store:
            status = platforms.run(until_signal(_answer(asked, settings, options, store, outcome), "SIGTERM"))
    except VoiceBridgeError as error:
        outcome.result["error"] = str(error)
        raise
    finally:
        outcome.print()
    raise typer.Exit(status)


class _Outcome:
    """What `--json` prints, exactly once and whatever happened."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.result: dict[str, Any] = {"answer": "", "tool_calls": [], "iterations": 0}

    def print(self) -> None:
        if self.as_json:
            write(safe_json(json.dumps(self.result, ensure_ascii=False, default=str)))


async def _answer(question: str, settings: Settings, options: Options, store: Store, outcome: _Outcome) -> int:
    from voice_bridge.agent.events import Finished
    from voice_bridge.agent.interrupts import Interrupted, interruptible
    from voice_bridge.agent.screen import PlainScreen, Screen, TerminalScreen, put, summary
    from voice_bridge.agent.startup import running_agent, say, status_of

    async with running_agent(settings, options, store) as running:
        at_terminal = sys.stdout.isatty() and not outcome.as_json
        out = None if outcome.as_json else sys.stdout
        screen: Screen = TerminalScreen() if at_terminal else PlainScreen(out, sys.stderr)

        def show(event: Event) -> None:
            if not isinstance(event, Finished):
                screen.show(event)

        try:
            answer = await interruptible(running.ask(question, show))
        except Interrupted:
            say("Stopped.")
            return 130
        finally:
            screen.end()
            outcome.result = running.answer.to_dict() | {"conversation": running.conversation.id}
        status, problem = status_of(answer)
        if not outcome.as_json:
            put(sys.stdout, f"\n{summary(answer)}")
        elif problem:
            outcome.result["error"] = problem
        say(f"Tokens: {answer.usage}")
        if problem not in ("", answer.incomplete):
            say(problem)
        return status


def _read_question(question: str | None) -> str:
    if question is None or question == "-":
        if sys.stdin.isatty():
            raise UsageError('ask something: voice-bridge agent "How many people work in Engineering?"')
        question = piped()
    return not_empty(question)


def piped() -> str:
    """What is piped to standard input; bytes that are no UTF-8 become U+FFFD."""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def not_empty(question: str) -> str:
    """The question. Raises `UsageError` when there is nothing in it."""
    if not question.strip():
        raise UsageError("the question is empty; write it behind the command, or pipe it in")
    return question
