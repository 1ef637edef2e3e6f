"""Dependencies: the standing of an edge, and what the end of a job does to the jobs that wait for it.

A blocked job keeps its unfinished edges; the reverse index leads from a job to the jobs that wait for it. An edge is
settled in the same step in which the other job ends. If the two jobs live in different shards, the waiting job's shard
asks the other one to report the end (`Watch`), and gets a message (`TellEnd`).
"""

from itertools import islice

from stoker.engine import deadlines as kinds
from stoker.engine.jobs import ACTIVE, BLOCKED, CANCELLED, COMPLETED, FAILED, SingleJob
from stoker.engine.outbox import send
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Tenant
from stoker.model.ids import SHARD_BITS, SHARD_MASK, shard_of
from stoker.model.options import Dependency
from stoker.model.reasons import Reason
from stoker.records import records as rec

OPEN, GOOD, BAD = range(3)

SLICE = 1_000
"""Waiting jobs that are settled at once when a job ends: 20 ms. The others follow a millisecond later."""


def standing(shard: ShardState, tenant: Tenant, job_id: int) -> int:
    """The standing of an edge to this job. An id that is not given yet belongs to a later item of the batch being
    pushed.

    Only the job's own shard knows the standing. For a job of another shard the edge is open until that shard has
    reported.
    """
    if job_id & SHARD_MASK != shard.number:
        return OPEN
    if job_id >> SHARD_BITS > shard.sequence:
        return OPEN
    if (job_id >> SHARD_BITS) in tenant.ended_badly:
        return BAD
    if shard.is_live(tenant, job_id):
        return OPEN
    return GOOD  # completed, forgotten, or of another tenant: a tenant cannot tell these apart


def is_known(shard: ShardState, job_id: int) -> bool:
    """Whether the id has ever been given, as far as this shard can tell."""
    if job_id & SHARD_MASK != shard.number:
        return shard.knows is not None and shard.knows(job_id)
    sequence = job_id >> SHARD_BITS
    return 0 < sequence <= shard.sequence and sequence not in shard.never_given


def open_edges(shard: ShardState, tenant: Tenant, depends_on: tuple[Dependency, ...]) -> dict[int, str]:
    """The edges that keep a new job blocked, including failed ones, which are settled right after the push.

    Of several edges to one job, the first that does not say `continue` decides.
    """
    edges: dict[int, str] = {}
    for edge in depends_on:
        stands = standing(shard, tenant, edge.id)
        matters = stands == OPEN or (stands == BAD and edge.on_failure != "continue")
        if matters and edges.get(edge.id, "continue") == "continue":
            edges[edge.id] = edge.on_failure
    return edges


def first_failed(shard: ShardState, job: SingleJob) -> str | None:
    """The policy of the first edge whose job has failed; None if there is none."""
    for job_id, policy in (job.details().blockers or {}).items():
        if policy != "continue" and standing(shard, job.queue.tenant, job_id) == BAD:
            return policy
    return None


def settle(shard: ShardState, at: int) -> None:
    """Settle the edges of every job that has ended, until nothing more follows."""
    while shard.settling or shard.moved_steps:
        while shard.settling:
            ended_id, state = shard.settling.popleft()
            settle_one(shard, ended_id, state, at)
        if shard.moved_steps:
            from stoker.engine.workflows import settle_steps

            settle_steps(shard, at)


def settle_one(shard: ShardState, ended_id: int, state: int, at: int) -> None:
    """Settle the edges of one ended job. Beyond `SLICE` waiting jobs, the rest follows a little later."""
    waiting = shard.dependents.get(ended_id)
    if waiting is None:
        return
    elsewhere: dict[int, list[int]] = {}
    for waiting_id in list(islice(waiting, SLICE)):
        if shard_of(waiting_id) != shard.number:
            elsewhere.setdefault(shard_of(waiting_id), []).append(waiting_id)
            continue
        job = shard.index.get(waiting_id)
        blockers = job.detail.blockers if job is not None and job.detail is not None else None
        policy = blockers.get(ended_id) if blockers is not None else None
        if job is None or job.state != BLOCKED or policy is None:
            del waiting[waiting_id]
        elif state == COMPLETED or policy == "continue":
            unblock(shard, job, ended_id, at)
        else:
            end_dependent(shard, job, policy, at)
    for to, others in elsewhere.items():
        send(shard, shard.watchers[ended_id], to, rec.TellEnd(ended_id, state == COMPLETED, others), at)
    if shard.dependents.get(ended_id):
        shard.deadlines.arm(max(at, shard.now) + 1, kinds.EDGES, (ended_id, state))  # in another turn than this one
    else:
        shard.dependents.pop(ended_id, None)


def watch(shard: ShardState, tenant: str, now: int) -> None:
    """Ask other shards to report when jobs end that new jobs wait for."""
    while shard.watching:
        to, pairs = shard.watching.popitem()
        send(shard, tenant, to, rec.Watch(pairs), now)


def note_foreign(shard: ShardState, job: SingleJob) -> None:
    """Note the jobs of other shards that a new job waits for."""
    for other in (job.detail.blockers or ()) if job.detail is not None else ():
        if shard_of(other) != shard.number:
            shard.watching.setdefault(shard_of(other), []).append((other, job.id))


def take_watch(shard: ShardState, tenant: str, message: rec.Watch, now: int) -> None:
    """Jobs of another shard wait for jobs of this one. Those that have already ended are reported at once."""
    owner = shard.tenants.get(tenant)
    live: list[tuple[int, int]] = []
    over: dict[tuple[int, bool], list[int]] = {}
    for job_id, waiting_id in message.pairs:
        if not is_known(shard, job_id):
            over.setdefault((job_id, False), []).append(waiting_id)  # lost in a crash, with everything that it did
        elif owner is None:
            over.setdefault((job_id, True), []).append(waiting_id)
        else:
            stands = standing(shard, owner, job_id)
            if stands == OPEN:
                live.append((job_id, waiting_id))
            else:
                over.setdefault((job_id, stands == GOOD), []).append(waiting_id)
    if live:
        shard.emit(rec.Watched(now, tenant, live))
    for (job_id, good), waiting in over.items():
        send(shard, tenant, shard_of(waiting[0]), rec.TellEnd(job_id, good, waiting), now)


def take_end(shard: ShardState, tenant: str, message: rec.TellEnd, now: int) -> None:
    """A job of another shard has ended."""
    shard.settling.append((message.job, COMPLETED if message.good else FAILED))
    settle(shard, now)


def resume(shard: ShardState, now: int) -> None:
    """After a start: settle edges of ended jobs that were not settled before the stop."""
    for job_id in [one for one in shard.dependents if shard_of(one) == shard.number]:
        part = shard.find(job_id)
        if part is not None and shard.state_of(part) <= ACTIVE:
            continue
        owners = [tenant for tenant in shard.tenants.values() if job_id >> SHARD_BITS in tenant.ended_badly]
        shard.deadlines.arm(now, kinds.EDGES, (job_id, FAILED if owners else COMPLETED))


def unblock(shard: ShardState, job: SingleJob, ended_id: int, at: int) -> None:
    detail = job.details()
    ready = len(detail.blockers or ()) == 1
    due = detail.due if ready and detail.due > at else 0
    shard.emit(rec.Unblocked(at, job.queue.tenant.name, job.queue.name, job.id, ended_id, ready, due))


def end_dependent(shard: ShardState, job: SingleJob, policy: str, at: int) -> None:
    """A dependency failed: fail or cancel this job."""
    from stoker.engine.ending import cancel_jobs, fail_for_good

    if policy == "cancel":
        cancel_jobs(shard, job.queue, [job], CANCELLED, Reason.DEPENDENCY_FAILED, at, settle_edges=False)
    else:
        fail_for_good(shard, job, Reason.DEPENDENCY_FAILED, at, error="a dependency failed", settle_edges=False)
