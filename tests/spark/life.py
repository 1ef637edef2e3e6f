"""Days of a queue in a second: random work under a clock that only the test moves, with everything that can happen.

Retries, workers that die with jobs in hand, deliveries that run too long, cancellations, dead letters that come back to
work, schedules and workflows. What is left at the end stays as it is when real time goes on: the queue can be counted
whenever somebody likes, and its log be read meanwhile.
"""

import random
from collections import Counter
from pathlib import Path

import msgspec

from stoker.brokers.local.opening import open_sqlite
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.model.options import Backoff, DeadLetterPolicy, DependencyPolicy, Options
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from stoker.testing import FakeClock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START_MS = 4_000_000_000_000
"""In the year 2096: whoever opens the queue later goes on from where it ended, whatever his own clock says."""
NEVER_MS = 300_000_000_000
"""Nine years: longer than any test."""
TENANTS = ("default", "other")
"""Each has a random life of its own."""
QUEUES = ("mail", "embed", "report")
SOON = Backoff("fixed", MINUTE, jitter="none")
ERRORS = (
    ("OSError", "no route to host 10.0.0.{}"),
    ("KeyError", "'user-{}'"),
    ("Timeout", "gave up after {} s"),
    ("", "something is wrong"),
)
OBLITERATED = {"pushed": 3, "started": 2, "failed": 2, "cancelled": 1}
"""What has happened in a queue that is gone at the end, and its counters with it."""
LATE_ERROR = "failed after it was to be cancelled"


class Life:
    """One tenant's part of it."""

    def __init__(self, client: Client, clock: FakeClock, seed: int) -> None:
        self.client, self.clock, self.chance = client, clock, random.Random(seed)
        self.pushed: list[int] = []
        """Ids of jobs that somebody may want to do something to."""

    def begin(self) -> None:
        self.client.put_schedule("report", "nightly", every_ms=6 * HOUR, options=Options(name="nightly"))
        few = DeadLetterPolicy(entries_max=4, age_ms_max=2 * DAY, take_cancelled=True)
        self.client.set_queue_policy("embed", dead_letters=few)

    def go_on(self) -> None:
        """Some minutes or hours, in which something happens."""
        chance = self.chance
        chance.choice([self.push, self.push, self.push, self.push_graph, self.interfere])()
        self.clock.advance(chance.choice([0, 50, 3_000, MINUTE, 20 * MINUTE]))
        for _ in range(chance.choice([0, 1, 2])):
            self.work(chance.choice(QUEUES))

    def end(self) -> None:
        """Nothing is due any more: no lease, no delay, no slot."""
        self.client.delete_schedule("report", "nightly")
        for _ in range(30):
            self.clock.advance(HOUR)
            self.client.get_stats()  # lets what is due happen
        self.client.push_batch("gone", [b"x"] * 3, max_attempts=1)
        for job in self.client.pull("gone", 2):
            self.client.fail(job.id, job.token, "no")
        self.client.obliterate("gone", force=True)
        self.client.push_batch("mail", [b"later"] * 3, name="later", delay_ms=NEVER_MS)
        self.client.push("report", b"in hand", name="endless", priority=9)
        self.client.pull("report", 1, lease_ms=NEVER_MS)

    # --- what happens ---------------------------------------------------------------------------------

    def push(self) -> None:
        chance = self.chance
        options = Options(
            name=chance.choice([None, "kind-1", "kind-2"]),
            max_attempts=chance.choice([1, 2, 3]),
            max_crashes=2,
            backoff=SOON,
            lease_ms=chance.choice([MINUTE, HOUR]),
            timeout_ms=chance.choice([0, 0, 30_000]),
            ttl_ms=chance.choice([0, 0, 0, HOUR]),
            delay_ms=chance.choice([0, 0, 5 * MINUTE, DAY]),
            priority=chance.randrange(3),
            tags=chance.choice([(), ("a", "b")]),
            remove_on_fail=chance.random() < 0.1,
        )
        payloads = [bytes(chance.randrange(50)) for _ in range(chance.choice([1, 4, 20]))]
        self.pushed += self.client.push_batch(chance.choice(QUEUES), payloads, options).ids

    def push_graph(self) -> None:
        few = Options(name="step", max_attempts=2, backoff=SOON)
        policies: tuple[DependencyPolicy, ...] = ("fail", "cancel", "continue")
        policy = self.chance.choice(policies)
        steps = [
            Step("mail", [b"first"], few),
            Step("embed", [b"x", b"y"], few, [Edge(0, policy)]),
            Step("report", [b"last"], few, [Edge(1, policy)]),
        ]
        self.client.push_workflow(steps, name="graph")

    def interfere(self) -> None:
        """With a job, or with a queue: whatever of it is possible now."""
        client, chance = self.client, self.chance
        job = chance.choice(self.pushed) if self.pushed else 1
        queue = chance.choice(QUEUES)
        act = chance.choice(
            [
                lambda: client.cancel(job),
                lambda: client.discard(job),
                lambda: client.promote(job),
                lambda: client.move_to_delayed(job, 10 * MINUTE),
                lambda: client.change_priority(job, 7),
                lambda: client.retry_dead(queue, limit=3),
                lambda: client.purge_dead(queue),
                lambda: client.drain(queue, delayed=chance.random() < 0.5),
                lambda: client.clean(queue, State.COMPLETED),
                lambda: client.clean(queue, State.FAILED, limit=2),
                lambda: self.hold(queue),
                lambda: client.run_schedule("report", "nightly"),
            ]
        )
        try:
            act()
        except StokerError:
            pass  # it was in another state

    def hold(self, queue: str) -> None:
        self.client.pause(queue)
        self.clock.advance(MINUTE)
        self.client.resume(queue)

    def work(self, queue: str) -> None:
        chance = self.chance
        for job in self.client.pull(queue, chance.choice([1, 5, 30]), worker=f"worker-{chance.randrange(3)}"):
            self.clock.advance(chance.choice([0, 1, 40, 700]))
            try:
                self.settle(job.id, job.token)
            except StokerError:
                pass  # it ran for too long, or was cancelled meanwhile

    def settle(self, job: int, token: int) -> None:
        client, chance, fate = self.client, self.chance, self.chance.random()
        if fate < 0.2:
            kind, text = chance.choice(ERRORS)
            client.fail(job, token, text.format(chance.randrange(100)), error_class=kind)
        elif fate < 0.25:
            client.release(job, token)
        elif fate < 0.3:
            client.snooze(job, token, 5 * MINUTE)
        elif fate < 0.33:
            client.cancel(job)
            client.ack(job, token)
        elif fate < 0.35:
            client.cancel(job)
            client.fail(job, token, LATE_ERROR, error_class="Late")
        elif fate < 0.4:
            pass  # the worker dies with it
        else:
            client.ack(job, token, bytes(chance.randrange(9)) if fate < 0.6 else None)


def lived(path: Path, rounds: int = 120, seed: int = 1) -> None:
    """A data directory with such a past, closed."""
    clock = FakeClock(START_MS)
    broker = open_sqlite(str(path), {"shards": "4", "durability": "memory"}, clock=clock)
    with Client(broker) as client:
        lives = [Life(client.as_tenant(tenant), clock, seed + place) for place, tenant in enumerate(TENANTS)]
        for life in lives:
            life.begin()
        for _ in range(rounds):
            for life in lives:
                life.go_on()
        for life in lives:
            life.end()


def counters(client: Client) -> dict[tuple[str, str], dict[str, int]]:
    """What the queue itself has counted, by tenant and queue: what has happened, and how many jobs are where now."""
    found = {}
    for tenant in TENANTS:
        own = client.as_tenant(tenant)
        for queue in own.list_queues():
            stats = own.get_stats(queue)
            counts = {f"now_{name}": value for name, value in msgspec.structs.asdict(stats.counts).items()}
            found[tenant, queue] = counts | msgspec.structs.asdict(stats.totals)
        found[tenant, "gone"] = dict.fromkeys(found[tenant, "mail"], 0) | OBLITERATED
    return found


def told(client: Client) -> Counter[tuple[str, str, str]]:
    """Events by tenant, queue and kind, as `read_events` tells them: another way through the same log than Spark's."""
    found: Counter[tuple[str, str, str]] = Counter()
    for tenant in TENANTS:
        own = client.as_tenant(tenant)
        for shard in range(client.read_records(0, after=2**52, bytes_max=1).shards):
            after, page = 0, own.read_events(shard)
            while page.next_after > after:
                found.update((tenant, event.queue, str(event.kind)) for event in page.events)
                after = page.next_after
                page = own.read_events(shard, after)
    return found
