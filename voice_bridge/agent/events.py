"""What an agent reports while it works, and what it hands back at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Usage:
    """Tokens, as the Messages API counts them; sums over every request of a turn or conversation."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def add(self, other: Usage) -> None:
        """Adds the other's counts to these."""
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cache_creation_input_tokens += other.cache_creation_input_tokens
        self.cache_read_input_tokens += other.cache_read_input_tokens

    @property
    def prompt_tokens(self) -> int:
        """Everything the model read, from the cache or not."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    def __str__(self) -> str:
        return (
            f"input {self.input_tokens:,}, output {self.output_tokens:,}, "
            f"cache creation {self.cache_creation_input_tokens:,}, cache read {self.cache_read_input_tokens:,}"
        )


@dataclass
class ToolCall:
    """One call of a tool: what was asked, what came back, from which server, how long it took.

    `refused` is true where a person, a `deny` pattern or the lack of anybody to ask kept it from running.
    """

    tool: str
    input: dict[str, Any]
    output: str = ""
    server: str = ""
    milliseconds: int = 0
    is_error: bool = False
    refused: bool = False


@dataclass
class Answer:
    """The result of one question.

    `incomplete` is empty for a whole answer, else the reason in a sentence. `iterations` counts the
    model's replies, without the closing one after the cap.
    """

    answer: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    iterations: int = 0
    incomplete: str = ""
    stop_reason: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON data; the keys are the attributes' names."""
        return asdict(self)


@dataclass(frozen=True)
class TextDelta:
    """A piece of the model's text, as it arrives."""

    text: str


@dataclass(frozen=True)
class TextEnded:
    """The text of one reply is whole; `final` is true when no tool call follows it."""

    text: str
    final: bool


@dataclass(frozen=True)
class TextDiscarded:
    """The reply broke off and is asked for again: forget the deltas since the last `TextEnded`."""

    text: str


@dataclass(frozen=True)
class ToolStarted:
    """A tool is about to run; `together` is how many run side by side in this round."""

    call: ToolCall
    together: int = 1


@dataclass(frozen=True)
class ToolFinished:
    """A tool is done, or was refused; `call` carries its output."""

    call: ToolCall
    together: int = 1


@dataclass(frozen=True)
class Waiting:
    """The API is busy or gone; the same request goes out again after `seconds`."""

    reason: str
    seconds: float
    attempt: int
    attempts: int


@dataclass(frozen=True)
class Notice:
    """Something the person should know, in a sentence."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The last event of a turn."""

    answer: Answer


Event = TextDelta | TextEnded | TextDiscarded | ToolStarted | ToolFinished | Waiting | Notice | Finished
Emit = Callable[[Event], None]
