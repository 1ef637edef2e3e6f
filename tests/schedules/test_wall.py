"""Schedules go by the clock on the wall, also when that is set while a server runs, or the machine has slept."""

import asyncio
import time

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.runtime.clock import AheadClock, SystemClock, wall_ms
from stoker.testing import FakeClock, World

MINUTE = 60_000
HOUR = 60 * MINUTE


def slots(client: Client) -> list[int]:
    return [job.options.slot for job in client.browse("q", ascending=True).jobs]


def test_a_clock_that_is_set_forward_brings_the_slots_that_it_has_passed():
    """As after any time without a server: the latest, and all others are told as missed."""
    with World() as world:
        made, runtime = world.now, world.broker.runtime
        world.client.put_schedule("q", "s", every_ms=HOUR)
        world.advance(MINUTE)
        runtime.follow_wall(world.now, made + 8 * HOUR + MINUTE)
        world.advance(0)
        assert slots(world.client) == [made + 8 * HOUR]
        view = world.client.get_schedule("q", "s")
        assert ([run.outcome for run in view.last_runs], view.next_runs[0]) == (["missed", "pushed"], made + 9 * HOUR)
        world.advance(59 * MINUTE)
        assert slots(world.client) == [made + 8 * HOUR, made + 9 * HOUR]


def test_a_clock_that_is_set_back_lets_slots_wait_and_repeats_none():
    with World() as world:
        made, runtime = world.now, world.broker.runtime
        world.client.put_schedule("q", "s", every_ms=HOUR)
        world.advance(HOUR)
        runtime.follow_wall(world.now, made)
        world.advance(HOUR)
        assert slots(world.client) == [made + HOUR], "the wall shows this time for the second time"
        world.advance(HOUR)
        assert slots(world.client) == [made + HOUR, made + 2 * HOUR]


def test_small_corrections_are_left_alone():
    with World() as world:
        runtime = world.broker.runtime
        world.client.put_schedule("q", "s", every_ms=HOUR)
        runtime.follow_wall(world.now, world.now + 900)
        assert [shard.ahead_ms for shard in runtime.shards] == [0]


def test_which_clocks_hang_on_a_wall():
    assert wall_ms(FakeClock()) is None
    assert wall_ms(AheadClock(FakeClock(), 5)) is None
    for clock in (SystemClock(), AheadClock(SystemClock(), 3_600_000)):
        shown = wall_ms(clock)
        assert shown is not None
        assert abs(shown - time.time_ns() // 1_000_000) < 10_000


class MovedClock(SystemClock):
    """Real time, and a wall that somebody has set an hour forward."""

    def wall_ms(self) -> int:
        return self.now_ms() + HOUR


def test_the_timekeeper_of_a_server_looks_at_the_wall():
    """Half an hour has to pass for the broker's own clock; for the wall's it has passed already."""

    async def serve() -> int:
        broker = LocalBroker(LocalSettings(), MovedClock())
        async with AsyncClient(broker) as client:
            made = broker.now()
            await client.put_schedule("q", "s", at=made + HOUR // 2)
            keeper = asyncio.create_task(broker.keep_time())
            (job,) = await client.pull("q", wait_ms=20_000)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            return job.options.slot - made

    assert asyncio.run(serve()) == HOUR // 2
