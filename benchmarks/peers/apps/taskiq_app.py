"""Taskiq: a Redis stream with acknowledgements, two processes, a hundred tasks at a time each."""

import asyncio
import os

from counting import PAYLOAD, count
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=os.environ["REDIS_URL"], xread_count=100)


@broker.task(task_name="noop")
async def noop(text: str) -> None:
    count(text)


async def connect():
    await broker.startup()


async def one(text):
    await noop.kiq(text)


async def push_all(jobs):
    await broker.startup()
    for first in range(0, jobs, 100):
        await asyncio.gather(*(noop.kiq(PAYLOAD) for _ in range(min(100, jobs - first))))
    await broker.shutdown()


def push(jobs):
    asyncio.run(push_all(jobs))
