"""Apply records about workflows, and about edges between shards."""

from stoker.engine import workflow_state
from stoker.engine.apply.moves import make_delayed, make_pending
from stoker.engine.jobs import BLOCKED, BLOCKED_DUE, DELAYED, WAITING, SingleJob, UniformBatch
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers
from stoker.engine.workflow_state import GOOD, OPEN, ShardWorkflow
from stoker.records import records as rec

EARLY_MAX = 10_000
"""Messages about workflows that have not arrived here yet. Beyond this number the oldest are dropped."""


def workflow_pushed(shard: ShardState, record: rec.WorkflowPushed) -> None:
    flow = workflow_state.add(shard, record)
    shard.early.pop(flow.id, None)  # the decision to take the workflow has read these messages


def step_released(shard: ShardState, record: rec.StepReleased) -> None:
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is None:
        return
    step = flow.steps[record.step]
    step.released = True
    for first, count in record.runs:
        job = shard.index.get(first)
        if job is not None:
            _release_job(shard, job, record)
            continue
        found = shard.index.find_batch(first)
        assert found is not None, f"job {first} must be there"
        assert count != 0
        _release_batch(shard, found[0], record)
    workflow_state.reckon(shard, flow, step, record.at)


def _release_job(shard: ShardState, job: SingleJob, record: rec.StepReleased) -> None:
    job.details().due = 0
    make_pending(shard, job, BLOCKED, record.due, record.at)


def _release_batch(shard: ShardState, batch: UniformBatch, record: rec.StepReleased) -> None:
    """Release all blocked jobs of a batch. Further runs of the same batch in the record find nothing left to do."""
    if batch.due != BLOCKED_DUE:
        return
    queue, jobs = batch.queue, batch.waiting.left
    if record.due:
        queue.move(BLOCKED, DELAYED, jobs)
        make_delayed(shard, batch, record.due)
        return
    batch.due, batch.ready_at = 0, record.at
    queue.move(BLOCKED, WAITING, jobs)
    queue.ready.add(batch)
    if queue.waiters:
        shard.dirty.append(queue)


def step_skipped(shard: ShardState, record: rec.StepSkipped) -> None:
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is not None:
        step = flow.steps[record.step]
        step.skipped = True
        workflow_state.reckon(shard, flow, step, record.at)


def step_filled(shard: ShardState, record: rec.StepFilled) -> None:
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is None:
        return
    step = flow.steps[record.step]
    step.first, step.count = record.first, record.count
    if record.count:
        flow.owns(step)


def step_heard(shard: ShardState, record: rec.StepHeard) -> None:
    """Note what another shard reported about one of its steps."""
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is None:
        return
    step = flow.steps[record.step]
    if record.round < step.round:
        return
    step.round = record.round
    if record.first:
        step.first, step.count = record.first, record.count
    if record.round < flow.round and record.standing != GOOD:
        return  # reported before the retry that this shard already knows of
    if (step.standing, step.failing) != (record.standing, record.failing):
        workflow_state.note(shard, flow, step, record.standing, record.failing, record.at)


def heard_early(shard: ShardState, record: rec.HeardEarly) -> None:
    shard.early.setdefault(record.workflow, []).append(record.message)
    if len(shard.early) > EARLY_MAX:
        del shard.early[next(iter(shard.early))]


def workflow_cancelled(shard: ShardState, record: rec.WorkflowCancelled) -> None:
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is not None:
        flow.cancelled = True
        workflow_state.stop_reading(shard, flow)


def workflow_retried(shard: ShardState, record: rec.WorkflowRetried) -> None:
    flow = _flow(shard, record.tenant, record.workflow)
    if flow is None:
        return
    flow.round = record.round
    for step in flow.steps:
        if step.made.shard == shard.number:
            if step.skipped:
                step.skipped = False
                workflow_state.reckon(shard, flow, step, record.at)
        elif step.standing != GOOD and step.round < record.round and (step.standing, step.failing) != (OPEN, False):
            workflow_state.note(shard, flow, step, OPEN, False, record.at)


def workflow_forgotten(shard: ShardState, record: rec.WorkflowForgotten) -> None:
    tenant = shard.tenant(record.tenant)
    flow = tenant.flows.pop(record.workflow, None)
    if flow is not None:
        workflow_state.let_go_all(shard, flow)
    tenant.ended_flows.pop(record.workflow, None)


def watched(shard: ShardState, record: rec.Watched) -> None:
    for job, waiting in record.pairs:
        shard.dependents.setdefault(job, {})[waiting] = None
        shard.watchers[job] = record.tenant


def _flow(shard: ShardState, tenant: str, workflow: int) -> ShardWorkflow | None:
    return workflow_state.find(shard, tenant, workflow)


APPLY: Appliers = {
    rec.WorkflowPushed: workflow_pushed,
    rec.StepReleased: step_released,
    rec.StepSkipped: step_skipped,
    rec.StepFilled: step_filled,
    rec.StepHeard: step_heard,
    rec.HeardEarly: heard_early,
    rec.WorkflowCancelled: workflow_cancelled,
    rec.WorkflowRetried: workflow_retried,
    rec.WorkflowForgotten: workflow_forgotten,
    rec.Watched: watched,
}
