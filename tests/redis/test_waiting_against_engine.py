"""Waiting pulls in Redis and in the engine: the same pulls are answered, with the same jobs, after every step."""

import asyncio
import random
from typing import Any

import pytest

import stoker
from stoker.client.aio import AsyncClient
from tests.redis.servers import RedisServer
from tests.redis.test_waiting import NET, until_async
from tests.soaking import SOAKS

QUEUES = ("a", "b")
CHOICES = (("a",), ("b",), ("a", "b"))
STEPS = 150 if SOAKS else 40

Pulls = dict[int, "asyncio.Task[Any]"]


class Side:
    """One of both: its client, and the pulls that wait there."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.pulls: Pulls = {}

    def begin(self, number: int, queues: tuple[str, ...], count: int) -> None:
        self.pulls[number] = asyncio.create_task(self.client.pull(list(queues), count, wait_ms=600_000))

    def answered(self) -> set[int]:
        return {number for number, pull in self.pulls.items() if pull.done()}

    def take(self, numbers: set[int]) -> dict[int, list[bytes]]:
        return {number: list(self.pulls.pop(number).result().payloads) for number in sorted(numbers)}

    async def end(self) -> None:
        for pull in self.pulls.values():
            pull.cancel()
        await asyncio.gather(*self.pulls.values(), return_exceptions=True)
        await self.client.close()


class Both:
    def __init__(self, engine: Side, redis: Side, seed: int) -> None:
        self.engine, self.redis, self.random = engine, redis, random.Random(seed)
        self.number = 0

    async def pull(self) -> None:
        queues, count = self.random.choice(CHOICES), self.random.randrange(1, 4)
        self.number += 1
        for side in (self.engine, self.redis):
            side.begin(self.number, queues, count)
            await self.settle(side)

    async def push(self) -> None:
        queue, count = self.random.choice(QUEUES), self.random.randrange(1, 5)
        payloads = [b"%s %d" % (queue.encode(), self.random.randrange(10**9)) for _ in range(count)]
        priority = self.random.randrange(2)
        for side in (self.engine, self.redis):
            await side.client.push_batch(queue, payloads, priority=priority, lease_ms=3_600_000)

    async def cancel(self) -> None:
        if self.engine.pulls:
            number = self.random.choice(sorted(self.engine.pulls))
            for side in (self.engine, self.redis):
                pull = side.pulls.pop(number)
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    async def pause(self) -> None:
        queue = self.random.choice(QUEUES)
        for side in (self.engine, self.redis):
            await side.client.pause(queue)

    async def resume(self) -> None:
        for queue in QUEUES:
            for side in (self.engine, self.redis):
                await side.client.resume(queue)
            await self.compare()

    async def settle(self, side: Side) -> None:
        """Let a new pull find its place in line, or its jobs."""
        if side is self.engine:
            for _ in range(5):
                await asyncio.sleep(0)
            return
        waiters: Any = side.client.broker._waiters  # type: ignore[attr-defined]

        def is_quiet() -> bool:
            lines = [line for waiter in list(waiters.values()) for line in list(waiter._tenants.values())]
            return sum(len(line.tickets) for line in lines) == sum(not pull.done() for pull in side.pulls.values())

        await until_async(is_quiet, "each pull waits, or is answered")

    async def compare(self) -> None:
        await self.settle(self.engine)
        expected = self.engine.answered()
        await until_async(lambda: self.redis.answered() >= expected, f"pulls {expected} are answered in Redis, too")
        await self.settle(self.redis)
        assert self.redis.answered() == expected
        assert self.redis.take(expected) == self.engine.take(expected)


@pytest.mark.parametrize("seed", range(40 if SOAKS else 2))
def test_the_same_waiting_pulls_get_the_same_jobs(server: RedisServer, seed: int):
    async def main() -> None:
        both = Both(
            Side(await stoker.aio.connect("memory://?shards=1")), Side(await stoker.aio.connect(server.url + NET)), seed
        )
        for _ in range(STEPS):
            acts = [both.pull] * 4 + [both.push] * 3 + [both.cancel, both.pause, both.resume]
            await both.random.choice(acts)()
            await both.compare()
        for side in (both.engine, both.redis):
            await side.end()

    asyncio.run(main())
