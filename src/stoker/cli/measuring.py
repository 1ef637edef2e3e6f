"""Measures a queue: code that `stoker bench` and `benchmarks/` share.

Rates are jobs a second of wall time; times are microseconds. Nothing here prints, or decides what is fast.
"""

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stoker import Client
    from stoker.model.replies import Level


class Quantiles(NamedTuple):
    p50: float
    p99: float


def quantiles(times: Sequence[float]) -> Quantiles:
    """The times below which half of the calls stay, and 99 of 100; in the unit of `times`."""
    ordered = sorted(times)
    return Quantiles(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])


def times_us(call: Callable[[], object], count: int, pause_s: float = 0.0) -> list[float]:
    """How long each of `count` calls takes, with a pause before each."""
    found = []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s)
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1e6)
    return found


def rate(
    step: Callable[[], int], seconds: float = inf, jobs_max: float = inf, times_us: list[float] | None = None
) -> float:
    """Jobs a second of `step`, which returns how many it did, until it did none or a limit is reached.

    The time of each step is added to `times_us`.
    """
    jobs, began = 0, time.perf_counter()
    last = began
    while jobs < jobs_max and last - began < seconds:
        done = step()
        if not done:
            break
        jobs += done
        now = time.perf_counter()
        if times_us is not None:
            times_us.append((now - last) * 1e6)
        last = now
    return jobs / (last - began) if jobs else 0.0


def push(
    client: "Client", queue: str, payloads: Sequence[bytes], durability: "Level | None" = None
) -> tuple[Sequence[int], str]:
    """Push a batch, or a single job if there is one payload. Returns the ids and the durability that was reached."""
    if len(payloads) == 1:
        one = client.push(queue, payloads[0], durability=durability)
        return (one.id,), one.level
    many = client.push_batch(queue, payloads, durability=durability)
    return many.ids, many.level


def settle(client: "Client", queue: str, batch: int, seen: list[int] | None = None, worker: str = "") -> int:
    """Pull up to `batch` jobs and acknowledge them. Returns how many; their ids are added to `seen`."""
    delivery = client.pull(queue, batch, worker=worker)
    if not len(delivery):
        return 0
    if seen is not None:
        seen.extend(delivery.ids)
    return client.ack_batch(delivery.ids, delivery.token).count
