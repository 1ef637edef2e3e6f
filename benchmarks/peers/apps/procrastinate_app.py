"""Procrastinate on PostgreSQL: one worker, ten jobs at a time, finished jobs deleted, pushed in bulk."""

import asyncio
import os

from counting import PAYLOAD, count
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["POSTGRES_URL"], min_size=1, max_size=10))


@app.task(name="noop", queue="noop")
async def noop(text):
    count(text)


async def connect():
    await app.open_async()


async def one(text):
    await noop.defer_async(text=text)


async def prepare_all():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def prepare():
    asyncio.run(prepare_all())


async def push_all(jobs):
    async with app.open_async():
        for first in range(0, jobs, 1_000):
            await noop.batch_defer_async(*({"text": PAYLOAD} for _ in range(min(1_000, jobs - first))))


def push(jobs):
    asyncio.run(push_all(jobs))


async def work_all():
    async with app.open_async():
        await app.run_worker_async(concurrency=10, delete_jobs="always", fetch_job_polling_interval=0.1)


if __name__ == "__main__":
    asyncio.run(work_all())
