"""Deadlines: each is processed at its own time, the earliest first, whenever the queue is next used."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from stoker.model.reasons import Reason
from stoker.model.states import PENDING, State
from tests.model.reference_life import end, fail_delivery, forget, keep_age_ms, make_waiting, plan_retry, revive
from tests.model.reference_pull import serve_parked, time_out_parked
from tests.model.reference_schedules import reach_slot
from tests.model.reference_world import OWN_WORDS, Job, Queue, World

DUE, TTL, DELIVERY, RETRY, EXPIRY, KEEPING, OTHER, SLOT = range(8)
"""The order of deadlines at the same time."""


class Deadline(NamedTuple):
    time: int
    kind: int
    id: int
    reach: Callable[[], object]


def advance(world: World, now: int) -> None:
    assert now >= world.now, "time does not run backwards"
    world.looked_at = now
    while True:
        reached = [deadline for deadline in deadlines(world) if deadline.time <= now]
        if not reached:
            break
        first = min(reached, key=lambda deadline: deadline[:3])
        world.now = max(first.time, world.now)
        first.reach()
    world.now = now
    serve_parked(world)
    time_out_parked(world)


def deadlines(world: World) -> Iterator[Deadline]:
    for job in world.jobs:
        if job.readable:
            yield from deadlines_of_job(world, job)
    for queue in world.queues:
        yield from deadlines_of_keys(queue)
    for request, (_, until) in world.requests.items():
        yield Deadline(until, KEEPING, 0, partial(world.requests.pop, request))
    yield from other_deadlines(world)


def deadlines_of_job(world: World, job: Job) -> Iterator[Deadline]:
    if job.state is State.DELAYED:
        yield Deadline(job.due, DUE, job.id, lambda: make_waiting(world, job))
    if job.state in PENDING and job.attempts == 0 and job.options.ttl_ms and not job.revived:
        at = job.pushed_at + job.options.ttl_ms
        yield Deadline(at, TTL, job.id, lambda: end(world, job, State.EXPIRED, Reason.TTL_EXPIRED))
    if job.active:
        if job.timeout_at is not None and job.timeout_at <= job.lease_until:
            yield Deadline(
                job.timeout_at, DELIVERY, job.id, lambda: fail_delivery(world, job, Reason.TIMEOUT, error=OWN_WORDS)
            )
        else:
            yield Deadline(
                job.lease_until, DELIVERY, job.id, lambda: fail_delivery(world, job, Reason.STALLED, error=OWN_WORDS)
            )
    if job.dead:
        yield Deadline(job.expires_at, EXPIRY, job.id, lambda: forget(job))
        if job.next_retry_at:
            yield Deadline(job.next_retry_at, RETRY, job.id, lambda: retry_by_itself(world, job))
    if job.state in (State.COMPLETED, State.CANCELLED, State.EXPIRED):
        yield Deadline(job.finished_at + keep_age_ms(world, job), KEEPING, job.id, lambda: forget(job))


def retry_by_itself(world: World, job: Job) -> None:
    if revive(world, job):
        job.retry_count += 1
    else:
        plan_retry(world.queue_of(job), job, world.now)
        if job.next_retry_at:
            job.next_retry_at = max(job.next_retry_at, world.now + 1_000)


def deadlines_of_keys(queue: Queue) -> Iterator[Deadline]:
    for keys in (queue.unique, queue.custom, queue.debounce):
        for name, key in keys.items():
            if key.until is not None:
                yield Deadline(key.until, KEEPING, key.job, partial(keys.pop, name))


def other_deadlines(world: World) -> Iterator[Deadline]:
    for name, transaction in world.transactions.items():
        for key, staged in transaction.stages.items():
            yield Deadline(staged.until, OTHER, 0, partial(transaction.stages.pop, key))
        if transaction.outcome is not None:
            yield Deadline(transaction.until, OTHER, 0, partial(world.transactions.pop, name))
    for place, entry in world.kv.items():
        if entry.until:
            yield Deadline(entry.until, OTHER, 0, partial(world.kv.pop, place))
    for name, claim in world.claims.items():
        if claim.until is not None:
            yield Deadline(claim.until, OTHER, 0, partial(world.claims.pop, name))
    for number, owner in enumerate(sorted(world.schedules)):
        schedule = world.schedules[owner]
        if schedule.next_slot and not schedule.paused:
            at = max(schedule.next_slot, schedule.decided_at)
            yield Deadline(at, SLOT, number, partial(reach_slot, world, owner))
