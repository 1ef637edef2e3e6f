"""A process dies between any two messages, comes back, and nothing is lost or done twice.

The work goes over all shards at once: transactions, pulls, acks, claims, waits. A caller that gets `unavailable` or
`unknown` does the same again, as clients do; in the end everything is there exactly once.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound, StokerError, Unavailable, Unknown
from stoker.model.ids import shard_for
from stoker.model.options import Dependency, Options
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from tests.crash.roles import work_upkeep
from tests.processes.world import Processes, end

SHARDS = 4
HOMES: dict[int, str] = {}
for name in (f"q{number}" for number in range(100)):
    HOMES.setdefault(shard_for("default", name, SHARDS), name)
QUEUES = [HOMES[shard] for shard in range(SHARDS)]
SETTINGS = LocalSettings(shards=SHARDS, journal=JournalSettings(disk_reserve_bytes=4096, fsync_interval_ms=3_600_000))
LEASE_MS = 1_000
TRIES_MAX = 20
SOAK = os.environ.get("STOKER_SOAK") == "1"


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


def messages_of_the_work(processes: int) -> int:
    world = Processes(SETTINGS, processes)
    work(Client(world))
    count = world.messages
    end(world)
    return count


def test_the_work_goes_through_when_nobody_dies(world: Processes):
    client = Client(world)
    work(client)
    assert not client.told
    assert world.messages > 50


@pytest.mark.parametrize(("processes", "dead", "step"), [(2, 0, 3), (2, 1, 3), (4, 2, 10)])
def test_a_death_between_any_two_messages_loses_nothing(processes: int, dead: int, step: int):
    """In the soak between all of them, else between some, other ones for each process."""
    told: Counter[str] = Counter()
    step = 1 if SOAK else step
    for point in range(5 + dead % step, messages_of_the_work(processes), step):
        world = Processes(SETTINGS, processes)
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


@pytest.mark.parametrize("in_a_process", [True, False])
def test_each_process_saves_and_rewrites_what_is_its_own(in_a_process: bool):
    """Checkpoints, dropped and rewritten files: as with one process, and after a death everything is there."""
    journal = JournalSettings(
        disk_reserve_bytes=4096,
        wal_bytes_max=50_000,
        checkpoint_records=50,
        events_bytes_max=50_000,
        checkpoint_process=in_a_process,
    )
    world = Processes(LocalSettings(shards=SHARDS, journal=journal))
    client = Client(world)
    kept = [client.do(c.PushBatch(queue, [f"{queue}/{n}".encode() * 50 for n in range(5)])).ids for queue in QUEUES]
    for _ in range(40):
        for queue in QUEUES:
            client.do(c.PushBatch(queue, [b"x" * 1_000] * 5, Options(priority=1)))
            delivery = client.do(c.Pull([queue], 5))
            client.do(c.Ack(delivery.ids, delivery.token))
        for node in world.nodes:
            assert node.broker is not None
            work_upkeep(node.broker)
    for node in world.nodes:
        assert node.broker is not None
        assert isinstance(node.broker.store, DirectoryStore)
        assert node.broker.store.upkeep is not None
        with node.broker.store.upkeep.work_lock:
            node.broker.store.upkeep.retention.wait()
        manifest = node.broker.store.directory.manifest
        assert manifest.checkpoint is not None
        assert [at > 0 for at in manifest.position] == [shard in manifest.own for shard in range(SHARDS)]
        assert all((low > 1) == (shard in manifest.own) for shard, low in enumerate(manifest.lowest))
    world.die(0)
    world.die(1)
    client.mend()
    jobs = {job.id: job.payload for job in client.jobs() if job.state is State.WAITING}
    assert sorted(jobs) == sorted(job for ids in kept for job in ids)
    assert sorted(jobs.values()) == sorted(f"{queue}/{n}".encode() * 50 for queue in QUEUES for n in range(5))
    end(world)


# --- workflows and edges -----------------------------------------------------------------------------


def chained() -> list[Step]:
    """A step in each shard, one after the other, and one that waits for the first and the last."""
    steps = [
        Step(queue, [queue.encode()] * 2, after=[Edge(number - 1)] if number else (), key=f"in-{queue}")
        for number, queue in enumerate(QUEUES)
    ]
    return [*steps, Step(QUEUES[0], [b"join"], after=[Edge(0), Edge(len(steps) - 1)], key="join")]


def run_workflow(client: Client) -> None:
    reply: r.PushedWorkflow = client.do(c.PushWorkflow(chained(), "over all", "only once"))
    behind: r.PushedBatch = client.do(
        c.PushBatch(
            QUEUES[3], [b"behind"], Options(depends_on=(Dependency(first_job(client, reply.id)),)), None, True, "b"
        )
    )
    order: list[bytes] = []
    view: r.WorkflowView = client.do(c.GetWorkflow(reply.id))
    for _ in range(TRIES_MAX):
        delivery: r.Delivery = client.do(c.Pull(QUEUES, 100, 0, lease_ms=LEASE_MS))
        order += [job.payload for job in delivery]
        if delivery.runs:
            client.settle(delivery, None)
        view = client.do(c.GetWorkflow(reply.id))
        if view.finished_at and client.do(c.GetJob(behind.ids[0])).finished_at:
            break
        client.world.restart_dead()
        client.world.advance(LEASE_MS)
    assert (view.state, view.total, view.remaining, view.failed) == ("completed", 9, 0, 0)
    firsts = [order.index(step.payloads[0]) for step in chained()]
    assert firsts == sorted(firsts), "nothing starts before its time"
    assert Counter(job.payload for job in client.jobs()) == Counter(
        [queue.encode() for queue in QUEUES] * 2 + [b"join", b"behind"]
    )


def first_job(client: Client, workflow: int) -> int:
    """Asked for, since the answer to the push may have been lost."""
    for _ in range(TRIES_MAX):
        first: int = client.do(c.GetWorkflow(workflow)).steps[0].first
        if first:
            return first
        client.mend()
    raise AssertionError("the workflow has no jobs")


def test_a_workflow_over_processes_runs_in_order(world: Processes):
    run_workflow(Client(world))


@pytest.mark.parametrize("dying", [0, 1])
def test_a_workflow_goes_on_whenever_a_process_dies(dying: int):
    trial = Processes(SETTINGS)
    try:
        run_workflow(Client(trial))
        messages = trial.messages
    finally:
        end(trial)
    assert messages > 20, "processes have something to say to each other"
    for number in range(1 + dying, messages, 1 if SOAK else 9):
        world = Processes(SETTINGS)
        world.die_at = (number, dying)
        try:
            run_workflow(Client(world))
        finally:
            end(world)
