"""A fact as a line of the log. Pure."""

from __future__ import annotations

import logging
from typing import NamedTuple

from voice_bridge.core.facts import (
    EndpointState,
    Fact,
    Fault,
    Noise,
    Remark,
    ServerSaid,
    ServerState,
    SettingsApplied,
    SettingsRefused,
    TaskFailed,
)  # fmt: skip
from voice_bridge.ports.clients.endpoint import RENEWED
from voice_bridge.text import duration, plural


class Line(NamedTuple):
    """How important, about whom, and what."""

    level: int
    subject: str
    text: str


def lines_of(fact: Fact) -> list[Line]:
    """What the log says of a fact."""
    if isinstance(fact, SettingsApplied):
        return _applied(fact)
    line = _line_of(fact)
    return [] if line is None else [line]


def _line_of(fact: Fact) -> Line | None:
    match fact:
        case ServerState():
            return _server(fact)
        case EndpointState():
            return _endpoint(fact)
        case ServerSaid():
            return Line(logging.INFO, fact.server, f"stderr: {fact.text}")
        case Noise():
            return Line(logging.INFO, fact.subject, fact.text)
        case Remark():
            return Line(_LEVELS[fact.level], fact.subject, fact.text)
        case SettingsRefused():
            return Line(logging.ERROR, "", f"{fact.reason}; the settings in use stay")
        case TaskFailed():
            text = f"its {fact.task} failed ({fact.reason}); it is started again in {duration(fact.next_try_in)}"
            return Line(logging.ERROR, "bridge", text)
        case Fault():
            text = f"a message was lost to a fault in the bridge; please report this: {fact.trace}"
            return Line(logging.ERROR, fact.subject, text)
        case _:
            return None


_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _server(fact: ServerState) -> Line | None:
    if fact.state == "ready":
        return Line(logging.INFO, fact.server, f"ready in {fact.took or 0.0:.2f} s, {plural(fact.tools, 'tool')}")
    if fact.state in ("backoff", "failed"):
        again = "gave up for now, next try in" if fact.state == "failed" else "restarting in"
        again = "next try in" if fact.remote else again
        return Line(logging.WARNING, fact.server, f"{fact.reason}; {again} {duration(fact.next_try_in or 0.0)}")
    if fact.state == "starting" and fact.reason:
        return Line(logging.INFO, fact.server, fact.reason)
    return None


def _endpoint(fact: EndpointState) -> Line | None:
    if fact.state == "connected":
        return Line(logging.INFO, fact.endpoint, "connected")
    if fact.state in ("backoff", "rejected", "replaced"):
        return _lost(fact)
    if fact.state == "waiting" and fact.reason:
        again = "" if fact.next_try_in is None else f"; next try in {duration(fact.next_try_in)}"
        return Line(logging.WARNING, fact.endpoint, fact.reason + again)
    if fact.state == "stopped" and fact.reason:
        return Line(logging.INFO, fact.endpoint, f"hanging up: {fact.reason}")
    return None


def _lost(fact: EndpointState) -> Line:
    if fact.reason == RENEWED:
        return Line(logging.INFO, fact.endpoint, fact.reason)
    what = "not connected"
    if fact.lived is not None:
        code = f" with code {fact.code}" if fact.code is not None else ""
        what = f"disconnected{code} after {duration(fact.lived)}"
    return Line(
        logging.WARNING, fact.endpoint, f"{what}: {fact.reason}; next try in {duration(fact.next_try_in or 0.0)}"
    )  # fmt: skip


def _applied(fact: SettingsApplied) -> list[Line]:
    changed = [Line(logging.INFO, "bridge", "the settings changed")] if fact.changed else []
    return changed + [Line(logging.WARNING, "", sentence) for sentence in (*fact.problems, *fact.warnings)]
