"""The state of workflows in a shard: their steps, the standing of each step, and its effect on other steps.

Every shard that has a part of a workflow knows all of its steps. It counts the ended jobs of its own steps; the
standing of other steps comes by messages. Everything here changes state and runs while records are applied, live or in
a replay. `note` puts changed steps into `shard.moved_steps`, and `workflows.py` decides what follows.
"""

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from stoker.engine import deadlines as kinds
from stoker.engine.jobs import COMPLETED, EndedRun, SingleJob
from stoker.engine.kept_results import KeptResult, KeptResults
from stoker.engine.state import Tenant
from stoker.model.ids import SHARD_BITS, STEP, shard_of
from stoker.model.options import DependencyPolicy, Options
from stoker.model.workflows import WorkflowState
from stoker.records import records as rec
from stoker.records.stored import Stored

if TYPE_CHECKING:
    from stoker.engine.shard_state import ShardState

POLICIES: tuple[DependencyPolicy, ...] = ("fail", "cancel", "continue")
"""In the order in which records number them."""
CONTINUE = POLICIES.index("continue")

OPEN, GOOD, BAD = range(3)
"""The standing of a step: some jobs have not ended; all completed; all ended, but not all completed."""

OLDEST = 100
"""When too much is kept, this many of the oldest workflows are searched for one that has ended: a few microseconds."""


class StepState(msgspec.Struct, gc=False, eq=False):
    """One step of a workflow."""

    number: int
    made: rec.StepMade
    before: list[tuple[int, int]]
    """The steps that come after this one: pairs of a number and an index into `POLICIES`."""
    first: int
    count: int
    waits: int
    """How many of the steps before it do not let it start. Known only in its own shard."""
    released: bool
    """Whether its jobs were released. Then the steps before it no longer matter."""
    due: int = 0
    """When its jobs become ready after their release."""
    ended: list[int] = []
    """How many of its jobs completed, failed, were cancelled and expired. Counted only in its own shard."""
    skipped: bool = False
    """It has no jobs, and failed together with a step before it."""
    # the standing: computed in the step's own shard, reported to the others
    standing: int = OPEN
    failing: bool = False
    """Whether a job of it has ended but not completed. Others may still run."""
    round: int = 0
    """The round in which the standing was reported."""

    @property
    def bad(self) -> int:
        return self.ended[1] + self.ended[2] + self.ended[3]

    @property
    def left(self) -> int:
        return self.count - sum(self.ended)

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.count * STEP, STEP)

    @property
    def key(self) -> str:
        return self.made.key or str(self.number)


class ShardWorkflow:
    """A workflow."""

    __slots__ = (
        "_firsts",
        "_owners",
        "at",
        "cancelled",
        "finished_at",
        "forget_at",
        "id",
        "kept",
        "name",
        "open",
        "round",
        "steps",
        "tenant",
    )

    def __init__(self, tenant: Tenant, made: rec.WorkflowMade, at: int, here: int) -> None:
        self.tenant, self.id, self.name, self.at = tenant, made.id, made.name, at
        self.cancelled = False
        self.round = 0
        """How often it was retried."""
        self.finished_at = 0
        self.forget_at = 0
        self.steps = [_step(number, one) for number, one in enumerate(made.steps)]
        for step in self.steps:
            for other, policy in step.made.after:
                self.steps[other].before.append((step.number, policy))
        self.open = len(self.steps)
        """Steps that have not ended."""
        read = (step for step in self.steps if step.made.shard == here and step.before)
        self.kept = KeptResults({step.number: len(step.before) for step in read})
        self.index(here)

    def index(self, here: int) -> None:
        """Prepare finding this shard's steps by the ids of their jobs."""
        own = sorted((step for step in self.steps if step.made.shard == here and step.count), key=lambda one: one.first)
        self._owners = own
        self._firsts = [step.first for step in own]

    @property
    def home(self) -> int:
        return shard_of(self.id)

    def shards(self) -> list[int]:
        """All shards that have a part of it."""
        return sorted({self.home, *(step.made.shard for step in self.steps)})

    def step_of(self, job_id: int) -> StepState | None:
        """The step that a job of this shard belongs to."""
        at = bisect_right(self._firsts, job_id) - 1
        if at < 0:
            return None
        step = self._owners[at]
        return step if job_id < step.first + step.count * STEP else None

    def owns(self, step: StepState) -> None:
        """Add a step that just got its jobs. Their ids are the highest, so it comes last."""
        self._owners.append(step)
        self._firsts.append(step.first)

    @property
    def state(self) -> WorkflowState:
        if self.cancelled:
            return WorkflowState.CANCELLED
        if self.open:
            return WorkflowState.RUNNING
        sinks = [step for step in self.steps if not step.before]
        good = all(step.standing == GOOD for step in sinks)
        return WorkflowState.COMPLETED if good else WorkflowState.FAILED


def _step(number: int, made: rec.StepMade) -> StepState:
    waits = len(made.after)
    return StepState(number, made, [], made.first, made.count, waits, not waits, ended=[0, 0, 0, 0])


def find(shard: "ShardState", tenant: str, workflow: int) -> ShardWorkflow | None:
    owner = shard.tenants.get(tenant)
    return owner.flows.get(workflow) if owner is not None else None


def blocking_step(tenant: Tenant, options: Options, job_id: int) -> StepState | None:
    """The step of a new job, if the step has not been released."""
    flow = tenant.flows.get(options.workflow) if options.workflow is not None else None
    step = flow.step_of(job_id) if flow is not None else None
    return step if step is not None and not step.released else None


def owner_of(tenant: Tenant, options: Options, job_id: int) -> tuple[ShardWorkflow, StepState] | None:
    flow = tenant.flows.get(options.workflow) if options.workflow is not None else None
    step = flow.step_of(job_id) if flow is not None else None
    return (flow, step) if flow is not None and step is not None else None


# --- what happens to steps -------------------------------------------------------------------------


def add(shard: "ShardState", record: rec.WorkflowPushed) -> ShardWorkflow:
    tenant = shard.tenant(record.tenant)
    made = record.made
    flow = tenant.flows[made.id] = ShardWorkflow(tenant, made, record.at, shard.number)
    if flow.home == shard.number:
        shard.sequence = max(shard.sequence, made.id >> SHARD_BITS)
    return flow


def note_ended(
    shard: "ShardState", tenant: Tenant, options: Options, first: int, jobs: int, state: int, at: int
) -> None:
    """Neighbouring jobs have ended. They may be part of a workflow."""
    found = owner_of(tenant, options, first)
    if found is not None:
        flow, step = found
        step.ended[state - COMPLETED] += jobs
        reckon(shard, flow, step, at)


def note_revived(shard: "ShardState", tenant: Tenant, options: Options, job_id: int, state: int, at: int) -> None:
    found = owner_of(tenant, options, job_id)
    if found is not None:
        flow, step = found
        step.ended[state - COMPLETED] -= 1
        reckon(shard, flow, step, at)


def reckon(shard: "ShardState", flow: ShardWorkflow, step: StepState, at: int) -> None:
    """Compute the standing of a step of this shard."""
    failing = step.skipped or step.bad > 0
    if step.skipped:
        standing = BAD
    elif step.left or not (step.count or step.released):
        standing = OPEN
    else:
        standing = BAD if failing else GOOD
    if (standing, failing) != (step.standing, step.failing):
        note(shard, flow, step, standing, failing, at)


def note(shard: "ShardState", flow: ShardWorkflow, step: StepState, standing: int, failing: bool, at: int) -> None:
    """Set a new standing of a step. That may let other steps start, or end the workflow."""
    before, step.standing, step.failing = step.standing, standing, failing
    for number, policy in step.before:
        other = flow.steps[number]
        if other.made.shard == shard.number:
            other.waits += lets_start(before, policy) - lets_start(standing, policy)
    flow.open += (standing == OPEN) - (before == OPEN)
    over = _reads_no_more(flow, standing) - _reads_no_more(flow, before)
    if over:
        _read(shard, flow, step, over)
    if flow.home == shard.number:
        if not flow.open and not flow.finished_at:
            finish(shard, flow, at)
        elif flow.open and flow.finished_at:
            flow.finished_at = flow.forget_at = 0
            flow.tenant.ended_flows.pop(flow.id, None)
    shard.moved_steps.append((flow, step))


def lets_start(standing: int, policy: int) -> bool:
    """Whether a step with this standing lets a step after it start."""
    return standing == GOOD or (standing == BAD and policy == CONTINUE)


def finish(shard: "ShardState", flow: ShardWorkflow, at: int) -> None:
    """All steps have ended. The workflow is kept as long as its jobs, then forgotten."""
    settings = shard.settings
    failed = flow.state is WorkflowState.FAILED
    age = settings.dead_letters.age_ms_max if failed else settings.retention.completed_age_ms
    flow.finished_at, flow.forget_at = at, at + age
    flow.tenant.ended_flows[flow.id] = None
    shard.deadlines.arm(flow.forget_at, kinds.FLOW, (flow, -1))


def failed_before(flow: ShardWorkflow, step: StepState) -> str | None:
    """The policy of the first edge with a failing step whose policy is not `continue`; None if there is none."""
    for number, policy in step.made.after:
        if policy != CONTINUE and flow.steps[number].failing:
            return POLICIES[policy]
    return None


# --- what forgotten jobs returned --------------------------------------------------------------------


def _reads_no_more(flow: ShardWorkflow, standing: int) -> bool:
    """Whether a step with this standing will never again read results of the steps before it, not even in a retry."""
    return standing == GOOD or (standing == BAD and flow.cancelled)


def _read(shard: "ShardState", flow: ShardWorkflow, step: StepState, over: int) -> None:
    """A step no longer reads the results of the steps before it: `over` readers fewer. Negative: it may read again."""
    before = flow.kept.size, flow.kept.in_memory
    for number, _ in step.made.after:
        flow.kept.read(number, over)
    _kept_less(shard, flow, before)


def stop_reading(shard: "ShardState", flow: ShardWorkflow) -> None:
    """The workflow is cancelled, so steps that have failed will not be retried."""
    for step in flow.steps:
        if step.standing == BAD:
            _read(shard, flow, step, 1)


def keep_job(shard: "ShardState", job: SingleJob, state: int) -> None:
    """Keep the result of a job that is being forgotten, if later steps may read it."""
    found = owner_of(job.queue.tenant, job.options, job.id)
    detail = job.detail
    if found is None or found[1].number not in found[0].kept.readers or detail is None:
        return
    if state != COMPLETED or detail.result is not None:
        kept = KeptResult(state, detail.result, detail.result_codec, detail.error or detail.reason)
        _keep(shard, *found, {job.id: kept})


def keep_run(shard: "ShardState", ended: EndedRun, jobs: int) -> None:
    """Keep the results of the first jobs of an ended run that are being forgotten."""
    if ended.state == COMPLETED and ended.results is None:
        return  # there is nothing to read; this is the most frequent case
    batch, start = ended.batch, ended.start
    ids = batch.ids(start, start + jobs)
    found = owner_of(batch.queue.tenant, batch.options, min(ids))
    if found is None or found[1].number not in found[0].kept.readers:
        return
    results = ended.results[start - ended.origin :] if ended.results is not None else [None] * jobs
    if ended.state != COMPLETED:
        kept = {job_id: KeptResult(ended.state, error=ended.reason) for job_id in ids}
    else:
        pairs = zip(ids, results, strict=False)
        kept = {job_id: KeptResult(COMPLETED, result, ended.codec) for job_id, result in pairs if result is not None}
    _keep(shard, *found, kept)


def _keep(shard: "ShardState", flow: ShardWorkflow, step: StepState, kept: dict[int, KeptResult]) -> None:
    tenant, before, in_memory = flow.tenant, flow.kept.size, flow.kept.in_memory
    for job_id, one in kept.items():
        flow.kept.add(step.number, job_id, one)
    grown = flow.kept.size - before
    shard.index.bytes += flow.kept.in_memory - in_memory
    tenant.kept_bytes += grown
    if grown:
        tenant.keeping[flow.id] = None
    while tenant.kept_bytes > shard.limits.workflow_results_bytes_max:
        _give_up_one(shard, tenant)


def _give_up_one(shard: "ShardState", tenant: Tenant) -> None:
    """Too much is kept: drop the results of an old workflow that has ended, or else of the oldest one."""
    oldest = [tenant.flows[workflow] for workflow in islice(tenant.keeping, OLDEST)]
    flow = next((one for one in oldest if not one.open), oldest[0])
    let_go_all(shard, flow)


def let_go_all(shard: "ShardState", flow: ShardWorkflow) -> None:
    before = flow.kept.size, flow.kept.in_memory
    flow.kept.let_go_all()
    _kept_less(shard, flow, before)


def let_go_of_queue(shard: "ShardState", tenant: Tenant, queue: str) -> None:
    """A queue is obliterated: drop all results of its jobs, even if later steps may want to read them."""
    for flow in tenant.flows.values():
        before = flow.kept.size, flow.kept.in_memory
        for number in [one for one in flow.kept.readers if flow.steps[one].made.queue == queue]:
            flow.kept.let_go(number)
        _kept_less(shard, flow, before)


def _kept_less(shard: "ShardState", flow: ShardWorkflow, before: tuple[int, int]) -> None:
    """Count down what was dropped. `before` is what was kept, in total and in memory."""
    freed = before[0] - flow.kept.size
    if freed:
        shard.index.bytes -= before[1] - flow.kept.in_memory
        flow.tenant.kept_bytes -= freed
        if not flow.kept.size:
            flow.tenant.keeping.pop(flow.id, None)


def forget_kept(shard: "ShardState", tenant: str, workflow: int, job_id: int, stored: Stored) -> bool:
    """The result of a forgotten job is only in the journal from now on. False if it is not kept."""
    flow = find(shard, tenant, workflow)
    step = flow.step_of(job_id) if flow is not None else None
    kept = flow.kept.results.get(step.number, {}).get(job_id) if flow is not None and step is not None else None
    if flow is None or step is None or kept is None or type(kept.result) is not bytes:
        return False
    flow.kept.replace(step.number, job_id, msgspec.structs.replace(kept, result=stored))
    shard.index.bytes -= len(kept.result)
    return True


def kept_of(shard: "ShardState", tenant: str, workflow: int, job_id: int) -> KeptResult | None:
    """How a forgotten job ended, if a later step may still read it."""
    flow = find(shard, tenant, workflow)
    step = flow.step_of(job_id) if flow is not None else None
    if flow is None or step is None or step.number not in flow.kept.readers:
        return None
    kept = flow.kept.results.get(step.number, {}).get(job_id)
    if kept is None and job_id >> SHARD_BITS not in flow.tenant.ended_badly:
        kept = KeptResult(COMPLETED)
    return kept
