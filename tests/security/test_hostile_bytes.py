"""S1, S2, S3, S5: any bytes get a coded error or a close as answer, and other clients are not affected."""

import asyncio
import logging
import random
import struct
from typing import Any

import msgspec
import pytest

from stoker.model import commands as c
from stoker.server.config.tree import ServerLimits
from stoker.wire import flashq
from stoker.wire.frames import LENGTH
from stoker.wire.native import COMMANDS
from tests.security.support import snapshot
from tests.served.on_loop import PATIENCE_S, Peer, Place, run, serving


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Any:
    """Nothing that a peer sends may surprise the server."""
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.getMessage() for record in caplog.records] == []


async def answers_of(place: Place, data: bytes, by: int = 0) -> list[Any]:
    """What the server says to these bytes before it closes or we do. Every answer must be whole."""
    peer = await place.peer()
    try:
        for start in range(0, len(data), by or len(data)):
            peer.writer.write(data[start : start + (by or len(data))])
            if by:
                await asyncio.sleep(0)
        peer.writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            said = await peer.reader.read()
    except OSError:  # it was closed while we were sending
        return []
    finally:
        peer.close()
        place.peers.remove(peer)
    if data[:1] in (b"{", b"\n", b"\r"):
        return [msgspec.json.decode(line) for line in said.splitlines()]
    found = []
    while said:
        length = LENGTH.unpack(said[:4])[0]
        body, said = said[4 : 4 + length], said[4 + length :]
        assert len(body) == length
        found.append(msgspec.json.decode(body) if body[:1] == b"{" else msgspec.msgpack.decode(body))
    return found


async def witness(place: Place) -> tuple[Peer, dict[str, Any]]:
    """Somebody else on the server, with things to lose."""
    peer = await place.peer()
    assert (await peer.ask(cmd="PUSH", queue="q", data=1, unique_key="k"))["ok"]
    assert (await peer.ask(cmd="PUSH", queue="q", data=2))["ok"]
    assert (await peer.ask(cmd="PULL", queue="q", timeout=0))["ok"]
    assert (await peer.ask(cmd="KVSET", key="k", value=1))["ok"]
    return peer, snapshot(place.broker, "default")


async def unharmed(place: Place, other: tuple[Peer, dict[str, Any]]) -> None:
    peer, before = other
    assert (await peer.ask(cmd="PING"))["ok"]
    assert snapshot(place.broker, "default") == before
    assert (await (await place.peer()).ask(cmd="PING"))["ok"]


def refused(answers: list[Any]) -> bool:
    return all(answer["ok"] is False and answer["code"] for answer in answers)


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


# --- any bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_change_nothing(seed: int):
    async def main() -> None:
        rng = random.Random(seed)
        async with serving(ServerLimits(frame_bytes_max=1 << 20)) as place:
            other = await witness(place)
            for _ in range(20):
                noise = rng.randbytes(rng.choice([1, 3, 4, 5, 60, 5_000]))
                shape = rng.randrange(5)
                data = (noise, b"{" + noise, frame(noise), frame(b"{" + noise), noise.replace(b"\0", b"\n"))[shape]
                assert refused(await answers_of(place, data, by=rng.choice([0, 0, 1, 7])))
            await unharmed(place, other)

    run(main)


@pytest.mark.parametrize("seed", range(10))
def test_good_requests_with_a_few_bytes_changed_do_what_they_say_or_nothing(seed: int):
    """Only commands that change nothing: so whatever they have become, either they are refused or they looked."""

    async def main() -> None:
        rng = random.Random(seed)
        looks = [b'{"cmd":"get_job","reqId":1,"body":{"id":64}}', b'{"cmd":"GETJOBS","queue":"q"}', b'{"cmd":"PING"}']
        async with serving(ServerLimits(frame_bytes_max=1 << 20)) as place:
            other = await witness(place)
            for _ in range(40):
                request = msgspec.json.decode(rng.choice(looks))
                body = bytearray(rng.choice([msgspec.json, msgspec.msgpack]).encode(request))
                for _ in range(rng.randrange(1, 4)):
                    body[rng.randrange(len(body))] = rng.randrange(256)
                for answer in await answers_of(place, frame(bytes(body))):
                    assert answer["ok"] or answer["code"]
            await unharmed(place, other)

    run(main)


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
def test_a_good_request_byte_by_byte_is_a_good_request(encode: Any):
    """The control: what is refused above is not refused because of how it comes in."""

    async def main() -> None:
        async with serving() as place:
            body = encode({"cmd": "PUSH", "queue": "q", "data": {"n": 1}})
            (answer,) = await answers_of(place, frame(body), by=1)
            assert (answer["ok"], answer["id"]) == (True, 64)
            assert place.broker.execute("default", c.GetStats()).counts.waiting == 1

    run(main)


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, (64 << 20) + 1])
def test_a_length_over_the_limit_is_refused_from_its_four_bytes(length: int):
    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            (answer,) = await answers_of(place, struct.pack(">I", length) + b"rest")
            assert answer["code"] == "limit_exceeded"
            await unharmed(place, other)

    run(main)


@pytest.mark.parametrize("claimed", [10, 1000, 64 << 20])
def test_a_length_that_promises_more_than_comes_is_waited_for_and_then_forgotten(claimed: int):
    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            assert await answers_of(place, struct.pack(">I", claimed) + b'{"cmd"') == []
            await unharmed(place, other)

    run(main)


def test_a_length_that_promises_less_makes_garbage_of_the_rest():
    async def main() -> None:
        async with serving(ServerLimits(frame_bytes_max=1 << 20)) as place:
            other = await witness(place)
            body = msgspec.msgpack.encode({"cmd": "DRAIN", "queue": "q"})
            assert refused(await answers_of(place, LENGTH.pack(len(body) - 3) + body))
            await unharmed(place, other)

    run(main)


def test_an_endless_line_is_refused_when_it_is_too_long():
    async def main() -> None:
        async with serving(ServerLimits(frame_bytes_max=100_000)) as place:
            other = await witness(place)
            (answer,) = await answers_of(place, b'{"cmd":"PING","x":"' + b"y" * 300_000)
            assert answer["code"] == "limit_exceeded"
            await unharmed(place, other)

    run(main)


# --- what decoders trip over -----------------------------------------------------------------------------------

DEEP = 100_000
PLACES = ["data", "result", "value", "jobs", "options", "body", "reqId", "tenant", "queue", "id", "unknown", "cmd"]


@pytest.mark.parametrize("place_of_it", PLACES)
@pytest.mark.parametrize("cmd", ["PUSH", "PUSHB", "KVSET", "push", "push_batch", "hello", "subscribe", "NOSUCH"])
def test_deep_nesting_is_refused_wherever_it_stands(cmd: str, place_of_it: str):
    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            name, field = cmd.encode(), place_of_it.encode()
            head = b'{"cmd":"%s","queue":"q","key":"k","%s":' % (name, field)
            texts = [head + b"[" * DEEP + b"]" * DEEP + b"}", head + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"]
            for text in texts:
                assert refused(await answers_of(place, text + b"\n"))
            known = msgspec.msgpack.encode
            packed = b"\x84" + known("cmd") + known(cmd) + b"\xa5queue\xa1q\xa3key\xa1k" + known(place_of_it)
            for opening in (b"\x91", b"\x81\xa1a"):
                assert refused(await answers_of(place, frame(packed + opening * DEEP + b"\xc0")))
            await unharmed(place, other)

    run(main)


def nested(depth: int) -> bytes:
    return b'{"cmd":"PUSH","queue":"q","data":' + b"[" * depth + b"]" * depth + b"}\n"


def test_nesting_that_people_use_is_taken():
    async def main() -> None:
        async with serving() as place:
            (answer,) = await answers_of(place, nested(60))
            assert answer["ok"]

    run(main)


ODD_REQUESTS = [
    b'{"cmd":"PUSH","queue":"q","data":NaN}',
    b'{"cmd":"PUSH","queue":"q","data":Infinity}',
    b'{"cmd":"PUSH","queue":"q","data":1,"delay":1e999}',
    b'{"cmd":"PUSH","queue":"q","data":1,"delay":-1}',
    b'{"cmd":"PUSH","queue":"q","data":1,"priority":' + b"9" * 100 + b"}",
    b'{"cmd":"PUSH","queue":"q","data":1,"priority":' + b"9" * 10_000 + b"}",
    b'{"cmd":"PUSH","queue":"q\\u0000","data":1}',
    b'{"cmd":"PUSH","queue":"\\ud800","data":1}',
    b'{"cmd":"PUSH","queue":"q\xff","data":1}',
    b'{"cmd":"PUSH","queue":"q","data":"\xed\xa0\x80"}',
    b'{"cmd":"PUSH","queue":"q","data":"\xff"}',
    b'{"cmd":"KVSET","key":"","value":1}',
    b'{"cmd":"GETRESULT","id":' + b"9" * 300 + b"}",
    b'{"cmd":"ACK","id":18446744073709551615}',
    b'{"cmd":"ACK","id":-1}',
    b'{"cmd":"ACK","id":1.5}',
    b'{"cmd":"push","body":{"queue":"q","payload":"not base64!"}}',
    b'{"cmd":"push","body":{"queue":"q","payload":"","options":{"delay_ms":NaN}}}',
    b'{"cmd":"push","body":[]}',
    b'{"cmd":"push","body":null}',
    b'{"cmd":"push"}',
    b'{"cmd":"ack","body":{"ids":[-1,0,99999999999999999999999,1]}}',
    b'{"cmd":"get_job","body":{"id":' + b"9" * 400 + b"}}",
    b'{"cmd":"drain","body":{"queue":"q","delayed":"yes"}}',
    b'{"cmd":"drain","queue":"q"}',
    b'{"cmd":"' + b"X" * 1_000_000 + b'"}',
    b'{"cmd":"\\u0000"}',
    b'{"cmd":5}',
    b'{"cmd":null}',
    b"{}",
    b'{"reqId":1}',
    b'{"cmd":"DRAIN","queue":"q","reqId":{}}',
    b'{"cmd":"DRAIN","queue":"q","reqId":[1]}',
    b'{"cmd":"DRAIN","queue":"q","reqId":1.5}',
    b'{"cmd":"DRAIN","queue":"q","reqId":true}',
    b'{"cmd":"DRAIN","queue":"q","reqId":"' + b"r" * 257 + b'"}',
    b'{"cmd":"DRAIN","queue":"q","tenant":5}',
    b'{"cmd":"DRAIN","queue":"q","tenant":"' + b"t" * 300 + b'"}',
    b'{"cmd":"give_up","body":{}}',
    b'{"cmd":"subscribe","body":{"after":{"x":1}}}',
    b'{"cmd":"subscribe","body":{"kinds":"all"}}',
    b'{"cmd":"CRON","name":"x","queue":"q"}',
    b'{"cmd":"PING"',
    b'{"cmd":"PING"}}',
    b'{"cmd":"PING"} {"cmd":"DRAIN","queue":"q"}',
    b"{'cmd':'PING'}",
    b"\xef\xbb\xbf{}",
]


@pytest.mark.parametrize("number", range(len(ODD_REQUESTS)))
def test_a_request_that_is_odd_is_refused_with_a_code(number: int):
    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            request = ODD_REQUESTS[number]
            answers = await answers_of(place, request + b"\n") if request[:1] == b"{" else []
            answers += await answers_of(place, frame(request))
            assert answers, "it must be told"
            assert refused(answers)
            assert all(len(answer["error"]) < 1_000 for answer in answers)
            await unharmed(place, other)

    run(main)


@pytest.mark.parametrize("request_id", [0, -1, 2**63, 10**30, "", "x" * 256, "é\u0000", "1", None])
def test_a_request_id_comes_back_as_it_was(request_id: Any):
    async def main() -> None:
        async with serving() as place:
            for cmd in ("PING", "get_stats", "NOSUCH"):
                (answer,) = await answers_of(place, msgspec.json.encode({"cmd": cmd, "reqId": request_id}) + b"\n")
                assert answer.get("reqId") == request_id

    run(main)


def test_of_a_key_that_is_there_twice_one_meaning_holds_for_all_who_look():
    """Who is asked for and what is done are read from the same occurrence."""

    async def main() -> None:
        async with serving() as place:
            other = await witness(place)
            text = b'{"cmd":"DRAIN","queue":"q","cmd":"PING"}\n'
            (answer,) = await answers_of(place, text)
            assert answer.get("pong") is True
            (answer,) = await answers_of(place, b'{"cmd":"DRAIN","queue":"q","tenant":"default","tenant":"t"}\n')
            assert answer["ok"]
            packed = b"\x83\xa3cmd\xa5DRAIN\xa5queue\xa1q\xa3cmd\xa4PING"
            (answer,) = await answers_of(place, frame(packed))
            assert answer.get("pong") is True
            await unharmed(place, other)

    run(main)


def test_fields_that_no_command_has_change_nothing():
    """flashQ's dialect passes over them, because old clients send some; our own refuses what a body should not have."""

    async def main() -> None:
        async with serving() as place:
            for cmd in ("PUSH", "push"):
                fields = {"cmd": cmd, "queue": "q", "data": 1, "body": {"queue": "q", "payload": "", "x": 1}, "x": {}}
                fields |= {"__class__": "x", "__proto__": {}, "self": 1, "": 0}
                (answer,) = await answers_of(place, msgspec.json.encode(fields) + b"\n")
                assert answer["ok"] is (cmd == "PUSH")
            assert place.broker.execute("default", c.GetStats()).counts.waiting == 1

    run(main)


@pytest.mark.parametrize("wrong", [None, [], {}, "x" * 100, -1, 2**63, True, 1.5, [[]], {"": []}])
def test_every_field_of_every_command_with_something_else_in_it_is_answered(wrong: Any):
    """Generated from the tables: no command has a field that breaks the server."""

    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            for name, row in flashq.ROWS.items():
                for field in row.request.__struct_fields__:
                    if field in ("cmd", "reqId") or name == "SUBSCRIBE":
                        continue
                    said = {"cmd": name, "queue": "q", "id": 64, "timeout": 0, "name": "n", "data": 1, field: wrong}
                    answer = await peer.ask_frame(**said)
                    assert answer["ok"] or answer["code"] not in ("unknown", "error"), (name, field)
            for name, kind in COMMANDS.items():
                for field in kind.__struct_fields__:
                    said = {"queue": "q", "id": 64, "ids": [], "queues": ["q"], "wait_ms": 0, field: wrong}
                    answer = await peer.ask_frame(cmd=name, body=said)
                    assert answer["ok"] or answer["code"] not in ("unknown", "error"), (name, field)
            assert (await peer.ask_frame(cmd="PING"))["ok"]

    run(main)


def test_out_of_order_requests_are_refused_one_by_one():
    """Acks before pulls, publishing before staging, giving up what never was: each is told so."""

    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            for request, expected in (
                ({"cmd": "ACK", "id": 64}, "not_found"),
                ({"cmd": "unsubscribe"}, None),
                ({"cmd": "give_up", "body": {"reqId": 7}}, None),
                ({"cmd": "publish", "body": {"transaction": "t", "stages": ["s"]}}, "unknown_stage"),
                ({"cmd": "ack_claim", "body": {"claim": "c"}}, "not_found"),
                ({"cmd": "HELLO"}, None),
                ({"cmd": "HELLO"}, None),
            ):
                assert (await peer.ask(**request)).get("code") == expected, request

    run(main)
