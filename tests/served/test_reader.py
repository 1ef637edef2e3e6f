"""The reader of events behind every transport: bounded, fair, and at any moment at an exact position."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.events import Event
from stoker.model.ids import shard_for
from stoker.model.options import Options
from stoker.server.dispatcher import Dispatcher
from stoker.server.reader import HELD_BYTES_MAX, EventReader, Filter, MissedEvents
from tests.served.on_loop import PATIENCE_S, run

SHARDS = 4
TENANT = "default"


@asynccontextmanager
async def opened(events_bytes_max: int = 1 << 26) -> AsyncIterator[Dispatcher]:
    broker = LocalBroker(LocalSettings(shards=SHARDS, events_bytes_max=events_bytes_max))
    dispatcher = Dispatcher(broker)
    try:
        yield dispatcher
    finally:
        await dispatcher.close()
        broker.close()


class Consumer:
    """Takes events when it is woken."""

    def __init__(self, dispatcher: Dispatcher, wanted: Filter | None = None, from_beginning: bool = True) -> None:
        self.news = asyncio.Event()
        self.reader = EventReader(
            dispatcher,
            TENANT,
            wanted or Filter(),
            self.news.set,
            start={},
            ends=dispatcher.own_ends(TENANT),
            from_beginning=from_beginning,
        )
        assert self.reader.is_placed

    async def next(self) -> Event | MissedEvents:
        async with asyncio.timeout(PATIENCE_S):
            while (item := self.reader.next()) is None:
                await self.news.wait()
                self.news.clear()
        return item

    async def take(self, count: int) -> list[Event | MissedEvents]:
        return [await self.next() for _ in range(count)]


def push(dispatcher: Dispatcher, queue: str, count: int = 1, **options: object) -> None:
    dispatcher.look(TENANT, c.PushBatch(queue, [b""] * count, Options(**options)))  # type: ignore[arg-type]


def queues() -> list[str]:
    """One in each shard."""
    found = {shard_for(TENANT, name, SHARDS): name for name in map(str, range(100))}
    return [found[shard] for shard in range(SHARDS)]


def test_every_event_comes_once_and_in_order_also_if_the_reader_lets_go_of_what_it_holds():
    async def main() -> None:
        chance = random.Random(1)
        async with opened() as dispatcher:
            for number in range(40):
                push(dispatcher, queues()[number % SHARDS], chance.choice([1, 10, 1_000]))
            total = (await dispatcher.call(TENANT, c.GetStats())).counts.waiting
            consumer = Consumer(dispatcher)
            seen: list[tuple[int, int, int]] = []
            while len(seen) < total:
                if chance.random() < 0.01:
                    consumer.reader.let_go()
                event = await consumer.next()
                assert isinstance(event, Event)
                seen.append((event.shard, event.sequence, event.index))
            assert len(set(seen)) == total
            for shard in range(SHARDS):
                own = [place for place in seen if place[0] == shard]
                assert own == sorted(own)
            consumer.reader.close()

    run(main)


def test_a_reader_that_takes_nothing_holds_little_and_starves_no_shard():
    """Large pages of all shards arrive at once: those that do not fit are dropped, and read in their turn."""

    async def main() -> None:
        async with opened() as dispatcher:
            for _ in range(10):
                for queue in queues():
                    push(dispatcher, queue, 100, tags=("x" * 250,) * 30)
            consumer = Consumer(dispatcher)
            first = await consumer.next()
            assert isinstance(first, Event)
            for _ in range(20):
                await asyncio.sleep(0)
            assert consumer.reader._held_bytes < 4 * HELD_BYTES_MAX
            shards = [event.shard for event in await consumer.take(10 * SHARDS * 100 - 1) if isinstance(event, Event)]
            assert set(shards[: len(shards) // 2]) == set(range(SHARDS))
            consumer.reader.close()

    run(main)


def test_readers_that_wait_for_the_same_share_one_question():
    async def main() -> None:
        async with opened() as dispatcher:
            consumers = [Consumer(dispatcher, Filter(queues()[0]), from_beginning=False) for _ in range(20)]
            assert [consumer.reader.next() for consumer in consumers] == [None] * 20
            assert dispatcher.meter.commands[c.ReadEvents] == 1
            consumers[0].reader.close()
            await dispatcher.call(TENANT, c.Push(queues()[0], b""))
            for consumer in consumers[1:]:
                assert isinstance(await consumer.next(), Event)
                consumer.reader.close()
            assert consumers[0].reader.positions[0] == (0, 2**31)

    run(main)


def test_a_question_that_no_reader_waits_for_any_more_is_given_up():
    async def main() -> None:
        async with opened() as dispatcher:
            consumers = [Consumer(dispatcher, from_beginning=False) for _ in range(2)]
            for consumer in consumers:
                assert consumer.reader.next() is None
            assert dispatcher.is_waiting
            for consumer in consumers:
                assert dispatcher.is_waiting
                consumer.reader.close()
            assert not dispatcher.is_waiting

    run(main)


def test_a_rare_event_in_a_long_log_is_looked_for_page_by_page():
    """Others have their turn while it is looked for."""

    async def main() -> None:
        async with opened() as dispatcher:
            queue = queues()[0]
            for _ in range(3_000):
                push(dispatcher, queue)
            await dispatcher.call(TENANT, c.Pull([queue]))
            before = dispatcher.meter.commands[c.ReadEvents]
            consumer = Consumer(dispatcher, Filter(kinds=("started",)))
            event = await consumer.next()
            assert isinstance(event, Event)
            assert event.kind == "started"
            assert dispatcher.meter.commands[c.ReadEvents] - before >= 3_000 // 256
            consumer.reader.close()

    run(main)


def test_what_the_log_dropped_is_told_once_and_the_rest_comes():
    async def main() -> None:
        async with opened(events_bytes_max=2_000) as dispatcher:
            queue = queues()[1]
            consumer = Consumer(dispatcher, Filter(queue), from_beginning=False)
            for _ in range(200):
                await dispatcher.call(TENANT, c.Push(queue, b"x" * 100))
            missed = await consumer.next()
            assert isinstance(missed, MissedEvents)
            assert missed.after == 0
            rest = await consumer.take(201 - missed.lowest)
            assert [event.sequence for event in rest if isinstance(event, Event)] == [*range(missed.lowest, 201)]
            consumer.reader.close()

    run(main)


@pytest.mark.parametrize("takes", [0, 1])
def test_a_closed_reader_is_not_woken(takes: int):
    async def main() -> None:
        async with opened() as dispatcher:
            consumer = Consumer(dispatcher, from_beginning=False)
            assert consumer.reader.next() is None
            for _ in range(takes):
                await dispatcher.call(TENANT, c.Push("q", b""))
                await consumer.next()
            consumer.news.clear()
            consumer.reader.close()
            await dispatcher.call(TENANT, c.Push("q", b""))
            assert not consumer.news.is_set()

    run(main)
