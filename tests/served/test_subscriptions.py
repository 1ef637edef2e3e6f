"""Subscriptions over TCP: wherever the connection is cut, the next one goes on right after the last event."""

import random
from typing import Any

import pytest

from stoker.brokers.local import LocalSettings
from stoker.model import commands as c
from stoker.server.reader import TURN_EVENTS
from stoker.server.tcp import StreamConnection
from tests.served.on_loop import Peer, Place, run, serving

SHARDS = 4


class Reader:
    """A client that remembers how far it has read, and is cut off again and again."""

    def __init__(self, place: Place, dialect: str) -> None:
        self._place, self._dialect = place, dialect
        self._after: dict[str, Any] | None = None
        self.seen: list[tuple[int, int, int]] = []

    async def connect(self) -> Peer:
        peer = await self._place.peer()
        more = {} if self._after is None else {"after": self._after}
        if self._dialect == "native":
            answer = (await peer.ask(cmd="subscribe", reqId=1, body=more))["body"]
        else:
            answer = await peer.ask(cmd="SUBSCRIBE", **more)
        self._after = answer["after"]
        return peer

    async def read(self, count: int) -> None:
        """Read so many events over a connection of its own."""
        peer = await self.connect()
        for _ in range(count):
            event = (await peer.line())["event"]
            self.seen.append((event["shard"], event["sequence"], event["index"]))
            assert self._after is not None
            self._after[str(event["shard"])] = [event["sequence"], event["index"]]
        peer.close()


@pytest.mark.parametrize("dialect", ["native", "flashq"])
def test_a_cut_in_the_middle_of_a_record_loses_and_repeats_nothing(dialect: str):
    async def main() -> None:
        chance = random.Random(15)
        async with serving(settings=LocalSettings(shards=SHARDS)) as place:
            reader = Reader(place, dialect)
            await reader.read(0)
            total = 0
            for number in range(8):
                total += len(place.broker.execute("default", c.PushBatch(f"q{number}", [b""] * 1_000)).ids)
                total += len(place.broker.execute("default", c.Pull([f"q{number}"], 100)).ids)
                count = chance.randrange(total - len(reader.seen))
                await reader.read(count)
            await reader.read(total - len(reader.seen))
            assert total == 8 * 1_100
            assert len(set(reader.seen)) == len(reader.seen) == total
            for shard in range(SHARDS):
                own = [place for place in reader.seen if place[0] == shard]
                assert own == sorted(own)

    run(main)


def test_shards_that_brought_no_event_yet_go_on_from_where_the_subscription_began():
    async def main() -> None:
        async with serving(settings=LocalSettings(shards=SHARDS)) as place:
            reader = Reader(place, "native")
            await reader.read(0)
            ids = {place.broker.execute("default", c.Push(f"q{number}", b"")).id for number in range(20)}
            await reader.read(len(ids))
            assert {shard for shard, _, _ in reader.seen} == set(range(SHARDS))

    run(main)


def test_a_sequence_number_alone_means_all_of_its_events():
    async def main() -> None:
        async with serving() as place:
            for _ in range(2):
                place.broker.execute("default", c.PushBatch("q", [b""] * 3))
            peer = await place.peer()
            assert (await peer.ask(cmd="subscribe", reqId=1, body={"after": {"0": 1}}))["body"]["after"] == {"0": 1}
            assert [(await peer.line())["event"]["sequence"] for _ in range(3)] == [2, 2, 2]

    run(main)


@pytest.mark.parametrize("position", [-1, 2**53, [0, 1], [1, -1], [1, 2**32], [2**53, 0], "1", [1], [1, 2, 3]])
def test_a_position_that_is_none_is_refused(position: Any):
    async def main() -> None:
        async with serving() as place:
            peer = await place.peer()
            for request in ({"cmd": "subscribe", "body": {"after": {"0": position}}}, {"cmd": "SUBSCRIBE"}):
                answer = await peer.ask(reqId=1, **{"after": {"0": position}} | request)
                assert (answer["ok"], answer["code"], answer["reqId"]) == (False, "invalid", 1)

    run(main)


def test_a_position_of_another_log_is_told_and_the_events_go_on_from_the_beginning():
    async def main() -> None:
        async with serving() as place:
            place.broker.execute("default", c.Push("q", b""))
            peer = await place.peer()
            assert (await peer.ask(cmd="subscribe", reqId=1, body={"after": {"0": [90, 3]}}))["ok"]
            assert (await peer.line())["missed"] == {"shard": 0, "after": 89, "lowest": 1}
            assert (await peer.line())["event"]["sequence"] == 1

    run(main)


def test_what_was_dropped_while_a_subscription_waited_for_something_else_is_not_missed():
    async def main() -> None:
        async with serving(settings=LocalSettings(events_bytes_max=2_000)) as place:
            peer = await place.peer()
            assert (await peer.ask(cmd="subscribe", reqId=1, body={"kinds": ["started"]}))["ok"]
            for _ in range(100):
                await peer.ask(cmd="PUSH", queue="q", data="x" * 100)
            place.broker.execute("default", c.Pull(["q"]))
            assert (await peer.line())["event"]["kind"] == "started"

    run(main)


def test_a_large_record_is_sent_in_parts(monkeypatch: pytest.MonkeyPatch):
    """Others have their turn between them."""
    parts: list[int] = []
    flush = StreamConnection._flush

    def counted(self: StreamConnection) -> None:
        parts.append(len(self._out))
        flush(self)

    async def main() -> None:
        async with serving() as place:
            place.broker.execute("default", c.PushBatch("q", [b""] * 10_000))
            peer = await place.peer()
            assert (await peer.ask(cmd="subscribe", reqId=1, body={"after": {"0": 0}}))["ok"]
            assert [(await peer.line())["event"]["index"] for _ in range(10_000)] == [*range(10_000)]

    monkeypatch.setattr(StreamConnection, "_flush", counted)
    run(main)
    assert max(parts) <= TURN_EVENTS + 1
