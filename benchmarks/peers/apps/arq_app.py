"""arq: a hundred jobs at a time, polled every 10 ms, no results kept."""

import asyncio
import os

from arq import create_pool, func
from arq.connections import RedisSettings
from counting import PAYLOAD, count

pool = None
REDIS = RedisSettings.from_dsn(os.environ["REDIS_URL"])


async def noop(ctx, text):
    count(text)


class WorkerSettings:
    functions = (func(noop, keep_result=0),)
    redis_settings = REDIS
    max_jobs = 100
    poll_delay = 0.01


async def connect():
    global pool
    pool = await create_pool(REDIS)


async def one(text):
    await pool.enqueue_job("noop", text)


async def push_all(jobs):
    await connect()
    for first in range(0, jobs, 100):
        await asyncio.gather(*(pool.enqueue_job("noop", PAYLOAD) for _ in range(min(100, jobs - first))))


def push(jobs):
    asyncio.run(push_all(jobs))
