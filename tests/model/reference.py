"""The rules of docs/semantics.md, written down naively: the yardstick for every faster way to follow them.

    reference_world     what is remembered
    reference_checks    what is well formed and within limits
    reference_life      the steps of a job's life
    reference_push      push, batches, transactions
    reference_pull      order, groups, limits, claims, waiting
    reference_finish    what workers say
    reference_control   what people do
    reference_views     what can be seen
    reference_kv        key-value entries
    reference_schedules jobs that the clock pushes
    reference_clock     deadlines

It shares nothing with the engine but the vocabulary of `stoker.model`, and prefers being plain to being fast.
"""

from collections.abc import Callable
from typing import Any

from stoker.model import commands as c
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from tests.model import reference_control as control
from tests.model import reference_finish as finish
from tests.model import reference_kv as kv
from tests.model import reference_pull as pull
from tests.model import reference_push as push
from tests.model import reference_schedules as schedules
from tests.model import reference_views as views
from tests.model.reference_clock import advance
from tests.model.reference_world import OWN_WORDS, Parked, World

__all__ = ["HANDLERS", "OWN_WORDS", "Parked", "Reference"]

HANDLERS: dict[type[c.Command[Any]], Callable[[World, str, Any], Any]] = {
    c.Push: push.push,
    c.PushBatch: push.push_batch,
    c.Stage: push.stage,
    c.Publish: push.publish,
    c.Abort: push.abort,
    c.Pull: pull.pull,
    c.Ack: finish.ack,
    c.Fail: finish.fail,
    c.Release: finish.release,
    c.Extend: finish.extend,
    c.AckClaim: finish.ack_claim,
    c.ReleaseClaim: finish.release_claim,
    c.ExtendClaim: finish.extend_claim,
    c.SetProgress: finish.set_progress,
    c.AppendLog: finish.append_log,
    c.AppendPartial: finish.append_partial,
    c.GetJob: views.get_job,
    c.FindJob: views.find_job,
    c.GetLogs: views.get_logs,
    c.GetPartials: views.get_partials,
    c.WaitJob: pull.wait_job,
    c.Browse: views.browse,
    c.CountJobs: views.count_jobs,
    c.Why: views.why,
    c.ListQueues: views.list_queues,
    c.GetQueue: views.get_queue,
    c.GetQueues: views.get_queues,
    c.GetStats: views.get_stats,
    c.GetPriorities: views.get_priorities,
    c.GetTimings: views.get_timings,
    c.Pause: control.pause,
    c.Resume: control.resume,
    c.SetRateLimit: control.set_rate_limit,
    c.SetConcurrency: control.set_concurrency,
    c.SetQueuePolicy: control.set_queue_policy,
    c.Cancel: control.cancel,
    c.Promote: control.promote,
    c.ChangePriority: control.change_priority,
    c.MoveToDelayed: control.move_to_delayed,
    c.UpdatePayload: control.update_payload,
    c.Discard: control.discard,
    c.DeleteJob: control.delete_job,
    c.Drain: control.drain,
    c.Clean: control.clean,
    c.Obliterate: control.obliterate,
    c.ListDead: views.list_dead,
    c.GetDeadGroups: views.get_dead_groups,
    c.GetDeadStats: views.get_dead_stats,
    c.RetryDead: control.retry_dead,
    c.PurgeDead: control.purge_dead,
    c.KvSet: kv.set_one,
    c.KvGet: kv.get_one,
    c.KvGetMany: kv.get_many,
    c.KvSetMany: kv.set_many,
    c.KvDelete: kv.delete,
    c.KvExists: kv.exists,
    c.KvExpire: kv.expire,
    c.KvTtl: kv.ttl,
    c.KvKeys: kv.keys,
    c.KvIncrement: kv.increment,
    c.PutSchedule: schedules.put,
    c.GetSchedule: schedules.get,
    c.ListSchedules: schedules.list_all,
    c.PauseSchedule: schedules.pause,
    c.ResumeSchedule: schedules.resume,
    c.RunSchedule: schedules.run,
    c.DeleteSchedule: schedules.delete,
}


LOOKS = frozenset(
    {
        *(c.GetJob, c.FindJob, c.GetLogs, c.GetPartials, c.Browse, c.Why, c.ListQueues, c.GetQueue, c.GetStats),
        *(c.GetQueues, c.GetPriorities, c.GetTimings, c.CountJobs, c.GetDeadGroups),
        *(c.ListDead, c.GetDeadStats),
        *(c.KvGet, c.KvGetMany, c.KvExists, c.KvTtl, c.KvKeys),
        *(c.GetSchedule, c.ListSchedules),
    }
)
"""These change nothing."""


class Reference:
    """One shard, number 0."""

    def __init__(self, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.world = World(settings or Settings(), limits)
        self.quiet_at = -1
        """When nothing was left to do, and nothing has been changed since: saves looking for deadlines."""

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The reply, or a `Parked` whose reply comes later in `answers`. Raises what `stoker.model.errors` says."""
        self.advance(now)
        handler = HANDLERS[type(command)]
        if type(command) in LOOKS:
            return handler(self.world, tenant, command)
        self.quiet_at = -1
        reply = handler(self.world, tenant, command)
        pull.serve_parked(self.world)
        return reply

    def advance(self, now: int) -> None:
        if now != self.quiet_at:
            advance(self.world, now)
            self.quiet_at = now

    @property
    def answers(self) -> list[tuple[Parked, Any]]:
        """What those who waited were told, in order."""
        return self.world.answers

    @property
    def steps(self) -> list[tuple[int, str, str]]:
        """Every change of state so far: (job, from, to)."""
        return self.world.steps

    @property
    def jobs_given(self) -> int:
        """How many ids have been given."""
        return len(self.world.jobs)
