"""The envelope on bytes: what is a message, what is refused and how, and that payloads stay as they were written."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.wire import FRAGILE, Number, read
from voice_bridge.protocol import jsonrpc
from voice_bridge.protocol.jsonrpc import INVALID_REQUEST, PARSE_ERROR, BadMessage

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def outcome(data: bytes) -> jsonrpc.Envelope | BadMessage:
    try:
        return jsonrpc.parse(data)
    except BadMessage as bad:
        return bad


def refusal(data: bytes) -> BadMessage:
    refused = outcome(data)
    assert isinstance(refused, BadMessage), f"{data!r} was taken for a message"
    return refused


@pytest.mark.parametrize("payload", FRAGILE)
@pytest.mark.parametrize("member", ["params", "result", "error"])
def test_a_payload_stays_the_bytes_its_author_wrote(member: str, payload: bytes) -> None:
    frame = b'{ "jsonrpc" : "2.0" , "id" : 7 , "' + member.encode() + b'" : ' + payload + b" }"
    assert bytes(getattr(jsonrpc.parse(frame), member)) == payload


@pytest.mark.parametrize("payload", FRAGILE)
def test_the_members_of_an_object_stay_as_written(payload: bytes) -> None:
    raw = b'{"a":' + payload + b', "b":[' + payload + b"," + payload + b"]}"
    members = jsonrpc.members(raw)
    assert bytes(members["a"]) == payload
    assert [bytes(element) for element in jsonrpc.elements(members["b"])] == [payload, payload]
    assert jsonrpc.dump(members) == b'{"a":' + payload + b',"b":[' + payload + b"," + payload + b"]}"


ID_SPELLINGS = (
    b'"1"', b"1", b'"req-a"', b"0", b'""', b"-5", b"9007199254740993", b"1.5", b"18446744073709551616",
    b'"9f3c_n_1"', rb'"\u0031"', '"读"'.encode(), b"1e2", b"-0",
)  # fmt: skip


@pytest.mark.parametrize("id_", ID_SPELLINGS)
def test_an_id_is_kept_as_it_is_spelled(id_: bytes) -> None:
    raw = jsonrpc.parse(b'{"jsonrpc":"2.0","method":"ping","id":' + id_ + b"}").id
    assert bytes(raw) == id_  # type: ignore[arg-type]
    assert jsonrpc.valid_id(id_)
    assert read(jsonrpc.result(id_, b"{}"))["id"] == read(id_)


@pytest.mark.parametrize("id_", [b"null", b"{}", b"[]", b"[1]", b"true", b"false", b""])
def test_what_cannot_be_an_id_is_told_apart(id_: bytes) -> None:
    assert not jsonrpc.valid_id(id_)


def test_ids_that_differ_in_type_or_value_have_different_keys() -> None:
    different = [b"1", b'"1"', b"0", b'""', b'"0"', b"-1", b"9007199254740993", b"9007199254740992", b'"a"', b'"A"']
    assert len({jsonrpc.id_key(raw) for raw in different}) == len(different)


@given(st.text())
def test_two_spellings_of_one_string_id_have_one_key(text: str) -> None:
    ascii_only, plain = json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()
    assert jsonrpc.id_key(ascii_only) == jsonrpc.id_key(plain)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" \r\n",
        b"{",
        b'{"id":1',
        b"nonsense",
        b"'single'",
        b"{id:1}",
        b'{"id":1,}',
        b"\xff\xfe{\x00}\x00",
        b"\x00",
    ],
)
def test_what_is_not_json_is_a_parse_error(frame: bytes) -> None:
    assert refusal(frame).code == PARSE_ERROR


@pytest.mark.parametrize(
    "frame", [b"[]", b"42", b"null", b'"x"', b"true", b"1.5", b"[1]", b' [{"id":5,"method":"ping"}]']
)
def test_json_that_is_no_message_is_an_invalid_request(frame: bytes) -> None:
    assert refusal(frame).code == INVALID_REQUEST


def test_a_batch_is_refused_with_the_reason_and_the_remedy() -> None:
    text = str(refusal(b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]'))
    assert "batches are not supported" in text
    assert "one message per frame" in text


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("shape", ['{"x":%s}', "[1,%s]", '{"x": \n %s}', "%s"])
def test_numbers_that_json_does_not_have_are_refused_by_name(shape: str, word: str) -> None:
    bad = refusal(b'{"id":1,"method":"t","params":' + (shape % word).encode() + b"}")
    assert bad.code == PARSE_ERROR
    assert "NaN and Infinity are not JSON" in str(bad)


@pytest.mark.parametrize(
    "damaged", [b"\xff", b"\xc4\xe3\xba\xc3", b"\xed\xa0\xbd", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xe8\xaf"]
)
@pytest.mark.parametrize("member", [b"params", b"result", b"id", b"other"])
def test_bytes_that_are_not_utf8_are_refused_by_name_wherever_they_stand(member: bytes, damaged: bytes) -> None:
    bad = refusal(b'{"jsonrpc":"2.0","method":"m","' + member + b'":"' + damaged + b'"}')
    assert bad.code == PARSE_ERROR
    assert "UTF-8" in str(bad)


@pytest.mark.parametrize(
    ("written", "repaired"),
    [
        (rb'"\ud83d"', '"\ufffd"'),
        (rb'"cut \uD83D"', '"cut \ufffd"'),
        (rb'"\udf89 tail"', '"\ufffd tail"'),
        (rb'"\ud83d\ud83d\ude00"', '"\ufffd😀"'),
        (rb'"\ude00\ud83d"', '"\ufffd\ufffd"'),
        (rb'"\\ud83d is text"', '"\\\\ud83d is text"'),
        (rb'"\\\ud83d"', '"\\\\\ufffd"'),
        (rb'"\ud83d\u0041"', '"\ufffdA"'),
    ],
)
def test_half_an_emoji_becomes_a_replacement_character(written: bytes, repaired: str) -> None:
    """Strict parsers refuse a lone surrogate; the call must not be lost for a cut emoji."""
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + written + b',"n":1.10}}'
    params = bytes(jsonrpc.parse(frame).params)  # type: ignore[arg-type]
    assert read(params) == read(f'{{"a":{repaired},"n":1.10}}'.encode())
    params.decode("utf-8")


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_carried_or_refused_but_never_fatal(depth: int, opening: bytes, closing: bytes) -> None:
    frame = b'{"id":1,"method":"m","params":' + opening * depth + b"1" + closing * depth + b"}"
    read_as = outcome(frame)
    if isinstance(read_as, BadMessage):
        assert read_as.code == PARSE_ERROR
        assert depth > 100, f"{depth} levels are not much: {read_as}"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_helpers_never_raise_on_what_parse_let_through(opening: bytes, closing: bytes) -> None:
    """How deep a nesting fits depends on how deep the caller already is, so some fit in one call and not in the next.

    Not by Hypothesis: it raises the interpreter's recursion limit.
    """
    for depth in range(sys.getrecursionlimit() - 300, sys.getrecursionlimit() + 10):
        raw = opening * depth + b"1" + closing * depth
        for helper in (jsonrpc.members, jsonrpc.elements, jsonrpc.load, jsonrpc.salvage_id):
            helper(raw)
            helper(b'{"a":' + raw + b"}")


@given(json_values)
def test_any_json_value_travels_unchanged(value: object) -> None:
    for ascii_only in (True, False):
        payload = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        frame = b'{"jsonrpc":"2.0","id":"x","result":' + payload + b"}"
        assert bytes(jsonrpc.parse(frame).result) == payload  # type: ignore[arg-type]


@given(
    st.binary(max_size=40)
    | st.builds(
        lambda frame, at, extra, cut: frame[: at % len(frame)] + extra + frame[at % len(frame) + cut :],
        st.sampled_from([b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + payload + b"}" for payload in FRAGILE]),
        st.integers(0, 200),
        st.binary(max_size=3)
        | st.sampled_from([b"\n", b"\x00", b"\\", b'"', b"\\u", b"01", b".", b"e", b"-", b",", b"\t"]),
        st.integers(0, 3),
    )
)
@example(b'{"id":1,"result":"\x01"}')
@example(b'{"id":1,"result":01}')
@example(b'{"id":1,"result":1.}')
@example(b'{"id":1,"result":.5}')
@example(b'{"id":1,"result":+1}')
@example(b'{"id":1,"result":"\\x41"}')
@example(b'{"id":1,"result":"\\u12g4"}')
@example(b'{"id":1,"result":[1,]}')
@example(b'{"id":1,"result":"a\tb"}')
@example(b'{"id":1,"result":tru}')
@example(b'{"id":1}{"id":2}')
@example(b'{"id":1} x')
@example(b'\xef\xbb\xbf{"id":1}')
def test_no_bytes_crash_the_parser_and_what_it_accepts_a_stranger_accepts(data: bytes) -> None:
    """What is forwarded unread must be JSON for the strictest reader at the other end."""
    read_as = outcome(data)
    if isinstance(read_as, BadMessage):
        assert read_as.code in (PARSE_ERROR, INVALID_REQUEST)
        assert str(read_as)
        return
    for member in (read_as.id, read_as.params, read_as.result, read_as.error):
        if member is not UNSET:
            read(bytes(member))


@given(json_values, st.text())
def test_what_is_built_is_one_line_of_json(value: object, text: str) -> None:
    pretty = json.dumps(value, indent=1).encode()
    raw = jsonrpc.one_line(pretty)
    built = {
        "request": jsonrpc.request(b'"q"', text, raw),
        "numbered": jsonrpc.request(2**70, text),
        "notification": jsonrpc.notification(text, raw),
        "result": jsonrpc.result(b"0", raw),
        "error": jsonrpc.error(b"-1", -32000, text, raw),
        "error_raw": jsonrpc.error_raw(b'""', raw),
    }
    assert all(b"\n" not in frame and b"\r" not in frame for frame in built.values())
    messages = {kind: read(frame) for kind, frame in built.items()}
    assert {message["jsonrpc"] for message in messages.values()} == {"2.0"}
    assert messages["request"] == {"jsonrpc": "2.0", "id": "q", "method": text, "params": read(pretty)}
    assert messages["numbered"]["id"] == Number(2**70)
    assert "params" not in messages["numbered"]
    assert messages["error"]["error"] == {"code": Number(-32000), "message": text, "data": read(pretty)}
    assert "id" not in messages["notification"]


@pytest.mark.parametrize("raw", [b'{"a":1,\r\n "b":"x\\ny"}', b"[\n]", '{"t":"\u2028\u0085"}\n'.encode()])
def test_one_line_changes_white_space_only(raw: bytes) -> None:
    line = jsonrpc.one_line(raw)
    assert b"\n" not in line
    assert read(line) == read(raw)


# What can be told of the id of a message that cannot be used


@pytest.mark.parametrize(
    ("spoiled", "id_"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"mean":NaN}}', 7),
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"\xc4\xe3"}}', 7),
        (b'{"result":{"x":Infinity},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":7,"result":{"content":[', 7),
        (b'{"jsonrpc": "2.0", "id": 7, "result": {"rows": [{"id": 3}', 7),
        (b'{"result":{"rows":[{"id":3},{"x"]},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","result":{"rows":[{"id":3},{"x"]},"id":7}\r', 7),
        (b'{"id":7,"jsonrpc":"2.0","error":{"code":1,"message":"\xff"}}', 7),
        (b'{"result":{"rows":[{"id":3,"v":1}', None),
        (b'{"jsonrpc":"2.0","id":"7","result":NaN}', None),
        (b'{"jsonrpc":"2.0","id":true,"result":NaN}', None),
        (b'{"jsonrpc":"2.0","id":7.5,"result":NaN}', None),
        (b"id 7 has NaN", None),
        (b'[{"id":7}]', None),
        (b"", None),
    ],
)
def test_the_id_of_a_spoiled_answer_is_found_only_where_it_is_certain(spoiled: bytes, id_: int | None) -> None:
    """An id inside the payload belongs to a row of somebody's table; taken for ours it would end a neighbour's call."""
    assert jsonrpc.salvage_id(spoiled) == id_


@pytest.mark.parametrize(
    "spoiled",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"temperature":NaN}}',
        b'{"jsonrpc":"2.0","method":"roots/list","id":7,"params":"\xff"}',
        b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[',
        b'{"method":"sampling/createMessage","params":{"messages":[' + b'"x",' * 200,
    ],
)
def test_a_spoiled_request_of_a_server_is_not_taken_for_an_answer(spoiled: bytes) -> None:
    """Servers number their own requests from 0 or 1, as we do."""
    assert jsonrpc.salvage_id(spoiled) is None


@pytest.mark.parametrize("length", [10_000, 3_000_000])
def test_salvaging_from_a_long_message_stays_cheap_and_right(length: int) -> None:
    whole = b'{"jsonrpc":"2.0","id":12,"result":{"rows":["' + b"x" * length + b'","id":3]}'
    assert jsonrpc.salvage_id(whole) == 12
    assert jsonrpc.salvage_id(whole[:512] + whole[-512:]) == 12
    other_way = b'{"result":{"rows":[{"id":3,"' + b"x" * length + b'":1}]},"jsonrpc":"2.0","id":12}'
    assert jsonrpc.salvage_id(other_way[:512] + other_way[-512:]) == 12


@given(st.binary(max_size=60))
def test_salvaging_never_raises(data: bytes) -> None:
    jsonrpc.salvage_id(data)
    jsonrpc.salvage_id(b'{"id":' + data + b"}")
