"""A small application to test the testing kit with."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

import stoker
from stoker.testing import Harness

app = stoker.App("memory://")
seen: list[object] = []
"""What handlers did, in order; each test begins with an empty list."""

world: Harness | None = None
"""The one that a test runs in, for handlers that meddle with it."""


@dataclass(frozen=True)
class Order:
    id: UUID
    items: int = 1


@app.job(queue="mail")
async def thank(customer: str) -> str:
    seen.append(customer)
    return f"thank you, {customer}"


@app.job(queue="orders")
def pack(order: Order, express: bool = False) -> int:
    """Pushes another job, as handlers do."""
    thank.push_sync(str(order.id))
    return order.items


@app.job(queue="orders", max_attempts=3, backoff=stoker.Backoff(base_ms=1_000, jitter="none"))
def fetch(ctx: stoker.Context, works_in: int) -> int:
    seen.append(ctx.attempt)
    if ctx.attempt < works_in:
        raise ConnectionError("nobody answers")
    return ctx.attempt


@app.job(queue="orders")
async def pause() -> None:
    seen.append("pause")
    raise stoker.Snooze("1h") if seen.count("pause") == 1 else stoker.Dead("enough")


@app.job(queue="orders")
async def for_ever() -> None:
    raise stoker.Snooze(0)


@app.job(queue="orders")
async def both(customer: str) -> str:
    """Waits for another job of the same worker."""
    return f"{await (await thank.push(customer)).result(timeout=5)}!"


@app.job(queue="orders", kind="process")
def heavy(number: int) -> int:
    return number * number


@app.job(queue="orders", batch=10, max_wait="0s")
def count(words: list[str]) -> list[int | Exception]:
    seen.append(len(words))
    return [len(word) if word else ValueError("no word") for word in words]


@app.job(queue="orders", timeout="20ms", max_attempts=1)
async def hang() -> None:
    seen.append("hang")
    await asyncio.Event().wait()


@app.job(queue="orders", rate="1/h")
async def rarely() -> None:
    seen.append("rarely")


@app.job(queue="orders")
async def again() -> None:
    raise stoker.Snooze("1s")


@app.job(queue="orders")
async def where() -> None:
    seen.append(asyncio.get_running_loop())
