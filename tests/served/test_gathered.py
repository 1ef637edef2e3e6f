"""Single pushes of one turn are carried out together, without a visible difference."""

from tests.served.on_loop import run, serving


def test_pushes_of_one_turn_are_one_record():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            await peer.ask(cmd="PUSH", queue="q", data="the first makes the queue")
            before = place.broker.runtime.journal.last(0)
            peer.writer.write(
                b"".join(b'{"cmd":"PUSH","queue":"q","data":%d,"reqId":%d}\n' % (n, n) for n in range(50))
            )
            answers = [await peer.line() for _ in range(50)]
            assert [answer["reqId"] for answer in answers] == list(range(50))
            assert [answer["id"] for answer in answers] == list(range(128, 128 + 64 * 50, 64))
            assert place.broker.runtime.journal.last(0) - before < 50

    run(main)


def test_what_comes_between_pushes_happens_between_them():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            lines = [
                b'{"cmd":"PUSH","queue":"a","data":1}',
                b'{"cmd":"PUSH","queue":"a","data":2}',
                b'{"cmd":"DRAIN","queue":"a"}',
                b'{"cmd":"PUSH","queue":"b","data":3}',
                b'{"cmd":"PUSH","queue":"a","data":4}',
                b'{"cmd":"COUNT","queue":"a"}',
            ]
            peer.writer.write(b"\n".join(lines) + b"\n")
            answers = [await peer.line() for _ in lines]
            assert [answer["id"] for answer in answers if "id" in answer] == [64, 128, 192, 256]
            assert answers[2]["count"] == 2
            assert answers[5]["count"] == 1

    run(main)


def test_a_push_that_is_refused_hurts_none_of_its_neighbours():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            most = place.broker.runtime.limits.payload_bytes_max
            for number, size in enumerate((10, most + 1, 10)):
                peer.send_frame(cmd="push", body={"queue": "q", "payload": b"x" * size}, reqId=number)
            answers = [await peer.frame() for _ in range(3)]
            assert [answer["ok"] for answer in answers] == [True, False, True]
            assert answers[1]["code"] == "limit_exceeded"
            assert [answers[0]["body"]["id"], answers[2]["body"]["id"]] == [64, 128]

    run(main)


def test_pushes_with_keys_and_numbers_of_their_sender_stay_alone():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            keyed = {"queue": "q", "payload": b"x", "options": {"unique_key": "k"}}
            for number in range(3):
                peer.send_frame(cmd="push", body=keyed, reqId=number)
            answers = [(await peer.frame())["body"] for _ in range(3)]
            assert [answer["created"] for answer in answers] == [True, False, False]
            assert len({answer["id"] for answer in answers}) == 1

    run(main)
