"""The local cloud does what the real ones are known to do, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.simulator.peers import Json, answer_politely, peer, tiny_bridge
from voice_bridge.simulator import OFFICIAL, RELAY, BadAnswer, CloudSession, Disconnected, Kind, NoAnswer, VoiceCloud


def sent(session: CloudSession) -> list[Json]:
    return [frame.message for frame in session.frames if frame.sent and frame.message is not None]


class TestOfficial:
    async def test_its_handshake_starts_at_id_0_on_each_connection(self) -> None:
        async with VoiceCloud() as cloud:
            for _ in range(2):
                async with peer(cloud.url):
                    session = await cloud.session()
                    await session.ready()
                    hello, initialized, listing = sent(session)
                    assert (hello["id"], hello["method"]) == (0, "initialize")
                    assert hello["params"]["protocolVersion"] == "2024-11-05"
                    assert hello["params"]["clientInfo"]["name"] == "xz-mcp-broker"
                    assert initialized == {"jsonrpc": "2.0", "method": "notifications/initialized"}
                    assert (listing["id"], listing["method"]) == (1, "tools/list")
                    assert session.server_info["name"] == "peer"

    async def test_it_waits_for_each_answer(self) -> None:
        async with VoiceCloud(replace(OFFICIAL, handshake_timeout=0.2)) as cloud, peer(cloud.url, lambda _: None):
            session = await cloud.session()
            assert await session.wait_closed() == (4004, "Internal server error")
            assert [message["method"] for message in sent(session)] == ["initialize"]
            with pytest.raises(BadAnswer, match=r"initialize was not answered within 0\.2 s"):
                await session.ready()

    async def test_a_call_carries_a_serial_number_and_hears_all_text(self) -> None:
        async with VoiceCloud() as cloud, peer(cloud.url):
            session = await cloud.session()
            await session.ready()
            reply = await session.call("where.am i", {"x": 2**70}, meta={"progressToken": "p"})
            params, more = reply.text.split("\n")
            assert json.loads(params) == {
                "name": "where.am i",
                "arguments": {"x": 2**70},
                "serialNumber": None,
                "_meta": {"progressToken": "p"},
            }
            assert (reply.id, reply.ok, more) == (2, True, "and more")
            assert reply.milliseconds > 0
            assert not session.dropped

    async def test_it_pings_and_leaves_when_a_ping_stays_unanswered(self) -> None:
        pings: list[Json] = []

        def answer(request: Json) -> Json | None:
            if request["method"] != "ping":
                return answer_politely(request)
            pings.append(request)
            return {} if len(pings) < 3 else None

        async with VoiceCloud(replace(OFFICIAL, ping_every=0.05, ping_patience=0.3)) as cloud, peer(cloud.url, answer):
            session = await cloud.session()
            assert (await session.wait_closed())[0] == 4004
            assert [ping["id"] for ping in pings] == [2, 3, 4]

    async def test_no_tools_end_in_its_catch_all(self) -> None:
        def answer(request: Json) -> Json:
            return {"tools": []} if request["method"] == "tools/list" else answer_politely(request)

        async with VoiceCloud() as cloud, peer(cloud.url, answer):
            assert (await (await cloud.session()).wait_closed())[0] == 4004

    async def test_several_connections_live_side_by_side(self) -> None:
        async with VoiceCloud() as cloud, peer(cloud.url), peer(cloud.url):
            first, second = await cloud.session(), await cloud.session()
            for session in (first, second):
                await session.ready()
                assert (await session.call("where.am i")).ok
            assert cloud.sessions == [first, second]

    async def test_a_wrong_token_is_refused_at_the_handshake(self) -> None:
        async with VoiceCloud(token="right+/=& one") as cloud:
            async with peer(cloud.url):
                await (await cloud.session()).ready()
            with pytest.raises(InvalidStatus) as refused:
                await connect(cloud.url + "x")
            assert refused.value.response.status_code == 401
            assert [attempt.status for attempt in cloud.attempts] == [101, 401]
            assert "token" not in repr([attempt.path for attempt in cloud.attempts])

    async def test_it_answers_a_ping_and_refuses_other_requests(self) -> None:
        async with VoiceCloud() as cloud, connect(cloud.url) as ws:
            await ws.recv()
            await ws.send('{"jsonrpc":"2.0","id":"p","method":"ping"}')
            await ws.send('{"jsonrpc":"2.0","id":"r","method":"roots/list"}')
            assert json.loads(await ws.recv()) == {"jsonrpc": "2.0", "id": "p", "result": {}}
            assert json.loads(await ws.recv())["error"]["code"] == -32601


class TestRelay:
    async def test_its_handshake_is_pipelined_and_its_ids_come_back(self) -> None:
        async with VoiceCloud(RELAY) as cloud, connect(cloud.url) as ws:
            burst = [json.loads(await ws.recv()) for _ in range(3)]  # without any answer in between
            assert [message["method"] for message in burst] == ["initialize", "notifications/initialized", "tools/list"]
            assert [message.get("id") for message in burst] == [1, None, 2]

    async def test_each_device_starts_a_session_of_its_own_with_string_ids(self) -> None:
        async with VoiceCloud(RELAY) as cloud, peer(cloud.url):
            session = await cloud.session()
            await session.ready()
            await session.handshake(prefix="dev")
            await session.handshake()
            ids = [message["id"] for message in sent(session) if "id" in message]
            assert ids[:2] == [1, 2]
            uuid, _, number = ids[2].partition("_n_")
            assert (len(uuid), number) == (36, "1")
            assert ids[4:] == ["dev_n_1", "dev_n_2", 1, 2]

    async def test_it_hears_the_first_block_only_and_reduces_names(self) -> None:
        async with VoiceCloud(RELAY) as cloud, peer(cloud.url):
            session = await cloud.session()
            (tool,) = await session.ready()
            assert (tool.name, tool.spoken) == ("where.am i", "where_am_i")
            reply = await session.call("where_am_i")
            assert json.loads(reply.text) == {"name": "where.am i", "arguments": {}}

    async def test_a_second_connection_displaces_the_first_and_is_then_forgotten_itself(self) -> None:
        async with VoiceCloud(RELAY) as cloud, peer(cloud.url):
            first = await cloud.session()
            await first.ready()
            async with peer(cloud.url) as ws:
                second = await cloud.session()
                assert (await first.wait_closed())[0] == 1000
                assert (first.is_open, second.is_open, second.registered) == (False, True, False)
                with pytest.raises(Disconnected, match="forgotten"):
                    await second.call("where.am i")
                await ws.send('{"jsonrpc":"2.0","id":1,"result":{}}')
                await second.receive()
                await second.until(lambda: bool(second.dropped), 5, "nothing was dropped")
                assert second.dropped[0].why == "the relay has forgotten this connection"

    async def test_an_orderly_redial_is_registered(self) -> None:
        async with VoiceCloud(RELAY) as cloud:
            for _ in range(3):
                async with peer(cloud.url):
                    session = await cloud.session()
                    await session.ready()
                    assert session.registered
                await session.settled.wait()

    async def test_agents_with_other_tokens_are_left_alone(self) -> None:
        async with VoiceCloud(RELAY) as cloud, peer(cloud.url), peer(cloud.url + "2"):
            first, second = await cloud.session(), await cloud.session()
            await second.ready()
            assert await first.ready()
            assert (first.registered, second.registered) == (True, True)

    @pytest.mark.parametrize(
        ("frame", "why"),
        [
            ('[{"jsonrpc":"2.0","id":1,"result":{}}]', "a batch"),
            ("hello", "not JSON: Expecting value: line 1 column 1 (char 0)"),
            ('{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}', "not JSON: NaN is not a JSON value"),
            ('{"jsonrpc":"2.0","id":0,"result":{}}', "an answer to id 0"),
            ('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}', "a notification"),
            ('{"jsonrpc":"2.0","id":1,"method":"ping"}', "a request from the bridge"),
            ('{"jsonrpc":"2.0","id":77,"result":{}}', "an answer nobody waits for, id 77"),
            ("42", "JSON, but not an object"),
            ('{"id":1,"result":{}}', 'an object without "jsonrpc": "2.0"'),
            ('{"jsonrpc":"2.0","result":{}}', "an answer without an id"),
            (
                '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
                "neither a request, nor an answer with exactly one of result and error",
            ),
        ],
    )
    async def test_it_drops(self, frame: str, why: str) -> None:
        async with VoiceCloud(RELAY, greet=False) as cloud, connect(cloud.url) as ws:
            session = await cloud.session()
            await ws.send(frame)
            await session.until(lambda: bool(session.dropped), 5, "nothing was dropped")
            assert [(dropped.frame.data, dropped.why) for dropped in session.dropped] == [(frame, why)]

    async def test_a_binary_frame_unregisters_without_a_word(self) -> None:
        async with VoiceCloud(RELAY) as cloud, peer(cloud.url) as ws:
            session = await cloud.session()
            await session.ready()
            await ws.send(b'{"jsonrpc":"2.0","id":9,"result":{}}')
            await session.until(lambda: bool(session.dropped), 5, "nothing was dropped")
            assert (session.registered, session.is_open) == (False, True)
            async with peer(cloud.url):  # no displacement: the relay knows of nobody
                other = await cloud.session()
                await other.ready()
                assert session.is_open
                await session.close()
                await session.settled.wait()
                assert other.registered

    async def test_too_big_a_frame_closes_with_1009(self) -> None:
        async with VoiceCloud(RELAY) as cloud:
            ws = await connect(cloud.url, compression=None)
            session = await cloud.session()
            with suppress(ConnectionClosed):  # it closes while this is still being written
                await ws.send("x" * 17_000_000)
            assert (await session.wait_closed())[0] == 1009
            await ws.wait_closed()

    async def test_a_wrong_token_is_closed_after_the_upgrade(self) -> None:
        async with VoiceCloud(RELAY, token="right") as cloud, connect(cloud.url + "x") as ws:
            await ws.wait_closed()
            assert ws.close_code == 1008
            assert [attempt.status for attempt in cloud.attempts] == [101]


class TestTrouble:
    @pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 1013, 4001, 4004, 4999])
    async def test_a_drop_with_a_code(self, code: int) -> None:
        async with VoiceCloud() as cloud, peer(cloud.url) as ws:
            session = await cloud.session()
            await session.close(code, "because")
            await ws.wait_closed()
            assert (ws.close_code, ws.close_reason) == (code, "because")
            assert await session.wait_closed() == (code, "because")

    async def test_a_cut_of_the_tcp_connection_fails_the_open_call(self) -> None:
        def answer(request: Json) -> Json | None:
            return None if request["method"] == "tools/call" else answer_politely(request)

        async with VoiceCloud() as cloud, peer(cloud.url, answer) as ws, asyncio.TaskGroup() as tasks:
            session = await cloud.session()
            await session.ready()
            call = tasks.create_task(_outcome(session))
            await session.until(lambda: sent(session)[-1]["method"] == "tools/call", 5, "no call")
            session.abort()
            await ws.wait_closed()
            assert ws.close_code == 1006
            assert isinstance(await call, Disconnected)
            assert await session.wait_closed() == (1006, "")

    async def test_refusals_and_their_retry_after(self) -> None:
        async with VoiceCloud() as cloud:
            for status, retry_after in ((401, None), (429, 30), (503, None)):
                cloud.refuse(status, retry_after)
                with pytest.raises(InvalidStatus) as refused:
                    await connect(cloud.url)
                assert refused.value.response.status_code == status
                assert refused.value.response.headers.get("Retry-After") == (str(retry_after) if retry_after else None)
            assert [attempt.status for attempt in cloud.attempts] == [401, 429, 503]
            assert cloud.attempts[0].at < cloud.attempts[1].at < time.monotonic()
            cloud.accept()
            async with peer(cloud.url):
                assert await (await cloud.session()).ready()

    @pytest.mark.parametrize(("code", "seen"), [(1011, 1011), (4004, 4004), (1006, 1006)])
    async def test_accept_and_close(self, code: int, seen: int) -> None:
        async with VoiceCloud() as cloud:
            cloud.accept_and_close(0.01, code)
            async with connect(cloud.url) as ws:
                await ws.wait_closed()
                assert ws.close_code == seen
            assert (len(cloud.attempts), cloud.sessions) == (1, [])

    async def test_a_held_handshake_is_answered_when_the_cloud_accepts(self) -> None:
        async with VoiceCloud() as cloud, asyncio.TaskGroup() as tasks:
            cloud.hold()
            with pytest.raises(TimeoutError):
                await connect(cloud.url, open_timeout=0.1)
            dial = tasks.create_task(_dial(cloud.url))
            with pytest.raises(NoAnswer):
                await cloud.session(0.1)
            cloud.accept()
            await (await cloud.session()).close(1012)
            assert await dial == 1012
            assert [attempt.status for attempt in cloud.attempts] == [408, 101]

    @pytest.mark.parametrize("trouble", [CloudSession.stall, CloudSession.withhold_pongs])
    async def test_no_pong_comes(self, trouble: object) -> None:
        async with VoiceCloud() as cloud, peer(cloud.url, close_timeout=0.1) as ws:
            session = await cloud.session()
            await session.ready()
            assert await asyncio.wait_for(await ws.ping(), 5) >= 0
            session.stall() if trouble is CloudSession.stall else session.withhold_pongs()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(await ws.ping(), 0.1)
            if trouble is CloudSession.withhold_pongs:
                assert (await session.call("where.am i")).ok  # it still reads

    async def test_a_stalled_session_reads_on_when_told(self) -> None:
        async with VoiceCloud() as cloud, peer(cloud.url):
            session = await cloud.session()
            await session.ready()
            session.stall()
            with pytest.raises(NoAnswer, match=r"tools/call was not answered within 0\.1 s"):
                await session.call("where.am i", timeout=0.1)
            session.resume()
            await session.until(lambda: bool(session.dropped), 5, "the late answer")
            assert session.dropped[0].why == "an answer nobody waits for, id 2"

    async def test_leaving_is_quick_with_a_stalled_and_a_half_open_peer(self) -> None:
        with socket.socket() as half_open:
            async with VoiceCloud() as cloud, peer(cloud.url, close_timeout=0.1):
                half_open.connect(("127.0.0.1", cloud.port))
                (await cloud.session()).stall()
                left_at = time.monotonic()
            assert time.monotonic() - left_at < 5

    async def test_nobody_dials(self) -> None:
        async with VoiceCloud() as cloud:
            with pytest.raises(NoAnswer, match=r"no bridge connected within 0\.01 s; handshakes so far: 0"):
                await cloud.session(0.01)

    async def test_a_port_in_use_is_an_os_error(self) -> None:
        async with VoiceCloud() as cloud:
            with pytest.raises(OSError, match="address already in use"):
                await VoiceCloud(port=cloud.port).__aenter__()


class TestTools:
    @pytest.mark.parametrize("kind", [OFFICIAL, RELAY])
    async def test_a_real_child_behind_a_real_bridge(self, kind: Kind) -> None:
        async with VoiceCloud(kind) as cloud, tiny_bridge(cloud.url, "pages=2"):
            session = await cloud.session()
            names = [tool.name for tool in await session.ready()]
            assert names == ["t", "echo", "sleep", "pid", "env", "cwd", "crash", "iserror", "rpcerror"]
            assert (await session.call("echo", {"text": "行"})).text == "行"
            boom = await session.call("iserror")
            assert (boom.ok, boom.text, boom.error) == (False, "boom", None)
            refused = await session.call("rpcerror")
            assert (refused.ok, refused.result) == (False, None)
            assert refused.error == {"code": -32602, "message": "bad arguments", "data": {"x": 1}}

    @pytest.mark.parametrize(
        ("modes", "complaint"),
        [
            (("pages=4", "roundpages"), "the pages of tools/list never end"),
            (("oddtools",), "tools/list holds an entry that is no tool: 42"),
        ],
    )
    async def test_a_list_that_makes_no_sense(self, modes: tuple[str, ...], complaint: str) -> None:
        async with VoiceCloud() as cloud, tiny_bridge(cloud.url, *modes):
            session = await cloud.session()
            with pytest.raises(BadAnswer, match=complaint):
                await session.ready()
            assert (await session.wait_closed())[0] == 4004

    async def test_progress_and_raw_bytes_are_kept(self) -> None:
        async with VoiceCloud() as cloud, tiny_bridge(cloud.url, "raw"):
            session = await cloud.session()
            await session.ready()
            await session.call("sleep", {"s": 0.01}, meta={"progressToken": 7})
            assert [note["params"]["progressToken"] for note in session.notifications] == [7, 7]
            assert '"price":1.10,"huge":1e400' in (await session.call("t")).raw

    async def test_ids_keep_their_json_type(self) -> None:
        async with VoiceCloud() as cloud, tiny_bridge(cloud.url):
            session = await cloud.session()
            await session.ready()
            for id in (0, "", "1", 1, -5, 2**70, 1.5):
                reply = await session.request("ping", id=id)
                assert (reply.id, type(reply.id)) == (id, type(id))

    async def test_raw_frames_are_played_by_hand(self) -> None:
        async with VoiceCloud(greet=False) as cloud, tiny_bridge(cloud.url):
            session = await cloud.session()
            await session.send('{"jsonrpc":"2.0","id":5,"method":"ping"}')
            await session.send('{"jsonrpc":"2.0","id":6,"method":"ping"}')
            assert (await session.receive(lambda frame: frame.get("id") == 6)).message == {
                "jsonrpc": "2.0",
                "id": 6,
                "result": {},
            }
            with pytest.raises(NoAnswer, match="the expected frame did not come"):
                await session.receive(timeout=0.05)


async def _outcome(session: CloudSession) -> object:
    try:
        return await session.call("where.am i")
    except Disconnected as error:
        return error


async def _dial(url: str) -> int | None:
    """Connect, stay until the cloud ends the connection, and tell the close code."""
    async with peer(url) as ws:
        await ws.wait_closed()
        return ws.close_code
