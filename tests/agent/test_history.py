"""The rules of a history: whatever happened to it, the API's own checks accept what is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.messages_api import BadRequest, _check_messages
from voice_bridge.agent import history

Json = dict[str, Any]

_texts = st.sampled_from(["", " \n", "words", "more words"])
_ids = st.sampled_from(["a", "b", "c"])
_text = st.builds(lambda text: {"type": "text", "text": text}, _texts)
_use = st.builds(lambda key: {"type": "tool_use", "id": key, "name": "t", "input": {}}, _ids)
_answer = st.builds(lambda key: history.tool_result(key, "done", is_error=False), _ids)
_blocks = st.one_of(_text, _use, _answer)


def _fits(message: Json) -> Json:
    """Keeps the blocks that the role may have at all; each call once."""
    kinds = {"user": {"text", "tool_result"}, "assistant": {"text", "tool_use"}}[message["role"]]
    blocks = {json.dumps(block): block for block in message["content"] if block["type"] in kinds}
    return {"role": message["role"], "content": list(blocks.values())}


def _numbered(messages: list[Json]) -> list[Json]:
    """Ids as unique as the API makes them; results keep naming the calls before them."""
    numbered = []
    for number, message in enumerate(messages):
        content = []
        for block in message["content"]:
            if block["type"] == "tool_use":
                block = {**block, "id": f"{block['id']}{number}"}
            elif block["type"] == "tool_result":
                block = {**block, "tool_use_id": f"{block['tool_use_id']}{number - 1}"}
            content.append(block)
        numbered.append({"role": message["role"], "content": content})
    return numbered


_message = st.builds(
    lambda role, content: _fits({"role": role, "content": content}),
    st.sampled_from(["user", "assistant"]),
    st.lists(_blocks, max_size=4),
)
histories = st.lists(_message, max_size=8).map(_numbered)


def accepted(messages: list[Json]) -> None:
    """Raises BadRequest, as the API would, for what would be sent."""
    _check_messages({"messages": history.for_request(messages)})


@given(histories)
def test_any_damage_is_repaired_to_what_the_api_takes(damaged: list[Json]) -> None:
    repaired, _ = history.repair(damaged, {}, "interrupted")
    accepted([*repaired, history.user_message("hello")])


@given(histories)
def test_a_repaired_history_needs_no_further_repair(damaged: list[Json]) -> None:
    repaired, _ = history.repair(damaged, {}, "interrupted")
    again, notes = history.repair(repaired, {}, "interrupted")
    assert again == repaired
    assert notes == []


@given(histories, st.integers(min_value=0, max_value=3000))
def test_a_shortened_history_is_still_what_the_api_takes(damaged: list[Json], limit: int) -> None:
    repaired, _ = history.repair(damaged, {}, "interrupted")
    whole = [*repaired, history.user_message("the present question")]
    short = history.shrink(whole, limit)
    accepted(short)
    assert "the present question" in json.dumps(short)
    assert history.size(short) <= history.size(whole) + len(history.EARLIER_LEFT_OUT) + 40


def turn(number: int, size: int) -> list[Json]:
    call = {"type": "tool_use", "id": f"call{number}", "name": "t", "input": {}}
    return [
        history.user_message(f"question {number}"),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [history.tool_result(f"call{number}", "x" * size, is_error=False)]},
        {"role": "assistant", "content": [{"type": "text", "text": f"answer {number}"}]},
    ]


def test_old_results_are_shortened_before_any_words_go() -> None:
    whole = [*turn(1, 10_000), *turn(2, 10_000), *turn(3, 10_000), history.user_message("now")]
    short = history.shrink(whole, 15_000)
    sent = json.dumps(short)
    assert all(f"question {n}" in sent and f"answer {n}" in sent for n in (1, 2, 3))
    assert "x" * 10_000 in json.dumps(short[8:])
    assert "x" * 1_000 not in json.dumps(short[:4])
    assert whole[2]["content"][0]["content"][0]["text"] == "x" * 10_000, "the original is untouched"


def test_then_the_oldest_turns_go_whole_with_a_note() -> None:
    whole = [message for number in range(30) for message in turn(number, 100)] + [history.user_message("now")]
    short = history.shrink(whole, 3_000)
    accepted(short)
    assert history.spoken(short[0]).startswith(history.EARLIER_LEFT_OUT)
    assert "question 0" not in json.dumps(short)
    assert "question 29" in json.dumps(short)
    assert json.dumps(history.shrink(short, 1_000)).count(history.EARLIER_LEFT_OUT) == 1


def test_results_that_came_in_before_a_crash_are_used() -> None:
    calls: list[Json] = [{"type": "tool_use", "id": key, "name": "t", "input": {}} for key in ("a", "b")]
    damaged = [history.user_message("q"), {"role": "assistant", "content": calls}]
    finished = {"a": history.tool_result("a", "in time", is_error=False)}
    repaired, notes = history.repair(damaged, finished, "interrupted")
    first, second = repaired[-1]["content"]
    assert first["content"][0]["text"] == "in time"
    assert second["is_error"]
    assert notes == ["1 tool call(s) without a result were marked as interrupted"]


def test_a_message_cut_off_before_its_results_loses_the_orphans() -> None:
    """A cut between `tool_use` and `tool_result` leaves results nobody asked for."""
    cut = turn(1, 10)[2:]
    repaired, notes = history.repair([*cut, history.user_message("hello")], {}, "interrupted")
    accepted(repaired)
    assert [message["role"] for message in repaired] == ["user"]
    assert notes


def test_cache_marks_are_on_the_last_two_user_messages_and_not_in_the_history() -> None:
    whole = [*turn(1, 5), *turn(2, 5), history.user_message("now")]
    sent = history.for_request(whole)
    marked = [number for number, message in enumerate(sent) if "cache_control" in message["content"][-1]]
    assert marked == [6, 8]
    assert "cache_control" not in json.dumps(whole)


def test_the_stand_in_is_strict() -> None:
    """The checks the other tests lean on do refuse what they must."""
    for broken in (
        [turn(1, 1)[1]],
        turn(1, 1)[:2],
        [*turn(1, 1)[:2], history.user_message("hello")],
        [history.user_message(" ")],
        [{"role": "user", "content": [history.tool_result("x", "y", is_error=False)]}],
        [*turn(1, 1), *turn(1, 1)],
        [{"role": "user", "content": []}],
    ):
        with pytest.raises(BadRequest):
            _check_messages({"messages": broken})
