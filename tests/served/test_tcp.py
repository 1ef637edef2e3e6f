"""The promises of a connection: order, request numbers, limits, and that one bad client does not affect others."""

import asyncio
import struct

from stoker.brokers.local import LocalSettings
from stoker.model import commands as c
from stoker.server.auth.settings import AuthSettings
from stoker.server.config.tree import ServerLimits
from stoker.server.server import StreamListener
from stoker.server.tcp import StreamConnection
from tests.served.on_loop import Place, run, serving, until


def test_requests_without_a_number_are_answered_in_their_order():
    """A pull that waits holds back the answers behind it, not the work."""

    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.send(cmd="PULL", queue="q", timeout=10_000)
            peer.send(cmd="PUSH", queue="q", data="for the pull in front")
            peer.send(cmd="PING")
            assert (await peer.line())["job"]["data"] == "for the pull in front"
            assert (await peer.line())["id"] == 64
            assert (await peer.line())["pong"] is True

    run(main)


def test_a_waiting_pull_with_a_number_blocks_nobody():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.send(cmd="PULL", queue="q", timeout=10_000, reqId="waits")
            assert (await peer.ask(cmd="PING", reqId="quick"))["reqId"] == "quick"
            other = await place.peer()
            await other.ask(cmd="PUSH", queue="q", data=1)
            answer = await peer.line()
            assert (answer["reqId"], answer["job"]["data"]) == ("waits", 1)

    run(main)


def test_pipelined_requests_share_one_commit():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            turns_before = place.broker.runtime.journal.last(0)
            for number in range(100):
                peer.send(cmd="PUSH", queue="q", data=number, reqId=str(number))
            answers = [await peer.line() for _ in range(100)]
            assert [answer["reqId"] for answer in answers] == [str(number) for number in range(100)]
            assert place.broker.runtime.journal.last(0) > turns_before
            assert place.server.dispatcher.meter is not None

    run(main)


def test_all_three_framings_reach_the_same_queue():
    async def main() -> None:
        async with serving() as place:
            lines, frames, framed_json = await place.peer(), await place.peer(), await place.peer()
            assert (await lines.ask(cmd="PUSH", queue="q", data={"n": 1}))["ok"]
            assert (await frames.ask_frame(cmd="PUSH", queue="q", data={"n": 2}))["ok"]
            body = b'{"cmd":"PUSH","queue":"q","data":{"n":3}}'
            framed_json.writer.write(struct.pack(">I", len(body)) + body)
            length = struct.unpack(">I", await framed_json.reader.readexactly(4))[0]
            assert (await framed_json.reader.readexactly(length)).startswith(b'{"ok":true')
            jobs = (await lines.ask(cmd="PULLB", queue="q", count=3))["jobs"]
            assert [job["data"] for job in jobs] == [{"n": 1}, {"n": 2}, {"n": 3}]

    run(main)


def test_too_many_requests_in_flight_are_refused_and_the_connection_goes_on():
    async def main() -> None:
        async with serving(ServerLimits(requests_in_flight_max=2)) as place:
            peer = await place.peer()
            for number in range(3):
                peer.send(cmd="PULL", queue="q", timeout=10_000, reqId=str(number))
            answer = await peer.line()
            assert (answer["reqId"], answer["code"]) == ("2", "busy")
            other = await place.peer()
            await other.ask(cmd="PUSHB", queue="q", jobs=[{"data": 1}, {"data": 2}])
            assert {(await peer.line())["reqId"], (await peer.line())["reqId"]} == {"0", "1"}
            assert (await peer.ask(cmd="PING"))["ok"]

    run(main)


def test_a_giant_length_is_refused_with_a_code_and_closes():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.writer.write(struct.pack(">I", 2**32 - 1) + b"x")
            answer = await peer.frame()
            assert (answer["ok"], answer["code"]) == (False, "limit_exceeded")
            assert await peer.is_cut_off()
            assert (await (await place.peer()).ask(cmd="PING"))["ok"]

    run(main)


def test_a_peer_that_sends_nothing_stays_and_one_that_trickles_is_cut_off():
    """Pools of clients connect ahead of need: their connections live as long as there is room."""

    async def main() -> None:
        async with serving(ServerLimits(handshake_s=0.1, frame_s=0.1)) as place:
            silent, trickling = await place.peer(), await place.peer()
            assert (await trickling.ask(cmd="PING"))["ok"]
            trickling.writer.write(b'{"cmd":')
            assert await trickling.is_cut_off()
            assert (await silent.ask(cmd="PING"))["ok"]

    run(main)


def test_when_there_is_no_room_the_oldest_silent_connection_makes_it():
    async def main() -> None:
        async with serving(ServerLimits(connections_max=4)) as place:
            known = await place.peer()
            assert (await known.ask(cmd="PING"))["ok"]
            silent = []
            for _ in range(3):
                silent.append(await place.peer())
                await until(lambda: len(connections(place)) == 1 + len(silent))
            newest = await place.peer()
            assert (await newest.ask(cmd="PING"))["ok"]
            assert await silent[0].is_cut_off()
            assert (await silent[1].ask(cmd="PING"))["ok"]
            assert (await (await place.peer()).ask(cmd="PING"))["ok"]
            assert await silent[2].is_cut_off()
            assert await (await place.peer()).is_cut_off()  # all are known by now: none makes room
            for peer in (known, newest, silent[1]):
                assert (await peer.ask(cmd="PING"))["ok"]

    run(main)


def test_with_tokens_connections_without_one_get_a_quarter():
    async def main() -> None:
        auth = AuthSettings(tokens=("secret",))
        async with serving(ServerLimits(connections_max=20), auth=auth) as place:
            known = [await place.peer() for _ in range(2)]
            for peer in known:
                assert (await peer.ask(cmd="AUTH", token="secret"))["ok"]
            refused = await place.peer()
            assert (await refused.ask(cmd="AUTH", token="wrong"))["code"] == "unauthenticated"
            silent = []
            for _ in range(8):
                silent.append(await place.peer())
                await until(lambda: len(connections(place)) == min(3 + len(silent), 7))
            for peer in silent[:4]:  # the one that has said something goes when all that are silent have gone
                assert await peer.is_cut_off()
            for peer in (*known, *silent[4:]):
                assert (await peer.ask(cmd="AUTH", token="secret"))["ok"]
            assert (await refused.ask(cmd="PING"))["code"] == "unauthenticated"

    run(main)


def test_a_peer_that_never_reads_is_cut_off_and_holds_up_nobody():
    async def main() -> None:
        limits = ServerLimits(output_buffer_bytes_max=1 << 20, output_stalled_s=0.2)
        async with serving(limits) as place:
            deaf, other = await place.peer(), await place.peer()
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
            await other.ask(cmd="PUSH", queue="q", data="x" * 500_000)
            for _ in range(200):
                deaf.send(cmd="GETJOB", id=64)
            assert (await other.ask(cmd="PING"))["ok"]
            await until(lambda: len(connections(place)) == 1)
            assert (await other.ask(cmd="PING"))["ok"]

    run(main)


def connections(place: Place) -> set[StreamConnection]:
    (listener,) = place.server._listeners
    assert isinstance(listener, StreamListener)
    return listener._door.connections


def test_connections_over_the_limit_are_turned_away():
    async def main() -> None:
        async with serving(ServerLimits(connections_per_address_max=2)) as place:
            first, second = await place.peer(), await place.peer()
            assert (await first.ask(cmd="PING"))["ok"]
            assert (await second.ask(cmd="PING"))["ok"]
            assert await (await place.peer()).is_cut_off()
            second.close()
            await until(lambda: len(connections(place)) == 1)
            assert (await (await place.peer()).ask(cmd="PING"))["ok"]

    run(main)


def test_a_delivery_that_was_never_sent_goes_back_and_no_attempt_is_counted():
    async def main() -> None:
        async with serving() as place:
            peer, other = await place.peer(), await place.peer()
            peer.send(cmd="PULL", queue="q", timeout=10_000)
            await until(lambda: place.server.dispatcher.is_waiting)
            peer.close()
            await until(lambda: not place.server.dispatcher.is_waiting)
            job = (await other.ask(cmd="PUSH", queue="q", data=1))["id"]
            pulled = (await other.ask(cmd="PULL", queue="q", timeout=0))["job"]
            assert (pulled["id"], pulled["attempts"]) == (job, 1)

    run(main)


def test_a_disconnect_ends_no_lease():
    async def main() -> None:
        async with serving() as place:
            peer, other = await place.peer(), await place.peer()
            job = (await peer.ask(cmd="PUSH", queue="q", data=1))["id"]
            token = (await peer.ask(cmd="PULL", queue="q"))["job"]["token"]
            peer.close()
            assert (await other.ask(cmd="GETSTATE", id=job))["state"] == "active"
            assert (await other.ask(cmd="ACK", id=job, token=token))["ok"]

    run(main)


def test_a_job_tells_of_children_in_other_shards_and_of_its_last_heartbeat():
    async def main() -> None:
        async with serving(settings=LocalSettings(shards=16)) as place:
            peer = await place.peer()
            children = [{"queue": f"q{number}", "data": number} for number in range(8)]
            flow = await peer.ask(cmd="FLOW", queue="parents", data=0, children=children)
            for number in range(3):
                child = (await peer.ask(cmd="PULL", queue=f"q{number}"))["job"]
                assert (await peer.ask(cmd="ACK", id=child["id"]))["ok"]
            parent = (await peer.ask(cmd="GETJOB", id=flow["parent_id"]))["job"]
            assert (parent["children_ids"], parent["children_completed"]) == (flow["children_ids"], 3)
            pulled = (await peer.ask(cmd="PULL", queue="q3"))["job"]
            before = (await peer.ask(cmd="GETJOB", id=pulled["id"]))["job"]["last_heartbeat"]
            assert before == pulled["started_at"]
            await asyncio.sleep(0.01)  # so that the clock shows another millisecond
            assert (await peer.ask(cmd="HEARTBEAT", id=pulled["id"], lease_ms=90_000))["ok"]
            assert before < (await peer.ask(cmd="GETJOB", id=pulled["id"]))["job"]["last_heartbeat"] < before + 60_000

    run(main)


def test_a_request_that_is_given_up_gets_no_job():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.send(cmd="pull", reqId=1, body={"queues": ["q"], "wait_ms": 10_000})
            assert (await peer.ask(cmd="give_up", reqId=2, body={"reqId": 1}))["body"] == {"count": 1}
            await peer.ask(cmd="push", reqId=3, body={"queue": "q", "payload": ""})
            assert place.broker.execute("default", c.GetStats()).counts.waiting == 1

    run(main)


def test_after_hello_a_delivery_must_be_proved():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            job = (await peer.ask(cmd="PUSH", queue="q", data=1))["id"]
            token = (await peer.ask(cmd="PULL", queue="q"))["job"]["token"]
            hello = await peer.ask(cmd="HELLO")
            assert hello["limits"]["batch_jobs_max"] == 10_000
            refused = await peer.ask(cmd="ACK", id=job)
            assert (refused["ok"], refused["code"]) == (False, "invalid")
            assert (await peer.ask(cmd="ACK", id=job, token=token))["ok"]

    run(main)


def test_a_subscription_delivers_and_ends():
    async def main() -> None:
        async with serving() as place:
            reader, writer = await place.peer(), await place.peer()
            assert (await reader.ask(cmd="SUBSCRIBE", queue="q", events=["completed"]))["ok"]
            job = (await writer.ask(cmd="PUSH", queue="q", data=1))["id"]
            await writer.ask(cmd="PULL", queue="q")
            await writer.ask(cmd="ACK", id=job)
            event = (await reader.line())["event"]
            assert (event["event_type"], event["queue"], event["job_id"]) == ("completed", "q", job)
            assert (await reader.ask(cmd="UNSUBSCRIBE", queue="q"))["count"] == 1
            await writer.ask(cmd="PUSH", queue="q", data=2)
            await writer.ask(cmd="PULL", queue="q")
            assert (await writer.ask(cmd="ACK", id=job + 64))["ok"]
            assert (await reader.ask(cmd="PING"))["pong"] is True

    run(main)


def test_a_subscription_is_told_what_it_has_missed():
    """The history in memory is short here: the first events are gone before anybody asks for them."""

    async def main() -> None:
        async with serving(settings=LocalSettings(events_bytes_max=1_000)) as place:
            peer = await place.peer()
            for _ in range(50):
                await peer.ask(cmd="PUSH", queue="q", data="x" * 100)
            peer.send(cmd="subscribe", reqId=1, body={"queue": "q", "after": {"0": 1}})
            answers = [await peer.line() for _ in range(3)]
            (missed,) = [answer["missed"] for answer in answers if "missed" in answer]
            first = next(answer["event"] for answer in answers if "event" in answer)
            assert missed["after"] == 1
            assert first["sequence"] == missed["lowest"] > 2

    run(main)


def test_a_subscription_goes_on_where_the_last_one_ended():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            for number in range(3):
                await peer.ask(cmd="PUSH", queue="q", data=number)
            peer.send(cmd="SUBSCRIBE", queue="q", events=["pushed"], after={"0": 1})
            answers = [await peer.line() for _ in range(3)]
            assert [a["event"]["sequence"] for a in answers if "event" in a] == [2, 3]

    run(main)


def test_who_has_said_all_is_still_answered():
    """`printf ... | nc` ends its side at once; an answer that takes several steps was lost on it."""

    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.send(cmd="PUSH", queue="q", data=1)
            peer.send(cmd="STATS")
            peer.send(cmd="QUEUE", queue="q")
            peer.writer.write_eof()
            assert (await peer.line())["id"] == 64
            assert (await peer.line())["queued"] == 1
            assert (await peer.line())["policy"]["name"] == "q"
            assert await peer.is_cut_off()

    run(main)


def test_who_has_said_all_and_waits_is_taken_for_gone():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            peer.send(cmd="PULL", queue="q", timeout=60_000)
            await until(lambda: place.server.dispatcher.is_waiting)
            peer.writer.write_eof()
            assert await peer.is_cut_off()
            other = await place.peer()
            await other.ask(cmd="PUSH", queue="q", data=1)
            assert (await other.ask(cmd="GETJOB", id=64))["state"] == "waiting"

    run(main)


def test_flashqs_clients_are_told_of_a_misspelt_field_and_our_own_refused():
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            told = await peer.ask(cmd="PUSH", queue="q", data=1, prioriti=5)
            assert told["ok"]
            assert told["warnings"] == ["ignored unknown field 'prioriti'; did you mean 'priority'?"]
            refused = await peer.ask(cmd="push", body={"queue": "q", "payload": "", "options": {"prioriti": 5}})
            assert (refused["ok"], refused["code"]) == (False, "invalid")
            assert "did you mean 'priority'?" in refused["error"]

    run(main)
