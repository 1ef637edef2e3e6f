"""A worker in a process of its own, whose handlers write down when they began and ended.

`python -m tests.worker_kill.roles FILE QUEUE...` works for the app below, at the queue that STOKER_URL names. Lines are
appended in one write each, so that they are whole whenever the process dies.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from stoker.app.app import App
from stoker.worker.context import Context
from stoker.worker.worker import Worker

app = App()
ME = f"w{os.getpid()}"
NOTES = os.environ.get("STOKER_NOTES", "")


def note(what: str, ctx: Context) -> None:
    """What, which job, which delivery, when, and who."""
    line = f"{what} {ctx.id} {ctx._chunk.token} {ctx.attempt} {time.time_ns() // 1_000_000} {os.getpid()}\n"
    descriptor = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def busy(go: str) -> None:
    """Pure Python that lets nobody else have the interpreter for long, until it is let go."""
    while not Path(go).exists():
        for _ in range(1_000_000):
            pass


@app.job
def plain(ctx: Context, ms: float) -> str:
    note("begin", ctx)
    time.sleep(ms / 1000)
    note("end", ctx)
    return ME


@app.job
async def coroutine(ctx: Context, ms: float) -> str:
    note("begin", ctx)
    await asyncio.sleep(ms / 1000)
    note("end", ctx)
    return ME


@app.job(kind="process")
def process(ctx: Context, ms: float) -> str:
    note("begin", ctx)
    time.sleep(ms / 1000)
    note("end", ctx)
    return ME


@app.job
def busy_plain(ctx: Context, go: str) -> str:
    note("begin", ctx)
    busy(go)
    note("end", ctx)
    return ME


@app.job
async def busy_coroutine(ctx: Context, go: str) -> str:
    """What nobody should do: it keeps the event loop, too."""
    note("begin", ctx)
    busy(go)
    note("end", ctx)
    return ME


@app.job(kind="process")
def busy_process(ctx: Context, go: str) -> str:
    note("begin", ctx)
    busy(go)
    note("end", ctx)
    return ME


@app.job
def deaf(ctx: Context, go: str) -> str:
    """Looks at nothing, and returns when it is let."""
    note("begin", ctx)
    while not Path(go).exists():
        time.sleep(0.001)
    note("end", ctx)
    return ME


@app.job
def polite(ctx: Context, go: str) -> str:
    """Looks whether it is still wanted."""
    note("begin", ctx)
    while not Path(go).exists():
        if ctx.lost:
            note("told", ctx)
        ctx.check()
        time.sleep(0.001)
    return ME


@app.job
async def polite_coroutine(ctx: Context, go: str) -> str:
    note("begin", ctx)
    try:
        await asyncio.sleep(3_600)
    except asyncio.CancelledError:
        note("told", ctx)
        raise
    return ME


@app.job(kind="process")
def polite_process(ctx: Context, go: str) -> str:
    note("begin", ctx)
    try:
        while not Path(go).exists():
            time.sleep(0.001)
    except BaseException:
        note("told", ctx)
        raise
    return ME


@app.job
def poison(ctx: Context) -> None:
    """Kills the whole worker."""
    note("begin", ctx)
    os._exit(9)


@app.job(kind="process")
def poison_process(ctx: Context) -> None:
    """Kills its own process, which is not the worker."""
    note("begin", ctx)
    os._exit(9)


def main(queues: list[str]) -> int:
    worker = Worker(
        app.client, app.handlers(), queues=queues, concurrency=8, threads=4, processes=1, id=ME, drain="10s"
    )
    return worker.run()


if __name__ == "__main__":
    from tests.worker_kill import roles  # under its own name, so that child processes find it, too

    sys.exit(roles.main(sys.argv[1:]))
