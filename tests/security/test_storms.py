"""Greedy clients: storms of connections, slow requests, subscriptions that are never read."""

import asyncio
import socket
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.brokers.local import LocalSettings
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.server.config.tree import ServerLimits
from tests.served.on_loop import Peer, Place, run, serving, until
from tests.served.test_tcp import connections

MEGABYTE = 1 << 20
MOMENT_S = 3.0
"""Whoever is not cut off has asked by then, also on a busy machine."""


def deaf(peer: Peer) -> Peer:
    """Reads nothing from now on."""
    peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
    return peer


def again(peer: Peer) -> Peer:
    peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
    return peer


async def storm(place: Place, count: int) -> int:
    """How many of so many connections at once are served."""

    async def served() -> bool:
        try:
            peer = await place.peer()
            return bool((await peer.ask(cmd="PING"))["ok"])
        except (OSError, EOFError, ValueError):
            return False

    return sum(await asyncio.gather(*(served() for _ in range(count))))


def test_a_storm_of_connections_gets_as_many_as_there_may_be_and_those_that_are_there_go_on():
    async def main() -> None:
        async with serving(ServerLimits(connections_max=20)) as place:
            first = await place.peer()
            assert (await first.ask(cmd="PING"))["ok"]
            assert await storm(place, 200) == 19
            assert (await first.ask(cmd="PUSH", queue="q", data=1))["ok"]
            for peer in place.peers[1:]:
                peer.close()
            await until(lambda: len(connections(place)) == 1)
            assert (await (await place.peer()).ask(cmd="PING"))["ok"]

    run(main)


def test_too_many_connections_in_a_second_from_one_address_are_turned_away(monkeypatch: pytest.MonkeyPatch):
    """All within one second, however long they take; the next one has its own share."""
    seconds = [7.0]
    monkeypatch.setattr("stoker.server.connections.time", SimpleNamespace(monotonic=lambda: seconds[0]))

    async def main() -> None:
        async with serving(ServerLimits(connections_per_second_max=30)) as place:
            assert await storm(place, 300) == 30
            seconds[0] += 1
            assert await storm(place, 1) == 1

    run(main)


def test_a_usual_number_of_connections_at_once_is_served():
    """The control."""

    async def main() -> None:
        async with serving() as place:
            assert await storm(place, 200) == 200

    run(main)


def test_a_peer_that_asks_nothing_is_cut_off_where_that_is_wanted_unless_it_waits_for_something():
    async def main() -> None:
        async with serving(ServerLimits(idle_s=MOMENT_S)) as place:
            idle, pulling, listening = [await place.peer() for _ in range(3)]
            assert (await idle.ask(cmd="PING"))["ok"]
            pulling.send(cmd="PULL", queue="q", timeout=60_000)
            assert (await listening.ask(cmd="SUBSCRIBE", queue="q"))["ok"]
            assert await idle.is_cut_off()
            assert len(connections(place)) == 2
            place.broker.execute("default", c.Push("q", b"1", Options(codec="json")))
            assert (await pulling.line())["job"]["data"] == 1
            assert (await listening.line())["event"]["queue"] == "q"

    run(main)


def test_the_kernel_asks_silent_peers_whether_they_are_there():
    async def main() -> None:
        for seconds, expected in ((60.0, 1), (0.0, 0)):
            async with serving(ServerLimits(keepalive_s=seconds)) as place:
                assert (await (await place.peer()).ask(cmd="PING"))["ok"]
                (connection,) = connections(place)
                peer = connection.transport.get_extra_info("socket")
                assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == expected

    run(main)


def test_many_slow_requests_at_once_hold_up_nobody_and_are_cut_off():
    """Slow-loris: fifty peers that each owe the rest of a frame, in every framing."""

    async def main() -> None:
        async with serving(ServerLimits(frame_s=MOMENT_S)) as place:
            quick = await place.peer()
            assert (await quick.ask(cmd="PING"))["ok"]
            beginnings = [b'{"cmd":"PU', b"\0\0\x10\0\x82\xa3cmd", b"\0\0\x10\0{", b"\0"]
            slow = [await place.peer() for _ in range(48)]
            for number, peer in enumerate(slow):
                peer.writer.write(beginnings[number % len(beginnings)])
            assert (await quick.ask(cmd="PUSH", queue="q", data=1))["ok"]
            await until(lambda: len(connections(place)) == 1)
            assert (await quick.ask(cmd="PULL", queue="q"))["job"]["data"] == 1

    run(main)


def test_a_request_that_trickles_costs_what_has_come_and_not_what_is_promised():
    async def main() -> None:
        async with serving() as place:
            tracemalloc.start()
            try:
                for _ in range(50):
                    peer = await place.peer()
                    peer.writer.write((64 * MEGABYTE).to_bytes(4, "big") + b"x" * 10_000)
                await until(lambda: sum(one._frames.is_partial for one in connections(place)) == 50)
                assert tracemalloc.get_traced_memory()[1] < 50 * MEGABYTE
            finally:
                tracemalloc.stop()

    run(main)


def test_more_subscriptions_than_allowed_are_refused_and_those_that_are_there_go_on():
    async def main() -> None:
        async with serving(ServerLimits(subscriptions_max=3)) as place:
            peer = await place.peer()
            for number in range(3):
                assert (await peer.ask(cmd="subscribe", reqId=number, body={"queue": "q"}))["ok"]
            for cmd in ("subscribe", "SUBSCRIBE"):
                assert (await peer.ask(cmd=cmd, reqId=9))["code"] == "limit_exceeded"
            place.broker.execute("default", c.Push("q", b""))
            told = [await peer.line() for _ in range(3)]
            assert sorted(event["subscription"] for event in told) == [0, 1, 2]
            assert (await peer.ask(cmd="unsubscribe", reqId=9, body={"queue": "q"}))["body"]["count"] == 3
            assert (await peer.ask(cmd="subscribe", reqId=9))["ok"]

    run(main)


def test_a_subscription_that_ended_by_itself_takes_no_place():
    async def main() -> None:
        async with serving(ServerLimits(subscriptions_max=1)) as place:
            peer = await place.peer()
            for number in range(5):
                assert (await peer.ask(cmd="subscribe", reqId=number, body={"queue": "no queue"}))["ok"]
                assert (await peer.line())["code"] == "invalid"

    run(main)


BIG = "x" * 1_000


async def fill(place: Place, count: int) -> None:
    """Events in all shards, which every subscription wants."""
    for number in range(count):
        place.broker.execute("default", c.PushBatch(f"q{number % 40}", [b""] * 200, Options(tags=(BIG[:250],) * 8)))


def test_a_peer_that_does_not_read_its_events_costs_little_memory():
    """Sixteen shards, five subscriptions from the beginning: pages wait in the log until there is room."""

    async def main() -> None:
        limits = ServerLimits(output_stalled_s=3600.0)
        async with serving(limits, LocalSettings(shards=16)) as place:
            other, peer = await place.peer(), await place.peer()
            for one in (other, peer):  # whoever says nothing is cut off, on a busy machine before it can
                assert (await one.ask(cmd="PING"))["ok"]
            deaf(peer)
            await fill(place, 80)
            tracemalloc.start()
            try:
                for number in range(5):
                    peer.send(cmd="subscribe", reqId=number, body={"after": {str(shard): 0 for shard in range(16)}})
                await until(lambda: any(one._paused_since is not None for one in connections(place)))
                for _ in range(50):
                    assert (await other.ask(cmd="PING"))["ok"]
                assert tracemalloc.get_traced_memory()[1] < 48 * MEGABYTE, "of the two hundred that it asked for"
            finally:
                tracemalloc.stop()
            assert len(connections(place)) == 2

    run(main)


def test_a_peer_that_reads_late_gets_every_event_once_and_in_order():
    async def main() -> None:
        async with serving(ServerLimits(output_stalled_s=3600.0), LocalSettings(shards=16)) as place:
            peer = await place.peer()
            assert (await peer.ask(cmd="PING"))["ok"]
            deaf(peer)
            await fill(place, 60)
            peer.send(cmd="subscribe", reqId=1, body={"after": {str(shard): 0 for shard in range(16)}})
            await until(lambda: any(one._paused_since is not None for one in connections(place)))
            again(peer)
            seen: dict[int, list[tuple[int, int]]] = {}
            count = 0
            while count < 60 * 200:
                told: Any = await peer.line()
                if "event" in told:
                    event = told["event"]
                    seen.setdefault(event["shard"], []).append((event["sequence"], event["index"]))
                    count += 1
            for positions in seen.values():
                assert positions == sorted(set(positions))
            place.broker.execute("default", c.Push("last", b""))
            assert (await peer.line())["event"]["queue"] == "last"

    run(main)


def test_a_peer_that_never_reads_its_events_is_cut_off():
    async def main() -> None:
        async with serving(ServerLimits(output_stalled_s=0.2), LocalSettings(shards=16)) as place:
            peer, other = deaf(await place.peer()), await place.peer()
            assert (await other.ask(cmd="PING"))["ok"]
            await fill(place, 100)
            peer.send(cmd="subscribe", reqId=1, body={"after": {str(shard): 0 for shard in range(16)}})
            await until(lambda: len(connections(place)) == 1)
            assert (await other.ask(cmd="PING"))["ok"]

    run(main)


def test_giving_up_while_the_reply_is_on_its_way_counts_once_and_loses_no_job():
    async def main() -> None:
        async with serving(ServerLimits(requests_in_flight_max=9)) as place:
            peer = await place.peer()
            for number in range(20):
                peer.send(cmd="pull", reqId=number, body={"queues": ["q"], "wait_ms": 60_000})
                peer.send(cmd="push", body={"queue": "q", "payload": ""})
                peer.send(cmd="give_up", body={"reqId": number})
                while "count" not in (await peer.line()).get("body", {}):
                    pass
            (connection,) = connections(place)
            assert connection.session is not None
            await until(lambda: connection.session.in_flight == 0)  # type: ignore[union-attr]
            counts = place.broker.execute("default", c.GetStats()).counts
            assert counts.waiting + counts.active == 20

    run(main)
