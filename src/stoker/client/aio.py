"""The asynchronous client. Made from `sync.py` by `tools/make_aio.py`: edit that file, then run the tool."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from stoker.brokers.contract import Broker
from stoker.client.batches import BATCH_JOBS, joined, pieces
from stoker.client.sync import raise_refused, schedule_with, traced, traced_steps, with_changes
from stoker.model import commands as c
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
from stoker.tracing import inject

R = TypeVar("R")


class AsyncClient:
    """A tenant's handle on a broker."""

    def __init__(self, broker: Broker, tenant: str = "default", *, owner: bool = True, tracing: bool = True) -> None:
        self._broker = broker
        self._owner = owner
        self._tracing = tracing
        """Whether pushes carry the context of OpenTelemetry's active span."""
        self.tenant = tenant

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the broker: waiting calls raise `closed`. A second call does nothing."""
        if self._owner:
            self._owner = False
            self._broker.close()

    def as_tenant(self, tenant: str) -> "AsyncClient":
        """Another handle on the same broker, for another tenant. It is closed with the first one."""
        return AsyncClient(self._broker, tenant, owner=False, tracing=self._tracing)

    @property
    def broker(self) -> Broker:
        """The broker that executes the commands."""
        return self._broker

    async def execute(self, command: c.Command[R]) -> R:
        """Execute any command of the contract."""
        return await self._broker.execute_async(self.tenant, command)

    # --- producing -------------------------------------------------------------------------------

    async def push(
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
        return await self.execute(c.Push(queue, payload, inject(wanted) if self._tracing else wanted, durability))

    async def push_batch(
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
        return await self.execute(c.PushBatch(queue, payloads, shared, each, atomic, request_key, durability))

    async def push_many(
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
            reply = await self.execute(c.PushBatch(queue, piece, shared, None, False, key, durability))
            replies.append(reply)
        return joined(replies)

    async def push_workflow(
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
        return await self.execute(c.PushWorkflow(traced_steps(steps, self._tracing), name, request_key, durability))

    async def fill_step(self, job: int, step: str, payloads: Sequence[bytes], token: int | None = None) -> int:
        """Give an open step its jobs, from a running job of a step before it. Only the first call counts."""
        return (await self.execute(c.FillStep(job, step, payloads, token))).count

    async def stage(
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
        return await self.execute(c.Stage(transaction, stage, queue, payloads, shared, each, part))

    async def publish(
        self, transaction: str, stages: Sequence[str], *, durability: r.Level | None = None
    ) -> r.Transaction:
        """Make exactly these stages visible, all at once."""
        return await self.execute(c.Publish(transaction, stages, durability))

    async def abort(self, transaction: str) -> r.Transaction:
        return await self.execute(c.Abort(transaction))

    # --- consuming -------------------------------------------------------------------------------

    async def pull(
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
        return await self.execute(c.Pull(names, count, wait_ms, worker, lease_ms, claim))

    async def ack(
        self, job: int, token: int | None = None, result: bytes | None = None, *, codec: Codec = "bytes"
    ) -> None:
        """The job is done; keep its result."""
        results = None if result is None else (result,)
        raise_refused((await self.execute(c.Ack((job,), token, results, codec))).refused)

    async def ack_batch(
        self,
        ids: Sequence[int],
        tokens: c.Tokens = None,
        results: Sequence[bytes | None] | None = None,
        *,
        codec: Codec = "bytes",
    ) -> r.Settled:
        return await self.execute(c.Ack(ids, tokens, results, codec))

    async def fail(
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
        reply = await self.execute(c.Fail((job,), token, error, error_class, stack, retry, delay_ms, reason))
        raise_refused(reply.refused)
        return reply.jobs[0]

    async def fail_batch(
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
        return await self.execute(c.Fail(ids, tokens, error, error_class, stack, retry, delay_ms, reason))

    async def nack(self, job: int, token: int | None = None, delay_ms: int = 0, reason: str = "") -> r.FailedJob:
        """Give the job back as failed, to be retried after `delay_ms`."""
        return await self.fail(job, token, reason, delay_ms=delay_ms)

    async def release(self, job: int, token: int | None = None) -> None:
        """Hand the job back as if it had never been pulled."""
        raise_refused((await self.execute(c.Release((job,), token))).refused)

    async def release_batch(
        self, ids: Sequence[int], tokens: c.Tokens = None, delay_ms: int = 0, note: str = ""
    ) -> r.Settled:
        return await self.execute(c.Release(ids, tokens, delay_ms, note))

    async def snooze(self, job: int, token: int | None = None, delay_ms: int = 0, note: str = "") -> None:
        """Hand the job back for later; it costs no attempt. `note` says why."""
        raise_refused((await self.execute(c.Release((job,), token, delay_ms, note))).refused)

    async def extend(self, job: int, token: int | None = None, lease_ms: int | None = None) -> r.Extended:
        """Renew the lease (a heartbeat). The reply says whether the job should stop."""
        reply = await self.execute(c.Extend((job,), token, lease_ms))
        raise_refused(reply.refused)
        return reply

    async def extend_batch(
        self, ids: Sequence[int], tokens: c.Tokens = None, lease_ms: int | None = None, renew: bool = True
    ) -> r.Extended:
        """Renew many leases. With `renew=False` nothing is renewed; the reply only says which jobs are lost or
        cancelled.
        """
        return await self.execute(c.Extend(ids, tokens, lease_ms, renew))

    async def ack_claim(
        self, claim: str, results: Mapping[int, bytes] | None = None, *, codec: Codec = "bytes"
    ) -> r.Settled:
        return await self.execute(c.AckClaim(claim, results or {}, codec))

    async def release_claim(self, claim: str) -> r.Settled:
        return await self.execute(c.ReleaseClaim(claim))

    async def extend_claim(self, claim: str, lease_ms: int | None = None) -> r.Extended:
        return await self.execute(c.ExtendClaim(claim, lease_ms))

    async def set_progress(self, job: int, percent: int, message: str = "", token: int | None = None) -> None:
        await self.execute(c.SetProgress(job, percent, message, token))

    async def append_log(self, job: int, message: str, level: str = "info", token: int | None = None) -> None:
        await self.execute(c.AppendLog(job, message, level, token))

    async def append_partial(
        self,
        job: int,
        data: bytes,
        index: int | None = None,
        token: int | None = None,
        *,
        codec: Codec = "bytes",
    ) -> None:
        await self.execute(c.AppendPartial(job, data, index, token, codec))

    # --- looking ---------------------------------------------------------------------------------

    async def get_job(self, job: int) -> r.JobView:
        return await self.execute(c.GetJob(job))

    async def get_state(self, job: int) -> State:
        return (await self.get_job(job)).state

    async def get_result(self, job: int) -> bytes | None:
        return (await self.get_job(job)).result

    async def get_progress(self, job: int) -> r.Progress:
        return (await self.get_job(job)).progress

    async def find_job(self, custom_id: str, queue: str | None = None) -> r.JobView:
        return await self.execute(c.FindJob(custom_id, queue))

    async def get_logs(self, job: int) -> Sequence[r.LogLine]:
        return (await self.execute(c.GetLogs(job))).lines

    async def get_partials(self, job: int) -> Sequence[r.Chunk]:
        return (await self.execute(c.GetPartials(job))).chunks

    async def wait_job(self, job: int, wait_ms: int = 30_000) -> r.Ended:
        """Wait until the job has ended; `finished` is false when the time ran out first."""
        return await self.execute(c.WaitJob(job, wait_ms))

    async def browse(
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
        return await self.execute(
            c.Browse(queue, state, tag, group_id, pushed_from, pushed_before, after, limit, ascending, name, workflow)
        )

    async def search(
        self, wanted: JobFilter, *, after: int | None = None, limit: int = 100, ascending: bool = False
    ) -> r.Page:
        """A page of the jobs that match, newest first. It may be short: go on with its `next_after` if it has one."""
        return await self.execute(c.Browse(**fields_of(wanted), after=after, limit=limit, ascending=ascending))

    async def count_jobs(self, wanted: JobFilter, after: int | None = None) -> r.Counted:
        """How many jobs match: exactly by queue and state, else those of one step. Go on with its `next_after`."""
        return await self.execute(c.CountJobs(**fields_of(wanted), after=after))

    async def get_inputs(self, job: int, after: int = 0, limit: int = 1_000) -> r.Inputs:
        """A page of the results of the jobs that this one depends on, in order."""
        return await self.execute(c.GetInputs(job, after, limit))

    async def get_workflow(self, workflow: int) -> r.WorkflowView:
        return await self.execute(c.GetWorkflow(workflow))

    async def list_workflows(
        self,
        state: WorkflowState | None = None,
        *,
        name: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> r.WorkflowPage:
        """Newest first."""
        return await self.execute(c.ListWorkflows(state, name, after, limit))

    async def why(self, job: int) -> r.Waiting:
        """Why this job is not running."""
        return await self.execute(c.Why(job))

    async def list_queues(self) -> Sequence[str]:
        return (await self.execute(c.ListQueues())).names

    async def get_queue(self, queue: str) -> r.QueueView:
        return await self.execute(c.GetQueue(queue))

    async def get_queues(self, text: str | None = None, after: str | None = None, limit: int = 100) -> r.QueuePage:
        """Queues with their policies, counters and timings, in the order of their names."""
        return await self.execute(c.GetQueues(text, after, limit))

    async def get_stats(self, queue: str | None = None) -> r.Stats:
        return await self.execute(c.GetStats(queue))

    async def get_priorities(self, queue: str) -> Mapping[int, int]:
        """How many jobs of the queue wait with each priority, the highest first."""
        return (await self.execute(c.GetPriorities(queue))).waiting

    async def get_timings(self, queue: str | None = None) -> Timings:
        """How long the oldest job waits, and how long jobs wait and run."""
        return await self.execute(c.GetTimings(queue))

    async def get_history(
        self, queue: str | None = None, range_ms: int = 3_600_000, step_ms: int = MINUTE_MS
    ) -> Sequence[HistoryPoint]:
        """What happened in the queue, or in all of them, minute by minute or in longer steps."""
        return (await self.execute(c.GetHistory(queue, range_ms, step_ms))).points

    async def get_trends(
        self, queues: Sequence[str], range_ms: int = 3_600_000, step_ms: int = MINUTE_MS
    ) -> Mapping[str, Sequence[TrendPoint]]:
        """How many jobs completed and died in each of these queues, minute by minute or in longer steps."""
        return (await self.execute(c.GetTrends(queues, range_ms, step_ms))).queues

    async def get_counts(self, queue: str | None = None) -> r.Counts:
        return (await self.get_stats(queue)).counts

    async def story(self, job: int) -> r.Story:
        """Everything that the log still has about a job, in order."""
        return await self.execute(c.GetStory(job))

    async def read_events(
        self,
        shard: int = 0,
        after: int = 0,
        limit: int = 1_000,
        *,
        queue: str | None = None,
        kinds: Sequence[str] | None = None,
        wait_ms: int = 0,
    ) -> r.Events:
        return await self.execute(c.ReadEvents(shard, after, limit, queue, kinds, wait_ms))

    async def read_records(
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
        return await self.execute(
            c.ReadRecords(
                shard, after, until, queues, kinds, payloads, bytes_max, prefixes, tenants, counted, events_max
            )
        )

    async def subscribe(
        self,
        shard: int = 0,
        after: int = 0,
        *,
        queue: str | None = None,
        kinds: Sequence[str] | None = None,
        idle_ms: int = 0,
    ) -> AsyncIterator[Event]:
        """Events as they happen, forever; with `idle_ms`, until none has come for that long."""
        while True:
            page = await self.read_events(shard, after, queue=queue, kinds=kinds, wait_ms=idle_ms or 30_000)
            for event in page.events:
                yield event
            if idle_ms and not page.events:
                return
            after = page.next_after

    # --- control ---------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        await self.execute(c.Pause(queue))

    async def resume(self, queue: str) -> None:
        await self.execute(c.Resume(queue))

    async def set_rate_limit(self, queue: str, count: int, per_ms: int = 1_000, burst: int = 0) -> None:
        await self.execute(c.SetRateLimit(queue, RateLimit(count, per_ms, burst)))

    async def clear_rate_limit(self, queue: str) -> None:
        await self.execute(c.SetRateLimit(queue, None))

    async def set_concurrency(self, queue: str, limit: int) -> None:
        await self.execute(c.SetConcurrency(queue, limit))

    async def clear_concurrency(self, queue: str) -> None:
        await self.execute(c.SetConcurrency(queue, 0))

    async def set_queue_policy(
        self,
        queue: str,
        *,
        group_on_retry: GroupPolicy | None = None,
        dead_letters: DeadLetterPolicy | None = None,
        durability: r.Level | None = None,
    ) -> None:
        await self.execute(c.SetQueuePolicy(queue, group_on_retry, dead_letters, durability))

    async def cancel(self, job: int) -> r.JobView:
        return await self.execute(c.Cancel(job))

    async def cancel_workflow(self, workflow: int) -> r.WorkflowView:
        """Cancel a workflow: waiting jobs end at once, running ones are told, and no more jobs of it start."""
        return await self.execute(c.CancelWorkflow(workflow))

    async def retry_workflow(self, workflow: int) -> r.WorkflowView:
        """Retry failed jobs; jobs that failed because of them wait for them again."""
        return await self.execute(c.RetryWorkflow(workflow))

    async def promote(self, job: int) -> None:
        await self.execute(c.Promote(job))

    async def change_priority(self, job: int, priority: int) -> None:
        await self.execute(c.ChangePriority(job, priority))

    async def move_to_delayed(self, job: int, delay_ms: int, token: int | None = None) -> None:
        await self.execute(c.MoveToDelayed(job, delay_ms, token))

    async def update_payload(self, job: int, payload: bytes, codec: Codec | None = None) -> None:
        """Replace the job's payload; without a codec, the old one stays."""
        await self.execute(c.UpdatePayload(job, payload, codec))

    async def discard(self, job: int) -> None:
        await self.execute(c.Discard(job))

    async def delete_job(self, job: int) -> None:
        """Forget a job that has ended."""
        await self.execute(c.DeleteJob(job))

    async def drain(self, queue: str, *, delayed: bool = False) -> int:
        return (await self.execute(c.Drain(queue, delayed))).count

    async def clean(self, queue: str, state: State, age_ms: int = 0, limit: int = 1_000) -> Sequence[int]:
        return (await self.execute(c.Clean(queue, state, age_ms, limit))).ids

    async def obliterate(self, queue: str, *, force: bool = False) -> int:
        return (await self.execute(c.Obliterate(queue, force))).count

    # --- dead letters ----------------------------------------------------------------------------

    async def list_dead(
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
        return await self.execute(c.ListDead(queue, reason, entered_from, entered_before, tag, after, limit))

    async def get_dead_stats(self, queue: str) -> r.DeadStats:
        return await self.execute(c.GetDeadStats(queue))

    async def get_dead_groups(self, queue: str | None = None, limit: int = 100) -> r.DeadGroups:
        """Dead letters by reason and fingerprint, the largest group first. Ask again while some are `ungrouped`."""
        return await self.execute(c.GetDeadGroups(queue, limit))

    async def start_bulk(
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
        return await self.execute(c.StartBulk(key, action, wanted or JobFilter(), priority, told))

    async def get_bulk(self, key: str) -> BulkView:
        return await self.execute(c.GetBulk(key))

    async def list_bulks(self) -> Sequence[BulkView]:
        return (await self.execute(c.ListBulks())).bulks

    async def stop_bulk(self, key: str) -> BulkView:
        """End the operation where it is. What it has done stays."""
        return await self.execute(c.StopBulk(key))

    async def retry_dead(
        self,
        queue: str,
        ids: Sequence[int] | None = None,
        *,
        reason: str | None = None,
        limit: int | None = None,
    ) -> r.Retried:
        return await self.execute(c.RetryDead(queue, ids, reason, limit))

    async def purge_dead(self, queue: str, ids: Sequence[int] | None = None, *, reason: str | None = None) -> int:
        return (await self.execute(c.PurgeDead(queue, ids, reason))).count

    # --- workers ---------------------------------------------------------------------------------

    async def list_workers(self) -> Sequence[WorkerView]:
        """The tenant's workers that reported within the last minute, by id."""
        views: list[WorkerView] = []
        after: str | None = None
        while True:
            page = await self.kv_keys(WORKER_KEYS + "*", after)
            values = await self.kv_get_many(page.keys) if page.keys else ()
            views += worker_views(values)
            after = page.next_after
            if after is None:
                return views

    # --- key-value entries -----------------------------------------------------------------------

    async def kv_set(self, key: str, value: bytes, ttl_ms: int = 0, *, codec: Codec = "bytes") -> None:
        """Store a value under a key, for `ttl_ms` or until it is deleted."""
        await self.execute(c.KvSet(key, value, ttl_ms, codec))

    async def kv_set_many(self, entries: Sequence[c.KvEntry]) -> int:
        """Store all of them or none."""
        return (await self.execute(c.KvSetMany(entries))).count

    async def kv_get(self, key: str) -> r.KvValue:
        """The value, and whether there is one."""
        return await self.execute(c.KvGet(key))

    async def kv_get_many(self, keys: Sequence[str]) -> Sequence[r.KvValue]:
        return (await self.execute(c.KvGetMany(keys))).values

    async def kv_exists(self, keys: Sequence[str]) -> Sequence[bool]:
        return (await self.execute(c.KvExists(keys))).exists

    async def kv_delete(self, keys: str | Sequence[str]) -> int:
        """Returns how many of the keys existed."""
        return (await self.execute(c.KvDelete((keys,) if isinstance(keys, str) else keys))).count

    async def kv_expire(self, key: str, ttl_ms: int) -> r.KvExpiry:
        """Let an entry expire after `ttl_ms`; 0 keeps it."""
        return await self.execute(c.KvExpire(key, ttl_ms))

    async def kv_ttl(self, key: str) -> r.KvExpiry:
        return await self.execute(c.KvTtl(key))

    async def kv_keys(self, pattern: str = "*", after: str | None = None, limit: int = 1_000) -> r.KvKeyPage:
        return await self.execute(c.KvKeys(pattern, after, limit))

    async def kv_increment(self, key: str, by: int = 1) -> int:
        """Add to a counter and return the sum."""
        return (await self.execute(c.KvIncrement(key, by))).value

    # --- schedules -------------------------------------------------------------------------------

    async def put_schedule(
        self, queue: str, name: str, schedule: Schedule | None = None, **changes: Any
    ) -> ScheduleView:
        """Make or change a schedule, with a `Schedule`, its fields, or both: `cron="0 8 * * *", payload=b"..."`.

        An unchanged schedule stays as it is, so a program may call this at each start.
        """
        return await self.execute(c.PutSchedule(queue, name, schedule_with(schedule, changes)))

    async def get_schedule(self, queue: str, name: str) -> ScheduleView:
        """The schedule with its next five slots and the outcomes of the last twenty."""
        return await self.execute(c.GetSchedule(queue, name))

    async def list_schedules(
        self, queue: str | None = None, *, name: str | None = None, after: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Schedules of one queue or of all; `name` finds those with one name."""
        return await self.execute(c.ListSchedules(queue, name, after, limit))

    async def pause_schedule(self, queue: str, name: str) -> ScheduleView:
        return await self.execute(c.PauseSchedule(queue, name))

    async def resume_schedule(self, queue: str, name: str) -> ScheduleView:
        """Continue with the next slot; slots during the pause are not made up for."""
        return await self.execute(c.ResumeSchedule(queue, name))

    async def run_schedule(self, queue: str, name: str) -> r.Pushed:
        """Push one of its jobs now."""
        return await self.execute(c.RunSchedule(queue, name))

    async def delete_schedule(self, queue: str, name: str) -> int:
        """Returns 1, or 0 if it did not exist. Its jobs stay."""
        return (await self.execute(c.DeleteSchedule(queue, name))).count
