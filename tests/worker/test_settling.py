"""Settlements become few commands, are sent until they are confirmed, and refusals are reported."""

import asyncio
from typing import Any

import pytest

from stoker.brokers.contract import LACKS_NOTHING
from stoker.model import commands as c
from stoker.model.errors import Unknown, Unreachable
from stoker.model.limits import Limits
from stoker.model.options import Options
from stoker.model.states import State
from stoker.testing import World
from stoker.worker.context import Context
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.lane import Dropped, JobChunk, JobFailure, JobsCompleted, JobsHandedBack
from stoker.worker.outcomes import RETRY, Failure, Verdict
from stoker.worker.settle_commands import JobReport, coalesced, sendings_of
from stoker.worker.worker import Worker
from tests.worker.running import handler, push, push_many

HANDLER = handler(print)
FAILURE = Failure("no", "ValueError")


def chunk(ids: range | list[int], token: int = 1) -> JobChunk:
    return JobChunk(HANDLER, token, "q", ids, [b""] * len(ids), Options(), 1, 0)


def commands(*settlements: Any) -> list[Any]:
    return [sending.command for sending in sendings_of(settlements)]


def test_a_whole_run_is_one_ack_with_a_range():
    whole = chunk(range(0, 64_000, 64))
    assert commands(JobsCompleted(whole, whole.ids)) == [c.Ack(range(0, 64_000, 64), 1)]


def test_neighbours_of_a_run_are_a_range_again():
    whole = chunk(range(0, 64_000, 64))
    (ack,) = commands(JobsCompleted(whole, list(range(640, 32_000, 64))))
    assert ack.ids == range(640, 32_000, 64)


def test_jobs_of_many_deliveries_are_one_ack_with_a_token_for_each():
    items = [JobsCompleted(chunk([number], token), [number]) for number, token in ((5, 1), (3, 2), (9, 2))]
    assert commands(*items) == [c.Ack([5, 3, 9], [1, 2, 2])]


def test_results_stand_beside_their_ids():
    one, two = chunk([1, 2]), chunk([3], 2)
    acks = commands(JobsCompleted(one, [2, 1], [b"2", None]), JobsCompleted(two, [3], [b"3"]))
    assert acks == [c.Ack([2, 1, 3], [1, 1, 2], [b"2", None, b"3"], "json")]


def test_large_results_are_sent_in_several_commands():
    big = chunk(range(200))
    acks = commands(JobsCompleted(big, big.ids, [b"x" * 100_000] * 200))
    assert len(acks) > 2
    assert [job for ack in acks for job in ack.ids] == list(range(200))
    assert all(len(ack.ids) == len(ack.results) for ack in acks)


def test_equal_failures_are_one_command_and_others_are_not():
    many = chunk([1, 2, 3])
    fails = commands(
        *(JobFailure(many, job, FAILURE, RETRY) for job in (1, 2)), JobFailure(many, 3, FAILURE, Verdict("dead"))
    )
    assert [(list(fail.ids), fail.retry) for fail in fails] == [([1, 2], True), ([3], False)]


def test_releases_and_snoozes_go_by_their_delay():
    many = chunk([1, 2, 3, 4])
    found = commands(
        JobsHandedBack(many, [1, 2]),
        JobFailure(many, 3, FAILURE, Verdict("snooze", 500)),
        JobsHandedBack(many, [4], delay_ms=500),
    )
    assert [(list(each.ids), each.delay_ms) for each in found] == [([1, 2], 0), ([3, 4], 500)]


def test_of_the_progress_of_a_job_only_the_latest_is_sent():
    one = chunk([1, 2])
    reports = [JobReport(one, job, c.SetProgress(job, percent)) for job, percent in ((1, 10), (2, 5), (1, 20))]
    assert [report.command for report in coalesced(reports)] == [c.SetProgress(2, 5), c.SetProgress(1, 20)]


def test_what_is_said_first_about_a_job_counts():
    held_jobs, many = HeldJobs(), chunk([1, 2, 3])
    held_jobs.took(many)
    assert held_jobs.ended(JobsCompleted(many, [2])) == JobsCompleted(many, [2])
    assert held_jobs.ended(JobsCompleted(many, [1, 2, 3], [b"a", b"b", b"c"])) == JobsCompleted(
        many, [1, 3], [b"a", b"c"]
    )
    assert held_jobs.ended(JobsHandedBack(many, [1, 2, 3])) is None
    assert held_jobs.ended(Dropped(many, (2,))) is None
    assert (held_jobs.held, held_jobs.unsettled) == (0, 3)


def test_a_chunk_is_forgotten_when_all_of_it_is_confirmed():
    held_jobs, many = HeldJobs(), chunk([1, 2])
    held_jobs.took(many)
    held_jobs.ended(JobsCompleted(many, many.ids))
    held_jobs.settled(many, 1)
    assert not held_jobs.is_empty
    held_jobs.settled(many, 1)
    assert held_jobs.is_empty


# --- against the engine ------------------------------------------------------------------------------


class Flaky:
    """A broker whose calls of one kind fail at first, before or after they happened."""

    name, lacks = "local", LACKS_NOTHING

    def __init__(self, world: World, kind: type, error: Exception, *, happens: bool) -> None:
        self._inner: Any = world.broker
        self._kind, self._error, self._happens = kind, error, happens
        self.left = 2

    def execute(self, tenant: str, command: Any) -> Any:
        return self._inner.execute(tenant, command)

    async def execute_async(self, tenant: str, command: Any) -> Any:
        if type(command) is self._kind and self.left:
            self.left -= 1
            if self._happens:
                await self._inner.execute_async(tenant, command)
            raise self._error
        return await self._inner.execute_async(tenant, command)

    def close(self) -> None: ...


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("kind", [c.Ack, c.Fail, c.Release])
def test_a_settlement_that_is_not_answered_is_sent_again(world: World, kind: type, happens: bool):
    """Also one that had happened: the token sees to it that nothing happens twice."""
    runs = []

    def work() -> None:
        runs.append(1)
        if kind is c.Fail:
            raise ValueError("no")
        if kind is c.Release:
            from stoker.worker.outcomes import Snooze

            raise Snooze("1h")

    job = push(world.client, "work")
    error = Unknown("lost") if happens else Unreachable("gone")
    flaky = Flaky(world, kind, error, happens=happens)
    Worker(flaky, [handler(work)]).run_until_idle()
    assert (flaky.left, len(runs)) == (0, 1)
    expected = State.COMPLETED if kind is c.Ack else State.DELAYED
    assert world.client.get_state(job) is expected


class Acks(Flaky):
    """A broker that counts the jobs of each ack that was sent."""

    def __init__(self, world: World) -> None:
        super().__init__(world, c.Ack, Unreachable("never"), happens=True)
        self.left = 0
        self.sizes: list[int] = []

    async def execute_async(self, tenant: str, command: Any) -> Any:
        if type(command) is c.Ack:
            self.sizes.append(len(command.ids))
        return await super().execute_async(tenant, command)


def test_on_a_full_disk_results_are_sent_one_by_one(world: World):
    """Together they are more than a server takes then, each of them is not."""
    push_many(world.client, "work", range(8))
    world.broker.runtime.journal.is_full = True
    acks = Acks(world)
    Worker(acks, [handler(lambda number: "x" * 30_000, name="work")], prefetch=8).run_until_idle()
    assert max(acks.sizes) > 2
    assert world.client.get_counts().completed == 8


def test_a_server_with_small_limits_is_asked_for_less():
    limits = Limits(batch_jobs_max=10, pull_jobs_max=7)
    with World(limits=limits) as world:
        for start in range(0, 100, 10):
            push_many(world.client, "work", range(start, start + 10), batch_jobs=10)
        worker = Worker(world.client, [handler(lambda number: number, name="work")], prefetch=50, concurrency=4)
        worker.run_until_idle()
        assert world.client.get_counts().completed == 100


def test_a_late_ack_is_refused_counted_and_told(world: World):
    contexts: list[Context] = []

    def work(*, ctx: Context) -> str:
        contexts.append(ctx)
        if len(contexts) == 1:
            world.advance(30_001)  # nobody renews under this clock
        return f"run {len(contexts)}"

    job = push(world.client, "work")
    worker = Worker(world.client, [handler(work, context="ctx")], concurrency=1)
    worker.run_until_idle()
    assert contexts[0].lost
    assert world.client.get_state(job) is State.DELAYED
    world.advance("1m")
    worker.run_until_idle()
    assert world.client.get_job(job).result == b'"run 2"'
    assert not contexts[1].lost


def test_many_failures_at_once_are_all_told(world: World):
    async def work(number: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(f"number {number % 7}")

    push_many(world.client, "work", range(1_000), max_attempts=1)
    Worker(world.client, [handler(work)]).run_until_idle()
    assert world.client.get_counts().failed == 1_000
