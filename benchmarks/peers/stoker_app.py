"""Stoker's side: the same job as a plain function, as a batch handler and as a coroutine.

`python -m benchmarks.peers.stoker_app push KIND JOBS` and `... work KIND`, with STOKER_URL.
"""

import mmap
import os
import struct
import sys

from stoker.app.app import App

PAYLOAD = "x" * 100
WORD = struct.Struct("=Q")
app = App()
_memory: mmap.mmap | None = None
_count = 0


def count(jobs: int = 1) -> None:
    """As `apps/counting.py` does it; the worker has one process and one thread for these jobs."""
    global _memory, _count
    if _memory is None:
        with open(os.environ["STOKER_COUNTER"], "r+b") as file:
            _memory = mmap.mmap(file.fileno(), 0)
    _count += jobs
    WORD.pack_into(_memory, 0, _count)


@app.job(name="plain", queue="plain")
def plain(text: str) -> None:
    count()


@app.job(name="batch", queue="batch", batch=1_000, max_wait="5ms")
def batch(texts: list[str]) -> None:
    count(len(texts))


@app.job(name="async", queue="async")
async def coroutine(text: str) -> None:
    count()


def main(role: str, kind: str, jobs: str = "0") -> None:
    job = app.job_named(kind)
    if role == "push":
        for first in range(0, int(jobs), 10_000):
            job.push_batch_sync([(PAYLOAD,)] * min(10_000, int(jobs) - first))
    else:
        app.worker(jobs=[kind], threads=1).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
