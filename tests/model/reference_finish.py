"""What a worker says about the jobs in its hands."""

from collections.abc import Sequence

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LostLease, NotFound, Refused, WrongState
from stoker.model.options import Codec
from stoker.model.reasons import GIVEN_REASONS, Reason
from stoker.model.states import State
from tests.model import reference_checks as check
from tests.model.reference_life import end, fail_delivery, hand_back, jobs_under
from tests.model.reference_world import Claim, Job, World


def fenced(world: World, tenant: str, job_id: int, token: int | None) -> Job:
    """The job, if it is active and this is the token of its delivery."""
    job = world.job(tenant, job_id)
    if job is None:
        raise NotFound("no such job")
    if job.active and token in (None, job.token):
        return job
    raise refusal(job, token)


def refusal(job: Job, token: int | None) -> Refused:
    return WrongState(f"it is {job.state}") if token is None else LostLease("another delivery")


def named(world: World, ids: Sequence[int], tokens: c.Tokens) -> list[tuple[int, int | None]]:
    check.number(len(ids), 1, world.limits.batch_jobs_max)
    if tokens is None or isinstance(tokens, int):
        return [(job_id, tokens) for job_id in ids]
    if len(tokens) != len(ids):
        raise InvalidRequest("one token an id")
    return list(zip(ids, tokens, strict=True))


def judged(
    world: World, tenant: str, ids: Sequence[int], tokens: c.Tokens
) -> tuple[list[tuple[int, Job]], dict[int, str]]:
    """The jobs that may be settled, with their positions, and the codes of the others; judged before any is settled."""
    good: list[tuple[int, Job]] = []
    refused: dict[int, str] = {}
    for position, (job_id, token) in enumerate(named(world, ids, tokens)):
        try:
            job = fenced(world, tenant, job_id, token)
            if job in [other for _, other in good]:
                raise refusal(job, token)
            good.append((position, job))
        except Refused as error:
            refused[job_id] = error.code
    return good, refused


def ack(world: World, tenant: str, command: c.Ack) -> r.Settled:
    results = command.results
    if results is not None and len(results) != len(command.ids):
        raise InvalidRequest("one result an id")
    for result in results or ():
        check.size(result, world.limits.result_bytes_max)
    check.codec(command.codec)
    jobs, refused = judged(world, tenant, command.ids, command.tokens)
    for position, job in jobs:
        complete(world, job, None if results is None else results[position], command.codec)
    return r.Settled(len(jobs), refused)


def complete(world: World, job: Job, result: bytes | None, codec: Codec) -> None:
    job.result = result
    job.result_codec = "bytes" if result is None else codec
    job.error = job.error_class = job.stack = ""
    world.queue_of(job).worker_seen_at = world.now
    end(world, job, State.COMPLETED)


def fail(world: World, tenant: str, command: c.Fail) -> r.Failed:
    check.duration(command.delay_ms)
    error = check.cut(command.error, world.limits.error_chars_max)
    stack = check.cut(command.stack, world.limits.stack_chars_max)
    error_class = check.cut(command.error_class, world.limits.key_chars_max)
    if command.reason and (command.retry or command.reason not in GIVEN_REASONS):
        raise InvalidRequest("no reason for a dead letter")
    final = "" if command.retry else command.reason or Reason.EXPLICIT_FAIL
    jobs, refused = judged(world, tenant, command.ids, command.tokens)
    for _, job in jobs:
        world.queue_of(job).worker_seen_at = world.now
        fail_delivery(
            world,
            job,
            Reason.FAILED,
            error=error,
            error_class=error_class,
            stack=stack,
            final=final,
            delay_ms=command.delay_ms,
        )
    led_to = [r.FailedJob(job.id, job.state, job.due if job.state is State.DELAYED else 0) for _, job in jobs]
    return r.Failed(led_to, refused)


def release(world: World, tenant: str, command: c.Release) -> r.Settled:
    check.duration(command.delay_ms)
    jobs, refused = judged(world, tenant, command.ids, command.tokens)
    for _, job in jobs:
        if command.note and not job.cancel_requested:
            job.error, job.error_class, job.stack = check.cut(command.note, world.limits.error_chars_max), "", ""
        hand_back(world, job, command.delay_ms)
    return r.Settled(len(jobs), refused)


def extend(world: World, tenant: str, command: c.Extend) -> r.Extended:
    check.duration(command.lease_ms, least=world.limits.lease_ms_min)
    jobs, refused = judged(world, tenant, command.ids, command.tokens)
    return extended(world, [job for _, job in jobs], command.lease_ms, refused, renew=command.renew)


def extended(
    world: World, jobs: Sequence[Job], lease_ms: int | None, refused: dict[int, str], *, renew: bool = True
) -> r.Extended:
    for job in jobs if renew else ():
        job.lease_until = world.now + (job.lease_ms if lease_ms is None else lease_ms)
        job.heartbeat_at = world.now
    return r.Extended(
        len(jobs),
        max((job.lease_until for job in jobs), default=0),
        refused,
        [job.id for job in jobs if job.cancel_requested],
    )


# --- claims --------------------------------------------------------------------------------------


def held_under(world: World, tenant: str, name: str) -> list[Job]:
    check.key(name, world.limits)
    claim: Claim | None = world.claims.get((tenant, name))
    if claim is None:
        raise NotFound("no such claim")
    return jobs_under(world, tenant, name)


def ack_claim(world: World, tenant: str, command: c.AckClaim) -> r.Settled:
    for result in command.results.values():
        check.size(result, world.limits.result_bytes_max)
    check.codec(command.codec)
    jobs = held_under(world, tenant, command.claim)
    for job in jobs:
        complete(world, job, command.results.get(job.id), command.codec)
    return r.Settled(len(jobs))


def release_claim(world: World, tenant: str, command: c.ReleaseClaim) -> r.Settled:
    jobs = held_under(world, tenant, command.claim)
    for job in jobs:
        hand_back(world, job, 0)
    return r.Settled(len(jobs))


def extend_claim(world: World, tenant: str, command: c.ExtendClaim) -> r.Extended:
    check.duration(command.lease_ms, least=world.limits.lease_ms_min)
    return extended(world, held_under(world, tenant, command.claim), command.lease_ms, {})


# --- notes ---------------------------------------------------------------------------------------


def set_progress(world: World, tenant: str, command: c.SetProgress) -> r.Done:
    if not 0 <= command.percent <= 100:
        raise InvalidRequest("0..100")
    check.chars(command.message, world.limits.message_chars_max)
    job = fenced(world, tenant, command.id, command.token)
    job.progress = r.Progress(command.percent, command.message)
    return r.Done()


def append_log(world: World, tenant: str, command: c.AppendLog) -> r.Done:
    if command.token is not None:
        job = fenced(world, tenant, command.id, command.token)
    else:
        found = world.job(tenant, command.id)
        if found is None:
            raise NotFound("no such job")
        job = found
        if not (job.live or job.dead):
            raise WrongState(f"it is {job.state}")
    message = check.cut(command.message, world.limits.log_line_chars_max)
    job.logs.append(r.LogLine(world.now, command.level, message))
    wanted = job.options.log_lines_max
    most = world.limits.log_lines_max if wanted is None else min(wanted, world.limits.log_lines_max)
    del job.logs[: max(0, len(job.logs) - most)]
    return r.Done()


def append_partial(world: World, tenant: str, command: c.AppendPartial) -> r.Done:
    check.size(command.data, world.limits.payload_bytes_max)
    check.codec(command.codec)
    if command.index is not None:
        check.number(command.index, 0)
    job = fenced(world, tenant, command.id, command.token)
    index = job.next_partial if command.index is None else command.index
    job.next_partial = max(job.next_partial, index + 1)
    job.partials.append(r.Chunk(index, command.data, command.codec))
    del job.partials[: -world.limits.partials_max]
    return r.Done()
