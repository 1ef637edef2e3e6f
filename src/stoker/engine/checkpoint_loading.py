"""Load a shard that `checkpoint_saving.py` has saved.

Every place of a job is filled by the same functions as in `engine/apply/`, and every deadline is armed from the object
that it belongs to. Heaps are ordered once, at the end.
"""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify
from itertools import repeat
from typing import Any

import msgspec

from stoker.engine import checkpoint_format as s
from stoker.engine import deadlines as kinds
from stoker.engine.apply.kv import put
from stoker.engine.apply.moves import join_lane, offer
from stoker.engine.apply.push import request_remembered
from stoker.engine.apply.schedules import due_of, keep
from stoker.engine.apply.transactions import staged, transaction_ended
from stoker.engine.batch_positions import BatchPieces, PositionSpan
from stoker.engine.bulk_state import BulkRun
from stoker.engine.jobs import (
    ACTIVE,
    BLOCKED,
    DELAYED,
    FAILED,
    LIVE_BYTES,
    WAITING,
    Detail,
    EndedRun,
    SingleJob,
    Slice,
    UniformBatch,
    bytes_of_results,
)
from stoker.engine.kv_entries import Entry
from stoker.engine.old_keys import reply_of
from stoker.engine.senders import Answers
from stoker.engine.shard import Shard
from stoker.engine.state import JobGroup, KeyHolder, NamedClaim, Planned, QueueState, Scope, Tenant
from stoker.engine.token_bucket import TokenBucket
from stoker.engine.workflow_state import ShardWorkflow
from stoker.model.errors import Damaged, NewerFormat
from stoker.model.options import Codec, Options
from stoker.model.replies import Attempt, Chunk, LogLine
from stoker.model.schedules import LAST_RUNS
from stoker.records import records as rec
from stoker.records.stored import sizes_of


def load(chunks: Iterable[bytes]) -> tuple[Shard, int]:
    """The shard, and the position in the journal that it has reached."""
    loading: _Loading | None = None
    for number, data in enumerate(chunks):
        if not number:
            _check_format(data)
        chunk = _decode(data, number)
        if loading is None:
            loading = _Loading(*chunk[2])
        else:
            loading.read(chunk)
    if loading is None or not loading.ended:
        raise _damaged("its end is missing")
    return loading.finish(), loading.position


def _check_format(data: bytes) -> None:
    """Recognise the format of a later release before decoding it."""
    try:
        _, _, ((tag, found, *_),) = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise _damaged("its beginning is missing") from error
    if tag == 1 and found > s.FORMAT:
        raise NewerFormat(
            f"the saved state has format {found}, but this release reads up to {s.FORMAT}: a later release wrote it;"
            " use that release"
        )


def _decode(data: bytes, number: int) -> s.Chunk:
    try:
        chunk: s.Chunk = s.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(str(error)) from error
    if chunk[0] != number:
        raise _damaged(f"chunk {number} is missing")
    return chunk


def _damaged(why: str) -> Damaged:
    return Damaged(f"the saved state of a shard cannot be read, {why}: restore the directory from a backup")


class _Loading:
    """A shard that is being loaded."""

    def __init__(self, head: s.Entry) -> None:
        assert type(head) is s.SavedShard
        shard = self.shard = Shard(head.number, head.settings, head.limits)
        self.position = head.position
        self.format = head.format
        shard.sequence, shard.token, shard.now, shard.epoch = head.sequence, head.token, head.now, head.epoch
        shard.sent, shard.taken = head.sent, head.taken
        for start, stop in head.never_given:
            shard.never_given.add(start, stop)
        _fill(shard.scope, head.counters)
        self.tenants: list[Tenant] = []
        self.queues: list[QueueState] = []
        self.options: list[Options] = []
        self.piles: deque[Any] = deque()
        self.same: Callable[[Any, Any], Any]
        """Equal times and names of one chunk become one object, because jobs of the same millisecond share it."""
        self.ended = False
        self.ended_flows: list[tuple[int, int, ShardWorkflow]] = []

    def read(self, chunk: s.Chunk) -> None:
        _, options, entries = chunk
        self.options = [self.shard.intern(found) for found in options]
        self.same = {}.setdefault
        for entry in entries:
            READ[type(entry)](self, entry)

    def end(self, saved: s.SavedEnd) -> None:
        self.ended = True

    def finish(self) -> Shard:
        for queue in self.queues:
            if queue.delayed:
                heapify(queue.delayed)
                queue.delayed_armed = queue.delayed[0][0]
                self.arm(queue.delayed_armed, kinds.DUE, queue)
        for _, _, flow in sorted(self.ended_flows, key=lambda entry: entry[:2]):
            flow.tenant.ended_flows[flow.id] = None
            self.arm(flow.forget_at, kinds.FLOW, (flow, -1))
        if self.format == 1:
            self.count_bytes()
        deadlines = self.shard.deadlines
        heapify(deadlines.heap)
        deadlines.most = kinds.SWEEP_MIN + 2 * len(deadlines.heap)
        deadlines.earliest = deadlines.heap[0][0] if deadlines.heap else kinds.NEVER
        return self.shard

    def count_bytes(self) -> None:
        """Count the bytes of live jobs, which checkpoints of the first format do not contain."""
        for queue, live in self.shard.index.live_bytes().items():
            for scope in (*queue.scopes, queue.told):
                scope.counts[LIVE_BYTES] += live

    def arm(self, at: int, kind: int, holder: Any) -> None:
        deadlines = self.shard.deadlines
        deadlines.number += 1
        deadlines.heap.append((at, kind, deadlines.number, holder))

    def values(self, saved: s.Values) -> list[Any]:
        return [self.piles.popleft() for _ in range(saved)] if isinstance(saved, int) else saved

    # --- tenants and queues --------------------------------------------------------------------------

    def message(self, saved: s.SavedMessage) -> None:
        self.shard.outbox.setdefault(saved.to, {})[saved.number] = (saved.tenant, saved.message)

    def tenant(self, saved: s.SavedTenant) -> None:
        tenant = self.shard.tenant(saved.name)
        _fill(tenant.scope, saved.counters)
        self.tenants.append(tenant)

    def bad_ends(self, saved: s.SavedBadEnds) -> None:
        ended_badly = self.tenants[saved.tenant].ended_badly
        for start, stop in saved.ranges:
            ended_badly.add(start, stop)

    def queue(self, saved: s.SavedQueue) -> None:
        tenant = self.tenants[saved.tenant].name
        queue = self.shard.queue(tenant, saved.name)
        self.queues.append(queue)
        queue.known, queue.paused, queue.concurrency = saved.known, saved.paused, saved.concurrency
        if saved.rate_limit is not None:
            queue.bucket = TokenBucket(saved.rate_limit, saved.units, saved.filled_at)
        queue.is_free = not saved.paused and saved.rate_limit is None and not saved.concurrency
        queue.group_on_retry, queue.dead_policy = saved.group_on_retry, saved.dead_letters
        queue.durability = saved.durability
        if saved.durability is not None:
            self.shard.queue_levels[tenant, saved.name] = saved.durability
        _fill(queue.scope, saved.counters)
        _fill(queue.told, saved.counters)
        queue.retained.serial = saved.serial
        if saved.wait:
            queue.wait, queue.run = saved.wait, saved.run

    def bulk(self, saved: s.SavedBulk) -> None:
        tenant = self.tenants[saved.tenant]
        bulk = tenant.bulks[saved.made.key] = BulkRun(tenant, saved.made)
        for field in ("cursor", "looked", "changed", "refused", "state", "next_at", "ended_at"):
            setattr(bulk, field, getattr(saved, field))
        if bulk.next_at:
            self.arm(bulk.next_at, kinds.BULK, bulk)

    # --- workflows -------------------------------------------------------------------------------------

    def flow(self, saved: s.SavedFlow) -> None:
        tenant, shard = self.tenants[saved.tenant], self.shard
        flow = tenant.flows[saved.made.id] = ShardWorkflow(tenant, saved.made, saved.at, shard.number)
        for step, kept in zip(flow.steps, saved.steps, strict=True):
            for field in s.SavedStep.__struct_fields__:
                setattr(step, field, getattr(kept, field))
        flow.index(shard.number)
        flow.cancelled, flow.round, flow.open = saved.cancelled, saved.round, saved.open
        flow.finished_at, flow.forget_at = saved.finished_at, saved.forget_at
        flow.kept.readers = dict(saved.readers)
        if saved.ended:
            self.ended_flows.append((saved.tenant, saved.ended, flow))

    def kept(self, saved: s.SavedKept) -> None:
        tenant = self.tenants[saved.tenant]
        tenant.flows[saved.workflow].kept.add(saved.step, saved.job, saved.kept)
        tenant.keeping[saved.workflow] = None
        tenant.kept_bytes += saved.kept.size
        self.shard.index.bytes += saved.kept.in_memory

    def early(self, saved: s.SavedEarly) -> None:
        self.shard.early.setdefault(saved.workflow, []).append(saved.message)

    def watch(self, saved: s.SavedWatch) -> None:
        self.shard.watchers[saved.job] = saved.tenant
        self.shard.dependents.setdefault(saved.job, {}).update(dict.fromkeys(saved.waiting))

    # --- jobs ----------------------------------------------------------------------------------------

    def pile(self, saved: s.SavedPile) -> None:
        self.piles.extend(saved.values)

    def job(self, saved: s.SavedJob) -> None:
        """Jobs and batches arrive in the order of their lowest ids, so each goes to the end of its line."""
        shard, queue, options, state = self.shard, self.queues[saved.queue], self.options[saved.options], saved.state
        detail = self.detail(saved.detail) if saved.detail is not None else None
        pushed_at = self.same(saved.pushed_at, saved.pushed_at)
        job = SingleJob(saved.id, queue, options, saved.payload, pushed_at, state, detail)
        shard.index.add(job)
        if saved.holds_group:
            hold_group(queue, job)
        if state == WAITING:
            if options.group_id is None:
                queue.ready.add(job)
            else:
                join_lane(queue, job)
        elif detail is not None:
            self.place(job, detail)
        if options.ttl_ms and state < ACTIVE and (detail is None or not (detail.attempts or detail.revived)):
            self.arm(saved.ttl_ends_at or pushed_at + options.ttl_ms, kinds.TTL, job)

    def place(self, job: SingleJob, detail: Detail) -> None:
        """Put a job that is not waiting into its place, and arm its deadlines."""
        if job.state == ACTIVE:
            self.arm(detail.fires_at, kinds.LEASE, job)
        elif job.state == DELAYED:
            job.queue.delayed.append((detail.due, self.shard.number_next(), job))
        elif job.state == BLOCKED:
            for other in detail.blockers or ():
                self.shard.dependents.setdefault(other, {})[job.id] = None
        elif job.state == FAILED:
            self.arm(detail.expires_at, kinds.DEAD_AGE, job)
            if detail.next_retry_at:
                self.arm(detail.next_retry_at, kinds.DEAD_RETRY, job)

    def detail(self, saved: s.SavedDetail) -> Detail:
        same = self.same
        detail = Detail(**{name: getattr(saved, name) for name in Detail.__struct_fields__})
        if saved.started_at:
            detail.worker = same(saved.worker, saved.worker)
            detail.started_at = same(saved.started_at, saved.started_at)
            detail.lease_ms = same(saved.lease_ms, saved.lease_ms)
            detail.lease_until = same(saved.lease_until, saved.lease_until)
            detail.fires_at = same(saved.fires_at, saved.fires_at)
        if saved.ended_at:
            detail.ended_at = same(saved.ended_at, saved.ended_at)
        if saved.error:
            detail.error = same(saved.error, saved.error)
        if saved.error_class:
            detail.error_class = same(saved.error_class, saved.error_class)
        if saved.history is not None:
            classes = saved.history_classes or repeat("", len(saved.history))
            detail.history = [
                Attempt(*attempt, same(name, name)) for attempt, name in zip(saved.history, classes, strict=True)
            ]
        if saved.logs is not None:
            most, lines = saved.logs
            detail.logs = deque((LogLine(*line) for line in lines), most)
        if saved.partials is not None:
            most, indexes, data = saved.partials
            codecs: Iterable[Codec] = saved.partial_codecs or repeat("bytes", len(indexes))
            detail.partials = deque(map(Chunk, indexes, self.values(data), codecs), most)
        return detail

    def batch(self, saved: s.SavedBatch) -> None:
        queue, options, stored, sizes = self.queues[saved.queue], self.options[saved.options], saved.stored, saved.sizes
        payloads = self.values(saved.payloads)
        if sizes is None:
            assert stored is not None
            sizes = stored.sizes
        batch = UniformBatch(
            saved.first,
            saved.step,
            saved.count,
            queue,
            options,
            payloads if stored is None else stored,
            sizes,
            self.same(saved.pushed_at, saved.pushed_at),
            _span(saved.start, saved.stop, saved.waiting, saved.holes),
            BatchPieces(),
            BatchPieces(),
            saved.due,
            saved.left,
            saved.ready_at,
        )
        index = self.shard.index
        index.add_batch(batch)
        if stored is None and batch.left < batch.count:  # payloads that have left the batch were counted, too
            each = [sizes] * batch.count if isinstance(sizes, int) else sizes
            index.bytes -= sum(size for size, payload in zip(each, payloads, strict=True) if payload is None)
        if batch.waiting.left:
            if batch.pending == DELAYED:
                queue.delayed.append((batch.due, self.shard.number_next(), batch))
            elif batch.pending == WAITING:
                queue.ready.add(batch)
            if options.ttl_ms:
                self.arm(batch.pushed_at + options.ttl_ms, kinds.TTL, batch)
        for piece in saved.slices:
            self.slice(batch, piece)
        for run in saved.ended:
            self.run(batch, run)

    def slice(self, batch: UniformBatch, saved: s.SavedSlice) -> None:
        piece = Slice(
            batch,
            saved.origin,
            _span(saved.start, saved.stop, saved.left, saved.holes),
            saved.token,
            self.same(saved.worker, saved.worker),
            saved.claim,
            saved.started_at,
            saved.lease_ms,
            saved.lease_until,
            saved.fires_at,
            saved.heard_at,
        )
        batch.slices.add(piece)
        self.arm(piece.fires_at, kinds.LEASE, piece)

    def run(self, batch: UniformBatch, saved: s.SavedRun) -> None:
        run = EndedRun(
            batch,
            saved.origin,
            saved.start,
            saved.stop,
            saved.state,
            saved.ended_at,
            saved.serial,
            saved.started_at,
            self.same(saved.worker, saved.worker),
            saved.reason,
            self.values(saved.results) if saved.results is not None else None,
            saved.codec,
        )
        batch.ended.add(run)
        self.shard.index.bytes += bytes_of_results(run.results)

    def line(self, saved: s.SavedLine) -> None:
        index, queue = self.shard.index, self.queues[saved.queue]
        for job_id in saved.ids:
            ended: SingleJob | EndedRun | None = index.get(job_id)
            if ended is None:
                found = index.find_batch(job_id)
                ended = found[0].ended.find(found[1]) if found is not None else None
            assert ended is not None, f"job {job_id} must be there"
            if saved.policy is not None:
                queue.retained.add(ended, 0, saved.policy)  # 0, because the queue's serial number counts it already
            else:
                assert type(ended) is SingleJob
                queue.dead[job_id] = ended
                queue.dead_groups.add(ended)

    # --- remembered for a time -----------------------------------------------------------------------

    def age(self, saved: s.SavedAge) -> None:
        queue = self.queues[saved.queue]
        queue.retained.armed[saved.policy] = saved.at
        self.arm(saved.at, kinds.AGE, (queue, saved.policy))

    def key(self, saved: s.SavedKey) -> None:
        queue, table = self.queues[saved.queue], s.KEY_TABLES[saved.table]
        getattr(queue, table)[saved.key] = KeyHolder(saved.job, saved.expires_at)
        if saved.expires_at:
            self.arm(saved.expires_at, kinds.KEY, (queue, table, saved.key))

    def request(self, saved: s.SavedRequest) -> None:
        queue = self.queues[saved.queue]
        runs, refused, duplicates = saved.runs, saved.refused, saved.duplicates
        tenant, name, expires_at = queue.tenant.name, queue.name, saved.expires_at
        request_remembered(
            self.shard, rec.RequestRemembered(0, tenant, name, saved.key, runs, refused, duplicates, expires_at)
        )

    def claim(self, saved: s.SavedClaim) -> None:
        tenant = self.tenants[saved.tenant]
        tenant.claims[saved.name] = NamedClaim(saved.token, saved.runs, saved.held, saved.expires_at)
        if not saved.held:
            self.arm(saved.expires_at, kinds.CLAIM, (tenant, saved.name))

    def part(self, saved: s.SavedPart) -> None:
        payloads: Any = saved.stored if saved.stored is not None else self.values(saved.payloads)
        record = rec.PartStaged(
            saved.at,
            self.tenants[saved.tenant].name,
            saved.transaction,
            saved.stage,
            saved.queue,
            payloads,
            saved.options,
            saved.each,
            saved.part,
            saved.expires_at,
            saved.stored.sizes if saved.stored is not None else sizes_of(payloads),
        )
        staged(self.shard, record)

    def outcome(self, saved: s.SavedOutcome) -> None:
        tenant, name = self.tenants[saved.tenant].name, saved.transaction
        published, created, runs, expires_at = saved.published, saved.created, saved.runs, saved.expires_at
        transaction_ended(self.shard, rec.TransactionEnded(0, tenant, name, published, created, runs, expires_at))

    def answer(self, saved: s.SavedAnswer) -> None:
        answers = self.shard.senders.setdefault((saved.tenant, saved.sender), Answers())
        answers.add(saved.number, reply_of(saved.runs, saved.refused, saved.duplicates))

    def kv(self, saved: s.SavedKv) -> None:
        tenant = self.tenants[saved.tenant]
        put(self.shard, tenant, saved.key, Entry(saved.value, saved.codec, saved.expires_at))
        if saved.expires_at:
            self.arm(saved.expires_at, kinds.KV, (tenant, saved.key))

    def schedule(self, saved: s.SavedSchedule) -> None:
        queue = self.queues[saved.queue]
        planned = Planned(saved.name, queue, saved.schedule, saved.created_at, saved.changed_at, saved.anchor)
        planned.paused, planned.runs, planned.jobs = saved.paused, saved.runs, saved.jobs
        planned.next_slot, planned.done_to, planned.made_up_to = saved.next_slot, saved.done_to, saved.made_up_to
        planned.last = deque(saved.last, LAST_RUNS) if saved.last else None
        keep(self.shard, planned)
        planned.due = due_of(self.shard, planned, self.shard.now)
        if planned.due:
            self.arm(planned.due, kinds.SCHEDULE, planned)


READ: dict[type[s.Saved], Callable[[_Loading, Any], None]] = {
    s.SavedMessage: _Loading.message,
    s.SavedTenant: _Loading.tenant,
    s.SavedBadEnds: _Loading.bad_ends,
    s.SavedQueue: _Loading.queue,
    s.SavedPile: _Loading.pile,
    s.SavedJob: _Loading.job,
    s.SavedBatch: _Loading.batch,
    s.SavedLine: _Loading.line,
    s.SavedAge: _Loading.age,
    s.SavedKey: _Loading.key,
    s.SavedRequest: _Loading.request,
    s.SavedClaim: _Loading.claim,
    s.SavedPart: _Loading.part,
    s.SavedOutcome: _Loading.outcome,
    s.SavedAnswer: _Loading.answer,
    s.SavedKv: _Loading.kv,
    s.SavedFlow: _Loading.flow,
    s.SavedKept: _Loading.kept,
    s.SavedEarly: _Loading.early,
    s.SavedWatch: _Loading.watch,
    s.SavedSchedule: _Loading.schedule,
    s.SavedBulk: _Loading.bulk,
    s.SavedEnd: _Loading.end,
}
"""How each kind of entry is loaded."""


def hold_group(queue: QueueState, job: SingleJob) -> None:
    assert job.options.group_id is not None
    group = queue.groups.setdefault(job.options.group_id, JobGroup())
    group.holder = job
    offer(queue, group)


def _fill(scope: Scope, saved: s.Counters) -> None:
    counts, scope.totals[:], scope.recent[:], scope.recent_second = saved
    scope.counts[: len(counts)] = counts


def _span(start: int, stop: int, left: int, holes: list[int]) -> PositionSpan:
    return PositionSpan(start, stop, left, set(holes) if holes else None)
