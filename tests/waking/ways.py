"""Every way in which something that a caller waits for can come about.

A way is a story with a pause in it: it prepares a queue, yields the wait, and goes on when that wait has begun. The
part after the `yield` is all that happens in the broker then, so nothing else can wake the caller.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import process_of, shard_for
from stoker.model.ids import shard_of as shard_in
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options
from stoker.model.states import State
from stoker.model.workflows import Edge, Step

WAIT_MS = 120_000
"""Of every wait. Only a lost wake-up lasts that long."""
SOON_MS = 200
"""For what happens by itself a moment later."""
TOKEN_MS = 1_100
"""Until a token is back: the wait has been alone in the broker for a second then."""
SHARDS = 16
NO_BACKOFF = Backoff(kind="fixed", base_ms=0)
LONG = Backoff(kind="fixed", base_ms=3_600_000)


class Waits(msgspec.Struct, frozen=True):
    """A call that waits, and whether its reply is what it waited for."""

    command: c.Command[Any]
    is_answer: Callable[[Any], bool] = bool


Story = Iterator[Waits]


class Queues:
    """Names for one way. `there` lives in another shard than `here`, and in another one of two processes."""

    def __init__(self, way: str) -> None:
        self.way = way
        names = [f"{way}-{number}" for number in range(100)]
        self.here = names[0]
        self.there = next(name for name in names if home(name) != home(self.here))


def home(queue: str) -> int:
    return process_of(shard_for("default", queue, SHARDS), 2)


def pulled(*queues: str, count: int = 1, claim: str | None = None) -> Waits:
    return Waits(c.Pull(queues, count, WAIT_MS, claim=claim), is_delivery)


def is_delivery(reply: r.Delivery) -> bool:
    return bool(reply.runs)


def ended(job: int) -> Waits:
    return Waits(c.WaitJob(job, WAIT_MS), is_end)


def is_end(reply: r.Ended) -> bool:
    return reply.finished


def has_events(reply: r.Events) -> bool:
    return bool(reply.events)


def taken(client: Client, queue: str, **how: Any) -> int:
    """A job that a worker has."""
    (job,) = client.pull(queue, **how)
    return job.id


# --- pushes --------------------------------------------------------------------------------------


def push(client: Client, q: Queues) -> Story:
    yield pulled(q.here)
    client.push(q.here, b"")


def push_to_a_queue_that_had_jobs(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    client.ack(taken(client, q.here))
    yield pulled(q.here)
    client.push(q.here, b"")


def push_to_the_second_of_two_queues(client: Client, q: Queues) -> Story:
    yield pulled(q.here, q.there)
    client.push(q.there, b"")


def push_under_a_claim(client: Client, q: Queues) -> Story:
    yield pulled(q.here, q.there, claim=q.way)
    client.push(q.there, b"")


def push_after_obliterate(client: Client, q: Queues) -> Story:
    client.push(q.here, b"", delay_ms=3_600_000)
    yield pulled(q.here)
    client.obliterate(q.here)
    client.push(q.here, b"")


def batch(client: Client, q: Queues) -> Story:
    yield pulled(q.here)
    client.push_batch(q.here, [b"1", b"2"])


def replaced_unique_key(client: Client, q: Queues) -> Story:
    client.push(q.here, b"old", unique_key="k", delay_ms=3_600_000)
    yield pulled(q.here)
    client.push(q.here, b"new", unique_key="k", on_conflict="replace")


def transaction_published(client: Client, q: Queues) -> Story:
    client.stage(q.way, "s", q.here, [b""])
    client.stage(q.way, "s", q.there, [b""])
    yield pulled(q.here)
    client.publish(q.way, ["s"])


def transaction_published_elsewhere(client: Client, q: Queues) -> Story:
    client.stage(q.way, "s", q.here, [b""])
    client.stage(q.way, "s", q.there, [b""])
    yield pulled(q.there)
    client.publish(q.way, ["s"])


# --- workflows -----------------------------------------------------------------------------------


def workflow(client: Client, q: Queues) -> Story:
    yield pulled(q.here)
    client.push_workflow([Step(q.here, [b""])])


def workflow_with_a_step_elsewhere(client: Client, q: Queues) -> Story:
    yield pulled(q.there)
    client.push_workflow([Step(q.here, [b""]), Step(q.there, [b""])])


def workflow_of_many_jobs(client: Client, q: Queues) -> Story:
    yield pulled(q.here, q.there)
    client.push_workflow([Step(q.here, [b"1", b"2"])])


def step_released(client: Client, q: Queues) -> Story:
    client.push_workflow([Step(q.here, [b"1"]), Step(q.here, [b"2"], after=[Edge(0)])])
    job = taken(client, q.here)
    yield pulled(q.here)
    client.ack(job)


def step_released_elsewhere(client: Client, q: Queues) -> Story:
    client.push_workflow([Step(q.here, [b"1"]), Step(q.there, [b"2", b"3"], after=[Edge(0)])])
    job = taken(client, q.here)
    yield pulled(q.there)
    client.ack(job)


def open_step_filled(client: Client, q: Queues) -> Story:
    client.push_workflow([Step(q.here, [b"1"]), Step(q.there, after=[Edge(0)], key="open", open=True)])
    job = taken(client, q.here)
    yield pulled(q.there)
    client.fill_step(job, "open", [b"2"])
    client.ack(job)


def workflow_retried(client: Client, q: Queues) -> Story:
    steps = [Step(q.here, [b"1"]), Step(q.there, [b"2"], after=[Edge(0)])]
    pushed = client.push_workflow(steps)
    client.ack(taken(client, q.here))
    client.fail(taken(client, q.there, wait_ms=WAIT_MS), retry=False)
    yield pulled(q.there)
    client.retry_workflow(pushed.id)


def workflow_cancelled(client: Client, q: Queues) -> Story:
    """One of its jobs holds a group while it waits to be tried again."""
    pushed = client.push_workflow([Step(q.here, [b"1"], Options(group_id="g"))])
    client.push(q.here, b"2", group_id="g")
    client.fail(taken(client, q.here), delay_ms=3_600_000)
    yield pulled(q.here)
    client.cancel_workflow(pushed.id)


# --- dependencies --------------------------------------------------------------------------------


def dependency_ended(client: Client, q: Queues) -> Story:
    first = client.push(q.here, b"").id
    client.push(q.here, b"", depends_on=(Dependency(first),))
    taken(client, q.here)
    yield pulled(q.here)
    client.ack(first)


def dependency_ended_elsewhere(client: Client, q: Queues) -> Story:
    first = client.push(q.here, b"").id
    client.push(q.there, b"", depends_on=(Dependency(first),))
    taken(client, q.here)
    yield pulled(q.there)
    client.ack(first)


def dependency_cancelled_elsewhere(client: Client, q: Queues) -> Story:
    first = client.push(q.here, b"", delay_ms=3_600_000).id
    client.push(q.there, b"", depends_on=(Dependency(first, on_failure="continue"),))
    yield pulled(q.there)
    client.cancel(first)


# --- what comes back -----------------------------------------------------------------------------


def failed_and_tried_again(client: Client, q: Queues) -> Story:
    client.push(q.here, b"", backoff=NO_BACKOFF)
    job = taken(client, q.here)
    yield pulled(q.here)
    client.fail(job)


def released(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    job = taken(client, q.here)
    yield pulled(q.here)
    client.release(job)


def claim_released(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    taken(client, q.here, claim=q.way)
    yield pulled(q.here)
    client.release_claim(q.way)


def dead_letter_retried(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    client.fail(taken(client, q.here), retry=False)
    yield pulled(q.here)
    client.retry_dead(q.here)


def promoted(client: Client, q: Queues) -> Story:
    job = client.push(q.here, b"", delay_ms=3_600_000).id
    yield pulled(q.here)
    client.promote(job)


def moved_to_now(client: Client, q: Queues) -> Story:
    job = client.push(q.here, b"", delay_ms=3_600_000).id
    yield pulled(q.here)
    client.move_to_delayed(job, 0)


# --- what time brings ----------------------------------------------------------------------------


def delay_over(client: Client, q: Queues) -> Story:
    yield pulled(q.here)
    client.push(q.here, b"", delay_ms=SOON_MS)


def batch_delay_over(client: Client, q: Queues) -> Story:
    yield pulled(q.here, q.there)
    client.push_batch(q.there, [b"1", b"2"], delay_ms=SOON_MS)


def step_delay_over(client: Client, q: Queues) -> Story:
    yield pulled(q.there)
    client.push_workflow([Step(q.here, [b""]), Step(q.there, [b""], Options(delay_ms=SOON_MS))])


def backoff_over(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    job = taken(client, q.here)
    yield pulled(q.here)
    client.fail(job, delay_ms=SOON_MS)


def snooze_over(client: Client, q: Queues) -> Story:
    client.push(q.here, b"")
    job = taken(client, q.here)
    yield pulled(q.here)
    client.snooze(job, delay_ms=SOON_MS)


def lease_ended(client: Client, q: Queues) -> Story:
    client.push(q.here, b"", backoff=NO_BACKOFF)
    job = taken(client, q.here)
    yield pulled(q.here)
    client.extend(job, lease_ms=SOON_MS)


def timeout_reached(client: Client, q: Queues) -> Story:
    client.push(q.here, b"", backoff=NO_BACKOFF, timeout_ms=TOKEN_MS)
    taken(client, q.here)
    yield pulled(q.here)


def dead_letter_retried_by_itself(client: Client, q: Queues) -> Story:
    policy = DeadLetterPolicy(auto_retry=True, auto_retry_interval_ms=SOON_MS)
    client.set_queue_policy(q.here, dead_letters=policy)
    client.push(q.here, b"")
    job = taken(client, q.here)
    yield pulled(q.here)
    client.fail(job, retry=False)


def schedule_due(client: Client, q: Queues) -> Story:
    yield pulled(q.here)
    now = client.get_job(client.push(q.there, b"").id).pushed_at
    client.put_schedule(q.here, "s", at=now + SOON_MS)


def schedule_run_now(client: Client, q: Queues) -> Story:
    client.put_schedule(q.here, "s", every_ms=3_600_000)
    yield pulled(q.here)
    client.run_schedule(q.here, "s")


# --- limits and groups ---------------------------------------------------------------------------


def slot_free(client: Client, q: Queues) -> Story:
    client.set_concurrency(q.here, 1)
    client.push_batch(q.here, [b"1", b"2", b"3"])
    client.ack(taken(client, q.here))
    job = taken(client, q.here)
    yield pulled(q.here)
    client.ack(job)


def slot_free_with_a_result(client: Client, q: Queues) -> Story:
    client.set_concurrency(q.here, 1)
    client.push_batch(q.here, [b"1", b"2"])
    job = taken(client, q.here)
    yield pulled(q.here)
    client.ack(job, result=b"3")


def slots_of_a_batch_free(client: Client, q: Queues) -> Story:
    client.set_concurrency(q.here, 2)
    client.push_batch(q.here, [b"1", b"2", b"3"])
    jobs = client.pull(q.here, 2).ids
    yield pulled(q.here)
    client.ack_batch(jobs)


def concurrency_raised(client: Client, q: Queues) -> Story:
    client.set_concurrency(q.here, 1)
    client.push_batch(q.here, [b"1", b"2"])
    taken(client, q.here)
    yield pulled(q.here)
    client.set_concurrency(q.here, 2)


def rate_raised(client: Client, q: Queues) -> Story:
    client.set_rate_limit(q.here, 1, 3_600_000)
    client.push_batch(q.here, [b"1", b"2"])
    taken(client, q.here)
    yield pulled(q.here)
    client.set_rate_limit(q.here, 100)


def pause_ended(client: Client, q: Queues) -> Story:
    client.pause(q.here)
    client.push(q.here, b"")
    yield pulled(q.here)
    client.resume(q.here)


def group_freed(client: Client, q: Queues) -> Story:
    client.push(q.here, b"1", group_id="g")
    client.push(q.here, b"2", group_id="g")
    job = taken(client, q.here)
    yield pulled(q.here)
    client.ack(job)


def head_of_a_group_cancelled(client: Client, q: Queues) -> Story:
    """It holds its group while it waits to be tried again."""
    client.push(q.here, b"1", group_id="g", backoff=LONG)
    client.push(q.here, b"2", group_id="g")
    job = taken(client, q.here)
    client.fail(job)
    yield pulled(q.here)
    client.cancel(job)


def head_of_a_group_discarded(client: Client, q: Queues) -> Story:
    client.push(q.here, b"1", group_id="g", backoff=LONG)
    client.push(q.here, b"2", group_id="g")
    job = taken(client, q.here)
    client.fail(job)
    yield pulled(q.here)
    client.discard(job)


def head_of_a_group_cleaned(client: Client, q: Queues) -> Story:
    client.push(q.here, b"1", group_id="g", backoff=LONG)
    client.fail(taken(client, q.here))
    client.push(q.here, b"2", group_id="g")
    yield pulled(q.here)
    client.clean(q.here, State.DELAYED)


# --- other waits ---------------------------------------------------------------------------------


def job_completed(client: Client, q: Queues) -> Story:
    job = client.push(q.here, b"").id
    taken(client, q.here)
    yield ended(job)
    client.ack(job)


def job_cancelled(client: Client, q: Queues) -> Story:
    job = client.push(q.here, b"", delay_ms=3_600_000).id
    yield ended(job)
    client.cancel(job)


def job_expired(client: Client, q: Queues) -> Story:
    client.pause(q.here)
    job = client.push(q.here, b"", ttl_ms=TOKEN_MS).id
    yield ended(job)


def job_obliterated(client: Client, q: Queues) -> Story:
    job = client.push(q.here, b"", delay_ms=3_600_000).id
    yield ended(job)
    client.obliterate(q.here)


def job_given_up_with_its_workflow(client: Client, q: Queues) -> Story:
    pushed = client.push_workflow([Step(q.here, [b"1"]), Step(q.there, [b"2"], after=[Edge(0)])])
    job = taken(client, q.here)
    yield ended(pushed.steps[1][0])
    client.fail(job, retry=False)


def event_of_a_push(client: Client, q: Queues) -> Story:
    """Read in the only shard there is, or in that of the queue."""
    number = shard_of(client, q.here)
    after = client.read_events(number, limit=1_000).next_after
    yield Waits(c.ReadEvents(number, after, 100, q.here, None, WAIT_MS), has_events)
    client.push(q.here, b"")


def event_of_a_workflow(client: Client, q: Queues) -> Story:
    number = shard_of(client, q.there)
    after = client.read_events(number, limit=1_000).next_after
    yield Waits(c.ReadEvents(number, after, 100, q.there, None, WAIT_MS), has_events)
    client.push_workflow([Step(q.here, [b""]), Step(q.there, [b""])])


def shard_of(client: Client, queue: str) -> int:
    """Where a queue lives: an id tells."""
    job = client.push(queue, b"", delay_ms=3_600_000).id
    client.cancel(job)
    return shard_in(job)


def token_back(client: Client, q: Queues) -> Story:
    client.set_rate_limit(q.here, 1, TOKEN_MS)
    client.push_batch(q.here, [b"1", b"2"])
    taken(client, q.here)
    yield pulled(q.here)


def token_back_in_the_second_of_two_queues(client: Client, q: Queues) -> Story:
    client.set_rate_limit(q.there, 1, TOKEN_MS)
    client.push_batch(q.there, [b"1", b"2"])
    taken(client, q.there)
    yield pulled(q.here, q.there)


WAYS: tuple[Callable[[Client, Queues], Story], ...] = (
    push,
    push_to_a_queue_that_had_jobs,
    push_to_the_second_of_two_queues,
    push_under_a_claim,
    push_after_obliterate,
    batch,
    replaced_unique_key,
    transaction_published,
    transaction_published_elsewhere,
    workflow,
    workflow_with_a_step_elsewhere,
    workflow_of_many_jobs,
    step_released,
    step_released_elsewhere,
    open_step_filled,
    workflow_retried,
    workflow_cancelled,
    dependency_ended,
    dependency_ended_elsewhere,
    dependency_cancelled_elsewhere,
    failed_and_tried_again,
    released,
    claim_released,
    dead_letter_retried,
    promoted,
    moved_to_now,
    delay_over,
    batch_delay_over,
    step_delay_over,
    backoff_over,
    snooze_over,
    lease_ended,
    dead_letter_retried_by_itself,
    schedule_due,
    schedule_run_now,
    slot_free,
    slot_free_with_a_result,
    slots_of_a_batch_free,
    concurrency_raised,
    rate_raised,
    pause_ended,
    group_freed,
    head_of_a_group_cancelled,
    head_of_a_group_discarded,
    head_of_a_group_cleaned,
    job_completed,
    job_cancelled,
    job_obliterated,
    job_given_up_with_its_workflow,
    event_of_a_push,
    event_of_a_workflow,
)
"""Something happens, and the wait is over."""

BY_THEMSELVES: tuple[Callable[[Client, Queues], Story], ...] = (
    token_back,
    token_back_in_the_second_of_two_queues,
    timeout_reached,
    job_expired,
)
"""Nothing happens but time. Each has the broker to itself: whatever else happens might wake its caller."""
