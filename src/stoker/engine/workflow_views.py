"""Read workflows: their progress, lists of them, and the inputs of a job."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from stoker.engine import checks, workflow_state
from stoker.engine.ending import lowest
from stoker.engine.jobs import ACTIVE, BLOCKED, COMPLETED, DELAYED, WAITING, Members, Part
from stoker.engine.queries import view as job_view
from stoker.engine.shard_state import ShardState
from stoker.engine.workflow_state import BAD, GOOD, POLICIES, ShardWorkflow, StepState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.limits import Limits
from stoker.model.states import STATES
from stoker.model.workflows import Edge, WorkflowState


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """The state of a step in the shard where it lives."""

    step: int
    first: int
    count: int
    counts: list[int]
    """Jobs by state, including ended jobs that are forgotten."""
    standing: int
    failing: bool
    released: bool


Segment = tuple[str, int, int, int]
"""The key of a step, the first id of its jobs, their number, and the workflow (0 for a job that is named alone)."""


def parts_of(shard: ShardState, step: StepState, states: tuple[int, ...]) -> list[Part]:
    """Live jobs of a step of this shard in one of these states, in id order."""
    if not step.count or not step.left:
        return []
    parts: list[Part] = []
    found = shard.index.find_batch(step.first)
    live = 0
    if found is not None:
        batch = found[0]
        for spans, state in (
            ([batch.waiting], batch.pending),
            ([piece.span for piece in batch.slices], ACTIVE),
        ):
            members = [Members(batch, start, stop) for span in spans for start, stop in span.runs()]
            live += sum(member.jobs for member in members)
            if state in states:
                parts += members
    if live < step.left:
        jobs = (shard.index.get(job_id) for job_id in step.ids)
        parts += [job for job in jobs if job is not None and job.state in states]
    parts.sort(key=lowest)
    return parts


def known(shard: ShardState, tenant: str, workflow: int) -> ShardWorkflow:
    flow = workflow_state.find(shard, tenant, workflow) if type(workflow) is int else None
    if flow is None or flow.home != shard.number:
        raise checks.not_found("workflow", workflow)
    return flow


# --- one workflow ------------------------------------------------------------------------------------


def get_workflow(shard: ShardState, tenant: str, command: c.GetWorkflow, now: int) -> r.WorkflowView:
    flow = known(shard, tenant, command.id)
    return view(flow, standings(shard, flow))


def standings(shard: ShardState, flow: ShardWorkflow) -> list[Standing]:
    """The standings of the steps that live in this shard."""
    found = []
    for step in flow.steps:
        if step.made.shard == shard.number:
            counts = [0, 0, 0, 0, *step.ended]
            for state in (WAITING, DELAYED, BLOCKED, ACTIVE) if step.left else ():
                counts[state] = sum(part.jobs for part in parts_of(shard, step, (state,)))
            found.append(
                Standing(step.number, step.first, step.count, counts, step.standing, step.failing, step.released)
            )
    return found


def view(flow: ShardWorkflow, found: Iterable[Standing]) -> r.WorkflowView:
    """The workflow as its home knows it, with the standings of its steps."""
    known = r.WorkflowView(
        id=flow.id,
        name=flow.name,
        state=flow.state,
        pushed_at=flow.at,
        finished_at=flow.finished_at,
        retries=flow.round,
        steps=[_step_view(step) for step in flow.steps],
    )
    return with_standings(known, found)


def with_standings(known: r.WorkflowView, found: Iterable[Standing]) -> r.WorkflowView:
    """The same view with the standings that the shards of the steps reported."""
    here = {one.step: one for one in found}
    steps = [_standing_view(step, here[number]) if number in here else step for number, step in enumerate(known.steps)]
    counts = [0] * 8
    for one in here.values():
        counts = [a + b for a, b in zip(counts, one.counts, strict=True)]
    total, ended = sum(step.count for step in steps), sum(counts[COMPLETED:])
    return msgspec.structs.replace(
        known,
        steps=steps,
        total=total,
        remaining=total - ended,
        failed=ended - counts[COMPLETED],
        counts=r.Counts(*counts),
    )


def _standing_view(step: r.StepView, found: Standing) -> r.StepView:
    state = _word(found.standing, found.failing, found.released)
    counts = r.Counts(*found.counts)
    return msgspec.structs.replace(step, first=found.first, count=found.count, state=state, counts=counts)


def _word(standing: int, failing: bool, is_released: bool) -> Literal["blocked", "running", "completed", "failed"]:
    if standing == GOOD:
        return "completed"
    if standing == BAD or failing:
        return "failed"
    return "running" if is_released else "blocked"


def _step_view(step: StepState) -> r.StepView:
    made = step.made
    return r.StepView(
        key=step.key,
        queue=made.queue,
        name=made.options.name,
        first=step.first,
        count=step.count,
        after=tuple(Edge(number, POLICIES[policy]) for number, policy in made.after),
        open=made.is_open,
        state=_word(step.standing, step.failing, not made.after),
    )


# --- lists -------------------------------------------------------------------------------------------


def list_workflows(shard: ShardState, tenant: str, command: c.ListWorkflows, now: int) -> r.WorkflowPage:
    checks.count(command.limit, "limit", shard.limits.browse_jobs_max)
    if command.state is not None and command.state not in list(WorkflowState):
        raise errors.InvalidRequest(
            f"unknown state {checks.short(command.state)}: expected running, completed, failed or cancelled"
        )
    owner = shard.tenants.get(tenant)
    found: list[r.WorkflowInfo] = []
    # workflows whose home is here were added in id order
    for flow in reversed(owner.flows.values()) if owner is not None else ():
        if flow.home != shard.number or (command.after is not None and flow.id >= command.after):
            continue
        if command.state not in (None, flow.state) or command.name not in (None, flow.name):
            continue
        if len(found) == command.limit:
            return r.WorkflowPage(found, found[-1].id)
        found.append(_info(flow))
    return r.WorkflowPage(found)


def _info(flow: ShardWorkflow) -> r.WorkflowInfo:
    return r.WorkflowInfo(
        id=flow.id,
        name=flow.name,
        state=flow.state,
        pushed_at=flow.at,
        finished_at=flow.finished_at,
        steps=len(flow.steps),
        ended=len(flow.steps) - flow.open,
        failed=sum(1 for step in flow.steps if step.failing),
    )


def all_pages(command: c.ListWorkflows, pages: Sequence[r.WorkflowPage]) -> r.WorkflowPage:
    """Merge the pages of several shards."""
    found = sorted((one for page in pages for one in page.workflows), key=lambda one: -one.id)
    is_more = any(page.next_after is not None for page in pages) or len(found) > command.limit
    found = found[: command.limit]
    return r.WorkflowPage(found, found[-1].id if is_more and found else None)


# --- inputs ------------------------------------------------------------------------------------------


def get_inputs(shard: ShardState, tenant: str, command: c.GetInputs, now: int) -> r.Inputs:
    """The inputs of a job, if all of them live in this shard."""
    asked = page_of(command, segments(shard, tenant, command))
    results = results_of(lambda job_id: shard, tenant, asked.ids, asked.workflow, now)
    return answered(command, asked, results, shard.limits)


def segments(shard: ShardState, tenant: str, command: c.GetInputs) -> list[Segment]:
    """The jobs that a job of this shard depends on, in order."""
    checks.count(command.limit, "limit", shard.limits.batch_jobs_max)
    checks.number(command.after, "after", 0, 2**53 - 1)
    part = shard.readable(tenant, command.id)
    found: list[Segment] = []
    own = workflow_state.owner_of(part.queue.tenant, part.options, command.id)
    if own is not None:
        flow, step = own
        for number, _ in step.made.after:
            other = flow.steps[number]
            if other.first:
                found.append((other.key, other.first, other.count, flow.id))
    return found + [("", edge.id, 1, 0) for edge in part.options.depends_on]


class InputsPage(msgspec.Struct):
    """A page of inputs."""

    ids: list[int]
    steps: list[str]
    total: int
    workflow: int = 0


def page_of(command: c.GetInputs, found: Sequence[Segment]) -> InputsPage:
    asked = InputsPage([], [], sum(count for _, _, count, _ in found), max((one[3] for one in found), default=0))
    skip, room = command.after, command.limit
    for key, first, count, _ in found:
        take = min(count - skip, room) if skip < count else 0
        start = first + skip * STEP
        asked.ids += range(start, start + take * STEP, STEP)
        asked.steps += [key] * take
        skip, room = max(0, skip - count), room - take
    return asked


def results_of(
    by_id: Callable[[int], ShardState], tenant: str, ids: Sequence[int], workflow: int, now: int
) -> list[r.Input]:
    """The results of the first of these jobs: as many as fit into a reply, but at least one."""
    found: list[r.Input] = []
    size = 0
    for job_id in ids:
        shard = by_id(job_id)
        found.append(result_of(shard, tenant, job_id, workflow, now))
        size += len(found[-1].result or b"")
        if size >= shard.limits.reply_bytes_max:
            break
    return found


def result_of(shard: ShardState, tenant: str, job_id: int, workflow: int, now: int) -> r.Input:
    part = shard.find(job_id)
    if part is None:
        kept = workflow_state.kept_of(shard, tenant, workflow, job_id)
        if kept is not None:
            result: Any = kept.result  # a stored result is read when the reply leaves
            return r.Input(job_id, "", STATES[kept.state], result, kept.codec, kept.error)
    if part is None or part.queue.tenant.name != tenant:
        return r.Input(job_id)
    job = job_view(shard, part, now)
    return r.Input(job_id, "", job.state, job.result, job.result_codec, job.error or job.reason)


def answered(command: c.GetInputs, asked: InputsPage, results: Sequence[r.Input], limits: Limits) -> r.Inputs:
    """The results for the jobs of a page, in its order, as far as they fit into a reply."""
    inputs: list[r.Input] = []
    size = 0
    for key, result in zip(asked.steps, results, strict=False):
        size += len(result.result or b"")
        if inputs and size > limits.reply_bytes_max:
            break
        inputs.append(msgspec.structs.replace(result, step=key))
    stop = command.after + len(inputs)
    return r.Inputs(inputs, stop if inputs and stop < asked.total else None, asked.total)
