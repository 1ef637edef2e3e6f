"""Which jobs may be taken, and in which order; limits, claims, and those who wait for a job."""

from collections.abc import Sequence

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.model.states import State
from tests.model import reference_checks as check
from tests.model.reference_life import ended, jobs_under, start
from tests.model.reference_world import Claim, Job, Parked, Queue, World

# --- commands ------------------------------------------------------------------------------------


def pull(world: World, tenant: str, command: c.Pull) -> r.Delivery | Parked:
    check.number(len(command.queues), 1, world.limits.queues_per_pull_max)
    for name in command.queues:
        check.name(name)
    check.number(command.count, 1, world.limits.pull_jobs_max)
    check.number(command.wait_ms, 0, world.limits.wait_ms_max)
    check.duration(command.lease_ms, least=world.limits.lease_ms_min)
    check.key(command.claim, world.limits)
    delivery = try_pull(world, tenant, command, arrives=True)
    if delivery is not None:
        return delivery
    if command.wait_ms == 0:
        return nothing(world, tenant, command)
    parked = Parked(tenant, command, world.now + command.wait_ms)
    world.parked.append(parked)
    return parked


def wait_job(world: World, tenant: str, command: c.WaitJob) -> r.Ended | Parked:
    check.number(command.wait_ms, 0, world.limits.wait_ms_max)
    job = world.job(tenant, command.id)
    if job is None:
        raise NotFound("no such job")
    if not job.live or command.wait_ms == 0:
        return ended(job)
    parked = Parked(tenant, command, world.now + command.wait_ms)
    world.parked.append(parked)
    return parked


# --- those who wait ------------------------------------------------------------------------------


def serve_parked(world: World) -> None:
    """First come, first served; again from the front after each: it may have made a claim that others wait for."""
    for parked in world.parked:
        if isinstance(parked.command, c.Pull):
            delivery = try_pull(world, parked.tenant, parked.command)
            if delivery is not None:
                world.parked.remove(parked)
                world.answers.append((parked, delivery))
                serve_parked(world)
                return


def time_out_parked(world: World) -> None:
    for parked in list(world.parked):
        if parked.until > world.now:
            continue
        world.parked.remove(parked)
        if isinstance(parked.command, c.Pull):
            world.answers.append((parked, nothing(world, parked.tenant, parked.command)))
            for queue in filter(None, (world.queue(parked.tenant, name) for name in parked.command.queues)):
                queue.worker_seen_at = parked.until
        elif isinstance(parked.command, c.WaitJob):
            job = world.job(parked.tenant, parked.command.id)
            assert job is not None, "an end answers those who wait"
            world.answers.append((parked, ended(job)))


# --- taking --------------------------------------------------------------------------------------


def try_pull(world: World, tenant: str, command: c.Pull, *, arrives: bool = False) -> r.Delivery | None:
    """What the pull brings now; None if it has to wait."""
    if command.claim is not None and (tenant, command.claim) in world.claims:
        claim = world.claims[tenant, command.claim]
        return delivery_of(claim.token, jobs_under(world, tenant, command.claim))
    taken: list[Job] = []
    asked: list[Queue] = []
    for name in command.queues:
        queue = world.queue(tenant, name)
        if queue is not None and len(taken) < command.count:
            asked.append(queue)
        while queue is not None and len(taken) < command.count and may_start(world, queue):
            jobs = ready_jobs(world, queue)
            if not jobs:
                break
            job = min(jobs, key=lambda job: job.place)
            if queue.rate_limit is not None:
                queue.level -= queue.rate_limit.per_ms
            start(world, job, world.tokens + 1, command)
            taken.append(job)
    for queue in asked if taken or arrives else ():
        queue.worker_seen_at = world.now
    if not taken:
        return None
    world.tokens += 1
    if command.claim is not None:
        world.claims[tenant, command.claim] = Claim(world.tokens)
    return delivery_of(world.tokens, taken)


def delivery_of(token: int, jobs: Sequence[Job]) -> r.Delivery:
    """One run a job; how a broker gathers them in runs is its own affair."""
    return r.Delivery(
        token,
        [
            r.Run(job.queue, [job.id], [job.payload], job.options, job.attempts, job.pushed_at, job.lease_until)
            for job in jobs
        ],
    )


def nothing(world: World, tenant: str, command: c.Pull) -> r.Delivery:
    """An empty answer with the next chance."""
    chances = []
    for queue in world.queues:
        if queue.tenant != tenant or queue.name not in command.queues or queue.paused:
            continue
        chances += [job.due for job in world.jobs_in(queue, State.DELAYED)]
        refill = rate_limited_until(world, queue)
        if refill is not None and ready_jobs(world, queue):
            chances.append(refill)
    return r.Delivery(next_at=min(chances, default=None))


def may_start(world: World, queue: Queue) -> bool:
    return not queue.paused and has_free_slot(world, queue) and rate_limited_until(world, queue) is None


def has_free_slot(world: World, queue: Queue) -> bool:
    return queue.concurrency == 0 or len(world.jobs_in(queue, State.ACTIVE)) < queue.concurrency


def rate_limited_until(world: World, queue: Queue) -> int | None:
    """When the next token comes, or None if there is one."""
    limit = queue.rate_limit
    if limit is None:
        return None
    full = (limit.burst or limit.count) * limit.per_ms
    queue.level = min(full, queue.level + limit.count * (world.now - queue.level_at))
    queue.level_at = world.now
    if queue.level >= limit.per_ms:
        return None
    return world.now + -(-(limit.per_ms - queue.level) // limit.count)


def ready_jobs(world: World, queue: Queue) -> list[Job]:
    """Waiting, and not behind another job of their group."""
    waiting = world.jobs_in(queue, State.WAITING)
    return [job for job in waiting if group_busy_with(world, queue, job) is None]


def group_busy_with(world: World, queue: Queue, job: Job) -> int | None:
    """The job of its group that must end, or come first."""
    group = job.options.group_id
    if group is None:
        return None
    for other in world.jobs_in(queue, State.ACTIVE):
        if other.options.group_id == group:
            return other.id
    if group in queue.held and queue.held[group] != job.id:
        return queue.held[group]
    if job.state is not State.WAITING:
        return None
    for other in world.jobs_in(queue, State.WAITING):
        if other.options.group_id == group and other.id < job.id:
            return other.id
    return None
