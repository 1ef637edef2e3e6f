"""Decide workflows: push, fill, release steps, cancel, retry, forget.

A workflow lives in the shards of its queues. The shard of its first queue is its home, which knows the standing of all
steps. Shards report the end of a step to each other by messages, which are sent at least once and taken once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from stoker.engine import checks, workflow_checks, workflow_state
from stoker.engine import deadlines as kinds
from stoker.engine.dead_letters import emit_revived
from stoker.engine.dependencies import settle
from stoker.engine.ending import cancel_jobs, fail_for_good, make_room
from stoker.engine.jobs import ACTIVE, BLOCKED, CANCELLED, COMPLETED, DELAYED, FAILED, WAITING, Part, SingleJob
from stoker.engine.outbox import send
from stoker.engine.pushing import answer_to, due_of, remember_request
from stoker.engine.settling import held_or_raise, wants_cancel
from stoker.engine.shard_state import ShardState
from stoker.engine.workflow_state import CONTINUE, POLICIES, ShardWorkflow, StepState
from stoker.engine.workflow_views import known, parts_of, standings, view
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import make_id
from stoker.model.options import Options
from stoker.model.reasons import Reason
from stoker.records import records as rec
from stoker.records.stored import sizes_of

SLICE = 200
"""How many jobs fail at once with a step before theirs: 20 ms at most. The others follow a millisecond later."""

PREFIX = "workflow:"
"""The prefix of its request keys, so that a workflow is never mistaken for a batch."""

# --- pushing ---------------------------------------------------------------------------------------


def push(shard: ShardState, tenant: str, command: c.PushWorkflow, now: int) -> r.PushedWorkflow:
    """Push a workflow that lives entirely in this shard."""
    return start({shard.number: shard}, lambda queue: shard.number, tenant, command, now)


def start(
    shards: Mapping[int, ShardState],
    shard_of: Callable[[str], int],
    tenant: str,
    command: c.PushWorkflow,
    now: int,
) -> r.PushedWorkflow:
    """Push the parts of a workflow that live in these shards, and send the other shards their parts.

    The shard of the first step must be one of these. The other shards must have room for their queues.
    """
    any_shard = next(iter(shards.values()))
    workflow_checks.workflow(command, any_shard.limits)
    places = [shard_of(step.queue) for step in command.steps]
    home = shards[places[0]]
    before = _answered(home, tenant, command, now)
    if before is not None:
        return before
    check_room(shards, tenant, command, places)
    made = _made(shards, command, places)
    for number in sorted(set(places), key=lambda number: number != home.number):
        if number in shards:
            own = {n: step.payloads for n, step in enumerate(command.steps) if places[n] == number}
            take_part(shards[number], tenant, made, own, now)
        else:
            theirs = {n: list(step.payloads) for n, step in enumerate(command.steps) if places[n] == number}
            send(home, tenant, number, rec.StartWorkflow(now, made, theirs), now)
    if command.request_key is not None:
        queue = home.queue(tenant, command.steps[0].queue)
        remember_request(home, queue, PREFIX + command.request_key, r.PushedBatch((made.id,)), now)
    return r.PushedWorkflow(made.id, [(step.first, step.count) for step in made.steps], True, home.level)


def _answered(home: ShardState, tenant: str, command: c.PushWorkflow, now: int) -> r.PushedWorkflow | None:
    """The answer that was given to this push before, if any, as far as the workflow is still known."""
    if command.request_key is None:
        return None
    queue = home.queue_for_writing(tenant, command.steps[0].queue)
    before = answer_to(home, queue, PREFIX + command.request_key, now)
    home.drop_unknown(queue)
    if before is None:
        return None
    flow = workflow_state.find(home, tenant, before.ids[0])
    steps = [(step.first, step.count) for step in flow.steps] if flow is not None else []
    return r.PushedWorkflow(before.ids[0], steps, False, home.level)


def check_room(shards: Mapping[int, ShardState], tenant: str, command: c.PushWorkflow, places: Sequence[int]) -> None:
    """Check that the tenant may have these queues, and another workflow."""
    for number, shard in shards.items():
        names = [step.queue for step, place in zip(command.steps, places, strict=True) if place == number]
        if names:
            shard.check_room(tenant, names)
        owner = shard.tenants.get(tenant)
        if number == places[0] and owner is not None:
            running = len(owner.flows) - len(owner.ended_flows)
            most = shard.limits.workflows_per_tenant_max
            if running >= most:
                raise errors.LimitExceeded(f"{running} workflows have not ended, the limit is {most}: let some end")


def _made(shards: Mapping[int, ShardState], command: c.PushWorkflow, places: Sequence[int]) -> rec.WorkflowMade:
    """The workflow with ids for all jobs in these shards: the next ids of each shard."""
    home = places[0]
    given = {number: shard.sequence for number, shard in shards.items()}
    given[home] += 1
    workflow = make_id(given[home], home)
    firsts: list[int] = []
    for step, place in zip(command.steps, places, strict=True):
        known = place in given and not step.open
        firsts.append(make_id(given[place] + 1, place) if known else 0)
        if known:
            given[place] += len(step.payloads)
    steps = []
    for number, step in enumerate(command.steps):
        parent = step.options.parent_id if step.parent is None else (firsts[step.parent] or None)
        options = msgspec.structs.replace(step.options, workflow=workflow, parent_id=parent)
        after = [(edge.step, POLICIES.index(edge.on_failure)) for edge in step.after]
        count = len(step.payloads)
        steps.append(
            rec.StepMade(step.key, step.queue, places[number], after, firsts[number], count, options, step.open)
        )
    return rec.WorkflowMade(workflow, command.name, steps)


def take_part(
    shard: ShardState, tenant: str, made: rec.WorkflowMade, payloads: Mapping[int, Sequence[bytes]], now: int
) -> None:
    """Push the jobs of the steps that live in this shard."""
    given = shard.sequence + (made.id == make_id(shard.sequence + 1, shard.number))
    steps = list(made.steps)
    for number in sorted(payloads):
        step = steps[number]
        if not step.is_open and not step.first:
            steps[number] = msgspec.structs.replace(step, first=make_id(given + 1, shard.number))
        given += step.count
    made = msgspec.structs.replace(made, steps=steps)
    shard.emit(rec.WorkflowPushed(now, tenant, made))
    for number in sorted(payloads):
        step = steps[number]
        if not step.is_open:
            _push_jobs(shard, tenant, step.queue, step.options, step.first, tuple(payloads[number]), now)


def _push_jobs(
    shard: ShardState, tenant: str, queue: str, options: Options, first: int, payloads: tuple[bytes, ...], now: int
) -> None:
    assert first == make_id(shard.sequence + 1, shard.number), "ids of a workflow are given in order"
    due = due_of(shard, options, now)
    shard.emit(rec.JobsPushed(now, tenant, queue, first, payloads, options, due, sizes_of(payloads)))


def fill(shard: ShardState, tenant: str, command: c.FillStep, now: int) -> r.Done:
    """A running job brings the payloads of an open step."""
    if not checks.is_list(command.payloads) or isinstance(command.payloads, checks.NOT_PAYLOADS):
        raise errors.InvalidRequest(f"invalid payloads {checks.short(command.payloads)}: expected a list of bytes")
    if len(command.payloads) > shard.limits.workflow_jobs_max:
        raise errors.LimitExceeded(
            f"{len(command.payloads)} jobs are over the limit of {shard.limits.workflow_jobs_max} for one step"
        )
    workflow_checks.payloads(command.payloads, shard.limits)
    held_or_raise(shard, tenant, command.id, command.token)
    part = shard.part(command.id)
    found = workflow_state.owner_of(part.queue.tenant, part.options, command.id)
    if found is None:
        raise errors.WrongState(f"job {command.id} is not part of a workflow: it has no step to fill")
    flow, own = found
    step = _open_step(flow, own, command.step)
    if step.made.shard != shard.number:
        message = rec.FillStepHere(flow.id, step.number, list(command.payloads))
        send(shard, tenant, step.made.shard, message, now)
        return r.Done(len(command.payloads))
    fill_here(shard, flow, step, tuple(command.payloads), now)
    return r.Done(step.count)


def _open_step(flow: ShardWorkflow, own: StepState, name: str) -> StepState:
    """The open step that a job of the step `own` may fill."""
    for number, _ in own.before:
        step = flow.steps[number]
        if step.made.is_open and name == step.key:
            return step
    raise errors.NotFound(
        f"workflow {flow.id} has no open step {checks.short(name)} right after step {own.key}: name the step by its key"
    )


def fill_here(shard: ShardState, flow: ShardWorkflow, step: StepState, payloads: tuple[bytes, ...], now: int) -> None:
    """Fill an open step. Only the first filling counts. Nothing changes if the step was released or given up before."""
    if step.count or step.released or step.skipped or flow.cancelled or not payloads:
        return
    tenant, first = flow.tenant.name, make_id(shard.sequence + 1, shard.number)
    shard.emit(rec.StepFilled(now, tenant, flow.id, step.number, first, len(payloads)))
    _push_jobs(shard, tenant, step.made.queue, step.made.options, first, payloads, now)


# --- what follows from the end of a step -------------------------------------------------------------


def settle_steps(shard: ShardState, at: int) -> None:
    """Decide about the steps after each step whose standing has changed, and report it to other shards."""
    while shard.moved_steps:
        flow, step = shard.moved_steps.popleft()
        if flow.tenant.flows.get(flow.id) is not flow:
            continue
        if step.made.shard == shard.number:
            tell(shard, flow, step, at)
        for number, policy in step.before:
            other = flow.steps[number]
            if other.made.shard != shard.number or other.released or flow.cancelled:
                continue
            if not other.waits:
                release(shard, flow, other, at)
            elif step.failing and policy != CONTINUE:
                give_up(shard, flow, other, POLICIES[policy], at)
        _forget_surplus(shard, flow, at)


def tell(shard: ShardState, flow: ShardWorkflow, step: StepState, at: int) -> None:
    """Report the standing of a step to the home of the workflow and to the shards of the steps after it.

    When the step has ended, the shards of the steps before it hear it, too: they keep results that it might read.
    """
    near = step.before if step.standing == workflow_state.OPEN else (*step.before, *step.made.after)
    for to in dict.fromkeys((flow.home, *(flow.steps[number].made.shard for number, _ in near))):
        if to != shard.number:
            how = (step.standing, step.failing, flow.round, step.first, step.count)
            message = rec.TellStep(flow.id, step.number, *how, flow.cancelled)
            send(shard, flow.tenant.name, to, message, at)


def release(shard: ShardState, flow: ShardWorkflow, step: StepState, at: int) -> None:
    """Let all blocked jobs of a step start."""
    due = step.due if step.due > at else 0
    runs = [_run(part) for part in parts_of(shard, step, (BLOCKED,))]
    shard.emit(rec.StepReleased(at, flow.tenant.name, step.made.queue, flow.id, step.number, runs, due))


def _run(part: Part) -> tuple[int, int]:
    if type(part) is SingleJob:
        return part.id, 1
    return part.batch.id_at(part.start), part.jobs if part.batch.step > 0 else -part.jobs


def give_up(shard: ShardState, flow: ShardWorkflow, step: StepState, policy: str, at: int) -> None:
    """A step before this one has failed: fail or cancel its jobs."""
    parts = parts_of(shard, step, (BLOCKED,))
    if not parts:
        if not step.count and not step.skipped:
            shard.emit(rec.StepSkipped(at, flow.tenant.name, flow.id, step.number))
        return
    if policy == "cancel":
        cancel_jobs(shard, parts[0].queue, parts, CANCELLED, Reason.DEPENDENCY_FAILED, at, settle_edges=False)
        return
    ids: list[int] = []
    for part in parts:
        room = SLICE - len(ids)
        ids += sorted(part.ids[:room] if type(part) is SingleJob or part.batch.step > 0 else part.ids[-room:])
        if len(ids) == SLICE:
            break
    if not parts[0].options.remove_on_fail:
        make_room(shard, parts[0].queue, len(ids), at)
    for job_id in ids:
        fail_for_good(shard, job_id, Reason.DEPENDENCY_FAILED, at, error="a step before it failed", settle_edges=False)
    if len(ids) < sum(part.jobs for part in parts):
        shard.deadlines.arm(max(at, shard.now) + 1, kinds.FLOW, (flow, step.number))  # in another turn than this one


def judge(shard: ShardState, flow: ShardWorkflow, step: StepState, at: int) -> None:
    """Release a step or give it up, as follows from the standings of the steps before it."""
    if step.released or flow.cancelled or step.made.shard != shard.number:
        return
    policy = workflow_state.failed_before(flow, step)
    if not step.waits:
        release(shard, flow, step, at)
    elif policy is not None:
        give_up(shard, flow, step, policy, at)


def on_time(shard: ShardState, flow: ShardWorkflow, number: int, at: int) -> None:
    """The retention of a workflow is over, or a step that is given up has more jobs to fail."""
    if number < 0:
        forget(shard, flow, at)
    else:
        judge(shard, flow, flow.steps[number], at)


def is_expected(at: int, flow: ShardWorkflow, number: int) -> bool:
    """Whether the deadline is still valid."""
    if flow.tenant.flows.get(flow.id) is not flow:
        return False
    if number < 0:
        return flow.forget_at == at
    return not flow.steps[number].released and flow.steps[number].left > 0


def resume(shard: ShardState, now: int) -> None:
    """After a start: continue to give up steps that were being given up."""
    for tenant in shard.tenants.values():
        for flow in tenant.flows.values():
            for step in flow.steps:
                unfinished = step.made.shard == shard.number and not step.released and step.left
                if unfinished and workflow_state.failed_before(flow, step) is not None:
                    shard.deadlines.arm(now, kinds.FLOW, (flow, step.number))


# --- cancelling, retrying, forgetting -----------------------------------------------------------------


def cancel(shard: ShardState, tenant: str, command: c.CancelWorkflow, now: int) -> r.WorkflowView:
    flow = known(shard, tenant, command.id)
    if not flow.cancelled:
        if flow.finished_at:
            raise errors.WrongState(f"workflow {flow.id} is {flow.state}: it can no longer be cancelled")
        cancel_here(shard, flow, now)
        for to in flow.shards():
            if to != shard.number:
                send(shard, tenant, to, rec.CancelWorkflowHere(flow.id), now)
    return view(flow, standings(shard, flow))


def cancel_here(shard: ShardState, flow: ShardWorkflow, now: int) -> None:
    """End the jobs that have not started, and mark the running ones. Steps without jobs will never have any."""
    tenant = flow.tenant.name
    shard.emit(rec.WorkflowCancelled(now, tenant, flow.id))
    for step in flow.steps:
        if step.made.shard != shard.number:
            continue
        if not step.count:
            shard.emit(rec.StepSkipped(now, tenant, flow.id, step.number))
            continue
        pending = parts_of(shard, step, (WAITING, DELAYED, BLOCKED))
        if pending:
            cancel_jobs(shard, pending[0].queue, pending, CANCELLED, Reason.CANCELLED, now, settle_edges=False)
        for part in parts_of(shard, step, (ACTIVE,)):
            for job_id in [] if wants_cancel(part) else list(part.ids):
                shard.emit(rec.CancelRequested(now, tenant, step.made.queue, job_id))
    settle(shard, now)


def retry(shard: ShardState, tenant: str, command: c.RetryWorkflow, now: int) -> r.WorkflowView:
    flow = known(shard, tenant, command.id)
    if flow.cancelled:
        raise errors.WrongState(f"workflow {flow.id} was cancelled: push it again")
    if not any(step.failing for step in flow.steps):
        raise errors.WrongState(f"workflow {flow.id} is {flow.state}, and nothing of it has failed: nothing to retry")
    number = flow.round + 1
    retry_here(shard, flow, number, now)
    for to in flow.shards():
        if to != shard.number:
            send(shard, tenant, to, rec.RetryWorkflowHere(flow.id, number), now)
    return view(flow, standings(shard, flow))


def retry_here(shard: ShardState, flow: ShardWorkflow, number: int, now: int) -> None:
    """Send dead letters back to work. Jobs of steps that were never released wait for the steps before them again."""
    tenant = flow.tenant.name
    shard.emit(rec.WorkflowRetried(now, tenant, flow.id, number))
    own = [step for step in flow.steps if step.made.shard == shard.number]
    for step in own:
        if not step.ended[FAILED - COMPLETED]:
            continue
        for job_id in step.ids:
            job = shard.index.get(job_id)
            if job is not None and job.state == FAILED:
                emit_revived(shard, job, now, blocked=not step.released)
    for step in own:
        judge(shard, flow, step, now)
        if step.failing:
            tell(shard, flow, step, now)  # reports from before the retry no longer count
    settle(shard, now)


def forget(shard: ShardState, flow: ShardWorkflow, at: int) -> None:
    tenant, others = flow.tenant.name, flow.shards()
    shard.emit(rec.WorkflowForgotten(at, tenant, flow.id))
    for to in others:
        if to != shard.number:
            send(shard, tenant, to, rec.ForgetWorkflow(flow.id), at)


def _forget_surplus(shard: ShardState, flow: ShardWorkflow, at: int) -> None:
    """Keep only the latest ended workflows: as many as ended jobs of a queue."""
    ended = flow.tenant.ended_flows
    while len(ended) > shard.settings.retention.completed_count:
        forget(shard, flow.tenant.flows[next(iter(ended))], at)


# --- messages of other shards ------------------------------------------------------------------------


def take_start(shard: ShardState, tenant: str, message: rec.StartWorkflow, now: int) -> None:
    if workflow_state.find(shard, tenant, message.made.id) is not None:
        return
    early = shard.early.get(message.made.id, ())
    take_part(shard, tenant, message.made, message.payloads, now)
    for one in early:
        TAKE[type(one)](shard, tenant, one, now)
    settle(shard, now)


def take_standing(shard: ShardState, tenant: str, message: rec.TellStep, now: int) -> None:
    flow = workflow_state.find(shard, tenant, message.workflow)
    if flow is None:
        shard.emit(rec.HeardEarly(now, tenant, message.workflow, message))
        return
    if message.cancelled and not flow.cancelled:
        cancel_here(shard, flow, now)
    *heard, _ = astuple(message)
    shard.emit(rec.StepHeard(now, tenant, *heard))
    settle(shard, now)


def take_fill(shard: ShardState, tenant: str, message: rec.FillStepHere, now: int) -> None:
    flow = workflow_state.find(shard, tenant, message.workflow)
    if flow is None:
        shard.emit(rec.HeardEarly(now, tenant, message.workflow, message))
    else:
        fill_here(shard, flow, flow.steps[message.step], tuple(message.payloads), now)


def take_cancel(shard: ShardState, tenant: str, message: rec.CancelWorkflowHere, now: int) -> None:
    flow = workflow_state.find(shard, tenant, message.workflow)
    if flow is not None and not flow.cancelled:
        cancel_here(shard, flow, now)


def take_retry(shard: ShardState, tenant: str, message: rec.RetryWorkflowHere, now: int) -> None:
    flow = workflow_state.find(shard, tenant, message.workflow)
    if flow is not None:
        retry_here(shard, flow, message.round, now)


def take_forget(shard: ShardState, tenant: str, message: rec.ForgetWorkflow, now: int) -> None:
    if workflow_state.find(shard, tenant, message.workflow) is not None:
        shard.emit(rec.WorkflowForgotten(now, tenant, message.workflow))


TAKE: dict[type[Any], Callable[[ShardState, str, Any, int], None]] = {
    rec.StartWorkflow: take_start,
    rec.TellStep: take_standing,
    rec.FillStepHere: take_fill,
    rec.CancelWorkflowHere: take_cancel,
    rec.RetryWorkflowHere: take_retry,
    rec.ForgetWorkflow: take_forget,
}
"""How each message is carried out."""
