"""Explains why a job is not running, in sentences that say what would help."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli.formatting import now_ms, plain, when
from stoker.cli.queue_snapshot import workers_of
from stoker.model.wording import lasting, many

if TYPE_CHECKING:
    from stoker import Client
    from stoker.model.replies import JobView, Waiting
    from stoker.model.workers import WorkerView


def reasons(client: "Client", job: "JobView", waiting: "Waiting") -> list[str]:
    """All reasons, the strongest first. A waiting job without any waits for a worker."""
    if waiting.state not in ("waiting", "delayed", "blocked"):
        return [ended_or_running(job)]
    found = hindrances(job, waiting)
    unknown = unknown_name(job, workers_of(client))
    if unknown:
        found.insert(0, unknown)
    if waiting.state == "waiting" and waiting.jobs_ahead:
        found.append(f"{many(waiting.jobs_ahead, 'job')} of the queue come first")
    if waiting.state == "waiting" and not unknown and not hindrances(job, waiting):
        found.append(who_works(client, job.queue))
    return found


def unknown_name(job: "JobView", workers: "Sequence[WorkerView]") -> str:
    """A sentence if no worker of the queue knows the job's name, with the names that they know; else empty."""
    mine = [worker for worker in workers if job.queue in worker.queues]
    names = {name for worker in mine for name in worker.names}
    name = job.options.name
    if name is None or not mine or name in names or not all(worker.names for worker in mine):
        return ""
    from stoker.model.hints import did_you_mean
    from stoker.worker.handler_lookup import listed

    who = f"{plain(mine[0].id)} and {many(len(mine) - 1, 'other')}" if len(mine) > 1 else plain(mine[0].id)
    known = f"known: {plain(listed(names))}, says {who}"
    return f"no worker of {job.queue} knows the job name {name!r}; {known}{plain(did_you_mean(name, names))}"


def hindrances(job: "JobView", waiting: "Waiting") -> list[str]:
    found = []
    if waiting.paused:
        found.append(f"the queue {job.queue} is paused: stoker queue resume {job.queue}")
    if waiting.blocked_by:
        others = ", ".join(map(str, waiting.blocked_by[:10]))
        more = f" and {len(waiting.blocked_by) - 10} more" if len(waiting.blocked_by) > 10 else ""
        found.append(f"it waits for these jobs to end: {others}{more}")
    elif waiting.state == "blocked":
        found.append(f"it waits for earlier steps of workflow {job.options.workflow}")
    if waiting.delayed_until:
        why = f" since attempt {job.attempts} failed ({plain(job.cause or job.reason)})" if job.attempts else ""
        if job.error and not job.attempts:
            why = f" since it was handed back: {plain(job.error)}"
        found.append(f"it is delayed until {when(waiting.delayed_until)}{why}; at once: stoker job retry {job.id}")
    if waiting.group_busy_with is not None:
        group = job.options.group_id
        found.append(f"job {waiting.group_busy_with} of its group {group!r} comes first: one at a time, in order")
    if waiting.no_free_slot:
        found.append(
            f"{job.queue} has as many active jobs as its limit allows: stoker queue limit {job.queue} --concurrency N"
        )
    if waiting.rate_limited_until:
        found.append(
            f"the rate limit of {job.queue} lets the next one through {when(waiting.rate_limited_until)}:"
            f" stoker queue limit {job.queue} --rate N/s"
        )
    return found


def who_works(client: "Client", queue: str) -> str:
    minute = client.get_stats(queue).completed_last_minute
    names = [worker.id for worker in workers_of(client) if queue in worker.queues]
    if names:
        return f"nothing holds it back: {many(len(names), 'worker')} of {queue} should take it next ({names[0]})"
    if minute:
        return f"nothing holds it back: workers finish jobs of {queue} ({many(minute, 'job')} in the last minute)"
    return f"nothing holds it back, but no worker seems to pull from {queue}: stoker worker module:app --queue {queue}"


def ended_or_running(job: "JobView") -> str:
    if job.state == "active":
        left = f"its lease ends {when(job.lease_until)}"
        return f"{plain(job.worker) or 'a worker'} runs it, for {lasting(now_ms() - job.started_at)}; {left}"
    why = f": {plain(job.cause or job.reason)}" if job.cause or job.reason else ""
    again = f"; again: stoker job retry {job.id}" if job.state == "failed" else ""
    return f"it ended {when(job.finished_at)}{why}{again}"
