"""The broker behind a server: how much it sends at once, which leases it knows, and leases between servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoker.brokers.redis.leases import GivenLeases
from stoker.brokers.redis.served import ServedRedis, open_served
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.options import DEFAULT_OPTIONS, Settings
from tests.redis.servers import RedisServer, shared
from tests.redis_served.nodes import SOON_S

NOW = 1_000


@asynccontextmanager
async def opened(server: RedisServer) -> AsyncIterator[ServedRedis]:
    broker, _ = await open_served(server.url, Settings(), DEFAULT_LIMITS)
    try:
        yield broker
    finally:
        broker.close()
        with server.client() as client:
            client.flushall()


def test_no_more_than_so_many_calls_are_in_flight():
    """The rest waits in the server, and all are answered."""

    async def run() -> None:
        async with opened(shared("redis")) as broker, asyncio.timeout(SOON_S):
            await broker.execute_async("t", c.GetStats())
            link = await broker.stream(broker._seed).take()
            link.call(("DEBUG", "SLEEP", 1))
            calls = [
                asyncio.ensure_future(broker.execute_async("t", c.GetStats()))
                for _ in range(broker.settings.calls_max + 500)
            ]
            most = 0
            while not all(call.done() for call in calls):
                most = max(most, len(link._waiting))
                await asyncio.sleep(0)
            bound = broker.settings.calls_max
            assert bound <= most <= bound + 2  # the sleep, and the look at the time
            assert all(isinstance(call.result(), r.Stats) for call in calls)

    asyncio.run(run())


def test_one_server_at_a_time_holds_a_lease():
    async def run() -> None:
        server = shared("redis")
        async with opened(server) as one, opened(server) as two:
            assert await one.remote.hold("work", "a", 60_000)
            assert not await two.remote.hold("work", "b", 60_000)
            assert await one.remote.hold("work", "a", 60_000)
            assert await two.remote.hold("other", "b", 60_000)
            await two.remote.let_go("work", "b")
            assert not await two.remote.hold("work", "b", 60_000)
            await one.remote.let_go("work", "a")
            assert await two.remote.hold("work", "b", 1)
            async with asyncio.timeout(SOON_S):
                while not await one.remote.hold("work", "a", 60_000):  # noqa: ASYNC110  Redis ends it by its clock
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def delivered(token: int, until: int, *jobs: int) -> r.Delivery:
    run = r.Run("q", list(jobs), [b""] * len(jobs), DEFAULT_OPTIONS, 1, 0, until)
    return r.Delivery(token, [run])


PULL = c.Pull(("q",))


def test_a_lease_is_known_until_it_is_settled_or_over():
    leases = GivenLeases()
    leases.heard("t", PULL, delivered(7, NOW + 10, 1, 2, 3, 4), NOW)
    leases.heard("u", PULL, delivered(8, NOW + 10, 1), NOW)
    leases.heard("t", c.Ack([1], 7), r.Settled(1), NOW)
    leases.heard("t", c.Fail([2], 6), r.Failed([]), NOW)  # of an older delivery
    leases.heard("t", c.MoveToDelayed(3, 10, token=7), r.Done(), NOW)
    assert leases.running(NOW) == 3
    leases.heard("t", c.Extend([2, 4], 7), r.Extended(1, NOW + 50, {4: "lost_lease"}), NOW)
    assert dict(leases.releases(NOW)) == {"t": c.Release([2], [7]), "u": c.Release([1], [8])}
    assert leases.running(NOW + 20) == 1
    assert leases.running(NOW + 60) == 0


def test_leases_that_ended_elsewhere_do_not_pile_up():
    leases = GivenLeases()
    for number in range(10_000):
        leases.heard("t", PULL, delivered(number, number + 5, number), number)
    assert len(leases._leases) < 2_048
