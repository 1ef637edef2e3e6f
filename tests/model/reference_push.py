"""Push, batches and transactions.

A batch is tried out in a copy of the world, with the items known to be bad left out. If the trial shows that more
items are bad (duplicates make a cycle), it is thrown away and tried again without those too. So the keys of refused
items never count, whatever the order of the items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import (
    BY_CODE,
    DependencyCycle,
    InvalidRequest,
    LimitExceeded,
    Refused,
    TransactionOver,
    UnknownDependency,
    UnknownStage,
)
from stoker.model.ids import STEP
from stoker.model.options import Options
from stoker.model.reasons import Reason
from stoker.model.states import LIVE, State
from tests.model import reference_checks as check
from tests.model.reference_life import end, hold_keys, judge_edges, settle_edges
from tests.model.reference_world import Edge, Job, Key, Part, Queue, StageOfJobs, Transaction, World

Item = tuple[bytes, Options]


@dataclass(frozen=True)
class Outcome:
    """What became of an item: a job, an older job (and by which name it was found), or a refusal."""

    job: int = 0
    duplicate_by: r.DuplicateBy | None = None
    error: Refused | None = None

    @property
    def created(self) -> bool:
        return self.error is None and self.duplicate_by is None


# --- commands ------------------------------------------------------------------------------------


def sent_before(world: World, tenant: str, sending: c.Sending | None) -> Any:
    """The reply that a push got when it was sent the last time, if it is remembered."""
    if sending is None:
        return None
    found = world.sent.get((tenant, sending.sender), {}).get(sending.number)
    if found is None and sending.number < sending.settled:
        raise InvalidRequest("settled already")
    return found


def remember(world: World, tenant: str, sending: c.Sending | None, reply: Any) -> None:
    if sending is not None:
        before = world.sent.get((tenant, sending.sender), {})
        kept = {number: old for number, old in before.items() if number >= sending.settled}
        world.sent[tenant, sending.sender] = {**kept, sending.number: reply}


def as_pushed(reply: Any) -> r.Pushed:
    """A batch's reply as that of a single push: numbers are one line, whatever was pushed with them."""
    if isinstance(reply, r.Pushed):
        return reply
    by = reply.duplicates.get(0)
    return r.Pushed(reply.ids[0], by is None, by)


def as_batch(reply: Any) -> r.PushedBatch:
    if isinstance(reply, r.PushedBatch):
        return reply
    return r.PushedBatch([reply.id], {}, {0: reply.duplicate_by} if reply.duplicate_by else {})


def push(world: World, tenant: str, command: c.Push) -> r.Pushed:
    before = sent_before(world, tenant, command.sending)
    if before is not None:
        return as_pushed(before)
    reply = push_one(world, tenant, command)
    remember(world, tenant, command.sending, reply)
    return reply


def push_one(world: World, tenant: str, command: c.Push) -> r.Pushed:
    check.name(command.queue)
    check_queue_fits(world, tenant, command.queue)
    [outcome] = push_items(world, tenant, command.queue, [(command.payload, command.options)])
    if outcome.error is not None:
        raise outcome.error
    return r.Pushed(outcome.job, outcome.created, outcome.duplicate_by)


def push_batch(world: World, tenant: str, command: c.PushBatch) -> r.PushedBatch:
    check.name(command.queue)
    check.batch(command.payloads, command.each, world.limits)
    if command.each is None:
        check.options(command.options, world.limits)
    check.key(command.request_key, world.limits)
    before = sent_before(world, tenant, command.sending)
    if before is not None:
        return as_batch(before)
    request = (tenant, command.queue, command.request_key or "")
    if request in world.requests:
        return world.requests[request][0]
    check_queue_fits(world, tenant, command.queue)
    items = items_of(command.payloads, command.options, command.each)
    outcomes = push_items(world, tenant, command.queue, items, atomic=command.atomic)
    reply = r.PushedBatch(
        [outcome.job for outcome in outcomes],
        {i: r.Refusal(o.error.code, o.error.message) for i, o in enumerate(outcomes) if o.error is not None},
        {i: o.duplicate_by for i, o in enumerate(outcomes) if o.duplicate_by is not None},
    )
    if command.request_key is not None:
        world.requests[request] = (reply, world.now + world.settings.request_ttl_ms)
    remember(world, tenant, command.sending, reply)
    return reply


def stage(world: World, tenant: str, command: c.Stage) -> r.Staged:
    check.key(command.transaction, world.limits)
    check.key(command.stage, world.limits)
    check.name(command.queue)
    check.batch(command.payloads, command.each, world.limits)
    items = items_of(command.payloads, command.options, command.each)
    for payload, options in items:
        error = check.item(payload, options, world.limits)
        if error is not None:
            raise error
    transaction = world.transactions.get((tenant, command.transaction), Transaction())
    if transaction.outcome is not None:
        raise TransactionOver("nothing can be added")
    staged = transaction.stages.get(command.stage)
    if staged is None:
        if len(transaction.stages) >= world.limits.stages_per_transaction_max:
            raise LimitExceeded("too many stages")
        staged = transaction.stages[command.stage] = StageOfJobs([], 0)
    if command.part is None or command.part not in [part.number for part in staged.parts]:
        part = Part(command.part, command.queue, command.payloads, [options for _, options in items])
        staged.parts.append(part)
        staged.until = world.now + world.settings.stage_ttl_ms
        world.transactions[tenant, command.transaction] = transaction
    return r.Staged(sum(len(part.payloads) for part in staged.parts))


def publish(world: World, tenant: str, command: c.Publish) -> r.Transaction:
    check.key(command.transaction, world.limits)
    transaction = world.transactions.get((tenant, command.transaction), Transaction())
    if transaction.outcome is not None:
        if transaction.outcome.outcome == "aborted":
            raise TransactionOver("it was aborted")
        return transaction.outcome
    for name in command.stages:
        if name not in transaction.stages:
            raise UnknownStage(name)
    created = []
    for name in command.stages:
        for part in transaction.stages[name].parts:
            items = list(zip(part.payloads, part.options, strict=True))
            created += [outcome.job for outcome in push_items(world, tenant, part.queue, items) if outcome.created]
    return finish_transaction(
        world, tenant, command.transaction, r.Transaction("published", len(created), runs(created))
    )


def abort(world: World, tenant: str, command: c.Abort) -> r.Transaction:
    check.key(command.transaction, world.limits)
    transaction = world.transactions.get((tenant, command.transaction), Transaction())
    if transaction.outcome is not None:
        return transaction.outcome
    return finish_transaction(world, tenant, command.transaction, r.Transaction("aborted"))


def finish_transaction(world: World, tenant: str, name: str, outcome: r.Transaction) -> r.Transaction:
    world.transactions[tenant, name] = Transaction({}, outcome, world.now + world.settings.transaction_ttl_ms)
    return outcome


def runs(ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for job_id in ids:
        if found and job_id == found[-1][0] + found[-1][1] * STEP:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((job_id, 1))
    return tuple(found)


# --- items ---------------------------------------------------------------------------------------


def items_of(payloads: Sequence[bytes], options: Options, each: Sequence[Options] | None) -> list[Item]:
    return list(zip(payloads, each if each is not None else [options] * len(payloads), strict=True))


def check_queue_fits(world: World, tenant: str, name: str) -> None:
    mine = [queue.name for queue in world.queues if queue.tenant == tenant]
    if name not in mine and len(mine) >= world.limits.queues_per_tenant_max:
        raise LimitExceeded("too many queues")


def push_items(world: World, tenant: str, queue: str, items: Sequence[Item], atomic: bool = False) -> list[Outcome]:
    refused: dict[int, Refused] = {}
    for number, (payload, options) in enumerate(items):
        error = check.item(payload, options, world.limits)
        if error is not None:
            refused[number] = error
    while faults := unknown_edges(world, items, refused) or cyclic_edges(items, refused):
        refused.update(faults)
    trial = world.clone()
    outcomes = try_items(trial, tenant, queue, items, refused)
    while faults := cycles_through_duplicates(items, outcomes) or unknown_edges(world, items, refused):
        refused.update(faults)
        trial = world.clone()
        outcomes = try_items(trial, tenant, queue, items, refused)
    if atomic and refused:
        first = min(refused)
        raise BY_CODE[refused[first].code](f"item {first}: {refused[first].message}")
    world.become(trial)
    return outcomes


def try_items(
    world: World, tenant: str, queue_name: str, items: Sequence[Item], refused: Mapping[int, Refused]
) -> list[Outcome]:
    """One after another, in this world."""
    outcomes: list[Outcome] = []
    created: list[Job] = []
    for number, (payload, options) in enumerate(items):
        if number in refused:
            outcomes.append(Outcome(error=refused[number]))
            continue
        outcome = duplicate(world, world.queue(tenant, queue_name), options)
        if outcome is None:
            job = create(world, world.make_queue(tenant, queue_name), payload, options, outcomes)
            created.append(job)
            outcome = Outcome(job.id)
        outcomes.append(outcome)
        for job in created:
            point_to(world, job, number, outcome.job)
    return outcomes


def duplicate(world: World, queue: Queue | None, options: Options) -> Outcome | None:
    """The job that is there already, if that is the answer."""
    if queue is None:
        return None
    if options.custom_id in queue.custom and not queue.custom[options.custom_id].gone(world.now):
        return Outcome(queue.custom[options.custom_id].job, "custom_id")
    if options.debounce_id in queue.debounce:
        return Outcome(queue.debounce[options.debounce_id].job, "debounce_id")
    key = queue.unique.get(options.unique_key or "")
    if key is None:
        return None
    holder = world.given(key.job)
    assert holder is not None
    if options.on_conflict == "replace" and not holder.active:
        return None
    if options.on_conflict == "extend":
        key.until = world.now + options.unique_ttl_ms if options.unique_ttl_ms else None
    return Outcome(holder.id, "unique_key")


def create(world: World, queue: Queue, payload: bytes, options: Options, before: Sequence[Outcome]) -> Job:
    """`before` are the outcomes of the items that stand before it in its batch."""
    key = queue.unique.get(options.unique_key or "")
    if key is not None:
        holder = world.given(key.job)
        assert holder is not None
        end(world, holder, State.CANCELLED, Reason.REPLACED)

    due = world.now + options.delay_ms if options.run_at is None else options.run_at
    edges = [Edge(edge.on_failure, edge.id, edge.item) for edge in options.depends_on]
    job = Job(world.next_id(), queue.tenant, queue.name, payload, options, world.now, due, edges)
    world.jobs.append(job)
    world.count(queue, "pushed")
    hold_keys(world, queue, job)
    if options.debounce_id is not None and options.debounce_ms:
        queue.debounce[options.debounce_id] = Key(job.id, world.now + options.debounce_ms)

    for edge in job.edges:
        if edge.item is None:
            edge.good = judge(world, job, edge.job)
        elif 0 <= edge.item < len(before):
            point_edge(world, job, edge, before[edge.item].job)
    if any(edge.open or edge.broken for edge in job.edges):
        world.steps.append((job.id, "new", State.BLOCKED))
    else:
        job.state = State.DELAYED if job.due > world.now else State.WAITING
        world.steps.append((job.id, "new", job.state))
    if any(edge.broken for edge in job.edges):
        judge_edges(world, job)
        settle_edges(world)
    return job


def judge(world: World, job: Job, other_id: int) -> bool | None:
    """Has the other job ended well? None while it is live."""
    other = world.given(other_id)
    if other is None or other.tenant != job.tenant:
        return True
    if other.state in LIVE:
        return None
    return other.state is State.COMPLETED


def point_edge(world: World, job: Job, edge: Edge, other_id: int) -> None:
    """The edge named an item; from now on it names the job, for the job's readers too."""
    edge.job = other_id
    edge.good = judge(world, job, other_id)
    named = [
        msgspec.structs.replace(dependency, id=other_id, item=None) if dependency.item == edge.item else dependency
        for dependency in job.options.depends_on
    ]
    job.options = msgspec.structs.replace(job.options, depends_on=tuple(named))


def point_to(world: World, job: Job, item: int, other_id: int) -> None:
    """Item number `item` has become this job: whoever named it by number knows it now."""
    found = [edge for edge in job.edges if edge.item == item and edge.open and edge.job == 0]
    for edge in found:
        point_edge(world, job, edge, other_id)
    if found and job.state is State.BLOCKED:
        judge_edges(world, job)
        settle_edges(world)


# --- dependencies that cannot be -------------------------------------------------------------------


def unknown_edges(world: World, items: Sequence[Item], refused: Mapping[int, Refused]) -> dict[int, Refused]:
    """Items that name a job that never was, or an item that there is not (any more)."""
    faults: dict[int, Refused] = {}
    for number, (_, options) in enumerate(items):
        for edge in options.depends_on:
            if edge.item is None:
                known = world.given(edge.id) is not None
            else:
                known = 0 <= edge.item < len(items) and edge.item != number and edge.item not in refused
            if not known and number not in refused:
                faults[number] = UnknownDependency(f"item {number}: {edge}")
    return faults


def cyclic_edges(items: Sequence[Item], refused: Mapping[int, Refused]) -> dict[int, Refused]:
    """Items on or behind a cycle, going by the item numbers alone."""
    return on_or_behind_a_cycle(
        {
            number: [edge.item for edge in options.depends_on if edge.item is not None]
            for number, (_, options) in enumerate(items)
            if number not in refused
        }
    )


def cycles_through_duplicates(items: Sequence[Item], outcomes: Sequence[Outcome]) -> dict[int, Refused]:
    """A duplicate stands for the other job, which may be an item of this batch and wait for the one that named it."""
    item_of = {outcome.job: number for number, outcome in enumerate(outcomes) if outcome.created}
    return on_or_behind_a_cycle(
        {
            number: [
                item_of[outcomes[edge.item].job]
                for edge in items[number][1].depends_on
                if edge.item is not None and outcomes[edge.item].job in item_of
            ]
            for number in item_of.values()
        }
    )


def on_or_behind_a_cycle(waits_for: Mapping[int, Sequence[int]]) -> dict[int, Refused]:
    """Take away those who wait for nobody, again and again; what stays cannot be."""
    left = dict(waits_for)
    while True:
        free = [number for number, others in left.items() if not any(other in left for other in others)]
        if not free:
            return {number: DependencyCycle(f"item {number} waits for itself") for number in sorted(left)}
        for number in free:
            del left[number]
