"""SAQ: two processes, fifty jobs at a time each, no results kept."""

import asyncio
import os

from counting import PAYLOAD, count
from saq import Queue

queue = Queue.from_url(os.environ["REDIS_URL"])


async def noop(ctx, *, text):
    count(text)


settings = {"queue": queue, "functions": [noop], "concurrency": 50}


async def connect():
    await queue.connect()


async def one(text):
    await queue.enqueue("noop", text=text, ttl=-1)


async def push_all(jobs):
    await queue.connect()
    for first in range(0, jobs, 100):
        await asyncio.gather(*(queue.enqueue("noop", text=PAYLOAD, ttl=-1) for _ in range(min(100, jobs - first))))
    await queue.disconnect()


def push(jobs):
    asyncio.run(push_all(jobs))
