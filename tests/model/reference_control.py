"""What people do to queues, jobs and dead letters."""

from collections.abc import Sequence

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, NotFound, QueueActive, WrongState
from stoker.model.reasons import Reason
from stoker.model.states import ENDED, State
from tests.model import reference_checks as check
from tests.model.reference_finish import fenced
from tests.model.reference_life import end, evict, forget, hand_back, make_ready, make_waiting, revive, together
from tests.model.reference_push import check_queue_fits
from tests.model.reference_views import found, view
from tests.model.reference_world import Job, Queue, World

# --- queues --------------------------------------------------------------------------------------


def configured(world: World, tenant: str, name: str) -> Queue:
    """A queue exists from its first configuration on."""
    check_queue_fits(world, tenant, name)
    return world.make_queue(tenant, name)


def pause(world: World, tenant: str, command: c.Pause) -> r.Done:
    check.name(command.queue)
    configured(world, tenant, command.queue).paused = True
    return r.Done()


def resume(world: World, tenant: str, command: c.Resume) -> r.Done:
    check.name(command.queue)
    configured(world, tenant, command.queue).paused = False
    return r.Done()


def set_rate_limit(world: World, tenant: str, command: c.SetRateLimit) -> r.Done:
    check.name(command.queue)
    check.rate_limit(command.limit)
    queue = configured(world, tenant, command.queue)
    queue.rate_limit = command.limit
    if command.limit is not None:
        queue.level = (command.limit.burst or command.limit.count) * command.limit.per_ms
        queue.level_at = world.now
    return r.Done()


def set_concurrency(world: World, tenant: str, command: c.SetConcurrency) -> r.Done:
    check.name(command.queue)
    check.number(command.limit, 0)
    configured(world, tenant, command.queue).concurrency = command.limit
    return r.Done()


def set_queue_policy(world: World, tenant: str, command: c.SetQueuePolicy) -> r.Done:
    check.name(command.queue)
    check.group_policy(command.group_on_retry)
    check.dead_letter_policy(command.dead_letters)
    queue = configured(world, tenant, command.queue)
    if command.group_on_retry is not None:
        queue.group_on_retry = command.group_on_retry
    if command.dead_letters is not None:
        queue.dead_letters = command.dead_letters
        evict(world, queue, command.dead_letters.entries_max)
    return r.Done()


def drain(world: World, tenant: str, command: c.Drain) -> r.Done:
    check.name(command.queue)
    queue = world.queue(tenant, command.queue)
    if queue is None:
        return r.Done(0)
    states = (State.WAITING, State.DELAYED) if command.delayed else (State.WAITING,)
    jobs = world.jobs_in(queue, *states)
    cancel_all(world, jobs, Reason.DRAINED)
    return r.Done(len(jobs))


def cancel_all(world: World, jobs: Sequence[Job], reason: str) -> None:
    with together(world):
        for job in jobs:
            end(world, job, State.CANCELLED, reason)


def clean(world: World, tenant: str, command: c.Clean) -> r.Ids:
    check.name(command.queue)
    check.duration(command.age_ms)
    check.number(command.limit, 1, world.limits.batch_jobs_max)
    if command.state is State.ACTIVE:
        raise InvalidRequest("active jobs cannot be cleaned")
    queue = world.queue(tenant, command.queue)
    if queue is None:
        return r.Ids([])
    before = world.now - command.age_ms
    if command.state in ENDED:
        old = [job for job in world.jobs_in(queue, command.state) if job.finished_at <= before]
        old.sort(key=lambda job: (job.finished_at, job.dead_number if job.dead else job.end_number))
        for job in old[: command.limit]:
            forget(job)
        return r.Ids([job.id for job in old[: command.limit]])
    old = [job for job in world.jobs_in(queue, command.state) if job.pushed_at <= before][: command.limit]
    cancel_all(world, old, Reason.CLEANED)
    return r.Ids([job.id for job in old])


def obliterate(world: World, tenant: str, command: c.Obliterate) -> r.Done:
    check.name(command.queue)
    queue = world.queue(tenant, command.queue)
    if queue is None:
        return r.Done(0)
    if world.jobs_in(queue, State.ACTIVE) and not command.force:
        raise QueueActive("jobs are active")
    jobs = list(world.jobs_of(queue))
    queue.dead_letters = msgspec.structs.replace(queue.dead_letters, take_cancelled=False)
    cancel_all(world, [job for job in jobs if job.live], Reason.OBLITERATED)
    for job in jobs:
        forget(job)
    world.queues.remove(queue)
    for request in [request for request in world.requests if request[:2] == (tenant, command.queue)]:
        del world.requests[request]
    for owner in [owner for owner in world.schedules if owner[:2] == (tenant, command.queue)]:
        del world.schedules[owner]
    return r.Done(len(jobs))


# --- jobs ----------------------------------------------------------------------------------------


def readable(world: World, tenant: str, job_id: int) -> Job:
    job = world.job(tenant, job_id)
    if job is None:
        raise NotFound("no such job")
    return job


def live(world: World, tenant: str, job_id: int) -> Job:
    job = readable(world, tenant, job_id)
    if not job.live:
        raise WrongState(f"it is {job.state}")
    return job


def cancel(world: World, tenant: str, command: c.Cancel) -> r.JobView:
    job = live(world, tenant, command.id)
    if job.active:
        job.cancel_requested = True
    else:
        end(world, job, State.CANCELLED, Reason.CANCELLED)
    return view(world, job)


def promote(world: World, tenant: str, command: c.Promote) -> r.Done:
    job = readable(world, tenant, command.id)
    if job.state is not State.DELAYED:
        raise WrongState(f"it is {job.state}")
    job.due = 0
    make_waiting(world, job)
    return r.Done()


def change_priority(world: World, tenant: str, command: c.ChangePriority) -> r.Done:
    check.priority(command.priority)
    job = live(world, tenant, command.id)
    job.options = msgspec.structs.replace(job.options, priority=command.priority)
    return r.Done()


def move_to_delayed(world: World, tenant: str, command: c.MoveToDelayed) -> r.Done:
    check.duration(command.delay_ms)
    job = live(world, tenant, command.id)
    if job.active or command.token is not None:
        hand_back(world, fenced(world, tenant, command.id, command.token), command.delay_ms)
    elif job.state is State.BLOCKED:
        raise WrongState("it is blocked")
    elif command.delay_ms or job.state is State.DELAYED:
        job.due = world.now + command.delay_ms
        make_ready(world, job)
    return r.Done()


def update_payload(world: World, tenant: str, command: c.UpdatePayload) -> r.Done:
    check.size(command.payload, world.limits.payload_bytes_max)
    if command.codec is not None:
        check.codec(command.codec)
    job = readable(world, tenant, command.id)
    if not (job.live or job.dead):
        raise WrongState(f"it is {job.state}")
    job.payload = command.payload
    if command.codec is not None:
        job.options = msgspec.structs.replace(job.options, codec=command.codec)
    return r.Done()


def discard(world: World, tenant: str, command: c.Discard) -> r.Done:
    job = live(world, tenant, command.id)
    job.error, job.error_class, job.stack = "discarded", "", ""
    end(world, job, State.FAILED, Reason.EXPLICIT_FAIL)
    return r.Done()


def delete_job(world: World, tenant: str, command: c.DeleteJob) -> r.Done:
    job = found(world, tenant, command.id)
    if job.live:
        raise WrongState("it has not ended")
    forget(job)
    return r.Done()


# --- dead letters --------------------------------------------------------------------------------


def retry_dead(world: World, tenant: str, command: c.RetryDead) -> r.Retried:
    check.name(command.queue)
    if command.limit is not None:
        check.number(command.limit, 1)
    queue = world.queue(tenant, command.queue)
    letters = world.dead_letters(queue) if queue is not None else []
    refused: dict[int, str] = {}
    if command.ids is not None:
        refused = {job_id: NotFound.code for job_id in command.ids if job_id not in [job.id for job in letters]}
        letters = [job for job_id in dict.fromkeys(command.ids) for job in letters if job.id == job_id]
    retried: list[int] = []
    for job in [job for job in letters if command.reason in (None, job.reason)][: command.limit]:
        if revive(world, job):
            retried.append(job.id)
        else:
            refused[job.id] = WrongState.code
    return r.Retried(retried, refused)


def purge_dead(world: World, tenant: str, command: c.PurgeDead) -> r.Done:
    check.name(command.queue)
    queue = world.queue(tenant, command.queue)
    count = 0
    for job in world.dead_letters(queue) if queue is not None else []:
        if (command.ids is None or job.id in command.ids) and command.reason in (None, job.reason):
            forget(job)
            count += 1
    return r.Done(count)
