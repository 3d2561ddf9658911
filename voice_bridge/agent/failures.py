"""What can go wrong between us and a Messages API: retry, or a sentence with a remedy.

Errors and types: Messages API, "Errors". A stream may fail after its status 200, so the error's type
counts as much as the status.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import anthropic
import httpx2

from voice_bridge.agent.errors import ModelError, Refused, TooLong
from voice_bridge.agent.screen import one_line
from voice_bridge.secrets import mask

_LONGEST_WAIT = 120.0
_BUSY = {408, 409, 429, 529}
_BUSY_TYPES = {"overloaded_error", "rate_limit_error", "api_error", "timeout_error", "conflict_error"}
_TOO_LONG = re.compile(
    r"prompt is too long|exceeds? (the )?(available )?context|context (length|size|window|limit)|"
    r"maximum (context|model) length|too many (input )?tokens|request_too_large",
    re.IGNORECASE,
)
_TOKENS = re.compile(r"(\d[\d,]*)\D+?(\d[\d,]*) maximum")
_TOOL_AT = re.compile(r"\btools\.(\d+)\b")
_IMAGE = re.compile(r"\bimages?\b", re.IGNORECASE)
_THINKING = re.compile(r"\b(thinking|signature)\b", re.IGNORECASE)


class BrokenOff(Exception):
    """The answer ended before the message did; `streamed` is false when it was no event stream at all."""

    def __init__(self, *, streamed: bool) -> None:
        super().__init__("the answer broke off")
        self.streamed = streamed


@dataclass(frozen=True)
class AskAgain:
    """Ask again, at most `tries` times, after `wait` seconds or, when None, as the backoff says."""

    reason: str
    remedy: str
    tries: int = 99
    wait: float | None = None


# The SDK's errors, broken connections, and what nonsense from a server that is no API makes the SDK raise.
RAISED: tuple[type[Exception], ...] = (
    anthropic.AnthropicError,
    httpx2.HTTPError,
    OSError,
    BrokenOff,
    ValueError,
    LookupError,
    RuntimeError,
    AttributeError,
    TypeError,
)


class Explainer:
    """Judges the errors of the client that talks to `address`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def judge(self, error: Exception) -> AskAgain | ModelError:
        """`AskAgain`, or the error to raise."""
        if isinstance(error, anthropic.APIStatusError):
            return self._status(error)
        if isinstance(error, anthropic.APIConnectionError | httpx2.HTTPError | OSError):
            return self._connection(error)
        if isinstance(error, BrokenOff) and error.streamed:
            return AskAgain("The connection to the model broke off", "Try again in a while.")
        if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError):
            # The SDK's word for tool input that is no JSON; models write such now and then.
            return AskAgain("The model wrote a broken tool call", "Ask in other words, or take another model.", tries=2)
        if isinstance(error, anthropic.CredentialsError):
            return ModelError(f"The Anthropic credentials cannot be used: {mask(str(error))}")
        return ModelError(
            f"{self._address} did not answer as a Messages API does; check ANTHROPIC_BASE_URL"
            + ("" if isinstance(error, BrokenOff) else f" ({type(error).__name__})")
        )

    def _connection(self, error: Exception) -> AskAgain:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
            cause = cause.__cause__
        if cause is not None:
            remedy = f"Check the network, and ANTHROPIC_BASE_URL if it is set. ({mask(str(cause)) or 'no answer'})"
            return AskAgain(f"Cannot reach {self._address}", remedy, tries=2)
        if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
            return AskAgain("The model did not answer in time", "Try again in a while.", tries=1)
        return AskAgain("The connection to the model broke off", "Try again in a while.")

    def _status(self, error: anthropic.APIStatusError) -> AskAgain | ModelError:
        status, kind = error.status_code, str(error.type or "")
        said = one_line(mask(str(error.api_message or error.message)), 500)
        busy = status in _BUSY or status >= 500 or kind in _BUSY_TYPES
        if str(error.error_code or "").endswith("spend_limit_reached"):
            busy = False
        if (told := error.response.headers.get("x-should-retry")) in ("true", "false"):
            busy = told == "true"
        if busy:
            return self._busy(error, status, kind, said)
        if status == 413 or (status < 500 and _TOO_LONG.search(said)):
            return TooLong(
                f"The conversation is too long for the model, even shortened: {said}. "
                "Start a new one (/new), or ask for less at once.",
                _ratio(said),
            )
        if status in (400, 422) and (refused := _refused(said)):
            return refused
        return ModelError(self._sentence(status, kind, said))

    def _busy(self, error: anthropic.APIStatusError, status: int, kind: str, said: str) -> AskAgain | ModelError:
        wait = _retry_after(error.response.headers)
        if wait is not None and wait > _LONGEST_WAIT:
            return ModelError(f"The model's API asks to wait {wait / 60:.0f} minutes: {said}. Try again then.")
        limited = status == 429 or kind == "rate_limit_error"
        name = "The model's API limits the rate" if limited else "The model's API is busy"
        return AskAgain(f"{name} ({status if status != 200 else kind})", "Try again in a while.", wait=wait)

    def _sentence(self, status: int, kind: str, said: str) -> str:
        if status == 401 or kind == "authentication_error":
            return (
                f"{self._address} refused the key: put a valid one into ANTHROPIC_API_KEY "
                f"(or ANTHROPIC_AUTH_TOKEN), in the environment or the .env file. It said: {said}"
            )
        if status == 402 or kind == "billing_error":
            return f"The account cannot pay for this request; see its billing page. The API said: {said}"
        if status == 403:
            return f"The key may not use this: {said}. Choose another model (--model) or another key."
        if status == 404:
            return f"{self._address} does not know the model or the path: {said}. Check --model and ANTHROPIC_BASE_URL."
        return f"The model's API refused the request ({status}): {said}"


def _refused(said: str) -> Refused | None:
    """The part of the request that a 400 complains of, when the request can do without it."""
    sentence = f"The model's API refused the request: {said}"
    if tool := _TOOL_AT.search(said):
        return Refused(sentence, said, "tool", int(tool[1]))
    if _IMAGE.search(said):
        return Refused(sentence, said, "image")
    return Refused(sentence, said, "thinking") if _THINKING.search(said) else None


def _ratio(said: str) -> float | None:
    """From "213000 tokens > 200000 maximum" the part that fits."""
    found = _TOKENS.search(said)
    if found is None:
        return None
    asked, allowed = (int(number.replace(",", "")) for number in found.groups())
    return allowed / asked if 0 < allowed < asked else None


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds, from `retry-after-ms` or `retry-after` in seconds or as a date (RFC 9110 §10.2.3)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (at - now).total_seconds())
    except (TypeError, ValueError):
        return None
