"""The cost of a graph: the same jobs with and without one, and how long other calls have to wait for it.

The floor of each line is the same jobs pushed, pulled and acknowledged without a graph, in the same run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, rate_of
from benchmarks.sizes import sized
from stoker.cli.measuring import push, settle
from stoker.model.options import Dependency
from stoker.model.workflows import Edge, Step

BATCH = sized(10_000, 100)
JOBS = 10 * BATCH
SINGLE = sized(5_000, 50)


def fans() -> list[Row]:
    floor = rate_of(lambda: plain(JOBS, BATCH))
    alone = rate_of(lambda: plain(SINGLE, 1))
    return [
        Row(f"1, then {JOBS:,} beside each other, then 1", rate_of(lambda: fan(1)), floor),
        Row("the same over 16 shards", rate_of(lambda: fan(16)), rate_of(lambda: plain(JOBS, BATCH, shards=16))),
        Row("the same on disk", rate_of(lambda: fan(1, "sqlite")), rate_of(lambda: plain(JOBS, BATCH, "sqlite"))),
        Row(f"a chain of {SINGLE:,} steps of one job", rate_of(lambda: chained(SINGLE)), alone),
        Row(f"{SINGLE:,} edges between shards, one job each", rate_of(lambda: edges(SINGLE)), alone),
    ]


@contextmanager
def connected(shards: int = 1, kind: str = "memory") -> Iterator[stoker.Client]:
    with place() as path:
        url = "memory://" if kind == "memory" else f"sqlite:///{path}/data"
        with stoker.connect(f"{url}?shards={shards}") as client:
            yield client


def plain(jobs: int, batch: int, kind: str = "memory", shards: int = 1) -> int:
    with connected(shards, kind) as client:
        for _ in range(jobs // batch):
            push(client, "q", [PAYLOAD] * batch)
        work_off(client, "q", jobs, batch)
    return jobs


def work_off(client: stoker.Client, queue: str, jobs: int, batch: int) -> None:
    while jobs:
        jobs -= settle(client, queue, batch)


def fan(shards: int, kind: str = "memory") -> int:
    """The steps in the middle are as large as a batch."""
    middle = [Step("each", [PAYLOAD] * BATCH, after=[Edge(0)]) for _ in range(JOBS // BATCH)]
    steps = [
        Step("first", [PAYLOAD]),
        *middle,
        Step("last", [PAYLOAD], after=[Edge(n + 1) for n in range(len(middle))]),
    ]
    with connected(shards, kind) as client:
        pushed = client.push_workflow(steps)
        work_off(client, "first", 1, 1)
        work_off(client, "each", JOBS, BATCH)
        work_off(client, "last", 1, 1)
        assert client.get_workflow(pushed.id).state == "completed"
    return JOBS


def chained(jobs: int) -> int:
    with connected() as client:
        client.push_workflow([Step("q", [PAYLOAD], after=[Edge(n - 1)] if n else ()) for n in range(jobs)])
        work_off(client, "q", jobs, 1)
    return jobs


def edges(jobs: int) -> int:
    with connected(16) as client:
        before = 0
        for number in range(jobs):
            depends_on = (Dependency(before),) if before else ()
            before = client.push(f"q{number % 8}", PAYLOAD, depends_on=depends_on).id
        for number in range(jobs):
            work_off(client, f"q{number % 8}", 1, 1)
    return jobs


# --- the longest turn ------------------------------------------------------------------------------------


def stalls() -> list[Row]:
    return [
        Row(f"let {JOBS:,} jobs of a step go", longest(release_step), unit="ms at most"),
        Row(f"let {JOBS:,} jobs with edges of their own go", longest(release_edges), unit="ms at most"),
        Row(f"give up {JOBS:,} jobs of a step", longest(give_up_step), unit="ms at most"),
    ]


def longest(run: Callable[[stoker.Client, "LongestCall"], None]) -> float:
    watch = LongestCall()
    with stoker.connect("memory://") as client:
        run(client, watch)
    return watch.worst_ms


class LongestCall:
    """The longest call in CPU time: what other programs do on the machine does not count."""

    def __init__(self) -> None:
        self.worst_ms = 0.0

    def time(self, call: Callable[[], object]) -> None:
        started = time.thread_time()
        call()
        self.worst_ms = max(self.worst_ms, (time.thread_time() - started) * 1_000)


def until_none(client: stoker.Client, watch: LongestCall) -> None:
    """Poll, as other clients would, until nothing is blocked any more."""
    while client.get_stats().counts.blocked:
        watch.time(lambda: client.push("other", b""))
        time.sleep(0.001)


def release_step(client: stoker.Client, watch: LongestCall) -> None:
    client.push_workflow([Step("first", [PAYLOAD]), Step("each", [PAYLOAD] * (JOBS - 1), after=[Edge(0)])])
    delivery = client.pull("first")
    watch.time(lambda: client.ack_batch(delivery.ids, delivery.token))
    until_none(client, watch)


def release_edges(client: stoker.Client, watch: LongestCall) -> None:
    first = client.push("first", PAYLOAD).id
    for _ in range(JOBS // BATCH):
        client.push_batch("each", [PAYLOAD] * BATCH, depends_on=(Dependency(first),))
    delivery = client.pull("first")
    watch.time(lambda: client.ack_batch(delivery.ids, delivery.token))
    until_none(client, watch)


def give_up_step(client: stoker.Client, watch: LongestCall) -> None:
    client.push_workflow([Step("first", [PAYLOAD]), Step("each", [PAYLOAD] * (JOBS - 1), after=[Edge(0)])])
    delivery = client.pull("first")
    watch.time(lambda: client.fail(delivery.ids[0], delivery.token, retry=False))
    until_none(client, watch)
