"""Jobs a second in this process, on one core, journaled to memory."""

from collections.abc import Callable
from typing import Any

import stoker
from benchmarks import floors
from benchmarks.measure import PAYLOAD, Row, check, cycles, rate_of
from benchmarks.sizes import sized
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.options import Dependency

SINGLES = sized(50_000, 200)
FEATURES = sized(20_000, 100)


def batches() -> list[Row]:
    sizes = ((10_000, 60), (1_000, 500), (100, 2_000), (10, 5_000))
    return [batch_row(size, sized(rounds, 2)) for size, rounds in sizes]


def batch_row(size: int, rounds: int) -> Row:
    rate = rate_of(lambda: batch_cycles(size, rounds))
    return Row(
        f"push + pull + ack, uniform batches of {size:,}", rate, rate_of(lambda: floors.batch_cycles(rounds, size))
    )


def batch_cycles(size: int, rounds: int) -> int:
    client = stoker.connect("memory://")
    jobs = cycles(client, size, rounds)
    check(client, jobs)
    return jobs


def singles() -> list[Row]:
    floor = rate_of(lambda: floors.single_cycles(SINGLES))
    return [
        Row(
            "push, pull, ack one at a time, through the client",
            rate_of(lambda: single_cycles(SINGLES)),
            floor,
            "cycles/s",
        ),
        Row("the same, the engine alone", rate_of(lambda: engine_cycles(SINGLES)), floor, "cycles/s"),
    ]


def single_cycles(jobs: int, before: Callable[[stoker.Client], Any] | None = None, **options: Any) -> int:
    """One job at a time through the client; `before` prepares the queue."""
    client = stoker.connect("memory://")
    if before is not None:
        before(client)
    given = stoker.Options(**options)
    plain = not options
    for number in range(jobs):
        if plain:
            client.push("q", PAYLOAD)
        else:
            client.push("q", PAYLOAD, given)
        delivery = client.pull("q")
        client.ack(delivery.ids[0], delivery.token)
        assert delivery.payloads[0] is PAYLOAD, number
    check(client, jobs)
    return jobs


def engine_cycles(jobs: int) -> int:
    shard = Shard()
    execute = shard.execute
    for _ in range(jobs):
        execute("t", c.Push("q", PAYLOAD), 1000)
        delivery = execute("t", c.Pull(("q",)), 1000)
        execute("t", c.Ack(delivery.runs[0].ids, delivery.token), 1000)
        shard.records.clear()
    assert shard.execute("t", c.GetStats("q"), 1000).totals.completed == jobs
    return jobs


def features() -> list[Row]:
    """The cost of each option in the cycle of a single job; the floor is the plain cycle of the same run."""
    jobs = FEATURES
    plain = rate_of(lambda: single_cycles(jobs))
    rows = [Row("plain", plain, plain, "cycles/s")]
    options: dict[str, dict[str, Any]] = {
        "priority": {"priority": 5},
        "delay of the past (run_at)": {"run_at": 1},
        "ttl and timeout": {"ttl_ms": 60_000, "timeout_ms": 60_000},
        "group": {"group_id": "g"},
        "unique key": {"unique_key": "k"},
        "tags": {"tags": ("a", "b")},
        "lifo": {"lifo": True},
    }
    for name, given in options.items():
        rows.append(Row(name, rate_of(lambda given=given: single_cycles(jobs, **given)), plain, "cycles/s"))  # type: ignore[misc]
    rows.append(Row("custom id, new each time", rate_of(lambda: custom_ids(jobs)), plain, "cycles/s"))
    rows.append(Row("dependency on the job before", rate_of(lambda: chain(jobs)), plain, "cycles/s"))

    def limited(client: stoker.Client) -> None:
        client.set_rate_limit("q", 10**9)
        client.set_concurrency("q", 10)

    rows.append(Row("rate and concurrency limit", rate_of(lambda: single_cycles(jobs, limited)), plain, "cycles/s"))
    return rows


def custom_ids(jobs: int) -> int:
    client = stoker.connect("memory://")
    for number in range(jobs):
        client.push("q", PAYLOAD, custom_id=str(number))
        delivery = client.pull("q")
        client.ack(delivery.ids[0], delivery.token)
    check(client, jobs)
    return jobs


def chain(jobs: int) -> int:
    """Each job waits for the one before and is released by its ack."""
    client = stoker.connect("memory://")
    last = client.push("q", PAYLOAD).id
    for _ in range(jobs - 1):
        following = client.push("q", PAYLOAD, depends_on=(Dependency(last),)).id
        delivery = client.pull("q")
        assert delivery.ids[0] == last
        client.ack(last, delivery.token)
        last = following
    delivery = client.pull("q")
    client.ack(last, delivery.token)
    check(client, jobs)
    return jobs
