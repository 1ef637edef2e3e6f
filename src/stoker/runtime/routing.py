"""Which shards a command concerns, and how their replies become one.

Most commands name a queue or a job and go to one shard. A few span shards, and each shard decides its part. One owner
runs all of them in the same turn, so no caller sees them half done. One shard decides the end of a transaction and
informs the others through its outbox.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stoker.engine import (
    bulk,
    checks,
    dead_letters,
    pulling,
    queries,
    settling,
    shard_messages,
    transactions,
    workflow_checks,
    workflow_state,
    workflow_views,
    workflows,
)
from stoker.engine.parking import Parked, frozen_pull, register
from stoker.engine.schedules import cursor_of, place_of
from stoker.engine.shard import Shard
from stoker.journal.patience import patiently
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.bulk import BulkView
from stoker.model.command_table import at_home
from stoker.model.filters import COUNTED, filter_of, narrows_by
from stoker.model.ids import KV_HOME, SHARD_MASK, shard_for, shard_of
from stoker.model.schedules import SchedulePage, ScheduleView
from stoker.records import records as rec
from stoker.runtime import outbox
from stoker.runtime.history import all_histories, all_trends
from stoker.runtime.shards import Shards


def execute(shards: Shards, tenant: str, command: c.Command[Any], now: int) -> Any:
    """Carry out a command on the shards that it concerns."""
    for shard in shards:
        shard.advance(now)
    queue = getattr(command, "queue", None)
    if queue is not None:
        checks.name(queue)
    special = SPECIAL.get(type(command))
    if special is not None:
        return special(shards, tenant, command, now)
    if queue is not None:
        return shards.home(tenant, str(queue)).execute(tenant, command, now)
    if hasattr(command, "id"):
        return shards.by_id(command.id).execute(tenant, command, now)
    return settle(shards, tenant, command, now)


def settle(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """Ack, Fail, Release and Extend: each shard gets the ids that are its own."""
    settling.check(shards[0], command)
    if len(set(map(SHARD_MASK.__and__, command.ids))) == 1:  # `shard_of` for thousands, at C speed
        return shards.by_id(command.ids[0]).execute(tenant, command, now)
    parts = split(command, lambda job_id: shards.by_id(job_id).number)
    return settled(command, [shards.at(number).execute(tenant, part, now) for number, part in parts.items()])


def split(command: Any, place_of: Callable[[int], int]) -> dict[int, Any]:
    """Ack, Fail, Release or Extend once for each place, with the ids that live there."""
    places: dict[int, list[int]] = {}
    for place, job_id in enumerate(command.ids):
        places.setdefault(place_of(job_id), []).append(place)
    parts: dict[int, Any] = {}
    for number, own in places.items():
        changes: dict[str, Any] = {"ids": [command.ids[place] for place in own]}
        if command.tokens is not None and type(command.tokens) is not int:
            changes["tokens"] = [command.tokens[place] for place in own]
        if getattr(command, "results", None) is not None:
            changes["results"] = [command.results[place] for place in own]
        parts[number] = msgspec.structs.replace(command, **changes)
    return parts


def settled(command: Any, replies: Sequence[Any]) -> Any:
    """One reply to all parts, in the order asked."""
    reply = merge(replies)
    if type(reply) is r.Failed:
        asked = {job_id: place for place, job_id in reversed(list(enumerate(command.ids)))}
        reply = msgspec.structs.replace(reply, jobs=sorted(reply.jobs, key=lambda job: asked[job.id]))
    return reply


def merge(replies: Sequence[Any]) -> Any:
    """One reply out of several of a kind: counts add up, lists and maps are joined, the latest time counts."""
    first = replies[0]
    changes: dict[str, Any] = {}
    for name in first.__struct_fields__:
        values = [getattr(reply, name) for reply in replies]
        if name in ("count", "created"):
            changes[name] = sum(values)
        elif name == "lease_until":
            changes[name] = max(values)
        elif name in ("refused", "duplicates"):
            changes[name] = {key: value for found in values for key, value in found.items()}
        elif name in ("jobs", "cancelled", "ids"):
            changes[name] = [value for found in values for value in found]
        elif name == "runs":
            changes[name] = tuple(value for found in values for value in found)
    return msgspec.structs.replace(first, **changes)


# --- commands that span shards -----------------------------------------------------------------------


def pull(shards: Shards, tenant: str, command: c.Pull, now: int) -> Any:
    """One token for all: every shard gives out the number after the highest of any."""
    pulling.check_pull(shards[0], command)
    for name in command.queues:
        checks.name(name)
    if command.claim is not None:
        found = [pulling.reread_claim(shard, tenant, command.claim) for shard in shards]
        claimed = [delivery for delivery in found if delivery is not None]
        if claimed:
            return joined(claimed)
    token = max(shard.token for shard in shards)
    runs: list[r.Run] = []
    left = command.count
    homes = [shards.home(tenant, name) for name in command.queues]
    for name, shard in zip(command.queues, homes, strict=True):
        if not left:
            break
        shard.token = token
        own = msgspec.structs.replace(command, queues=[name], count=left, wait_ms=0)
        delivery = pulling.dispatch(shard, tenant, own, now)
        if delivery is not None:
            runs += delivery.runs
            left -= len(delivery)
    if runs:
        for shard in dict.fromkeys(homes):
            shard.token = token + 1  # none of them ever gives it out again, also those that had nothing to give
        if command.claim is not None:
            answer_claim_waiters(shards, tenant, command.claim)
        return r.Delivery(token + 1, runs)
    if not command.wait_ms:
        chances = [
            pulling.next_chance(shard, tenant, [name], now) for name, shard in zip(command.queues, homes, strict=True)
        ]
        return r.Delivery(next_at=min((at for at in chances if at is not None), default=None))
    return park(shards, Parked(tenant, frozen_pull(command), now + command.wait_ms), command.queues)


def park(shards: Shards, parked: Parked, queues: Sequence[str]) -> Parked:
    """Let a pull wait in each of these queues; for its claim it waits in every shard."""
    assert type(parked.command) is c.Pull
    homes = [shards.home(parked.tenant, name) for name in queues]
    for shard in shards if parked.command.claim is not None else dict.fromkeys(homes):
        own_queues = [name for name, home in zip(queues, homes, strict=True) if home is shard]
        register(shard, parked, own_queues)
    return parked


def joined(claimed: Sequence[r.Delivery]) -> r.Delivery:
    """Deliveries of several shards under one claim as one, in id order: neighbours in a shard are none here."""
    if len(claimed) == 1:
        return claimed[0]
    runs = [
        msgspec.structs.replace(run, ids=(job_id,), payloads=(payload,))
        for delivery in claimed
        for run in delivery.runs
        for job_id, payload in zip(run.ids, run.payloads, strict=True)
    ]
    return r.Delivery(claimed[0].token, sorted(runs, key=lambda run: run.ids[0]))


def answer_claim_waiters(shards: Shards, tenant: str, name: str) -> None:
    """Other pulls that wait to make the claim that was just made get what it holds in all shards."""
    found = [pulling.reread_claim(shard, tenant, name) for shard in shards]
    delivery = joined([one for one in found if one is not None])
    for shard in shards:
        shard.claims_made.clear()
        for parked in shard.claim_waiters.pop((tenant, name), ()):
            if not parked.done:
                shard.answer(parked, delivery)


def each(shards: Shards, tenant: str, command: Any, now: int) -> list[Any]:
    return [shard.execute(tenant, command, now) for shard in shards]


def claim(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """Ack, release or extend a claim in all shards where it holds jobs."""
    replies, error = [], None
    for shard in shards:
        try:
            replies.append(shard.execute(tenant, command, now))
        except errors.NotFound as not_here:
            error = not_here
    if not replies and error is not None:
        raise error
    return merge(replies)


def home_of(shards: Shards, tenant: str, transaction: str) -> Shard:
    """The shard that decides about a transaction, also for the stages in other shards."""
    checks.key(transaction, "transaction", shards[0].limits)
    return shards.home(tenant, transaction)


def stage(shards: Shards, tenant: str, command: c.Stage, now: int) -> Any:
    """Each queue's part lies in its own shard; numbers of parts and jobs count over all of them."""
    if shards.is_part:  # the process that asks for this knows the others
        return shards.home(tenant, command.queue).execute(tenant, command, now)
    decider = home_of(shards, tenant, command.transaction)
    home = shards.home(tenant, command.queue)
    ended = transactions.find(decider, tenant, command.transaction)
    if ended is not None and ended.outcome is not None:
        return decider.execute(tenant, command, now)  # which says that it is over
    found = [transactions.find(shard, tenant, command.transaction) for shard in shards if shard is not home]
    others = [state.stages[command.stage] for state in found if state is not None and command.stage in state.stages]
    if command.part is not None and any(command.part in stage.numbers for stage in others):
        here = transactions.find(home, tenant, command.transaction)
        own = here.stages.get(command.stage) if here is not None else None
        return r.Staged(sum(stage.jobs for stage in others) + (own.jobs if own is not None else 0))
    reply: r.Staged = home.execute(tenant, command, now)
    return r.Staged(reply.jobs + sum(stage.jobs for stage in others))


def publish(shards: Shards, tenant: str, command: c.Publish, now: int) -> Any:
    """Decided by one shard, in one record with the messages to the others; they follow, now or after a restart."""
    decider = home_of(shards, tenant, command.transaction)
    staged = stages_of(shards, tenant, command.transaction)
    ended = transactions.find(decider, tenant, command.transaction)
    if ended is not None and ended.outcome is not None:
        decider.execute(tenant, command, now)  # raises if it was aborted
        return outcome(shards, tenant, command.transaction)
    for name in command.stages:
        if not any(name in names for names in staged.values()):
            return decider.execute(tenant, msgspec.structs.replace(command, stages=[name]), now)  # which says so
    for shard in shards:
        transactions.check_publish(shard, tenant, command)
    decide_publish(shards, tenant, command, {shard.number: names for shard, names in staged.items()}, now)
    return outcome(shards, tenant, command.transaction)


def decide_publish(shards: Shards, tenant: str, command: c.Publish, staged: Mapping[int, list[str]], now: int) -> None:
    """The decision, given which stages lie in which shard, and all that can be done about it here."""
    decider = home_of(shards, tenant, command.transaction)
    own = {
        number: [name for name in dict.fromkeys(command.stages) if name in names] for number, names in staged.items()
    }
    for number in own:
        if number != decider.number:
            shard_messages.send(decider, tenant, number, rec.PublishStages(command.transaction, own[number]), now)
    with patiently():  # they were at hand when they were checked
        decider.execute(tenant, msgspec.structs.replace(command, stages=own.get(decider.number, [])), now)
        outbox.deliver(shards, now)


def abort(shards: Shards, tenant: str, command: c.Abort, now: int) -> Any:
    decider = home_of(shards, tenant, command.transaction)
    ended = transactions.find(decider, tenant, command.transaction)
    if ended is None or ended.outcome is None:
        staged = stages_of(shards, tenant, command.transaction)
        decide_abort(shards, tenant, command, [shard.number for shard in staged], now)
    return outcome(shards, tenant, command.transaction)


def decide_abort(shards: Shards, tenant: str, command: c.Abort, staged: Iterable[int], now: int) -> None:
    decider = home_of(shards, tenant, command.transaction)
    for number in staged:
        if number != decider.number:
            shard_messages.send(decider, tenant, number, rec.AbortTransaction(command.transaction), now)
    decider.execute(tenant, command, now)
    outbox.deliver(shards, now)


def stages_of(shards: Shards, tenant: str, transaction: str) -> dict[Shard, list[str]]:
    """Which stages lie where."""
    found = {shard: transactions.find(shard, tenant, transaction) for shard in shards}
    return {shard: list(state.stages) for shard, state in found.items() if state is not None and state.stages}


def outcome(shards: Shards, tenant: str, transaction: str) -> r.Transaction:
    """How a transaction ended, over all shards that took part."""
    found = [transactions.find(shard, tenant, transaction) for shard in shards]
    reply: r.Transaction = merge([state.outcome for state in found if state is not None and state.outcome is not None])
    return reply


# --- workflows -----------------------------------------------------------------------------------------


def push_workflow(shards: Shards, tenant: str, command: c.PushWorkflow, now: int) -> r.PushedWorkflow:
    """All parts in one turn, so that they are journaled together; shards of other processes get messages."""
    here = {shard.number: shard for shard in shards}
    workflow_checks.workflow(command, shards[0].limits)
    for step in command.steps:
        checks.name(step.queue)
    return workflows.start(here, lambda queue: shard_for(tenant, queue, shards.total), tenant, command, now)


def get_workflow(shards: Shards, tenant: str, command: c.GetWorkflow, now: int) -> r.WorkflowView:
    home = shards.by_id(command.id)
    flow = workflow_views.known(home, tenant, command.id)
    return workflow_views.view(flow, standings(shards, tenant, command.id))


def standings(shards: Shards, tenant: str, workflow: int) -> list[workflow_views.Standing]:
    """How the steps of a workflow stand that live here."""
    found = [(shard, workflow_state.find(shard, tenant, workflow)) for shard in shards]
    return [one for shard, flow in found if flow is not None for one in workflow_views.standings(shard, flow)]


def change_workflow(shards: Shards, tenant: str, command: Any, now: int) -> r.WorkflowView:
    """Cancel or retry one: decided at its home, which tells the others."""
    shards.by_id(command.id).execute(tenant, command, now)
    outbox.deliver(shards, now)
    if shards.is_part:
        return workflow_views.view(*home_view(shards, tenant, command.id))
    return get_workflow(shards, tenant, c.GetWorkflow(command.id), now)


def home_view(
    shards: Shards, tenant: str, workflow: int
) -> "tuple[workflow_state.ShardWorkflow, list[workflow_views.Standing]]":
    return workflow_views.known(shards.by_id(workflow), tenant, workflow), standings(shards, tenant, workflow)


def get_inputs(shards: Shards, tenant: str, command: c.GetInputs, now: int) -> r.Inputs:
    found = workflow_views.segments(shards.by_id(command.id), tenant, command)
    asked = workflow_views.page_of(command, found)
    results = workflow_views.results_of(shards.by_id, tenant, asked.ids, asked.workflow, now)
    return workflow_views.answered(command, asked, results, shards.by_id(command.id).limits)


def find_job(shards: Shards, tenant: str, command: c.FindJob, now: int) -> Any:
    if command.queue is not None:
        return shards.home(tenant, str(command.queue)).execute(tenant, command, now)
    found: list[r.JobView] = []
    for shard in shards:
        try:
            found.append(shard.execute(tenant, command, now))
        except errors.NotFound:
            if shard is shards[-1] and not found:
                raise
    return first_job(found)


def query(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """Commands about one queue, or about all that a tenant has."""
    if getattr(command, "queue", None) is not None:
        return shards.home(tenant, str(command.queue)).execute(tenant, command, now)
    return ALL_OF[type(command)](command, each(shards, tenant, command, now))


def first_job(found: Sequence[r.JobView]) -> r.JobView:
    """A custom id may be in several queues."""
    return min(found, key=lambda job: job.queue)


def all_queues(command: c.ListQueues, found: Sequence[r.Queues]) -> r.Queues:
    return r.Queues(sorted(name for one in found for name in one.names))


def all_stats(command: c.GetStats, found: Sequence[r.Stats]) -> r.Stats:
    counts = [sum(values) for values in zip(*(msgspec.structs.astuple(one.counts) for one in found), strict=True)]
    totals = [sum(values) for values in zip(*(msgspec.structs.astuple(one.totals) for one in found), strict=True)]
    last_minute, payload_bytes = (
        sum(values) for values in zip(*((one.completed_last_minute, one.payload_bytes) for one in found), strict=True)
    )
    return r.Stats(r.Counts(*counts), r.Totals(*totals), last_minute, payload_bytes)


def count_jobs(shards: Shards, tenant: str, command: c.CountJobs, now: int) -> r.Counted:
    """Exactly by the counters of all shards, or a step in the shard that the cursor names."""
    wanted = filter_of(command)
    if command.queue is not None:
        return shards.home(tenant, command.queue).execute(tenant, command, now)  # type: ignore[no-any-return]
    if command.after is None and narrows_by(wanted) <= COUNTED:
        return r.Counted(sum(one.count for one in each(shards, tenant, command, now)))
    number = counting_at(command, shards.total)
    return counted_in(number, shards.total, shards.at(number).execute(tenant, with_cursor(command), now))


def counting_at(command: c.CountJobs, total: int) -> int:
    """The shard in which a count goes on. Its cursor is an id of that shard."""
    number = 0 if command.after is None else shard_of(command.after)
    if number >= total:
        raise errors.InvalidRequest(f"invalid after {command.after}: expected the next_after of a count")
    return number


def with_cursor(command: c.CountJobs) -> c.CountJobs:
    """A count that looks at jobs, also at the very first of them: id 0 is never given out."""
    return command if command.after is not None else msgspec.structs.replace(command, after=0)


def counted_in(number: int, total: int, found: r.Counted) -> r.Counted:
    """The step of a shard. After the last job of a shard, the next shard comes: its number is an id before all of its
    jobs.
    """
    if found.next_after is None and number + 1 < total:
        return msgspec.structs.replace(found, next_after=number + 1)
    return found


def start_bulk(shards: Shards, tenant: str, command: c.StartBulk, now: int) -> BulkView:
    """In the shard of its queue, or in all of them, which share its rate."""
    bulk.check(shards[0], command)
    if command.filter.queue is not None:
        return shards.home(tenant, command.filter.queue).execute(tenant, command, now)  # type: ignore[no-any-return]
    rate = None if command.rate is None else command.rate / shards.total
    own = msgspec.structs.replace(command, rate=rate)
    return bulk.joined(each(shards, tenant, own, now))


def one_bulk(shards: Shards, tenant: str, command: Any, now: int) -> BulkView:
    """Look at a bulk operation, or stop it, in all shards that have a part of it."""
    found, error = [], None
    for shard in shards:
        try:
            found.append(shard.execute(tenant, command, now))
        except errors.NotFound as not_here:
            error = not_here
    if not found and error is not None:
        raise error
    return bulk.joined(found)


def all_pages(command: c.Browse, pages: Sequence[r.Page]) -> r.Page:
    sign = 1 if command.ascending else -1
    looked = sum(page.looked for page in pages)
    jobs = sorted((job for page in pages for job in page.jobs), key=lambda job: job.id * sign)
    # no further than the shard that has looked least far: beyond it there may be jobs that were not read yet
    seen = min((page.next_after * sign for page in pages if page.next_after is not None), default=None)
    if seen is not None:
        jobs = [job for job in jobs if job.id * sign <= seen]
    if len(jobs) > command.limit:
        jobs = jobs[: command.limit]
        return r.Page(jobs, jobs[-1].id, looked)
    return r.Page(jobs, None if seen is None else seen * sign, looked)


def all_schedules(command: c.ListSchedules, pages: Sequence[SchedulePage]) -> SchedulePage:
    def place(schedule: ScheduleView) -> tuple[str, str]:
        return schedule.queue, schedule.name

    found = sorted((schedule for page in pages for schedule in page.schedules), key=place)
    seen = min((place_of(page.next_after) for page in pages if page.next_after is not None), default=None)
    if seen is not None:
        found = [schedule for schedule in found if place(schedule) <= seen]
    more = seen is not None or len(found) > command.limit
    found = found[: command.limit]
    return SchedulePage(found, cursor_of(found[-1]) if more and found else None)


ALL_OF: dict[type[Any], Callable[[Any, Sequence[Any]], Any]] = {
    c.ListQueues: all_queues,
    c.GetStats: all_stats,
    c.GetQueues: queries.joined_queues,
    c.GetHistory: all_histories,
    c.GetTrends: all_trends,
    c.ListBulks: bulk.joined_lists,
    c.GetDeadGroups: dead_letters.joined_groups,
    c.GetTimings: lambda command, found: queries.joined_timings(found),
    c.Browse: all_pages,
    c.ListWorkflows: workflow_views.all_pages,
    c.ListSchedules: all_schedules,
}
"""How the replies of several become one: of shards in a process, and of processes in `process_router.py`."""


def kv(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """All entries of a tenant live together, so that commands about several of them are decided in one place."""
    return shards.home(tenant, KV_HOME).execute(tenant, command, now)


SPECIAL: dict[type[Any], Any] = {
    **dict.fromkeys(at_home("claim"), claim),
    **dict.fromkeys(at_home("tenant"), query),
    **dict.fromkeys(at_home("entries"), kv),
    c.CountJobs: count_jobs,
    c.StartBulk: start_bulk,
    c.GetBulk: one_bulk,
    c.StopBulk: one_bulk,
    c.Pull: pull,
    c.PushWorkflow: push_workflow,
    c.GetWorkflow: get_workflow,
    c.CancelWorkflow: change_workflow,
    c.RetryWorkflow: change_workflow,
    c.GetInputs: get_inputs,
    c.Stage: stage,
    c.Publish: publish,
    c.Abort: abort,
    c.FindJob: find_job,
}
"""Commands that need more than the one shard that their queue or job names."""
