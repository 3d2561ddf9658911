"""`voice-bridge chat` in a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

from tests.agent.messages_api import MessagesAPI, calls, error, question, text
from tests.agent.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, PROMPT, UP, Terminal


def test_a_conversation_with_tools_commands_and_markdown(api: MessagesAPI, settings: Path) -> None:
    api.replies = [calls(("echo", {"text": "pong"}), say="Let me see."), text("It said **pong**.\n\n- one\n- two\n")]
    with Terminal("chat", "--config", str(settings)) as terminal:
        terminal.say("ping")
        terminal.wait_for("Let me see.")
        terminal.wait_for(re.escape("Calling echo {'text': 'pong'}"))
        terminal.wait_for("Result: pong")
        terminal.wait_for(r"It said pong\.\s+ • one\s+ • two")
        terminal.wait_for("Tokens: input .*, output .*, cache creation .*, cache read ")
        terminal.say("/tools")
        terminal.wait_for("trouble: echo — Says it back.")
        terminal.say("/model other-model")
        terminal.wait_for("The model is other-model.")
        terminal.say("/usage")
        terminal.wait_for("Tokens in this conversation: input ")
        terminal.say("/nonsense")
        terminal.wait_for("There is no command /nonsense; /help lists them.")
        terminal.say("/new")
        terminal.wait_for("New conversation ")
        terminal.say("a fresh start")
        terminal.wait_for("Done.")
        terminal.say("/resume")
        listed = terminal.wait_for(r"1 question +ping")
        first = re.findall(r"([0-9a-f]{8})  \d{4}-", listed)[-1]
        terminal.say(f"/resume {first}")
        terminal.wait_for(f"Conversation {first} goes on, with 4 messages")
        terminal.say("and again")
        terminal.wait_for("Done.")
        terminal.say("/quit")
        assert terminal.status() == 0
    assert "**" not in terminal.text
    assert api.requests[2]["model"] == "other-model"
    assert "pong" not in json.dumps(api.requests[2])
    assert "pong" in json.dumps(api.requests[3])
    assert api.refusals == []


def test_ctrl_c_stops_tools_waits_and_texts_and_nothing_is_lost(api: MessagesAPI, settings: Path, log: Path) -> None:
    gate = threading.Event()
    api.replies = [
        calls(("echo", {"text": "quick"}), ("wait", {})),
        text("Hello one."),
        error(529, "overloaded_error", "Overloaded", retry_after="60"),
        text("Hello two."),
        text("A long story\n\nthat never", hold=gate, hold_at=6),
        text("Hello three."),
    ]
    with Terminal("chat", "--config", str(settings)) as terminal:
        terminal.say("two things")
        terminal.wait_for("Result of echo: quick")
        terminal.press(CTRL_C)
        terminal.wait_for("Stopped.")
        terminal.say("hello")
        terminal.wait_for("Hello one.")
        terminal.say("my precious words")
        terminal.wait_for(r"busy \(529\); trying again in 60 s")
        terminal.interrupt()
        terminal.wait_for("Stopped.")
        terminal.say("hello")
        terminal.wait_for("Hello two.")
        terminal.say("tell me")
        terminal.wait_for("A long story")
        assert api.holding.wait(40)
        terminal.press(CTRL_C)
        terminal.wait_for("Stopped.")
        gate.set()
        terminal.say("hello")
        terminal.wait_for("Hello three.")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_D)
        assert terminal.status() == 0
    quick, slow, hello = api.requests[1]["messages"][-1]["content"]
    assert quick["content"][0]["text"] == "quick"
    assert "interrupted by the user" in slow["content"][0]["text"]
    assert hello["text"] == "hello"
    assert "my precious words" in json.dumps(api.requests[3])
    assert "A long story" in json.dumps(api.requests[5]["messages"][-2])
    assert "cancelled wait" in log.read_text()
    assert api.refusals == []


def test_lines_are_edited_pasted_cleared_and_remembered(api: MessagesAPI, settings: Path) -> None:
    with Terminal("chat", "--config", str(settings)) as terminal:
        terminal.wait_for(PROMPT)
        terminal.press("half a thought")
        terminal.wait_for("half a thought")
        terminal.press(CTRL_C)
        terminal.wait_for("Press Ctrl-C again to leave.")
        terminal.wait_for(PROMPT)
        terminal.press("\x1b[200~first\nsecond\x1b[201~")
        terminal.wait_for("second")
        terminal.press(ALT_ENTER + "third")
        terminal.wait_for("third")
        terminal.press(CTRL_D)
        terminal.wait_for("Done.")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_C)
        terminal.wait_for("Press Ctrl-C again to leave.")
        terminal.wait_for(PROMPT)
        terminal.press(CTRL_C)
        assert terminal.status() == 0
    with Terminal("chat", "--config", str(settings)) as terminal:
        terminal.wait_for(PROMPT)
        # The history is read while the prompt is drawn.
        terminal.press_until(UP, "third")
        terminal.press(ENTER)
        terminal.wait_for("Done.")
        terminal.say("/quit")
        assert terminal.status() == 0
    assert [question(request) for request in api.requests] == ["first\nsecond\nthird"] * 2


def test_a_tool_that_changes_things_asks_remembers_and_can_be_stopped(
    api: MessagesAPI, settings: Path, log: Path
) -> None:
    one = calls(("write_note", {"text": "x"}))
    waiting = calls(("write_note", {"text": "y"}), ("wait", {}))
    api.replies = [one, text("Hello."), one, text("No then."), waiting, text("Back."), one, text("Once."), one]
    api.replies.append(text("Twice."))
    with Terminal("chat", "--config", str(settings)) as terminal:
        terminal.say("write")
        terminal.wait_for("write_note of 'trouble' may change things: {'text': 'x'}")
        terminal.wait_for("Allow it")
        terminal.press(CTRL_C)
        terminal.wait_for("Stopped.")
        terminal.say("hello")
        terminal.wait_for("Hello.")
        terminal.say("write")
        terminal.wait_for("Allow it")
        terminal.press("n" + ENTER)
        terminal.wait_for("No then.")
        assert not log.exists()
        terminal.say("write and wait")
        terminal.wait_for("Allow it")
        terminal.press("y" + ENTER)
        terminal.wait_for("Result of write_note")
        terminal.press(CTRL_C)
        terminal.wait_for("Stopped.")
        terminal.say("hello")
        terminal.wait_for("Back.")
        terminal.say("write")
        terminal.wait_for("Allow it")
        terminal.press("what?" + ENTER)
        terminal.wait_for("Allow it")
        terminal.press("a" + ENTER)
        terminal.wait_for("Once.")
        terminal.say("write")
        assert "Allow it" not in terminal.wait_for("Twice.")
        terminal.say("/quit")
        assert terminal.status() == 0
    assert "interrupted by the user" in json.dumps(api.requests[1])
    assert log.read_text().count("began write_note") == 3
    assert api.refusals == []


def test_an_error_returns_to_the_prompt_and_sigterm_leaves_in_good_order(
    api: MessagesAPI, settings: Path, tmp_path: Path
) -> None:
    api.replies = [error(404, "not_found_error", "model: nonsense"), text("Better.")]
    with Terminal("chat", "--config", str(settings), "--model", "nonsense") as terminal:
        terminal.say("hello")
        terminal.wait_for("does not know the model")
        terminal.say("/model claude-sonnet-5-5")
        terminal.say("hello")
        terminal.wait_for("Better.")
        terminal.wait_for(PROMPT)
        terminal.process.terminate()
        assert terminal.status() == 0
    assert "Traceback" not in terminal.text
    for name in ("conversations.db", "chat_history"):
        assert os.stat(tmp_path / "data" / name).st_mode & 0o077 == 0


def test_where_nothing_can_be_kept_the_chat_works_and_says_so(api: MessagesAPI, settings: Path) -> None:
    with Terminal("chat", "--config", str(settings), VOICE_BRIDGE_DATA=str(settings / "folder")) as terminal:
        terminal.wait_for("This conversation is not kept.")
        terminal.say("hello")
        terminal.wait_for("Done.")
        terminal.say("/resume")
        terminal.wait_for("1 question +hello")
        terminal.say("/quit")
        assert terminal.status() == 0
    assert "Traceback" not in terminal.text


def test_an_odd_byte_typed_at_the_prompt_does_not_end_the_chat(api: MessagesAPI, settings: Path) -> None:
    with Terminal("chat", "--config", str(settings), LC_ALL="C.UTF-8") as terminal:
        terminal.wait_for(PROMPT)
        terminal.press_bytes(b"caf\xe9 au lait\r")
        terminal.wait_for("Done.")
        terminal.say("and now?")
        terminal.wait_for("Done.")
        terminal.say("/quit")
        assert terminal.status() == 0
    assert question(api.requests[0]) == "caf\ufffd au lait"
    assert question(api.requests[1]) == "and now?"
