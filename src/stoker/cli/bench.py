"""`stoker bench`: measures the speed of a queue from here. Quick, bounded in time, and checked.

It measures everything between this process and the queue, including this process: one connection, one thread. It is for
a look at a real server or disk; `make bench` has the thorough table, made with the same code (`measuring.py`).
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from stoker.cli import exit_codes, measuring
from stoker.cli.formatting import columns
from stoker.cli.parameters import SECONDS, as_json, connected, echo_json, examples, open_client

if TYPE_CHECKING:
    from stoker import Client

BATCHES = (1, 10, 100, 1_000)
JOBS_MAX = 200_000
"""Jobs in one row: a fast queue must not fill a disk for a measurement."""
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
    "--payload",
    "payload_bytes",
    type=click.IntRange(0, 1 << 20),
    default=100,
    show_default=True,
    help="Bytes in each payload.",
)
@click.option(
    "--seconds", "limit_ms", type=SECONDS, default="1", show_default=True, help="The longest time for each measurement."
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
    """Measure pushes, pulls and acks at several batch sizes, and compare them with a bare round trip.

    Uses a temporary queue and removes it. Checks that every job came back exactly once.
    """
    import os

    from stoker.cli.top import title_of

    if not limit_ms:
        raise click.BadParameter("--seconds must be more than 0, for example 500ms", param_hint="--seconds")
    queue = f"stoker-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    with open_client(url, tenant) as client:
        try:
            # A request that costs the queue nothing: no job can be faster.
            trip = rounded(measuring.times_us(lambda: client.kv_exists(["stoker:bench"]), PINGS))
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
        exit_codes.tell(f"{lost:,} jobs did not come back exactly once", "bench")
    return exit_codes.FAILED if lost else exit_codes.OK


def clear_away(client: "Client", queue: str) -> None:
    """Remove the queue, or say that it remains. The figures are shown in both cases."""
    from stoker.model.errors import StokerError

    try:
        client.obliterate(queue, force=True)
    except StokerError as error:
        exit_codes.tell(f"the queue {queue} could not be removed: {error.message}", error.code)


def measure(
    client: "Client", queue: str, batches: Sequence[int], size: int, limit_s: float, durability: Any
) -> Iterator[dict[str, Any]]:
    import os

    from stoker.cli.progress import counting

    payload = os.urandom(size)
    with counting("measuring", len(batches)) as moved:
        for number, batch in enumerate(batches, 1):
            yield one_size(client, queue, [payload] * batch, limit_s, durability)
            moved(number)


def one_size(
    client: "Client", queue: str, payloads: Sequence[bytes], limit_s: float, durability: Any
) -> dict[str, Any]:
    """Push batches for a while, then pull and acknowledge all of them."""
    pushed: list[int] = []
    pulled: list[int] = []
    push_us: list[float] = []
    level, batch = "", len(payloads)

    def push() -> int:
        nonlocal level
        ids, level = measuring.push(client, queue, payloads, durability)
        pushed.extend(ids)
        return batch

    def settle() -> int:
        return measuring.settle(client, queue, batch, pulled, worker="stoker bench")

    push_rate = measuring.rate(push, limit_s, JOBS_MAX, push_us)
    settle_rate = measuring.rate(settle, limit_s)
    while settle():  # the jobs that the time was too short for
        pass
    missing = len(set(pushed) ^ set(pulled)) + len(pulled) - len(set(pulled))
    return {
        "batch": batch,
        "jobs": len(pushed),
        "durability": level,
        "push_per_s": round(push_rate),
        "push_us": rounded(push_us),
        "pull_ack_per_s": round(settle_rate),
        "lost": missing,
    }


def rounded(times_us: Sequence[float]) -> dict[str, float]:
    return {name: round(us, 1) for name, us in measuring.quantiles(times_us)._asdict().items()}


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
