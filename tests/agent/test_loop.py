"""The loop against the stand-in for the Messages API and a real MCP server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.agent.children import ROOT, TROUBLE, child_tools
from tests.agent.messages_api import KEY, MessagesAPI, Reply, calls, error, question, results, text
from voice_bridge.agent import (
    Agent,
    Event,
    Finished,
    ModelError,
    Notice,
    Store,
    TextDelta,
    TextDiscarded,
    ToolStarted,
    Waiting,
)
from voice_bridge.agent.permissions import approval_key
from voice_bridge.agent.tools import Tool
from voice_bridge.errors import UsageError

FAST: dict[str, Any] = {"first_wait": 0.01, "retries": 3}
OURS = {"trouble"}


async def test_a_question_without_tools_is_one_round(api: MessagesAPI) -> None:
    api.replies = [text("Hello there.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("hello")
    assert answer.answer == "Hello there."
    assert (answer.iterations, answer.tool_calls, answer.incomplete) == (1, [], "")
    assert answer.usage.output_tokens > 0
    assert api.requests[0]["model"].startswith("claude-sonnet-")
    assert {tool["name"] for tool in api.requests[0]["tools"]} >= {"echo", "write_note"}


async def test_one_tool_call_is_two_rounds_and_its_record_is_complete(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": "ping"}), say="One moment."), text("It said ping.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("say ping")
    assert answer.iterations == 2
    (call,) = answer.tool_calls
    assert (call.tool, call.input, call.output, call.server) == ("echo", {"text": "ping"}, "ping", "trouble")
    assert not call.is_error
    assert json.loads(json.dumps(answer.to_dict()))["tool_calls"][0]["tool"] == "echo"


async def test_two_tools_of_one_turn_run_side_by_side_and_answer_in_one_message(api: MessagesAPI) -> None:
    api.replies = [calls(("meet", {}), ("meet", {})), text("They met.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("let them meet")
    assert [call.output for call in answer.tool_calls] == ["met", "met"]
    assert [block["type"] for block in api.requests[1]["messages"][-1]["content"]] == ["tool_result"] * 2
    assert api.refusals == []


async def test_at_the_cap_the_calls_are_answered_and_a_last_reply_is_marked(api: MessagesAPI) -> None:
    def stubborn(request: dict[str, Any]) -> Reply:
        barred = request.get("tool_choice") == {"type": "none"}
        return text("So far: x.") if barred else calls(("echo", {"text": "x"}))

    api.answerer = stubborn
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, max_iterations=3) as agent:
        answer = await agent.ask("never end")
        again = await agent.ask("and once more")
    assert (answer.iterations, answer.answer) == (3, "So far: x.")
    assert "stopped after 3 rounds" in answer.incomplete
    assert [call.is_error for call in answer.tool_calls] == [False, False, True]
    assert "limit of 3 rounds" in answer.tool_calls[-1].output
    assert again.answer == "So far: x."
    assert api.refusals == []


async def test_a_server_that_ignores_tool_choice_is_asked_without_tools(api: MessagesAPI) -> None:
    api.answerer = lambda request: calls(("echo", {"text": "x"})) if "tools" in request else text("Enough.")
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, max_iterations=2) as agent:
        answer = await agent.ask("never end")
    assert answer.answer == "Enough."
    assert answer.incomplete


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("max_tokens", "longest length"),
        ("model_context_window_exceeded", "/new"),
        ("refusal", "declined"),
        ("cosmic_rays", "unknown reason 'cosmic_rays'"),
    ],
)
async def test_a_cut_reply_runs_nothing_and_says_why(api: MessagesAPI, tmp_path: Path, reason: str, said: str) -> None:
    cut = calls(("write_note", {"text": "half"}), say="I will")
    cut.stop_reason = reason
    api.replies = [cut, text("Fine.")]
    log = tmp_path / "log"
    async with (
        child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools,
        Agent(tools, trusted=OURS, allow_all=True) as agent,
    ):
        answer = await agent.ask("go")
        after = await agent.ask("hello")
    assert said in answer.incomplete
    assert answer.stop_reason == reason
    assert answer.tool_calls == []
    assert not log.exists()
    assert after.answer == "Fine."
    assert api.refusals == []


async def test_a_refused_turn_leaves_the_conversation(api: MessagesAPI) -> None:
    api.replies = [
        text("Hello."),
        Reply([], stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "why"}),
        text("Sure."),
    ]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        await agent.ask("hello")
        answer = await agent.ask("something bad")
        await agent.ask("something good")
    assert "declined (why)" in answer.incomplete
    assert "something bad" not in json.dumps(api.requests[-1])
    assert "hello" in json.dumps(api.requests[-1])


async def test_pause_turn_is_continued_as_it_stands(api: MessagesAPI) -> None:
    api.replies = [text("Working on it", stop_reason="pause_turn"), text("Finished.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("long work")
    assert (answer.answer, answer.iterations) == ("Finished.", 2)
    assert api.requests[1]["messages"][-1]["role"] == "assistant"
    assert api.refusals == []


async def test_thinking_goes_back_as_it_came(api: MessagesAPI) -> None:
    thoughts = [
        {"type": "thinking", "thinking": "Let me  see…\n", "signature": "c2lnMQ=="},
        {"type": "thinking", "thinking": "", "signature": "c2lnMg=="},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ]
    asking = calls(("echo", {"text": "a"}))
    asking.content = [*thoughts, *asking.content]
    api.replies = [asking, text("a")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        await agent.ask("think")
    assert api.requests[1]["messages"][1]["content"][:3] == thoughts
    assert api.refusals == []


async def test_empty_answers_of_tools_and_of_the_model_never_poison_the_conversation(api: MessagesAPI) -> None:
    api.replies = [calls(("empty", {}), say="  \n"), Reply([]), text("Hello!")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("anything?")
        hello = await agent.ask("hello")
    assert answer.answer == ""
    assert "gave no answer" in answer.incomplete
    assert results(api.requests[1]) == ["(the tool returned nothing)"]
    assert hello.answer == "Hello!"
    assert api.refusals == []


async def test_the_prompt_cache_is_read_from_the_second_request_on(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": "a"})), text("a"), text("b")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        first = await agent.ask("one")
        second = await agent.ask("two")
    assert first.usage.cache_creation_input_tokens > 0
    assert second.usage.cache_read_input_tokens > first.usage.cache_creation_input_tokens / 2
    assert second.usage.input_tokens < 20
    assert agent.conversation.usage.output_tokens == first.usage.output_tokens + second.usage.output_tokens


async def test_a_tool_that_changes_things_is_refused_when_nobody_can_be_asked(api: MessagesAPI, tmp_path: Path) -> None:
    api.replies = [calls(("write_note", {"text": "x"}), ("echo", {"text": "y"})), text("I may not.")]
    log = tmp_path / "log"
    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("write x")
    refused, allowed = answer.tool_calls
    assert refused.is_error
    assert "--yes" in refused.output
    assert allowed.output == "y"
    assert log.read_text().splitlines() == ["began echo", "ended echo"]


async def test_a_decision_is_asked_once_and_remembered_in_the_conversation(api: MessagesAPI, tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(tool: Tool, arguments: dict[str, Any]) -> Any:
        asked.append(f"{tool.server}/{tool.name} {arguments}")
        return "always"

    api.replies = [calls(("write_note", {"text": "x"})), text("1"), calls(("write_note", {"text": "y"})), text("2")]
    store = Store(tmp_path / "conversations.db")
    async with child_tools(*TROUBLE) as tools:
        async with Agent(tools, trusted=OURS, approve=approve, conversation=store.new()) as agent:
            await agent.ask("write x")
        resumed, _ = store.load(agent.conversation.id)
        async with Agent(tools, trusted=OURS, conversation=resumed) as agent:
            second = await agent.ask("write y")
    assert asked == ["trouble/write_note {'text': 'x'}"]
    assert not second.tool_calls[0].is_error


async def test_a_strangers_word_that_a_tool_is_read_only_counts_for_nothing(api: MessagesAPI, tmp_path: Path) -> None:
    api.replies = [calls(("echo", {"text": "x"})), text("I may not.")]
    log = tmp_path / "log"
    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools, Agent(tools, trusted={"somebody else"}) as agent:
        (call,) = (await agent.ask("say x")).tool_calls
    assert (call.refused, call.is_error) == (True, True)
    assert "--yes" in call.output
    assert not log.exists()


async def test_an_approval_is_for_one_servers_tool_not_for_its_name(api: MessagesAPI) -> None:
    async def approve(tool: Tool, arguments: dict[str, Any]) -> Any:
        return "always"

    api.replies = [calls(("write_note", {"text": "x"})), text("1"), calls(("write_note", {"text": "y"})), text("2")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, approve=approve) as agent:
        await agent.ask("write x")
        known = agent.conversation
    async with child_tools(*TROUBLE, server="other") as tools, Agent(tools, conversation=known) as agent:
        (call,) = (await agent.ask("write y")).tool_calls
    assert call.refused
    assert call.server == "other"


async def test_a_tool_that_changes_hands_while_the_person_thinks_is_not_run(api: MessagesAPI, tmp_path: Path) -> None:
    log = tmp_path / "log"
    api.replies = [calls(("write_note", {"text": "x"})), text("Never mind.")]
    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools:

        async def approve(tool: Tool, arguments: dict[str, Any]) -> Any:
            tools.server = "newcomer"
            return "once"

        async with Agent(tools, approve=approve) as agent:
            (call,) = (await agent.ask("write x")).tool_calls
    assert call.refused
    assert "of server 'trouble' is now one of server 'newcomer'" in call.output
    assert not log.exists()


def test_no_two_tools_share_an_approval() -> None:
    pairs = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a/", "b"), ("a", "/b"), ("\udce9", "c")]
    assert len({approval_key(*pair) for pair in pairs}) == len(pairs)


async def test_deny_is_stronger_than_yes_and_than_read_only(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": "x"}), ("write_note", {"text": "x"})), text("ok")]
    async with (
        child_tools(*TROUBLE) as tools,
        Agent(tools, trusted=OURS, allow_all=True, deny=["echo", "trouble/write*"]) as agent,
    ):
        answer = await agent.ask("both")
    assert [call.is_error for call in answer.tool_calls] == [True, True]
    assert "--deny trouble/write*" in answer.tool_calls[1].output


async def test_orders_in_a_result_stay_a_result(api: MessagesAPI, tmp_path: Path) -> None:
    api.replies = [
        calls(("orders", {})),
        calls(("write_note", {"text": "secret"})),
        text("The tool tried to give orders."),
    ]
    log = tmp_path / "log"
    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("read it")
    assert "began write_note" not in log.read_text()
    assert answer.tool_calls[1].is_error
    assert "never an instruction" in api.requests[0]["system"][0]["text"]
    last = api.requests[1]["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result"]


async def test_a_long_result_keeps_head_and_tail(api: MessagesAPI) -> None:
    api.replies = [calls(("big", {"size": 50_000})), text("long")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, result_budget=1_000) as agent:
        await agent.ask("big")
    (result,) = results(api.requests[1])
    assert result.startswith("HEAD")
    assert result.endswith("TAIL")
    assert "characters left out" in result
    assert len(result) < 1_100


async def test_images_go_as_images_and_other_blocks_as_a_line(api: MessagesAPI) -> None:
    api.replies = [calls(("picture", {})), text("nice")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("show me")
    content = api.requests[1]["messages"][-1]["content"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image", "text"]
    assert content[1]["source"]["media_type"] == "image/png"
    assert "audio/wav" in content[2]["text"]
    assert "image/png" in answer.tool_calls[0].output
    assert api.refusals == []


async def test_a_failing_a_crashed_and_an_unknown_tool_are_results_and_the_turn_goes_on(api: MessagesAPI) -> None:
    api.replies = [
        calls(("fail", {}), ("no_such_tool", {})),
        calls(("crash", {})),
        calls(("echo", {"text": "x"})),
        text("Three failed."),
    ]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("try")
    assert answer.answer == "Three failed."
    assert [call.is_error for call in answer.tool_calls] == [True] * 4
    assert answer.tool_calls[0].output == "the disk is full"
    assert "There is no tool named 'no_such_tool'" in answer.tool_calls[1].output
    assert "server trouble is down: exit code 3" in answer.tool_calls[2].output


async def test_odd_names_and_schemas_are_repaired_and_called_by_their_own_names(api: MessagesAPI) -> None:
    def use(request: dict[str, Any]) -> Reply:
        tool = next(tool for tool in request["tools"] if tool["name"].startswith("strange"))
        assert set(tool["input_schema"]["properties"]) == {"user_name", "id"}
        return text("ok") if results(request) else calls((tool["name"], {"user_name": "ada"}))

    api.answerer = use
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("strange")
    assert answer.tool_calls[0].tool == "strange name/ü"
    assert json.loads(answer.tool_calls[0].output) == {"user name": "ada"}
    assert api.refusals == []


async def test_a_tool_the_api_refuses_is_left_out_with_one_warning(api: MessagesAPI) -> None:
    api.answerer = lambda request: text("ok")
    events: list[Event] = []
    async with child_tools(*TROUBLE, "--faulty") as tools, Agent(tools, trusted=OURS) as agent:
        await agent.ask("one", events.append)
        await agent.ask("two", events.append)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert len(notices) == 2
    assert "'no_object'" in notices[0]
    assert "of type 'string'" in notices[0]
    assert "'nonsense'" in notices[1]
    assert "JSON schema is invalid" in notices[1]
    assert "nonsense" not in json.dumps(api.requests[-1])


async def test_busy_answers_are_waited_out_and_tools_are_not_run_again(api: MessagesAPI, tmp_path: Path) -> None:
    busy = error(529, "overloaded_error", "Overloaded")
    api.replies = [calls(("echo", {"text": "x"})), busy, busy, busy, text("At last.")]
    events: list[Event] = []
    log = tmp_path / "log"
    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        answer = await agent.ask("go", events.append)
    assert answer.answer == "At last."
    waits = [event for event in events if isinstance(event, Waiting)]
    assert [wait.attempt for wait in waits] == [1, 2, 3]
    assert waits[0].seconds < waits[1].seconds < waits[2].seconds
    assert "busy (529)" in waits[0].reason
    assert log.read_text().splitlines() == ["began echo", "ended echo"]


async def test_retry_after_is_honoured(api: MessagesAPI) -> None:
    api.replies = [error(429, "rate_limit_error", "slow down", retry_after="0.2"), text("ok")]
    events: list[Event] = []
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        await agent.ask("go", events.append)
    (wait,) = [event for event in events if isinstance(event, Waiting)]
    assert wait.seconds == pytest.approx(0.2)
    assert "limits the rate (429)" in wait.reason


async def test_a_wait_of_an_hour_is_said_not_waited(api: MessagesAPI) -> None:
    api.replies = [error(429, "rate_limit_error", "used up", retry_after="3600")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(ModelError, match="60 minutes"):
            await agent.ask("go")


async def test_busy_for_ever_ends_in_a_sentence_and_keeps_the_question(api: MessagesAPI) -> None:
    api.replies = [error(529, "overloaded_error", "Overloaded")] * 4 + [text("Back again.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(ModelError, match=r"busy \(529\), still after 4 tries"):
            await agent.ask("my words")
        await agent.ask("hello?")
    assert "my words" in json.dumps(api.requests[-1])
    assert api.refusals == []


@pytest.mark.parametrize("broken", [{"error_event": ("overloaded_error", "Overloaded")}, {}])
async def test_a_stream_that_breaks_after_text_and_a_tool_call_starts_over(
    api: MessagesAPI, tmp_path: Path, broken: dict[str, Any]
) -> None:
    # 12 events: the text and the whole tool_use block are out, message_delta is not.
    half = calls(("write_note", {"text": "x"}), say="Half a sentence", **broken)
    half.cut_after = 12
    api.replies = [half, text("The whole sentence.")]
    events: list[Event] = []
    log = tmp_path / "log"
    async with (
        child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools,
        Agent(tools, trusted=OURS, allow_all=True, **FAST) as agent,
    ):
        answer = await agent.ask("go", events.append)
    assert answer.answer == "The whole sentence."
    assert TextDiscarded("Half a sentence") in events
    assert not log.exists()
    assert "Half a sentence" not in json.dumps(agent.conversation.messages)


async def test_a_reset_on_the_first_byte_is_tried_again(api: MessagesAPI) -> None:
    api.replies = [text("one"), text("", cut_after=0), text("two")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        await agent.ask("first")
        answer = await agent.ask("second")
    assert answer.answer == "two"


async def test_a_wrong_key_is_said_once_and_never_shown(api: MessagesAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong-key-987654")
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(ModelError, match="put a valid one into ANTHROPIC_API_KEY") as caught:
            await agent.ask("go")
    assert "987654" not in str(caught.value)
    assert len(api.headers) == 1


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, "invalid_request_error", "refused the request \\(400\\): odd"),
        (403, "permission_error", "--model"),
        (404, "not_found_error", "does not know the model"),
        (402, "billing_error", "billing page"),
    ],
)
async def test_final_refusals_are_not_retried(api: MessagesAPI, status: int, kind: str, said: str) -> None:
    api.replies = [error(status, kind, "odd")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(ModelError, match=said):
            await agent.ask("go")
    assert len(api.requests) == 1


async def test_no_network_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-0123456789")
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(
            ModelError, match=r"Cannot reach http://127.0.0.1:9, still after 3 tries. Check the network"
        ):
            await agent.ask("go")


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 18\r\n\r\nevent: x\ndata: ?\n\n",
    ],
)
async def test_a_server_that_is_no_messages_api_is_named(api: MessagesAPI, raw: bytes) -> None:
    api.replies = [Reply(raw=raw)]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        with pytest.raises(ModelError, match="did not answer as a Messages API does; check ANTHROPIC_BASE_URL"):
            await agent.ask("go")


async def test_a_local_server_needs_no_key(api: MessagesAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    api.key = None
    api.replies = [text("free of charge")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, model="local-model") as agent:
        answer = await agent.ask("hello")
    assert answer.answer == "free of charge"
    assert api.requests[0]["model"] == "local-model"
    assert "authorization" not in api.headers[0]
    assert "x-api-key" not in api.headers[0]


async def test_an_auth_token_is_enough(api: MessagesAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", api.environment["ANTHROPIC_API_KEY"])
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    api.replies = [text("in")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        assert (await agent.ask("hello")).answer == "in"


async def test_without_any_setting_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async with child_tools(*TROUBLE) as tools:
        with pytest.raises(UsageError, match=r"ANTHROPIC_API_KEY.*ANTHROPIC_BASE_URL"):
            Agent(tools, trusted=OURS)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk with\nbreak")
        with pytest.raises(UsageError, match="a line break") as caught:
            Agent(tools, trusted=OURS)
        assert "sk with" not in str(caught.value)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "localhost:8080")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-good-enough")
        with pytest.raises(UsageError, match="http://"):
            Agent(tools, trusted=OURS)


async def test_prompt_too_long_shortens_old_results_and_tries_once_more(api: MessagesAPI) -> None:
    api.context_tokens = 15_000
    api.replies = [calls(("big", {"size": 30_000})), text("1"), calls(("big", {"size": 30_000})), text("2"), text("3")]
    events: list[Event] = []
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, result_budget=40_000) as agent:
        await agent.ask("first words", events.append)
        await agent.ask("second words", events.append)
        answer = await agent.ask("third words", events.append)
    assert answer.answer == "3"
    assert any("prompt is too long" in refusal for refusal in api.refusals)
    last = json.dumps(api.requests[-1])
    assert all(words in last for words in ("first words", "second words", "third words"))
    assert "characters left out" in last
    assert any(isinstance(event, Notice) and "old tool results" in event.text for event in events)


async def test_a_full_context_is_shortened_before_the_api_complains(api: MessagesAPI) -> None:
    api.context_tokens = 30_000
    api.answerer = lambda request: text("ok") if results(request) else calls(("big", {"size": 20_000}))
    async with (
        child_tools(*TROUBLE) as tools,
        Agent(tools, trusted=OURS, result_budget=40_000, context_window=30_000, max_tokens=2_000) as agent,
    ):
        for number in range(12):
            assert (await agent.ask(f"question {number}")).answer == "ok"
    assert api.refusals == []


async def test_one_message_that_is_too_long_ends_in_a_sentence(api: MessagesAPI) -> None:
    api.context_tokens = 5_000
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        with pytest.raises(ModelError, match=r"too long for the model.*\(/new\)"):
            await agent.ask("word " * 20_000)
    assert len(api.refusals) <= 2


async def test_an_image_the_api_refuses_is_left_out(api: MessagesAPI) -> None:
    api.replies = [
        calls(("picture", {})),
        error(400, "invalid_request_error", "messages.2.content.0: Could not process image"),
        text("I cannot see it."),
    ]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("look")
    assert answer.answer == "I cannot see it."
    assert '"image"' not in json.dumps(api.requests[-1]["messages"])


async def test_an_interruption_answers_every_call_and_hello_works_afterwards(api: MessagesAPI, tmp_path: Path) -> None:
    api.replies = [calls(("echo", {"text": "quick"}), ("wait", {})), text("Hello.")]
    log = tmp_path / "log"
    started = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, ToolStarted) and event.call.tool == "wait":
            started.set()

    async with child_tools(*TROUBLE, TROUBLE_LOG=str(log)) as tools, Agent(tools, trusted=OURS) as agent:
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(agent.ask("two things", watch))
            await started.wait()
            while "ended echo" not in (log.read_text() if log.exists() else ""):
                await asyncio.sleep(0.01)
            while "echo" not in json.dumps(agent.conversation.messages) or not agent.conversation.finished:
                await asyncio.sleep(0.01)
            turn.cancel()
        answer = await agent.ask("hello")
        while "cancelled wait" not in log.read_text():
            await asyncio.sleep(0.01)
    assert answer.answer == "Hello."
    quick, slow = api.requests[-1]["messages"][-1]["content"][:2]
    assert quick["content"][0]["text"] == "quick"
    assert slow["is_error"] is True
    assert "interrupted by the user" in slow["content"][0]["text"]
    assert api.refusals == []


async def test_an_interruption_in_the_middle_of_a_text_keeps_what_was_said(api: MessagesAPI) -> None:
    gate = threading.Event()
    api.replies = [text("The first half and the rest", hold=gate, hold_at=5), text("Hello.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        async with asyncio.TaskGroup() as group:
            heard = asyncio.Event()
            turn = group.create_task(agent.ask("speak", lambda event: heard.set()))
            await heard.wait()
            await asyncio.to_thread(api.holding.wait, 40)
            turn.cancel()
        gate.set()
        await agent.ask("hello")
    said = api.requests[-1]["messages"][1]["content"][0]["text"]
    assert said.startswith("The first")
    assert said.endswith("[interrupted by the user]")


async def test_a_library_can_draw_its_own_screen(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": "x"})), text("It is x."), error(403, "permission_error", "no")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        async with agent.stream("what is it?") as events:
            kinds = [event async for event in events]
        assert isinstance(kinds[-1], Finished)
        assert kinds[-1].answer.answer == "It is x."
        assert "".join(event.text for event in kinds if isinstance(event, TextDelta)) == "It is x."
        async with agent.stream("again") as events:
            with pytest.raises(ModelError):
                [event async for event in events]


async def test_leaving_the_stream_early_stops_the_turn(api: MessagesAPI) -> None:
    api.replies = [calls(("wait", {})), text("Hello.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        async with agent.stream("wait for it") as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    break
        assert (await agent.ask("hello")).answer == "Hello."
    assert api.refusals == []


async def test_inputs_and_ids_that_no_api_gives_are_put_right(api: MessagesAPI) -> None:
    odd = Reply(
        [
            {"type": "tool_use", "id": "call 1", "name": "echo", "input": {"text": "half"}},
            {"type": "tool_use", "id": "same", "name": "echo", "input": [1, 2]},
        ],
        stop_reason="tool_use",
    )
    api.replies = [odd, odd, text("Done \ud83d."), text("Hello.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("odd")
        await agent.ask("hello")
    outputs = [call.output for call in answer.tool_calls]
    assert outputs[::2] == ["half", "half"]
    assert all(output.startswith("Not run: the input is not a JSON object") for output in outputs[1::2])
    assert answer.answer == "Done \ufffd."
    assert api.refusals == []


async def test_a_number_that_json_does_not_know_is_no_argument_and_the_turn_goes_on(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": float("inf")})), text("Sorry."), text("Hello.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        answer = await agent.ask("odd")
        hello = await agent.ask("hello")
    assert [(call.output[:7], call.is_error) for call in answer.tool_calls] == [("Not run", True)]
    assert (answer.answer, hello.answer) == ("Sorry.", "Hello.")


async def test_half_an_emoji_in_a_question_or_an_argument_becomes_a_replacement_character(
    api: MessagesAPI, tmp_path: Path
) -> None:
    api.replies = [calls(("half", {})), text("Odd."), text("Fine.")]
    store = Store(tmp_path / "conversations.db")
    async with child_tools(*TROUBLE) as tools:
        async with Agent(tools, trusted=OURS, conversation=store.new()) as agent:
            answer = await agent.ask("caf\udce9?")
            await agent.ask("and now?")
        resumed, notes = store.load(agent.conversation.id)
    assert answer.tool_calls[0].output == "half \ufffd"
    assert question(api.requests[0]) == "caf\ufffd?"
    assert results(api.requests[1]) == ["half \ufffd"]
    assert (resumed.messages, notes) == (agent.conversation.messages, [])
    assert api.refusals == []


async def test_half_an_emoji_in_names_and_patterns_does_not_stop_the_request(api: MessagesAPI) -> None:
    api.replies = [calls(("echo", {"text": "x"})), text("Denied.")]
    denied = ["\udce9", "e*[o\udce9]"]
    async with child_tools(*TROUBLE) as tools, Agent(tools, model="m\udce9", deny=denied) as agent:
        answer = await agent.ask("go")
    assert answer.answer == "Denied."
    assert api.requests[0]["model"] == "m\ufffd"
    assert "--deny e*[o\ufffd]" in results(api.requests[1])[0]


@pytest.mark.parametrize("nothing", ["", None])
async def test_a_streamed_call_without_arguments_is_called_with_an_empty_object(
    api: MessagesAPI, nothing: str | None
) -> None:
    use = {"type": "tool_use", "name": "arguments", "input": nothing}
    api.replies = [Reply([use], stop_reason="tool_use"), text("Called.")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answer = await agent.ask("go")
    assert [(call.input, call.output) for call in answer.tool_calls] == [({}, "{}")]
    assert api.requests[1]["messages"][1]["content"][0]["input"] == {}
    assert api.refusals == []


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/messages", " ", '"'])
async def test_every_way_to_write_the_base_address_reaches_the_api(
    api: MessagesAPI, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f'"{api.url}"' if end == '"' else api.url + end)
    async with Agent() as agent:
        assert (await agent.ask("hello")).answer == "Done."
    assert api.paths == ["/v1/messages"]


@pytest.mark.parametrize("around", ["{}\n", " {} ", '"{}"', "'{}'\r\n", "\t' {} '"])
async def test_spaces_line_ends_and_quotes_around_a_key_are_not_sent(
    api: MessagesAPI, monkeypatch: pytest.MonkeyPatch, around: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", around.format(KEY))
    async with Agent() as agent:
        await agent.ask("hello")
    sent = api.headers[0]
    assert sent.get("x-api-key", sent.get("authorization", "").removeprefix("Bearer ")) == KEY


@pytest.mark.parametrize(
    "key", ["sk-te st-secret", "sk-密钥-secret", "sk-test\nsk-secret", "sk-secret\udce9", "sk-“secret”"]
)
def test_a_key_that_cannot_be_one_is_refused_once_and_not_shown(api: MessagesAPI, key: str) -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY holds a space, a line break or a letter") as caught:
        Agent(environ={"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": api.url})
    assert "secret" not in str(caught.value)
    assert api.headers == []


@pytest.mark.parametrize("key", ['""', "  ", "''\n", '"'])
def test_a_key_of_nothing_but_quotes_is_none(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY holds nothing but spaces or quotes"):
        Agent()


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8080",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://me:pass-word@h:port",
        "http://[::1",
        "http://a b",
        "http://h/?k=s",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL is not an http:// or https:// address") as caught:
        Agent(environ={"ANTHROPIC_BASE_URL": address})
    assert "pass-word" not in str(caught.value)


async def test_two_questions_at_once_are_answered_one_after_the_other(api: MessagesAPI) -> None:
    api.replies = [calls(("meet", {}), ("meet", {})), text("one"), text("two")]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS) as agent:
        answers = await asyncio.gather(agent.ask("first"), agent.ask("second"))
    assert [answer.answer for answer in answers] == ["one", "two"]
    assert api.refusals == []


async def test_a_broken_tool_call_is_asked_for_again(api: MessagesAPI) -> None:
    broken = calls(("echo", {"text": "half \ud83d"}))
    api.replies = [broken, calls(("echo", {"text": "whole"})), text("Done."), broken, broken, broken]
    async with child_tools(*TROUBLE) as tools, Agent(tools, trusted=OURS, **FAST) as agent:
        answer = await agent.ask("go")
        assert [call.output for call in answer.tool_calls] == ["whole"]
        with pytest.raises(ModelError, match=r"broken tool call, still after 3 tries\. Ask in other words"):
            await agent.ask("go on")


async def test_thoughts_another_model_does_not_take_back_are_left_out(api: MessagesAPI) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    api.replies = [Reply([thought, {"type": "text", "text": "One."}])]
    events: list[Event] = []
    async with child_tools(*TROUBLE) as tools:
        async with Agent(tools, trusted=OURS) as agent:
            await agent.ask("one")
        api.forget_thinking()
        async with Agent(tools, trusted=OURS, conversation=agent.conversation) as other:
            answer = await other.ask("two", events.append)
    assert answer.answer == "Done."
    assert "thinking" not in json.dumps(api.requests[-1]["messages"])
    assert any(isinstance(event, Notice) and "thoughts of the model left out" in event.text for event in events)


def test_the_help_of_the_library_shows_no_key() -> None:
    code = "from voice_bridge import agent\nfrom voice_bridge.cli import assistant\nhelp(agent.Agent), help(assistant)"
    environ = {**os.environ, "ANTHROPIC_API_KEY": "sk-never-to-be-seen", "PAGER": "cat"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=40, cwd=ROOT
    )
    assert "class Agent" in done.stdout
    assert "never-to-be-seen" not in done.stdout + done.stderr
