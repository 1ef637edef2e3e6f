"""Looking changes nothing: views of jobs, pages, counts, and why a job waits."""

from collections import Counter

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.fingerprints import fingerprint_of
from stoker.model.histograms import BOUNDS_MS, Histogram
from stoker.model.history import Timings
from stoker.model.states import PENDING, State
from tests.model import reference_checks as check
from tests.model.reference_pull import group_busy_with, has_free_slot, rate_limited_until
from tests.model.reference_world import Job, Queue, World


def found(world: World, tenant: str, job_id: int) -> Job:
    job = world.job(tenant, job_id)
    if job is None:
        raise NotFound("no such job")
    return job


def view(world: World, job: Job) -> r.JobView:
    dead = None
    if job.dead:
        dead = r.DeadLetter(job.reason, job.finished_at, job.expires_at, job.retry_count, job.next_retry_at)
    return r.JobView(
        id=job.id,
        queue=job.queue,
        state=job.state,
        payload=job.payload,
        options=job.options,
        pushed_at=job.pushed_at,
        attempts=job.attempts,
        crashes=job.crashes,
        due=job.due if job.state is State.DELAYED else 0,
        blocked_by=blocked_by(job),
        started_at=job.started_at,
        lease_until=job.lease_until,
        heartbeat_at=job.heartbeat_at,
        worker=job.worker,
        claim=job.claim,
        cancel_requested=job.cancel_requested,
        finished_at=job.finished_at,
        result=job.result,
        reason=job.reason,
        error=job.error,
        error_class=job.error_class,
        stack=job.stack,
        progress=job.progress,
        history=tuple(job.history),
        dead=dead,
        result_codec=job.result_codec,
    )


def blocked_by(job: Job) -> tuple[int, ...]:
    if job.state is not State.BLOCKED:
        return ()
    return tuple(dict.fromkeys(edge.job for edge in job.edges if edge.open))


def get_job(world: World, tenant: str, command: c.GetJob) -> r.JobView:
    return view(world, found(world, tenant, command.id))


def find_job(world: World, tenant: str, command: c.FindJob) -> r.JobView:
    for queue in sorted(world.queues, key=lambda queue: queue.name):
        if queue.tenant == tenant and command.queue in (None, queue.name) and command.custom_id in queue.custom:
            job = world.job(tenant, queue.custom[command.custom_id].job)
            if job is not None:
                return view(world, job)
    raise NotFound("no such job")


def get_logs(world: World, tenant: str, command: c.GetLogs) -> r.Logs:
    return r.Logs(list(found(world, tenant, command.id).logs))


def get_partials(world: World, tenant: str, command: c.GetPartials) -> r.Partials:
    return r.Partials(list(found(world, tenant, command.id).partials))


# --- pages ---------------------------------------------------------------------------------------


def browse(world: World, tenant: str, command: c.Browse) -> r.Page:
    check.number(command.limit, 1, world.limits.browse_jobs_max)
    if command.queue is not None:
        check.name(command.queue)
    check_filter(world, command)
    jobs = [job for job in world.jobs if job.readable and job.tenant == tenant and browsed(job, command)]
    if command.after is not None:
        jobs = [job for job in jobs if (job.id > command.after if command.ascending else job.id < command.after)]
    if not command.ascending:
        jobs.reverse()
    return page(world, jobs, command.limit)


def count_jobs(world: World, tenant: str, command: c.CountJobs) -> r.Counted:
    check_filter(world, command)
    jobs = [job for job in world.jobs if job.readable and job.tenant == tenant and browsed(job, command)]
    return r.Counted(len([job for job in jobs if command.after is None or job.id > command.after]))


def check_filter(world: World, command: c.Browse | c.CountJobs) -> None:
    if command.queue is not None:
        check.name(command.queue)
    if command.attempts_from is not None:
        check.number(command.attempts_from, 0)
    if "" in (command.text, command.fingerprint):
        raise InvalidRequest("an empty text is in every job")


def browsed(job: Job, command: c.Browse | c.CountJobs) -> bool:
    text = command.text
    return (
        command.queue in (None, job.queue)
        and command.state in (None, job.state)
        and (command.tag is None or command.tag in job.options.tags)
        and command.group_id in (None, job.options.group_id)
        and command.name in (None, job.options.name)
        and command.parent_id in (None, job.options.parent_id)
        and (command.pushed_from is None or job.pushed_at >= command.pushed_from)
        and (command.pushed_before is None or job.pushed_at < command.pushed_before)
        and (command.ended_from is None or (job.finished_at > 0 and job.finished_at >= command.ended_from))
        and (command.ended_before is None or 0 < job.finished_at < command.ended_before)
        and command.worker in (None, job.worker)
        and command.priority in (None, job.options.priority)
        and (command.attempts_from is None or job.attempts >= command.attempts_from)
        and command.reason in (None, job.reason)
        and command.fingerprint in (None, fingerprint_of(job.error_class, job.error))
        and (text is None or text in r.cause_of(job.error_class, job.error) or has_text(job, text.encode()))
    )


def has_text(job: Job, text: bytes) -> bool:
    return text in job.payload or (job.result is not None and text in job.result)


def list_dead(world: World, tenant: str, command: c.ListDead) -> r.Page:
    check.name(command.queue)
    check.number(command.limit, 1, world.limits.browse_jobs_max)
    queue = world.queue(tenant, command.queue)
    letters = world.dead_letters(queue) if queue is not None else []
    if command.after is not None:
        ids = [job.id for job in letters]
        letters = letters[ids.index(command.after) + 1 :] if command.after in ids else []
    return page(world, [job for job in letters if listed(job, command)], command.limit)


def listed(job: Job, command: c.ListDead) -> bool:
    return (
        command.reason in (None, job.reason)
        and (command.entered_from is None or job.finished_at >= command.entered_from)
        and (command.entered_before is None or job.finished_at < command.entered_before)
        and (command.tag is None or command.tag in job.options.tags)
    )


def page(world: World, jobs: list[Job], limit: int) -> r.Page:
    return r.Page([view(world, job) for job in jobs[:limit]], jobs[limit - 1].id if len(jobs) > limit else None)


def get_dead_stats(world: World, tenant: str, command: c.GetDeadStats) -> r.DeadStats:
    check.name(command.queue)
    queue = world.queue(tenant, command.queue)
    letters = world.dead_letters(queue) if queue is not None else []
    by_reason = Counter(str(job.reason) for job in letters)
    return r.DeadStats(len(letters), dict(by_reason), letters[0].finished_at if letters else None)


def get_dead_groups(world: World, tenant: str, command: c.GetDeadGroups) -> r.DeadGroups:
    if command.queue is not None:
        check.name(command.queue)
    check.number(command.limit, 1, 1_000)
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for queue in world.queues:
        if queue.tenant == tenant and command.queue in (None, queue.name):
            for job in world.dead_letters(queue):
                key = (queue.name, str(job.reason), fingerprint_of(job.error_class, job.error))
                groups.setdefault(key, []).append(job)
    found = [
        r.DeadGroup(*key, len(jobs), jobs[0].finished_at, jobs[-1].finished_at, tuple(job.id for job in jobs[:-4:-1]))
        for key, jobs in groups.items()
    ]
    return r.DeadGroups(
        sorted(found, key=lambda one: (one.count, one.queue, one.reason, one.fingerprint), reverse=True)
    )


def get_timings(world: World, tenant: str, command: c.GetTimings) -> Timings:
    if command.queue is not None:
        check.name(command.queue)
    queues = [queue for queue in world.queues if queue.tenant == tenant and command.queue in (None, queue.name)]
    jobs = [job for queue in queues for job in world.jobs_of(queue)]
    return Timings(
        min((job.pushed_at for job in jobs if job.state is State.WAITING), default=0),
        histogram_of([ms for queue in queues for ms in queue.waits]),
        histogram_of([ms for queue in queues for ms in queue.runs]),
    )


def histogram_of(durations: list[int]) -> Histogram:
    places = [sum(bound < ms for bound in BOUNDS_MS) for ms in durations]
    counts = [places.count(place) for place in range(max(places, default=-1) + 1)]
    return Histogram(tuple(counts), sum(durations))


def get_priorities(world: World, tenant: str, command: c.GetPriorities) -> r.Priorities:
    check.name(command.queue)
    own = [job for job in world.jobs if job.live and (job.tenant, job.queue) == (tenant, command.queue)]
    counts = Counter(job.options.priority for job in own if job.state is State.WAITING)
    return r.Priorities(dict(sorted(counts.items(), reverse=True)))


# --- queues --------------------------------------------------------------------------------------


def list_queues(world: World, tenant: str, command: c.ListQueues) -> r.Queues:
    return r.Queues(sorted(queue.name for queue in world.queues if queue.tenant == tenant))


def get_queue(world: World, tenant: str, command: c.GetQueue) -> r.QueueView:
    check.name(command.queue)
    queue = world.queue(tenant, command.queue)
    if queue is None:
        raise NotFound("no such queue")
    return r.QueueView(
        name=queue.name,
        paused=queue.paused,
        rate_limit=queue.rate_limit,
        concurrency=queue.concurrency,
        group_on_retry=queue.group_on_retry,  # type: ignore[arg-type]
        dead_letters=queue.dead_letters,
    )


def get_queues(world: World, tenant: str, command: c.GetQueues) -> r.QueuePage:
    names = list_queues(world, tenant, c.ListQueues()).names
    asked = [name for name in names if name > (command.after or "") and (command.text or "").lower() in name.lower()]
    page = [
        r.QueueSummary(
            get_queue(world, tenant, c.GetQueue(name)),
            get_stats(world, tenant, c.GetStats(name)),
            get_timings(world, tenant, c.GetTimings(name)),
        )
        for name in asked[: command.limit]
    ]
    return r.QueuePage(page, page[-1].name if len(asked) > len(page) else None, len(names))


def get_stats(world: World, tenant: str, command: c.GetStats) -> r.Stats:
    if command.queue is not None:
        check.name(command.queue)
    queues = [queue for queue in world.queues if queue.tenant == tenant and command.queue in (None, queue.name)]
    counts = Counter(str(job.state) for queue in queues for job in world.jobs_of(queue))
    if command.queue is None:
        totals = world.tenant_totals.get(tenant, Counter())
        completions = world.tenant_completions.get(tenant, [])
    else:
        totals = queues[0].totals if queues else Counter()
        completions = queues[0].completions if queues else []
    first_second = world.now // 1000 - 59
    recent = [at for at in completions if at // 1000 >= first_second]
    payload_bytes = sum(len(job.payload) for queue in queues for job in world.jobs_of(queue) if job.live)
    return r.Stats(r.Counts(**counts), r.Totals(**totals), len(recent), payload_bytes)


# --- why -----------------------------------------------------------------------------------------


def why(world: World, tenant: str, command: c.Why) -> r.Waiting:
    job = found(world, tenant, command.id)
    if job.state not in PENDING:
        return r.Waiting(state=job.state)
    queue = world.queue_of(job)
    return r.Waiting(
        state=job.state,
        paused=queue.paused,
        rate_limited_until=rate_limited_until(world, queue),
        no_free_slot=not has_free_slot(world, queue),
        group_busy_with=group_busy_with(world, queue, job),
        blocked_by=blocked_by(job),
        delayed_until=job.due if job.state is State.DELAYED else None,
        jobs_ahead=jobs_ahead(world, queue, job),
    )


def jobs_ahead(world: World, queue: Queue, job: Job) -> int:
    if job.state is not State.WAITING:
        return 0
    group = job.options.group_id
    return sum(
        other.place < job.place or (group is not None and other.options.group_id == group and other.id < job.id)
        for other in world.jobs_in(queue, State.WAITING)
    )
