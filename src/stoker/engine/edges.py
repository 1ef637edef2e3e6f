"""Dependencies: how an edge stands, and what the end of a job means for those who wait for it.

A blocked job keeps its unfinished edges; the reverse index leads from a job to those who wait for it. An edge is
settled in the same step in which the other job ends, whatever kind of end it is.
"""

from typing import TYPE_CHECKING

from stoker.engine.state import BLOCKED, CANCELLED, COMPLETED, Job, Tenant
from stoker.model.ids import SHARD_BITS, SHARD_MASK
from stoker.model.options import Dependency
from stoker.model.states import Reason
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard

OPEN, GOOD, BAD = range(3)


def standing(shard: "Shard", tenant: Tenant, job_id: int) -> int:
    """How an edge to this job stands. Ids not given yet are later items of the batch being pushed."""
    if job_id >> SHARD_BITS > shard.sequence:
        return OPEN
    if (job_id >> SHARD_BITS) in tenant.ended_badly:
        return BAD
    if shard.is_live(tenant, job_id):
        return OPEN
    return GOOD  # completed, forgotten, or somebody else's: a tenant cannot tell these apart


def is_known(shard: "Shard", job_id: int) -> bool:
    """Whether the id has ever been given by this shard."""
    sequence = job_id >> SHARD_BITS
    return job_id & SHARD_MASK == shard.number and 0 < sequence <= shard.sequence and sequence not in shard.never_given


def open_edges(shard: "Shard", tenant: Tenant, depends_on: tuple[Dependency, ...]) -> dict[int, str]:
    """The edges that keep a new job blocked, failed ones included: those are settled right after the push.

    Of several edges to one job the first that does not say `continue` decides.
    """
    edges: dict[int, str] = {}
    for edge in depends_on:
        stands = standing(shard, tenant, edge.id)
        matters = stands == OPEN or (stands == BAD and edge.on_failure != "continue")
        if matters and edges.get(edge.id, "continue") == "continue":
            edges[edge.id] = edge.on_failure
    return edges


def first_failed(shard: "Shard", job: Job) -> str | None:
    """The policy of the first edge whose job has failed already, if there is one."""
    for job_id, policy in (job.details().blockers or {}).items():
        if policy != "continue" and standing(shard, job.queue.tenant, job_id) == BAD:
            return policy
    return None


def settle(shard: "Shard", at: int) -> None:
    """Decide about every job that waited for one that has ended, until nothing more follows."""
    while shard.settling:
        ended_id, state = shard.settling.popleft()
        for waiting_id in list(shard.dependents.get(ended_id, ())):
            job = shard.index.get(waiting_id)
            if job is None or job.state != BLOCKED or job.detail is None or job.detail.blockers is None:
                continue
            policy = job.detail.blockers.get(ended_id)
            if policy is None:
                continue
            if state == COMPLETED or policy == "continue":
                unblock(shard, job, ended_id, at)
            else:
                end_dependent(shard, job, policy, at)
        shard.dependents.pop(ended_id, None)


def unblock(shard: "Shard", job: Job, ended_id: int, at: int) -> None:
    detail = job.details()
    ready = len(detail.blockers or ()) == 1
    due = detail.due if ready and detail.due > at else 0
    shard.emit(rec.Unblocked(at, job.queue.tenant.name, job.queue.name, job.id, ended_id, ready, due))


def end_dependent(shard: "Shard", job: Job, policy: str, at: int) -> None:
    """A dependency failed: so does this job, or it is cancelled."""
    from stoker.engine.ends import cancel_jobs, fail_for_good

    if policy == "cancel":
        cancel_jobs(shard, job.queue, [job], CANCELLED, Reason.DEPENDENCY_FAILED, at, settle_edges=False)
    else:
        fail_for_good(shard, job, Reason.DEPENDENCY_FAILED, at, error="a dependency failed", settle_edges=False)
