"""The steps of a job's life: becoming ready, being taken, coming back, ending, being forgotten.

Every rule that says "on every way out of active" or "every end" is written here once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.options import Backoff
from stoker.model.reasons import Reason
from stoker.model.states import State
from tests.model.reference_world import OWN_WORDS, Job, Key, Queue, World

# --- becoming ready ------------------------------------------------------------------------------


def make_ready(world: World, job: Job) -> None:
    """Waiting if it is due, else delayed until then."""
    if job.due > world.now:
        world.move(job, State.DELAYED)
    else:
        make_waiting(world, job)


def make_waiting(world: World, job: Job) -> None:
    world.move(job, State.WAITING)
    unhold(world.queue_of(job), job)


def unhold(queue: Queue, job: Job) -> None:
    """Its group need not wait for it any more."""
    for group in [group for group, held in queue.held.items() if held == job.id]:
        del queue.held[group]


def judge_edges(world: World, job: Job) -> None:
    """Go by the dependencies as they are now: end, become ready, or stay blocked."""
    for edge in job.edges:
        if edge.broken:
            state = State.FAILED if edge.on_failure == "fail" else State.CANCELLED
            end_one(world, job, state, Reason.DEPENDENCY_FAILED)
            world.unsettled.append(job)
            return
    if not any(edge.open for edge in job.edges):
        make_ready(world, job)


# --- the delivery --------------------------------------------------------------------------------


def start(world: World, job: Job, token: int, command: c.Pull) -> None:
    world.move(job, State.ACTIVE)
    world.count(world.queue_of(job), "started")
    if not job.attempts:
        world.queue_of(job).waits.append(world.now - job.pushed_at)
    job.attempts += 1
    job.token = token
    job.started_at = world.now
    job.lease_ms = job.options.lease_ms if command.lease_ms is None else command.lease_ms
    job.lease_until = world.now + job.lease_ms
    job.heartbeat_at = world.now
    job.worker = command.worker
    job.claim = command.claim
    job.cancel_requested = False


def leave_active(world: World, job: Job) -> None:
    """The delivery is over, however it went."""
    claim, job.claim = job.claim, None
    job.token = 0
    job.lease_until = 0
    job.heartbeat_at = 0
    if claim is not None and not jobs_under(world, job.tenant, claim):
        world.claims[job.tenant, claim].until = world.now + world.settings.claim_ttl_ms


def jobs_under(world: World, tenant: str, claim: str) -> list[Job]:
    """The jobs that are still active under a claim, in id order."""
    return [job for job in world.jobs if job.active and job.tenant == tenant and job.claim == claim]


def come_back(world: World, job: Job, delay_ms: int) -> None:
    """An active job is to be delivered again, after a while."""
    queue = world.queue_of(job)
    leave_active(world, job)
    job.due = world.now + delay_ms
    make_ready(world, job)
    if job.state is State.DELAYED and job.options.group_id is not None and queue.group_on_retry == "hold":
        queue.held[job.options.group_id] = job.id


def hand_back(world: World, job: Job, delay_ms: int) -> None:
    """Release, snooze, move to delayed: as if it had never been pulled."""
    if job.cancel_requested:
        end(world, job, State.CANCELLED, Reason.CANCELLED)
        return
    job.attempts -= 1
    come_back(world, job, delay_ms)


def fail_delivery(
    world: World,
    job: Job,
    reason: str,
    *,
    error: str = "",
    error_class: str = "",
    stack: str = "",
    final: str = "",
    delay_ms: int | None = None,
) -> None:
    """A worker's word, a timeout or a lost lease; `reason` is the delivery's, `final` a dead letter's."""
    queue = world.queue_of(job)
    if job.cancel_requested:
        end(world, job, State.CANCELLED, Reason.CANCELLED)
        return
    wanted, lines = job.options.stack_lines_max, stack.splitlines()
    if wanted is not None:
        stack = "\n".join(lines[max(0, len(lines) - wanted) :])
    job.error, job.error_class, job.stack = error, error_class, stack
    queue.runs.append(world.now - job.started_at)
    job.history.append(r.Attempt(job.attempts, job.started_at, world.now, reason, job.worker, error, error_class))
    del job.history[: -world.limits.attempt_history_max]
    if reason == Reason.TIMEOUT:
        world.count(queue, "timed_out")
    if reason == Reason.STALLED:
        world.count(queue, "stalled")
        job.crashes += 1

    used_up = 0 < job.options.max_attempts <= job.attempts
    if final:
        end(world, job, State.FAILED, final)
    elif reason == Reason.STALLED and 0 < job.options.max_crashes <= job.crashes:
        end(world, job, State.FAILED, Reason.WORKER_LOST)
    elif used_up:
        end(world, job, State.FAILED, Reason.MAX_ATTEMPTS if reason == Reason.FAILED else reason)
    else:
        world.count(queue, "retried")
        come_back(world, job, backoff_ms(job.options.backoff, job.attempts) if delay_ms is None else delay_ms)


def backoff_ms(backoff: Backoff, k: int) -> int:
    assert backoff.jitter == "none", "jitter is the engine's own affair"
    if backoff.kind == "exponential":
        return min(backoff.base_ms << (k - 1), backoff.cap_ms)
    if backoff.kind == "linear":
        return min(backoff.base_ms * k, backoff.cap_ms)
    return min(backoff.base_ms, backoff.cap_ms)


# --- the end -------------------------------------------------------------------------------------


def end(world: World, job: Job, state: State, reason: str = "") -> None:
    """End a job, and those that cannot do without it."""
    end_one(world, job, state, reason)
    world.unsettled.append(job)
    if not world.together:
        settle_edges(world)


@contextmanager
def together(world: World) -> Iterator[None]:
    """Emptying a queue is one step: edges are settled after the last end."""
    world.together = True
    yield
    world.together = False
    settle_edges(world)


def settle_edges(world: World) -> None:
    """Jobs that waited for one that has ended become ready or end too, and so on, nearest first."""
    while world.unsettled:
        other = world.unsettled.pop(0)
        for waiting in dependents(world, other):
            for edge in waiting.edges:
                if edge.job == other.id and edge.open:
                    edge.good = other.state is State.COMPLETED
            judge_edges(world, waiting)


def dependents(world: World, job: Job) -> Sequence[Job]:
    return [
        other
        for other in world.jobs
        if other.live and other.state is State.BLOCKED and any(edge.job == job.id and edge.open for edge in other.edges)
    ]


def end_one(world: World, job: Job, state: State, reason: str) -> None:
    queue = world.queue_of(job)
    policy = queue.dead_letters
    if state is State.CANCELLED and policy.take_cancelled:
        state, reason = State.FAILED, Reason.CANCELLED
        job.error = job.error_class = job.stack = ""
    if state is State.EXPIRED and policy.take_expired:
        state, reason = State.FAILED, Reason.TTL_EXPIRED
        job.error = job.error_class = job.stack = ""
    if job.active:
        leave_active(world, job)
    unhold(queue, job)
    world.move(job, state)
    if state is State.FAILED and reason == Reason.DEPENDENCY_FAILED:
        job.error, job.error_class = OWN_WORDS, ""
    job.finished_at = world.now
    job.reason = reason
    world.count(queue, state)
    if state is State.COMPLETED:
        world.count(queue, "wait_ms_sum", job.started_at - job.pushed_at)
        world.count(queue, "run_ms_sum", job.finished_at - job.started_at)
        queue.runs.append(job.finished_at - job.started_at)
        queue.completions.append(world.now)
        world.tenant_completions.setdefault(job.tenant, []).append(world.now)
    free_keys(queue, job, world.now)
    answer_waits(world, job)
    if state is State.FAILED:
        bury(world, queue, job)
    else:
        retain(world, queue, job)


def free_keys(queue: Queue, job: Job, now: int) -> None:
    for name in [name for name, key in queue.unique.items() if key.job == job.id]:
        del queue.unique[name]
    for key in queue.custom.values():
        if key.job == job.id:
            key.until = now + job.options.custom_id_ttl_ms


def ended(job: Job) -> r.Ended:
    return r.Ended(job.id, job.state, not job.live, job.result, job.reason, job.error, job.result_codec)


def answer_waits(world: World, job: Job) -> None:
    for parked in list(world.parked):
        if isinstance(parked.command, c.WaitJob) and parked.command.id == job.id:
            world.parked.remove(parked)
            world.answers.append((parked, ended(job)))


def retain(world: World, queue: Queue, job: Job) -> None:
    """Keep an ended job readable for as long as it and the settings say."""
    if (
        (job.state is State.COMPLETED and job.options.remove_on_complete)
        or keep_age_ms(world, job) == 0
        or keep_count(world, job) == 0
    ):
        forget(job)
        return
    queue.ends += 1
    job.end_number = queue.ends
    for other in world.jobs_in(queue, State.COMPLETED, State.CANCELLED, State.EXPIRED):
        if queue.ends - other.end_number >= keep_count(world, other):
            forget(other)


def keep_age_ms(world: World, job: Job) -> int:
    own = job.options.keep_completed_age_ms
    return world.settings.retention.completed_age_ms if own is None else own


def keep_count(world: World, job: Job) -> int:
    own = job.options.keep_completed_count
    return world.settings.retention.completed_count if own is None else own


def bury(world: World, queue: Queue, job: Job) -> None:
    """A failed job becomes a dead letter."""
    if job.options.remove_on_fail:
        forget(job)
        return
    policy = queue.dead_letters
    evict(world, queue, policy.entries_max - 1)
    world.deaths += 1
    job.dead = True
    job.dead_number = world.deaths
    job.expires_at = world.now + policy.age_ms_max
    plan_retry(queue, job, world.now)


def evict(world: World, queue: Queue, most: int) -> None:
    """The oldest dead letters leave until there are no more than this."""
    entries = world.dead_letters(queue)
    for job in entries[: max(len(entries) - most, 0)]:
        forget(job)
        world.count(queue, "evicted")


def plan_retry(queue: Queue, job: Job, now: int) -> None:
    policy = queue.dead_letters
    again = policy.auto_retry and job.retry_count < policy.auto_retries_max
    job.next_retry_at = now + policy.auto_retry_interval_ms if again else 0


def revive(world: World, job: Job) -> bool:
    """Send a dead letter back to work, unless another job has its unique key or its custom id."""
    queue = world.queue_of(job)
    if job.options.unique_key in queue.unique:
        return False
    custom = queue.custom.get(job.options.custom_id or "")
    if custom is not None and custom.job != job.id and not custom.gone(world.now):
        return False
    job.dead = False
    job.revived = True
    job.attempts = job.crashes = 0
    job.expires_at = job.next_retry_at = 0
    job.started_at = job.finished_at = 0
    job.worker = job.reason = ""
    job.cancel_requested = False
    job.due = 0
    hold_keys(world, queue, job)
    make_waiting(world, job)
    return True


def hold_keys(world: World, queue: Queue, job: Job) -> None:
    """The job's names point to it from now on."""
    if job.options.unique_key is not None:
        ttl = job.options.unique_ttl_ms
        queue.unique[job.options.unique_key] = Key(job.id, world.now + ttl if ttl else None)
    if job.options.custom_id is not None:
        queue.custom[job.options.custom_id] = Key(job.id)


def forget(job: Job) -> None:
    """Nobody can read it any more. What it was stays known: an edge may name it at any time."""
    job.forgotten = True
    job.dead = False
