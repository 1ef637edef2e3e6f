"""A process dies between any two messages, comes back, and nothing is lost or done twice.

The work goes over all shards at once: transactions, pulls, acks, claims, waits. Whoever is told `unavailable` or
`unknown` does the same again, as clients do; in the end everything is there exactly once.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound, StokerError, Unavailable, Unknown
from stoker.model.ids import shard_for
from stoker.model.options import Options
from stoker.model.states import State
from tests.processes.world import Processes, end

SHARDS = 4
HOMES: dict[int, str] = {}
for name in (f"q{number}" for number in range(100)):
    HOMES.setdefault(shard_for("default", name, SHARDS), name)
QUEUES = [HOMES[shard] for shard in range(SHARDS)]
SETTINGS = LocalSettings(shards=SHARDS, journal=JournalSettings(disk_reserve_bytes=4096, fsync_interval_ms=3_600_000))
LEASE_MS = 1_000
TRIES_MAX = 20


class Client:
    """Repeats what was not answered, at the next process."""

    def __init__(self, world: Processes) -> None:
        self.world = world
        self.told: Counter[str] = Counter()

    def do(self, command: c.Command[Any]) -> Any:
        for _ in range(TRIES_MAX):
            try:
                return self.world.execute("default", command)
            except (Unavailable, Unknown) as error:
                self.told[error.code] += 1
                self.mend()
        raise AssertionError(f"{command} was never answered")

    def mend(self) -> None:
        """Whoever died is started again; leases of deliveries that nobody got run out."""
        self.world.restart_dead()
        self.world.advance(LEASE_MS)

    def work_off(self, payloads: set[bytes], claim: str | None) -> None:
        """Pull and ack until all of these are done."""
        for round in range(TRIES_MAX):
            name = None if claim is None else f"{claim}{round}"
            delivery: r.Delivery = self.do(c.Pull(QUEUES, 100, 2 * LEASE_MS, lease_ms=LEASE_MS, claim=name))
            if delivery.runs:
                self.settle(delivery, name)
            if not payloads & self.unfinished():
                return
            self.world.advance(LEASE_MS)
        raise AssertionError(f"{payloads & self.unfinished()} were never done")

    def settle(self, delivery: r.Delivery, claim: str | None) -> None:
        assert len({job.id for job in delivery}) == len(delivery)
        if claim is not None:
            try:
                self.do(c.AckClaim(claim))
            except NotFound:
                pass  # its leases ran out meanwhile, and it was forgotten
            return
        left = list(delivery.ids)
        while left:
            reply: r.Settled = self.do(c.Ack(left, delivery.token))
            left = [job for job, code in reply.refused.items() if code in ("unavailable", "unknown", "closed")]
            if left:
                self.mend()

    def jobs(self) -> list[r.JobView]:
        return list(self.do(c.Browse(limit=1_000)).jobs)

    def unfinished(self) -> set[bytes]:
        return {job.payload for job in self.jobs() if job.state is not State.COMPLETED}


def work(client: Client) -> None:
    staged = {f"{queue}/{number}".encode() for queue in QUEUES for number in range(2)}
    for queue in QUEUES:
        payloads = sorted(one for one in staged if one.startswith(queue.encode()))
        client.do(c.Stage("published", queue, queue, payloads, part=0))
        client.do(c.Stage("aborted", "s", queue, [b"never"], part=0))
    outcome: r.Transaction = client.do(c.Publish("published", QUEUES))
    assert (outcome.outcome, outcome.created) == ("published", len(staged))
    assert client.do(c.Abort("aborted")).outcome == "aborted"
    assert client.unfinished() == staged
    client.work_off(staged, None)
    single = Options(custom_id="single", delay_ms=3 * LEASE_MS)
    client.do(c.Push(QUEUES[1], b"single", single))
    claimed = {b"single"}
    for queue in QUEUES:
        key = f"batch in {queue}"
        claimed |= set(batch := [f"{key}/{number}".encode() for number in range(2)])
        client.do(c.PushBatch(queue, batch, request_key=key))
    client.work_off(claimed, "claim")
    found = Counter(job.payload for job in client.jobs())
    assert found == Counter(staged | claimed)
    assert client.do(c.GetStats()).totals.completed == len(found)
    for node in client.world.nodes:
        assert node.broker is not None
        assert not any(shard.outbox for shard in node.broker.runtime.shards)


@pytest.fixture
def world() -> Iterator[Processes]:
    world = Processes(SETTINGS)
    yield world
    end(world)


def messages_of_the_work() -> int:
    world = Processes(SETTINGS)
    work(Client(world))
    count = world.messages
    end(world)
    return count


def test_the_work_goes_through_when_nobody_dies(world: Processes):
    client = Client(world)
    work(client)
    assert not client.told
    assert world.messages > 50


@pytest.mark.parametrize("dead", [0, 1])
def test_a_death_between_any_two_messages_loses_nothing(dead: int):
    told: Counter[str] = Counter()
    for point in range(5, messages_of_the_work()):
        world = Processes(SETTINGS)
        world.die_at = (point, dead)
        client = Client(world)
        try:
            work(client)
        except (AssertionError, StokerError) as error:
            raise AssertionError(f"process {dead} died at message {point}: {error}") from error
        told += client.told
        end(world)
    assert told["unavailable"] + told["closed"] > 5
    assert told["unknown"] > 5
