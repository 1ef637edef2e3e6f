"""Stoker's side: the same job as a plain function, as a batch handler and as a coroutine, by STOKER_KIND.

`apps/driver.py` pushes through it; `python -m benchmarks.peers.stoker_app work KIND` runs the jobs, with STOKER_URL.
"""

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable

from stoker.app.app import App

PAYLOAD = "x" * 100
STAMP = "at:"
WORD, DOUBLE = struct.Struct("=Q"), struct.Struct("=d")
BULK = 10_000
app = App()
_memory: mmap.mmap | None = None
_count = 0


def count(texts: list[str]) -> None:
    """As `apps/counting.py` does it; the worker has one process and one thread for these jobs."""
    global _memory, _count
    if _memory is None:
        with open(os.environ["STOKER_COUNTER"], "r+b") as file:
            _memory = mmap.mmap(file.fileno(), 0)
    if texts[0].startswith(STAMP):
        now = time.perf_counter()
        with open(os.environ["STOKER_LATENCIES"], "ab") as file:
            file.write(b"".join(DOUBLE.pack(now - float(text[len(STAMP) :])) for text in texts))
    _count += len(texts)
    WORD.pack_into(_memory, 0, _count)


@app.job(name="plain", queue="plain")
def plain(text: str) -> None:
    count([text])


@app.job(name="batch", queue="batch", batch=1_000, max_wait="5ms")
def batch(texts: list[str]) -> None:
    count(texts)


@app.job(name="async", queue="async")
async def coroutine(text: str) -> None:
    count([text])


async def connect() -> None:
    """The client connects with its first push."""


async def one_async(text: str) -> None:
    await app.job_named("async").push(text)


def one_sync(text: str) -> None:
    app.job_named(os.environ["STOKER_KIND"]).push_sync(text)


one: Callable[[str], object] = one_async if os.environ.get("STOKER_KIND") == "async" else one_sync
"""Applications with async handlers push from coroutines; the others from threads."""


def push(jobs: int) -> None:
    job = app.job_named(os.environ["STOKER_KIND"])
    for first in range(0, jobs, BULK):
        job.push_batch_sync([(PAYLOAD,)] * min(BULK, jobs - first))


if __name__ == "__main__":
    app.worker(jobs=[sys.argv[2]], threads=1).run()
