"""The synchronous client: one method for each verb, each sends a command to the broker.

Methods about one job raise when that job is refused; their `_batch` twins return an outcome for each. `aio.py` beside
this file is made from it by `tools/make_aio.py`: edit here, then run the tool.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from stoker.brokers.contract import Broker
from stoker.client.batches import BATCH_JOBS, joined, pieces
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.bulk import BulkAction, BulkView
from stoker.model.events import Event
from stoker.model.filters import JobFilter, fields_of
from stoker.model.history import MINUTE_MS, HistoryPoint, Timings, TrendPoint
from stoker.model.options import DEFAULT_OPTIONS, Codec, DeadLetterPolicy, GroupPolicy, Options, RateLimit
from stoker.model.schedules import Schedule, SchedulePage, ScheduleView
from stoker.model.states import State
from stoker.model.workers import WORKER_KEYS, WorkerView, worker_views
from stoker.model.workflows import Step, WorkflowState
from stoker.tracing import active_context, inject

R = TypeVar("R")


class Client:
    """A tenant's handle on a broker."""

    def __init__(self, broker: Broker, tenant: str = "default", *, owner: bool = True, tracing: bool = True) -> None:
        self._broker = broker
        self._owner = owner
        self._tracing = tracing
        """Whether pushes carry the context of OpenTelemetry's active span."""
        self.tenant = tenant

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the broker: waiting calls raise `closed`. A second call does nothing."""
        if self._owner:
            self._owner = False
            self._broker.close()

    def as_tenant(self, tenant: str) -> "Client":
        """Another handle on the same broker, for another tenant. It is closed with the first one."""
        return Client(self._broker, tenant, owner=False, tracing=self._tracing)

    @property
    def broker(self) -> Broker:
        """The broker that executes the commands."""
        return self._broker

    def execute(self, command: c.Command[R]) -> R:
        """Execute any command of the contract."""
        return self._broker.execute(self.tenant, command)

    # --- producing -------------------------------------------------------------------------------

    def push(
        self,
        queue: str,
        payload: bytes,
        options: Options = DEFAULT_OPTIONS,
        *,
        durability: r.Level | None = None,
        **changes: Any,
    ) -> r.Pushed:
        """Push one job. Options come as an `Options` value, by name, or both: `push("mail", b"...", delay_ms=5000)`.

        `durability` asks for another level than the queue's or the server's; the reply says which was reached.
        """
        wanted = with_changes(options, changes) if changes else options
        return self.execute(c.Push(queue, payload, inject(wanted) if self._tracing else wanted, durability))

    def push_batch(
        self,
        queue: str,
        payloads: Sequence[bytes],
        options: Options = DEFAULT_OPTIONS,
        *,
        each: Sequence[Options] | None = None,
        atomic: bool = False,
        request_key: str | None = None,
        durability: r.Level | None = None,
        **changes: Any,
    ) -> r.PushedBatch:
        """Push many jobs at once, with the same options for all, or with one value for each in `each`.

        This is one request, which must fit the server's limits; `push_many` takes any number of jobs.
        """
        shared, each = traced(with_changes(options, changes), each, self._tracing)
        return self.execute(c.PushBatch(queue, payloads, shared, each, atomic, request_key, durability))

    def push_many(
        self,
        queue: str,
        payloads: Iterable[bytes],
        options: Options = DEFAULT_OPTIONS,
        *,
        request_key: str | None = None,
        durability: r.Level | None = None,
        batch_jobs: int = BATCH_JOBS,
        **changes: Any,
    ) -> r.PushedBatch:
        """Push any number of jobs with the same options, in batches one after another; the reply covers all of them.

        If a batch fails as a whole, its error is raised, and the batches before it stay pushed. With a `request_key`
        the same call can be repeated until it succeeds: nothing is pushed twice.
        """
        shared, _ = traced(with_changes(options, changes), None, self._tracing)
        replies: list[r.PushedBatch] = []
        for number, piece in enumerate(pieces(payloads, batch_jobs)):
            key = None if request_key is None else f"{request_key}:{number}"
            reply = self.execute(c.PushBatch(queue, piece, shared, None, False, key, durability))
            replies.append(reply)
        return joined(replies)

    def push_workflow(
        self,
        steps: Sequence[Step],
        *,
        name: str = "",
        request_key: str | None = None,
        durability: r.Level | None = None,
    ) -> r.PushedWorkflow:
        """Push a graph of jobs over any queues, all or nothing. `stoker.workflow` is a friendlier way to build the
        steps.
        """
        return self.execute(c.PushWorkflow(traced_steps(steps, self._tracing), name, request_key, durability))

    def fill_step(self, job: int, step: str, payloads: Sequence[bytes], token: int | None = None) -> int:
        """Give an open step its jobs, from a running job of a step before it. Only the first call counts."""
        return self.execute(c.FillStep(job, step, payloads, token)).count

    def stage(
        self,
        transaction: str,
        stage: str,
        queue: str,
        payloads: Sequence[bytes],
        options: Options = DEFAULT_OPTIONS,
        *,
        each: Sequence[Options] | None = None,
        part: int | None = None,
        **changes: Any,
    ) -> r.Staged:
        """Write jobs that stay invisible until `publish` names their stage."""
        shared, each = traced(with_changes(options, changes), each, self._tracing)
        return self.execute(c.Stage(transaction, stage, queue, payloads, shared, each, part))

    def publish(self, transaction: str, stages: Sequence[str], *, durability: r.Level | None = None) -> r.Transaction:
        """Make exactly these stages visible, all at once."""
        return self.execute(c.Publish(transaction, stages, durability))

    def abort(self, transaction: str) -> r.Transaction:
        return self.execute(c.Abort(transaction))

    # --- consuming -------------------------------------------------------------------------------

    def pull(
        self,
        queues: str | Sequence[str],
        count: int = 1,
        *,
        wait_ms: int = 0,
        worker: str = "",
        lease_ms: int | None = None,
        claim: str | None = None,
    ) -> r.Delivery:
        """Take up to `count` jobs; iterate over the delivery to get them one by one."""
        names = (queues,) if isinstance(queues, str) else queues
        return self.execute(c.Pull(names, count, wait_ms, worker, lease_ms, claim))

    def ack(self, job: int, token: int | None = None, result: bytes | None = None, *, codec: Codec = "bytes") -> None:
        """The job is done; keep its result."""
        results = None if result is None else (result,)
        raise_refused(self.execute(c.Ack((job,), token, results, codec)).refused)

    def ack_batch(
        self,
        ids: Sequence[int],
        tokens: c.Tokens = None,
        results: Sequence[bytes | None] | None = None,
        *,
        codec: Codec = "bytes",
    ) -> r.Settled:
        return self.execute(c.Ack(ids, tokens, results, codec))

    def fail(
        self,
        job: int,
        token: int | None = None,
        error: str = "",
        *,
        error_class: str = "",
        stack: str = "",
        retry: bool = True,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> r.FailedJob:
        """The delivery failed: the job is retried by its policy, or becomes a dead letter.

        `reason` says why a job is not retried (`retry=False`): `explicit_fail`, `invalid_arguments` or
        `invalid_result`.
        """
        reply = self.execute(c.Fail((job,), token, error, error_class, stack, retry, delay_ms, reason))
        raise_refused(reply.refused)
        return reply.jobs[0]

    def fail_batch(
        self,
        ids: Sequence[int],
        tokens: c.Tokens = None,
        error: str = "",
        *,
        error_class: str = "",
        stack: str = "",
        retry: bool = True,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> r.Failed:
        return self.execute(c.Fail(ids, tokens, error, error_class, stack, retry, delay_ms, reason))

    def nack(self, job: int, token: int | None = None, delay_ms: int = 0, reason: str = "") -> r.FailedJob:
        """Give the job back as failed, to be retried after `delay_ms`."""
        return self.fail(job, token, reason, delay_ms=delay_ms)

    def release(self, job: int, token: int | None = None) -> None:
        """Hand the job back as if it had never been pulled."""
        raise_refused(self.execute(c.Release((job,), token)).refused)

    def release_batch(
        self, ids: Sequence[int], tokens: c.Tokens = None, delay_ms: int = 0, note: str = ""
    ) -> r.Settled:
        return self.execute(c.Release(ids, tokens, delay_ms, note))

    def snooze(self, job: int, token: int | None = None, delay_ms: int = 0, note: str = "") -> None:
        """Hand the job back for later; it costs no attempt. `note` says why."""
        raise_refused(self.execute(c.Release((job,), token, delay_ms, note)).refused)

    def extend(self, job: int, token: int | None = None, lease_ms: int | None = None) -> r.Extended:
        """Renew the lease (a heartbeat). The reply says whether the job should stop."""
        reply = self.execute(c.Extend((job,), token, lease_ms))
        raise_refused(reply.refused)
        return reply

    def extend_batch(
        self, ids: Sequence[int], tokens: c.Tokens = None, lease_ms: int | None = None, renew: bool = True
    ) -> r.Extended:
        """Renew many leases. With `renew=False` nothing is renewed; the reply only says which jobs are lost or
        cancelled.
        """
        return self.execute(c.Extend(ids, tokens, lease_ms, renew))

    def ack_claim(self, claim: str, results: Mapping[int, bytes] | None = None, *, codec: Codec = "bytes") -> r.Settled:
        return self.execute(c.AckClaim(claim, results or {}, codec))

    def release_claim(self, claim: str) -> r.Settled:
        return self.execute(c.ReleaseClaim(claim))

    def extend_claim(self, claim: str, lease_ms: int | None = None) -> r.Extended:
        return self.execute(c.ExtendClaim(claim, lease_ms))

    def set_progress(self, job: int, percent: int, message: str = "", token: int | None = None) -> None:
        self.execute(c.SetProgress(job, percent, message, token))

    def append_log(self, job: int, message: str, level: str = "info", token: int | None = None) -> None:
        self.execute(c.AppendLog(job, message, level, token))

    def append_partial(
        self,
        job: int,
        data: bytes,
        index: int | None = None,
        token: int | None = None,
        *,
        codec: Codec = "bytes",
    ) -> None:
        self.execute(c.AppendPartial(job, data, index, token, codec))

    # --- looking ---------------------------------------------------------------------------------

    def get_job(self, job: int) -> r.JobView:
        return self.execute(c.GetJob(job))

    def get_state(self, job: int) -> State:
        return self.get_job(job).state

    def get_result(self, job: int) -> bytes | None:
        return self.get_job(job).result

    def get_progress(self, job: int) -> r.Progress:
        return self.get_job(job).progress

    def find_job(self, custom_id: str, queue: str | None = None) -> r.JobView:
        return self.execute(c.FindJob(custom_id, queue))

    def get_logs(self, job: int) -> Sequence[r.LogLine]:
        return self.execute(c.GetLogs(job)).lines

    def get_partials(self, job: int) -> Sequence[r.Chunk]:
        return self.execute(c.GetPartials(job)).chunks

    def wait_job(self, job: int, wait_ms: int = 30_000) -> r.Ended:
        """Wait until the job has ended; `finished` is false when the time ran out first."""
        return self.execute(c.WaitJob(job, wait_ms))

    def browse(
        self,
        queue: str | None = None,
        state: State | None = None,
        *,
        tag: str | None = None,
        group_id: str | None = None,
        pushed_from: int | None = None,
        pushed_before: int | None = None,
        after: int | None = None,
        limit: int = 100,
        ascending: bool = False,
        name: str | None = None,
        workflow: int | None = None,
    ) -> r.Page:
        return self.execute(
            c.Browse(queue, state, tag, group_id, pushed_from, pushed_before, after, limit, ascending, name, workflow)
        )

    def search(
        self, wanted: JobFilter, *, after: int | None = None, limit: int = 100, ascending: bool = False
    ) -> r.Page:
        """A page of the jobs that match, newest first. It may be short: go on with its `next_after` if it has one."""
        return self.execute(c.Browse(**fields_of(wanted), after=after, limit=limit, ascending=ascending))

    def count_jobs(self, wanted: JobFilter, after: int | None = None) -> r.Counted:
        """How many jobs match: exactly by queue and state, else those of one step. Go on with its `next_after`."""
        return self.execute(c.CountJobs(**fields_of(wanted), after=after))

    def get_inputs(self, job: int, after: int = 0, limit: int = 1_000) -> r.Inputs:
        """A page of the results of the jobs that this one depends on, in order."""
        return self.execute(c.GetInputs(job, after, limit))

    def get_workflow(self, workflow: int) -> r.WorkflowView:
        return self.execute(c.GetWorkflow(workflow))

    def list_workflows(
        self,
        state: WorkflowState | None = None,
        *,
        name: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> r.WorkflowPage:
        """Newest first."""
        return self.execute(c.ListWorkflows(state, name, after, limit))

    def why(self, job: int) -> r.Waiting:
        """Why this job is not running."""
        return self.execute(c.Why(job))

    def list_queues(self) -> Sequence[str]:
        return self.execute(c.ListQueues()).names

    def get_queue(self, queue: str) -> r.QueueView:
        return self.execute(c.GetQueue(queue))

    def get_queues(self, text: str | None = None, after: str | None = None, limit: int = 100) -> r.QueuePage:
        """Queues with their policies, counters and timings, in the order of their names."""
        return self.execute(c.GetQueues(text, after, limit))

    def get_stats(self, queue: str | None = None) -> r.Stats:
        return self.execute(c.GetStats(queue))

    def get_priorities(self, queue: str) -> Mapping[int, int]:
        """How many jobs of the queue wait with each priority, the highest first."""
        return self.execute(c.GetPriorities(queue)).waiting

    def get_timings(self, queue: str | None = None) -> Timings:
        """How long the oldest job waits, and how long jobs wait and run."""
        return self.execute(c.GetTimings(queue))

    def get_history(
        self, queue: str | None = None, range_ms: int = 3_600_000, step_ms: int = MINUTE_MS
    ) -> Sequence[HistoryPoint]:
        """What happened in the queue, or in all of them, minute by minute or in longer steps."""
        return self.execute(c.GetHistory(queue, range_ms, step_ms)).points

    def get_trends(
        self, queues: Sequence[str], range_ms: int = 3_600_000, step_ms: int = MINUTE_MS
    ) -> Mapping[str, Sequence[TrendPoint]]:
        """How many jobs completed and died in each of these queues, minute by minute or in longer steps."""
        return self.execute(c.GetTrends(queues, range_ms, step_ms)).queues

    def get_counts(self, queue: str | None = None) -> r.Counts:
        return self.get_stats(queue).counts

    def story(self, job: int) -> r.Story:
        """Everything that the log still has about a job, in order."""
        return self.execute(c.GetStory(job))

    def read_events(
        self,
        shard: int = 0,
        after: int = 0,
        limit: int = 1_000,
        *,
        queue: str | None = None,
        kinds: Sequence[str] | None = None,
        wait_ms: int = 0,
    ) -> r.Events:
        return self.execute(c.ReadEvents(shard, after, limit, queue, kinds, wait_ms))

    def read_records(
        self,
        shard: int = 0,
        after: int = 0,
        until: int | None = None,
        *,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        payloads: bool = False,
        bytes_max: int = 4 * 1024 * 1024,
        prefixes: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        counted: bool = False,
        events_max: int | None = None,
    ) -> r.Records:
        """A page of raw log records, for readers that make tables of them: `stoker.records.codec.open_record`."""
        return self.execute(
            c.ReadRecords(
                shard, after, until, queues, kinds, payloads, bytes_max, prefixes, tenants, counted, events_max
            )
        )

    def subscribe(
        self,
        shard: int = 0,
        after: int = 0,
        *,
        queue: str | None = None,
        kinds: Sequence[str] | None = None,
        idle_ms: int = 0,
    ) -> Iterator[Event]:
        """Events as they happen, forever; with `idle_ms`, until none has come for that long."""
        while True:
            page = self.read_events(shard, after, queue=queue, kinds=kinds, wait_ms=idle_ms or 30_000)
            for event in page.events:
                yield event
            if idle_ms and not page.events:
                return
            after = page.next_after

    # --- control ---------------------------------------------------------------------------------

    def pause(self, queue: str) -> None:
        self.execute(c.Pause(queue))

    def resume(self, queue: str) -> None:
        self.execute(c.Resume(queue))

    def set_rate_limit(self, queue: str, count: int, per_ms: int = 1_000, burst: int = 0) -> None:
        self.execute(c.SetRateLimit(queue, RateLimit(count, per_ms, burst)))

    def clear_rate_limit(self, queue: str) -> None:
        self.execute(c.SetRateLimit(queue, None))

    def set_concurrency(self, queue: str, limit: int) -> None:
        self.execute(c.SetConcurrency(queue, limit))

    def clear_concurrency(self, queue: str) -> None:
        self.execute(c.SetConcurrency(queue, 0))

    def set_queue_policy(
        self,
        queue: str,
        *,
        group_on_retry: GroupPolicy | None = None,
        dead_letters: DeadLetterPolicy | None = None,
        durability: r.Level | None = None,
    ) -> None:
        self.execute(c.SetQueuePolicy(queue, group_on_retry, dead_letters, durability))

    def cancel(self, job: int) -> r.JobView:
        return self.execute(c.Cancel(job))

    def cancel_workflow(self, workflow: int) -> r.WorkflowView:
        """Cancel a workflow: waiting jobs end at once, running ones are told, and no more jobs of it start."""
        return self.execute(c.CancelWorkflow(workflow))

    def retry_workflow(self, workflow: int) -> r.WorkflowView:
        """Retry failed jobs; jobs that failed because of them wait for them again."""
        return self.execute(c.RetryWorkflow(workflow))

    def promote(self, job: int) -> None:
        self.execute(c.Promote(job))

    def change_priority(self, job: int, priority: int) -> None:
        self.execute(c.ChangePriority(job, priority))

    def move_to_delayed(self, job: int, delay_ms: int, token: int | None = None) -> None:
        self.execute(c.MoveToDelayed(job, delay_ms, token))

    def update_payload(self, job: int, payload: bytes, codec: Codec | None = None) -> None:
        """Replace the job's payload; without a codec, the old one stays."""
        self.execute(c.UpdatePayload(job, payload, codec))

    def discard(self, job: int) -> None:
        self.execute(c.Discard(job))

    def delete_job(self, job: int) -> None:
        """Forget a job that has ended."""
        self.execute(c.DeleteJob(job))

    def drain(self, queue: str, *, delayed: bool = False) -> int:
        return self.execute(c.Drain(queue, delayed)).count

    def clean(self, queue: str, state: State, age_ms: int = 0, limit: int = 1_000) -> Sequence[int]:
        return self.execute(c.Clean(queue, state, age_ms, limit)).ids

    def obliterate(self, queue: str, *, force: bool = False) -> int:
        return self.execute(c.Obliterate(queue, force)).count

    # --- dead letters ----------------------------------------------------------------------------

    def list_dead(
        self,
        queue: str,
        *,
        reason: str | None = None,
        entered_from: int | None = None,
        entered_before: int | None = None,
        tag: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> r.Page:
        return self.execute(c.ListDead(queue, reason, entered_from, entered_before, tag, after, limit))

    def get_dead_stats(self, queue: str) -> r.DeadStats:
        return self.execute(c.GetDeadStats(queue))

    def get_dead_groups(self, queue: str | None = None, limit: int = 100) -> r.DeadGroups:
        """Dead letters by reason and fingerprint, the largest group first. Ask again while some are `ungrouped`."""
        return self.execute(c.GetDeadGroups(queue, limit))

    def start_bulk(
        self,
        key: str,
        action: BulkAction,
        wanted: JobFilter | None = None,
        *,
        priority: int | None = None,
        rate: float | None = None,
    ) -> BulkView:
        """Begin one action on every job that matches, in the background. The key names the operation."""
        told = None if rate is None else float(rate)
        return self.execute(c.StartBulk(key, action, wanted or JobFilter(), priority, told))

    def get_bulk(self, key: str) -> BulkView:
        return self.execute(c.GetBulk(key))

    def list_bulks(self) -> Sequence[BulkView]:
        return self.execute(c.ListBulks()).bulks

    def stop_bulk(self, key: str) -> BulkView:
        """End the operation where it is. What it has done stays."""
        return self.execute(c.StopBulk(key))

    def retry_dead(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        reason: str | None = None,
        limit: int | None = None,
    ) -> r.Retried:
        return self.execute(c.RetryDead(queue, ids, reason, limit))

    def purge_dead(self, queue: str, ids: Sequence[int] | None = None, *, reason: str | None = None) -> int:
        return self.execute(c.PurgeDead(queue, ids, reason)).count

    # --- workers ---------------------------------------------------------------------------------

    def list_workers(self) -> Sequence[WorkerView]:
        """The tenant's workers that reported within the last minute, by id."""
        views: list[WorkerView] = []
        after: str | None = None
        while True:
            page = self.kv_keys(WORKER_KEYS + "*", after)
            values = self.kv_get_many(page.keys) if page.keys else ()
            views += worker_views(values)
            after = page.next_after
            if after is None:
                return views

    # --- key-value entries -----------------------------------------------------------------------

    def kv_set(self, key: str, value: bytes, ttl_ms: int = 0, *, codec: Codec = "bytes") -> None:
        """Store a value under a key, for `ttl_ms` or until it is deleted."""
        self.execute(c.KvSet(key, value, ttl_ms, codec))

    def kv_set_many(self, entries: Sequence[c.KvEntry]) -> int:
        """Store all of them or none."""
        return self.execute(c.KvSetMany(entries)).count

    def kv_get(self, key: str) -> r.KvValue:
        """The value, and whether there is one."""
        return self.execute(c.KvGet(key))

    def kv_get_many(self, keys: Sequence[str]) -> Sequence[r.KvValue]:
        return self.execute(c.KvGetMany(keys)).values

    def kv_exists(self, keys: Sequence[str]) -> Sequence[bool]:
        return self.execute(c.KvExists(keys)).exists

    def kv_delete(self, keys: str | Sequence[str]) -> int:
        """Returns how many of the keys existed."""
        return self.execute(c.KvDelete((keys,) if isinstance(keys, str) else keys)).count

    def kv_expire(self, key: str, ttl_ms: int) -> r.KvExpiry:
        """Let an entry expire after `ttl_ms`; 0 keeps it."""
        return self.execute(c.KvExpire(key, ttl_ms))

    def kv_ttl(self, key: str) -> r.KvExpiry:
        return self.execute(c.KvTtl(key))

    def kv_keys(self, pattern: str = "*", after: str | None = None, limit: int = 1_000) -> r.KvKeyPage:
        return self.execute(c.KvKeys(pattern, after, limit))

    def kv_increment(self, key: str, by: int = 1) -> int:
        """Add to a counter and return the sum."""
        return self.execute(c.KvIncrement(key, by)).value

    # --- schedules -------------------------------------------------------------------------------

    def put_schedule(self, queue: str, name: str, schedule: Schedule | None = None, **changes: Any) -> ScheduleView:
        """Make or change a schedule, with a `Schedule`, its fields, or both: `cron="0 8 * * *", payload=b"..."`.

        An unchanged schedule stays as it is, so a program may call this at each start.
        """
        return self.execute(c.PutSchedule(queue, name, schedule_with(schedule, changes)))

    def get_schedule(self, queue: str, name: str) -> ScheduleView:
        """The schedule with its next five slots and the outcomes of the last twenty."""
        return self.execute(c.GetSchedule(queue, name))

    def list_schedules(
        self, queue: str | None = None, *, name: str | None = None, after: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Schedules of one queue or of all; `name` finds those with one name."""
        return self.execute(c.ListSchedules(queue, name, after, limit))

    def pause_schedule(self, queue: str, name: str) -> ScheduleView:
        return self.execute(c.PauseSchedule(queue, name))

    def resume_schedule(self, queue: str, name: str) -> ScheduleView:
        """Continue with the next slot; slots during the pause are not made up for."""
        return self.execute(c.ResumeSchedule(queue, name))

    def run_schedule(self, queue: str, name: str) -> r.Pushed:
        """Push one of its jobs now."""
        return self.execute(c.RunSchedule(queue, name))

    def delete_schedule(self, queue: str, name: str) -> int:
        """Returns 1, or 0 if it did not exist. Its jobs stay."""
        return self.execute(c.DeleteSchedule(queue, name)).count


def with_changes(options: Options, changes: dict[str, Any]) -> Options:
    """Options given by name, on top of those given as a value. Unknown names are refused, not ignored."""
    if not changes:
        return options
    if not OPTION_NAMES.issuperset(changes):
        unknown = ", ".join(sorted(changes.keys() - OPTION_NAMES))
        raise errors.InvalidRequest(f"unknown option {unknown}; the options are {', '.join(Options.__struct_fields__)}")
    return msgspec.structs.replace(options, **changes)


OPTION_NAMES = frozenset(Options.__struct_fields__)


def schedule_with(schedule: Schedule | None, changes: dict[str, Any]) -> Schedule:
    """A schedule given by its fields, on top of one given as a value."""
    unknown = changes.keys() - set(Schedule.__struct_fields__)
    if unknown:
        known = ", ".join(Schedule.__struct_fields__)
        raise errors.InvalidRequest(f"unknown field {', '.join(sorted(unknown))} of a schedule; the fields are {known}")
    return msgspec.structs.replace(schedule or Schedule(), **changes)


def traced(shared: Options, each: Sequence[Options] | None, tracing: bool) -> tuple[Options, Sequence[Options] | None]:
    """The options of a batch with the active span's context, if there is one."""
    if not tracing or active_context() is None:
        return shared, each
    return inject(shared), None if each is None else [inject(options) for options in each]


def traced_steps(steps: Sequence[Step], tracing: bool) -> Sequence[Step]:
    """The steps of a workflow with the active span's context, if there is one."""
    if not tracing or active_context() is None:
        return steps
    return [msgspec.structs.replace(step, options=inject(step.options)) for step in steps]


def raise_refused(refused: Mapping[int, str]) -> None:
    """For calls about one job: raise its refusal."""
    for job, code in refused.items():
        raise errors.BY_CODE[code](REFUSALS.get(code, "job {job} was refused").format(job=job))


REFUSALS = {
    "not_found": "job {job} not found: it never existed, was removed, or belongs to another tenant",
    "lost_lease": "job {job} is no longer yours: its lease ended or it was settled; do not use its outcome",
    "wrong_state": "job {job} is not active: pull it before settling it",
    "unknown": "whether job {job} was settled is unknown: the reply was lost, and the log no longer says;"
    " look at the job before you use its outcome",
}
