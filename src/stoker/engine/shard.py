"""The way of a command through a shard. What a shard holds is in `shard_state.py`.

`execute` lets time pass up to `now`, decides the command, and answers waiting commands. Decisions emit records; `emit`
is the only place where a record takes effect. The runtime then fetches the records to journal (`take_records`), the
replies to parked commands (`take_effects`), and the time of the next deadline (`next_at`).
"""

from collections.abc import Callable, Iterable
from heapq import heappop
from typing import Any

from stoker.engine import (
    bulk,
    bulk_state,
    control,
    dead_letters,
    gathered,
    kv,
    pulling,
    pushing,
    queries,
    schedules,
    searching,
    senders,
    settling,
    shard_messages,
    timers,
    transactions,
    workflow_views,
    workflows,
)
from stoker.engine.apply import delivery as apply_delivery
from stoker.engine.apply import kv as apply_kv
from stoker.engine.apply import pending as apply_pending
from stoker.engine.apply import push as apply_push
from stoker.engine.apply import queue as apply_queue
from stoker.engine.apply import schedules as apply_schedules
from stoker.engine.apply import transactions as apply_transactions
from stoker.engine.apply import workflows as apply_workflows
from stoker.engine.apply.moves import forget
from stoker.engine.deadlines import NEVER, Deadlines
from stoker.engine.dependencies import settle
from stoker.engine.index import Index
from stoker.engine.parking import Parked
from stoker.engine.retained_jobs import EndedEntry
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.records import records as rec


class Shard(ShardState):
    """A shard at work: it executes commands, lets time pass and answers waiting commands."""

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The reply, or a `Parked` whose reply comes through the effects. A raised `Refused` has changed nothing."""
        if now >= self.deadlines.earliest:
            self.advance(now)
        if now == self.now:
            now = self.now  # one object for all jobs of a millisecond, which saves 32 bytes for each
        else:
            self.now = now
        try:
            reply = DECIDE[type(command)](self, tenant, command, now)
        except errors.Refused:
            self._drop_named(tenant, command)
            raise
        if self.moved_steps:
            settle(self, now)
        if self.dirty or self.ended_waits or self.claims_made:
            self.serve(now)
        return reply

    def advance(self, now: int) -> None:
        """Process everything that was due by `now`, each at its own time."""
        self.now = now
        if len(self.deadlines.heap) > self.deadlines.most:
            self.deadlines.sweep(timers.is_armed)
        heap = self.deadlines.heap
        if heap and heap[0][0] <= now:
            while (due := self.deadlines.pop_equal(now)) is not None:
                at, kind, holders = due
                timers.fire(self, at, kind, holders)
            if self.dirty or self.ended_waits:
                self.serve(now)
        if self._parked and self._parked[0][0] <= now:
            self._time_out(now)
        next_at = self.next_at
        self.deadlines.earliest = NEVER if next_at is None else next_at

    def emit(self, record: rec.Record) -> None:
        """Journal a record and apply it."""
        self.records.append(record)
        APPLY[type(record)](self, record)

    def take_records(self) -> list[rec.Record]:
        records, self.records = self.records, []
        return records

    def take_effects(self) -> list[tuple[Parked, Any]]:
        effects, self.effects = self.effects, []
        return effects

    def close(self) -> None:
        """Drop everything. The structs are not garbage collected, so the reference cycles are broken here."""
        for parked in self.waiting():
            parked.give_up()
        self.tenants.clear()
        self.index = Index()
        self.deadlines = Deadlines()
        self._parked.clear()

    def waiting(self) -> list[Parked]:
        """The commands that still wait for their reply."""
        return [parked for _, _, parked in self._parked if not parked.done]

    # --- waiting commands ----------------------------------------------------------------------------

    def serve(self, now: int) -> None:
        """Answer waiting commands for which something has become possible."""
        if self.dirty:
            pulling.serve(self, now)
        while self.ended_waits:
            ended = self.ended_waits.popleft()
            for parked in self.job_waiters.pop(ended.id, ()):
                if not parked.done:
                    self.answer(parked, ended)
        while self.claims_made:
            tenant, name = self.claims_made.pop(0)
            for parked in self.claim_waiters.pop((tenant, name), ()):
                if not parked.done:
                    self.answer(parked, pulling.reread_claim(self, tenant, name))

    def _time_out(self, now: int) -> None:
        """Answer commands whose time is over with an empty reply, and drop those that were given up."""
        while self._parked and self._parked[0][0] <= now:
            parked = heappop(self._parked)[2]
            command = parked.command
            if parked.done:
                pass
            elif type(command) is c.Pull:
                chance = pulling.next_chance(self, parked.tenant, command.queues, now)
                self.answer(parked, r.Delivery(next_at=chance))
                pulling.see_all(self, parked)
            else:
                assert type(command) is c.WaitJob
                job = queries.view(self, self.readable(parked.tenant, command.id), now)
                self.answer(parked, queries.wait_reply(job))
            self._leave_lines(parked)

    def _drop_named(self, tenant: str, command: c.Command[Any]) -> None:
        """Forget a queue that only the refused command named."""
        owner, name = self.tenants.get(tenant), getattr(command, "queue", None)
        if owner is None:
            return
        if type(name) is str and name in owner.queues:
            self.drop_unknown(owner.queues[name])
        if not owner.queues and not owner.is_used:
            del self.tenants[tenant]

    def _forget(self, ended: EndedEntry, jobs: int) -> None:
        forget(self, ended, jobs)


def replay(
    records: Iterable[rec.Record], number: int = 0, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS
) -> Shard:
    """A shard to which these records have been applied."""
    shard = Shard(number, settings, limits)
    apply_again(shard, records)
    return shard


def apply_again(shard: Shard, records: Iterable[rec.Record]) -> None:
    """Apply journaled records. Nothing is decided: what followed from them is in the records, too."""
    for record in records:
        APPLY[type(record)](shard, record)
        if shard.settling:
            shard.settling.clear()
        if shard.moved_steps:
            shard.moved_steps.clear()
        if shard.dirty:
            shard.dirty.clear()


Decide = Callable[[Shard, str, Any, int], Any]

DECIDE: dict[type[c.Command[Any]], Decide] = {
    c.Push: pushing.push,
    c.PushBatch: pushing.push_batch,
    gathered.GatheredPushes: gathered.push_gathered,
    c.PushWorkflow: workflows.push,
    c.FillStep: workflows.fill,
    c.Stage: transactions.stage,
    c.Publish: transactions.publish,
    c.Abort: transactions.abort,
    c.Pull: pulling.pull,
    c.Ack: settling.ack,
    c.Fail: settling.fail,
    c.Release: settling.release,
    c.Extend: settling.extend,
    c.AckClaim: settling.ack_claim,
    c.ReleaseClaim: settling.release_claim,
    c.ExtendClaim: settling.extend_claim,
    c.SetProgress: settling.set_progress,
    c.AppendLog: settling.append_log,
    c.AppendPartial: settling.append_partial,
    c.GetJob: queries.get_job,
    c.FindJob: queries.find_job,
    c.GetLogs: queries.get_logs,
    c.GetPartials: queries.get_partials,
    c.WaitJob: queries.wait_job,
    c.Browse: searching.browse,
    c.CountJobs: searching.count_jobs,
    c.GetWorkflow: workflow_views.get_workflow,
    c.ListWorkflows: workflow_views.list_workflows,
    c.GetInputs: workflow_views.get_inputs,
    c.CancelWorkflow: workflows.cancel,
    c.RetryWorkflow: workflows.retry,
    c.Why: queries.why,
    c.ListQueues: queries.list_queues,
    c.GetQueue: queries.get_queue,
    c.GetQueues: queries.get_queues,
    c.GetStats: queries.get_stats,
    c.GetPriorities: queries.get_priorities,
    c.GetTimings: queries.get_timings,
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
    c.ListDead: dead_letters.list_dead,
    c.GetDeadStats: dead_letters.get_dead_stats,
    c.GetDeadGroups: dead_letters.get_dead_groups,
    c.RetryDead: dead_letters.retry_dead,
    c.PurgeDead: dead_letters.purge_dead,
    c.StartBulk: bulk.start,
    c.GetBulk: bulk.get,
    c.ListBulks: bulk.list_all,
    c.StopBulk: bulk.stop,
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
"""The function that decides each command. Reading events is up to the journal, not the engine."""

APPLY: Appliers = {
    **apply_push.APPLY,
    **apply_delivery.APPLY,
    **apply_pending.APPLY,
    **apply_queue.APPLY,
    **apply_transactions.APPLY,
    **shard_messages.APPLY,
    **apply_kv.APPLY,
    **apply_schedules.APPLY,
    **senders.APPLY,
    **apply_workflows.APPLY,
    **bulk_state.APPLY,
}
"""The function that applies each record."""
