"""The report of a lake with many events: the whole history, and two hours of it compared with the two before.

The events come from a queue in memory whose clock the benchmark moves: a day with three queues, jobs that fail, are
tried again and die. Spark is local[2] and warm; each figure is the better of two.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.lake import session
from benchmarks.measure import PAYLOAD, Row, seconds_of
from stoker.brokers.local.opening import open_sqlite
from stoker.client.sync import Client
from stoker.model.options import Backoff
from stoker.testing import FakeClock

EVENTS = int(os.environ.get("STOKER_BENCH_REPORT_EVENTS", "10000000"))
START_MS, DAY_MS = 1_790_000_000_000, 86_400_000
QUEUES = ("mail", "embed", "report")
BATCH = 1_000
FAILS = 20
"""Of each batch: half of them are tried again and complete, the others die."""


def history(directory: Path, events: int) -> None:
    """A day of work, in about so many events."""
    clock = FakeClock(START_MS)
    rounds = max(3, events // (3 * BATCH + 2 * FAILS))
    soon = Backoff("fixed", 1, jitter="none")
    broker = open_sqlite(str(directory), {"shards": "1", "durability": "memory"}, clock=clock)
    with Client(broker) as client:
        for number in range(rounds):
            queue, name = QUEUES[number % 3], f"kind-{number % 2}"
            client.push_batch(queue, [PAYLOAD] * BATCH, name=name, max_attempts=1 + number % 2, backoff=soon)
            clock.advance(DAY_MS // rounds)
            delivery = client.pull(queue, 2 * BATCH, worker=f"worker-{number % 8}")
            clock.advance(40)
            failed, done = delivery.ids[:FAILS], delivery.ids[FAILS:]
            for job in failed:
                client.fail(job, delivery.token, f"cannot reach host 10.0.0.{number % 7}", error_class="OSError")
            client.ack_batch(done, delivery.token)


def reporting() -> list[Row]:
    from datetime import timedelta

    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake
    from stoker.spark.report.numbers import numbers
    from stoker.spark.report.scope import ReportScope

    spark = session()
    with place() as path:
        history(Path(path) / "queue", EVENTS)
        url = f"sqlite:///{path}/queue"
        with stoker.connect(url):  # kept open, so that Spark's workers need not each open it
            running.run(spark, f"{path}/lake", {"url": url})
        lake = Lake(spark, f"{path}/lake")
        found: dict[str, Any] = numbers(lake)
        events = found["headline"]["events"]
        middle = moment(found["headline"]["from"]) + timedelta(hours=12)
        scope = ReportScope(middle, middle + timedelta(hours=2))
        whole = min(seconds_of(partial(numbers, lake)) for _ in range(2))
        part = min(seconds_of(partial(numbers, lake, None, scope, compare=True)) for _ in range(2))
    return [
        Row(f"report of {events:,} events", whole, unit="s", note="asked <= 5"),
        Row("report of two hours of them, compared", part, unit="s"),
    ]


def moment(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)
