"""`stoker bench`: how fast is this queue, from here, right now? Quick, bounded in time, and checked.

What is measured is everything between this process and the queue, this process included: one connection, one thread.
The table of `make bench` is the thorough one; this is for a look at a real server, or at a real disk.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exits
from stoker.cli.kinds import DURATION, as_json, connected, echo_json, examples, open_client
from stoker.cli.layout import columns

if TYPE_CHECKING:
    from stoker import Client

BATCHES = (1, 10, 100, 1_000)
JOBS_MAX = 200_000
"""In one row: a fast queue must not fill a disk because somebody was curious."""
PINGS = 200


@click.command(
    epilog=examples("stoker bench", "stoker bench --url tcp://127.0.0.1:6789 --batch 1 --batch 1000 --seconds 2s"),
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1, 10_000),
    multiple=True,
    help="Jobs in one call. May be repeated. [default: 1, 10, 100, 1000]",
)
@click.option(
    "--payload", "payload_bytes", type=click.IntRange(0, 1 << 20), default=100, show_default=True, help="Bytes in each."
)
@click.option(
    "--seconds", "limit_ms", type=DURATION, default="1s", show_default=True, help="For each of the figures at most."
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "commit", "fsync"]),
    help="What the reply to a push waits for. [default: the queue's]",
)
@connected
@as_json
def bench(
    batches: Sequence[int],
    payload_bytes: int,
    limit_ms: int,
    durability: Any,
    url: str | None,
    tenant: str,
    is_json: bool,
) -> int:
    """Measure pushes, pulls and acks at several batch sizes, beside a bare round trip.

    Works in a queue of its own, which is removed again. Every job is checked to have come back exactly once.
    """
    import os

    from stoker.cli.top import title_of

    queue = f"stoker-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    with open_client(url, tenant) as client:
        try:
            trip = quantiles(round_trips(client))
            rows = list(measure(client, queue, batches or BATCHES, payload_bytes, limit_ms / 1_000, durability))
        finally:
            clear_away(client, queue)
    lost = sum(row["lost"] for row in rows)
    if is_json:
        echo_json(
            {
                "url": title_of(url, tenant).removeprefix("stoker  "),
                "payload_bytes": payload_bytes,
                "round_trip_us": trip,
                "rows": rows,
            }
        )
    else:
        click.echo(page(title_of(url, tenant), payload_bytes, trip, rows))
    if lost:
        exits.tell(f"{lost:,} jobs did not come back exactly once", "bench")
    return exits.FAILED if lost else exits.OK


def clear_away(client: "Client", queue: str) -> None:
    """Who may not, is told what is left; the figures are his all the same."""
    from stoker.model.errors import StokerError

    try:
        client.obliterate(queue, force=True)
    except StokerError as error:
        exits.tell(f"the queue {queue} is left behind: {error.message}", error.code)


def measure(
    client: "Client", queue: str, batches: Sequence[int], size: int, limit_s: float, durability: Any
) -> Iterator[dict[str, Any]]:
    import os

    from stoker.cli.progress import counting

    payload = os.urandom(size)
    with counting("measuring", len(batches)) as moved:
        for number, batch in enumerate(batches, 1):
            yield one_size(client, queue, batch, payload, limit_s, durability)
            moved(number)


def one_size(
    client: "Client", queue: str, batch: int, payload: bytes, limit_s: float, durability: Any
) -> dict[str, Any]:
    """Push for a while, then pull and acknowledge all of it."""
    pushed: list[int] = []
    pulled: list[int] = []
    payloads = [payload] * batch
    level = ""
    push_us: list[float] = []

    def push() -> int:
        nonlocal level
        if batch == 1:
            one = client.push(queue, payload, durability=durability)
            pushed.append(one.id)
            level = one.level
        else:
            many = client.push_batch(queue, payloads, durability=durability)
            pushed.extend(many.ids)
            level = many.level
        return batch

    def cycle() -> int:
        delivery = client.pull(queue, batch, worker="stoker bench")
        if not len(delivery):
            return 0
        settled = client.ack_batch(delivery.ids, delivery.token)
        pulled.extend(delivery.ids)
        return settled.count

    push_rate = timed(push, limit_s, JOBS_MAX, push_us)
    cycle_rate = timed(cycle, limit_s, len(pushed))
    while cycle():  # what the time was too short for
        pass
    missing = len(set(pushed) ^ set(pulled)) + len(pulled) - len(set(pulled))
    return {
        "batch": batch,
        "jobs": len(pushed),
        "durability": level,
        "push_per_s": round(push_rate),
        "push_us": quantiles(push_us),
        "pull_ack_per_s": round(cycle_rate),
        "lost": missing,
    }


def timed(step: Callable[[], int], limit_s: float, jobs_max: int, times_us: list[float] | None = None) -> float:
    """Jobs per second of doing it again and again."""
    jobs, began = 0, time.perf_counter()
    last = began
    while jobs < jobs_max and last - began < limit_s:
        done = step()
        if not done:
            break
        jobs += done
        now = time.perf_counter()
        if times_us is not None:
            times_us.append((now - last) * 1e6)
        last = now
    return jobs / (last - began) if jobs else 0.0


def round_trips(client: "Client") -> list[float]:
    """Of a question that costs the queue nothing: what no job can be faster than."""
    times = []
    for _ in range(PINGS):
        began = time.perf_counter()
        client.kv_exists(["stoker:bench"])
        times.append((time.perf_counter() - began) * 1e6)
    return times


def quantiles(times_us: list[float]) -> dict[str, float]:
    ordered = sorted(times_us)
    return {
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 1),
    }


def page(title: str, payload_bytes: int, trip: dict[str, float], rows: Sequence[dict[str, Any]]) -> str:
    heads = ("BATCH", "JOBS", "DURABILITY", "PUSH/s", "PUSH p50", "PUSH p99", "PULL+ACK/s")
    lines = [
        [
            f"{row['batch']:,}",
            f"{row['jobs']:,}",
            row["durability"],
            f"{row['push_per_s']:,}",
            shown_us(row["push_us"]["p50"]),
            shown_us(row["push_us"]["p99"]),
            f"{row['pull_ack_per_s']:,}",
        ]
        for row in rows
    ]
    table = columns(heads, lines, right=[head for head in heads if head != "DURABILITY"])
    note = f"payloads of {payload_bytes:,} bytes, one connection, one thread; every job came back exactly once"
    if any(row["lost"] for row in rows):
        note = f"payloads of {payload_bytes:,} bytes, one connection, one thread"
    bare = f"a bare round trip: p50 {shown_us(trip['p50'])}, p99 {shown_us(trip['p99'])}"
    return "\n".join([click.style(title, bold=True), table, bare, note])


def shown_us(us: float) -> str:
    return f"{us:,.0f} us" if us < 10_000 else f"{us / 1_000:,.1f} ms"
