"""The jobs of a small shop, one for each feature of the queue.

`stoker worker stoker.demo.jobs:app` runs them; `stoker demo` pushes them and counts their outcomes.
"""

import asyncio
import os
import signal
import time
import zlib
from pathlib import Path

import stoker
from stoker import Backoff, Context

app = stoker.App(defaults={"lease": "2s", "max_attempts": 10, "max_crashes": 0})
"""A short lease, so that a crash is noticed during the demo; the default of 30 s is right for real use. On a machine
that is too busy for it, jobs run again, and none becomes a dead letter because of that.
"""

PULSES = 5
SOON = Backoff(kind="fixed", base_ms=300, jitter="equal")


class BankIsDown(Exception):
    """A temporary failure."""


@app.job(queue="mail")
async def send_mail(customer: int) -> str:
    """A coroutine: hundreds of them wait for the network at once."""
    await asyncio.sleep(0.02)
    return f"sent to customer {customer}"


@app.job(queue="thumbnails")
def make_thumbnail(image: int) -> int:
    """A plain function: it runs in a thread."""
    return zlib.crc32(image.to_bytes(8, "big") * 64)


@app.job(queue="search", batch=64, max_wait="20ms")
def index_documents(documents: list[int]) -> list[str]:
    """A batch handler: one call for up to 64 jobs, one result for each."""
    time.sleep(0.01)
    return [f"document {number} among {len(documents)}" for number in documents]


@app.job(queue="payments", backoff=SOON)
async def charge_card(ctx: Context, order: int, failures: int) -> str:
    """Fails `failures` times, and is retried after a pause."""
    await asyncio.sleep(0.01)
    if ctx.attempt <= failures:
        raise BankIsDown(f"no answer for order {order}")
    return f"order {order} paid at attempt {ctx.attempt}"


@app.job(queue="payments", backoff=SOON, max_attempts=2)
async def charge_closed_account(order: int) -> None:
    """Never works: after its last attempt it is a dead letter."""
    raise BankIsDown(f"the account of order {order} is closed")


@app.job(queue="ledger", group_id="account {account}")
async def book_entry(account: int, number: int) -> int:
    """One at a time and in order for each account; accounts do not wait for each other."""
    await asyncio.sleep(0.03)
    return number


@app.job(queue="reminders")
async def remind(customer: int) -> None:
    """Pushed with a delay."""


@app.job(queue="reports")
async def print_report(ctx: Context, number: int) -> str:
    """Slow, and reports its progress; the demo kills a worker that runs one."""
    for page in range(10):
        ctx.progress(page * 10, f"page {page}")
        await asyncio.sleep(0.25)
    return f"report {number}"


@app.schedule(every="1s", runs_max=PULSES)
@app.job(queue="pulse")
async def take_pulse() -> None:
    """Pushed by a schedule in the queue, whether or not a program runs."""


@app.job(queue="packing")
async def pack_parcel(order: int, parcel: int) -> str:
    """A step of a workflow: three of them for each order, at once."""
    await asyncio.sleep(0.02)
    return f"parcel {parcel} of order {order}"


@app.job(queue="office")
async def write_invoice(order: int) -> str:
    """Another step, in another queue, at the same time."""
    await asyncio.sleep(0.03)
    return f"invoice of order {order}"


@app.job(queue="shipping")
async def ship_order(order: int, things: list[str] = stoker.Inputs()) -> str:
    """The last step, when all parcels are packed and the invoice is written: it gets their results."""
    return f"order {order} is on its way with {len(things)} things"


@app.job(queue="video", kind="process")
def transcode(film: int, marker: str) -> str:
    """Runs in a child process, which crashes at the first attempt: that costs an attempt, never the worker."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return f"film {film} is done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"
