"""Save the whole state of a shard as chunks of bytes, for checkpoints. `checkpoint_loading.py` reads them.

Everything that decides how the shard behaves is saved, and nothing else: no stale entries, no deadlines that follow
from other state, no waiting commands. Jobs are in id order, and what is remembered for a time is in the order in which
it will be forgotten. So a loaded shard not only knows the same, it also acts in the same order.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import asdict, astuple

from stoker.engine import checkpoint_format as s
from stoker.engine import deadlines as kinds
from stoker.engine.checkpoint_loading import load
from stoker.engine.jobs import EndedRun, SingleJob, Slice, UniformBatch
from stoker.engine.old_keys import fields_of
from stoker.engine.retained_jobs import EndedEntry, is_gone
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState, Scope, Tenant
from stoker.engine.timers import is_armed
from stoker.model.ids import shard_of
from stoker.model.options import Options
from stoker.records import records as rec
from stoker.records.stored import Stored, StoredRun

__all__ = ["load", "references", "save"]

Entries = Iterator[s.Entry]


def save(shard: ShardState, sequence: int) -> Iterator[bytes]:
    """The shard in chunks of bounded size, with the position in the journal that it has reached.

    The shard must not change until the last chunk was taken.
    """
    assert not (shard.settling or shard.moved_steps or shard.dirty), (
        "a shard cannot be saved in the middle of a decision"
    )
    shard.add_up()
    return _Saving(shard, sequence).chunks()


def references(shard: ShardState) -> Iterator[int]:
    """The records of the journal whose payloads or results may still be read. A record may appear several times."""
    for job in shard.index.jobs():
        if type(job.payload) is Stored:
            yield job.payload.sequence
        if job.detail is not None:
            yield from _records_of((job.detail.result,))
            yield from _records_of([chunk.data for chunk in job.detail.partials or ()])
    for batch in shard.index.batches():
        yield from _records_of(batch.payloads)
        for run in batch.ended:
            yield from _records_of(run.results or ())
    for tenant in shard.tenants.values():
        for workflow in tenant.keeping:
            for results in tenant.flows[workflow].kept.results.values():
                yield from _records_of([kept.result for kept in results.values()])
        for transaction in tenant.transactions.values():
            for stage in transaction.stages.values():
                for part in stage.parts:
                    yield from _records_of(part.record.payloads)


def _records_of(payloads: Iterable[bytes | Stored | None] | StoredRun) -> Iterator[int]:
    if type(payloads) is StoredRun:
        yield payloads.sequence
    else:
        yield from (payload.sequence for payload in payloads if type(payload) is Stored)


class _Saving:
    """One pass over a shard."""

    def __init__(self, shard: ShardState, position: int) -> None:
        self.shard = shard
        self.position = position
        self.tenants: dict[Tenant, int] = {}
        self.queues: dict[QueueState, int] = {}
        # the chunk that is being filled
        self.options: list[Raw] = []
        self.places: dict[int, int] = {}
        """The indexes of these options, by their `id()`. Their jobs keep the objects alive, so the ids stay valid."""
        self.size = 0
        self.room = 0
        """How many bytes the current entry may still take."""

    def chunks(self) -> Iterator[bytes]:
        number = 0
        entries: list[Raw] = []
        for entry in self.entries():
            data = s.encode(entry)
            entries.append(Raw(data))
            self.size += len(data)
            if (
                self.size >= s.CHUNK_BYTES
                or len(entries) == s.CHUNK_ENTRIES
                or type(entry) in (s.SavedShard, s.SavedEnd)
            ):
                yield s.encode((number, self.options, entries))
                number, entries = number + 1, []
                self.options, self.places, self.size = [], {}, 0

    def entries(self) -> Entries:
        """Each entry is made only when it is needed, since it refers to options by their index in the chunk."""
        parts = (self.heads, self.flows, self.jobs, self.lines, self.ages, self.keys, self.claims, self.transactions)
        for part in (*parts, self.kv, self.answers, self.schedules, self.bulks):
            yield from part()
        yield s.SavedEnd()

    def place_of(self, options: Options) -> int:
        place = self.places.get(id(options))
        if place is None:
            place = self.places[id(options)] = len(self.options)
            data = s.encode(options)
            self.options.append(Raw(data))
            self.size += len(data)
        return place

    # --- the shard, its tenants and queues -----------------------------------------------------------

    def heads(self) -> Entries:
        shard = self.shard
        yield s.SavedShard(
            s.FORMAT,
            shard.number,
            self.position,
            shard.sequence,
            shard.token,
            shard.now,
            shard.epoch,
            shard.settings,
            shard.limits,
            _counters(shard.scope),
            shard.sent,
            shard.taken,
            shard.never_given.ranges(),
        )
        for to, waiting in shard.outbox.items():
            for number, (tenant, message) in waiting.items():
                yield s.SavedMessage(to, number, tenant, message)
        for owner in shard.tenants.values():
            queues = [queue for queue in owner.queues.values() if queue.known or queue.requests]
            if not queues and not owner.is_used:
                continue  # only waiting pulls have named it
            place = self.tenants[owner] = len(self.tenants)
            yield s.SavedTenant(owner.name, _counters(owner.scope))
            for ranges in _cut(owner.ended_badly.ranges()):
                yield s.SavedBadEnds(place, ranges)
            for queue in queues:
                self.queues[queue] = len(self.queues)
                yield self.queue(place, queue)

    def queue(self, place: int, queue: QueueState) -> s.SavedQueue:
        bucket = queue.bucket
        return s.SavedQueue(
            place,
            queue.name,
            queue.known,
            queue.paused,
            bucket.limit if bucket else None,
            bucket.units if bucket else 0,
            bucket.filled_at if bucket else 0,
            queue.concurrency,
            queue.group_on_retry,
            queue.dead_policy,
            queue.durability,
            _counters(queue.scope),
            queue.retained.serial,
            list(queue.wait),
            list(queue.run),
        )

    # --- workflows -------------------------------------------------------------------------------------

    def flows(self) -> Entries:
        for tenant, place in self.tenants.items():
            ended = {workflow: number for number, workflow in enumerate(tenant.ended_flows, 1)}
            for workflow, flow in sorted(tenant.flows.items()):
                made = rec.WorkflowMade(workflow, flow.name, [step.made for step in flow.steps])
                yield s.SavedFlow(
                    place,
                    flow.at,
                    made,
                    [s.SavedStep(*astuple(step)[3:]) for step in flow.steps],
                    flow.cancelled,
                    flow.round,
                    flow.finished_at,
                    flow.forget_at,
                    flow.open,
                    ended.get(workflow, 0),
                    flow.kept.readers,
                )
            yield from self.kept(tenant, place)
        yield from self.said()

    def kept(self, tenant: Tenant, place: int) -> Entries:
        for workflow in tenant.keeping:
            for step, results in tenant.flows[workflow].kept.results.items():
                yield from (s.SavedKept(place, workflow, step, job, kept) for job, kept in results.items())

    def said(self) -> Entries:
        """Messages between shards about workflows and edges."""
        for workflow, said in self.shard.early.items():
            yield from (s.SavedEarly(workflow, message) for message in said)
        for job_id, name in self.shard.watchers.items():
            waiting = [one for one in self.shard.dependents.get(job_id, ()) if shard_of(one) != self.shard.number]
            yield s.SavedWatch(name, job_id, waiting)

    # --- jobs ----------------------------------------------------------------------------------------

    def jobs(self) -> Entries:
        late = {
            job.id: at
            for at, kind, _, job in self.shard.deadlines.heap
            if kind == kinds.TTL and type(job) is SingleJob and at > job.pushed_at + job.options.ttl_ms
        }
        for entry in self.by_lowest_id():
            self.room = s.PILE_BYTES
            if type(entry) is SingleJob:
                yield from self.job(entry, late.get(entry.id, 0))
            else:
                assert type(entry) is UniformBatch
                yield from self.batch(entry)

    def by_lowest_id(self) -> Iterator[SingleJob | UniformBatch]:
        batches = self.shard.index.batches()
        batch = next(batches, None)
        lowest = batch.lowest if batch is not None else 0
        for job in self.shard.index.jobs():
            while batch is not None and lowest < job.id:
                yield batch
                batch = next(batches, None)
                lowest = batch.lowest if batch is not None else 0
            yield job
        if batch is not None:
            yield batch
            yield from batches

    def job(self, job: SingleJob, ttl_ends_at: int) -> Entries:
        queue, detail, saved = job.queue, job.detail, None
        if detail is not None:
            saved = s.SavedDetail(**asdict(detail))
            if detail.history is not None:
                saved.history = [astuple(attempt)[: s.HISTORY_FIELDS] for attempt in detail.history]
                classes = [attempt.error_class for attempt in detail.history]
                saved.history_classes = classes if any(classes) else None
            if detail.logs is not None:
                assert detail.logs.maxlen is not None
                saved.logs = (detail.logs.maxlen, [astuple(line) for line in detail.logs])
            if detail.partials is not None:
                assert detail.partials.maxlen is not None
                data = yield from self.apart([chunk.data for chunk in detail.partials])
                saved.partials = (detail.partials.maxlen, [chunk.index for chunk in detail.partials], data)
                codecs = [chunk.codec for chunk in detail.partials]
                saved.partial_codecs = codecs if set(codecs) != {"bytes"} else None
        group = queue.groups.get(job.options.group_id) if job.options.group_id is not None else None
        yield s.SavedJob(
            job.id,
            self.queues[queue],
            self.place_of(job.options),
            job.payload,
            job.pushed_at,
            job.state,
            saved,
            group is not None and group.holder is job,
            ttl_ends_at,
        )

    def batch(self, batch: UniformBatch) -> Entries:
        stored = batch.payloads if type(batch.payloads) is StoredRun else None
        payloads = yield from self.apart(batch.payloads if type(batch.payloads) is list else [])
        ended = []
        for run in batch.ended:
            results = (yield from self.apart(run.results)) if run.results is not None else None
            ended.append(_run(run, results))
        yield s.SavedBatch(
            batch.first,
            batch.step,
            batch.count,
            self.queues[batch.queue],
            self.place_of(batch.options),
            payloads,
            stored,
            None if stored is not None and stored.sizes == batch.sizes else batch.sizes,
            batch.pushed_at,
            batch.waiting.start,
            batch.waiting.stop,
            batch.waiting.left,
            sorted(batch.waiting.holes or ()),
            [_slice(piece) for piece in batch.slices],
            ended,
            batch.due,
            batch.left,
            batch.ready_at,
        )

    def apart(self, values: Sequence[Any]) -> Generator[s.Entry, None, s.Values]:
        """The values for the current entry. If they are too large, they go into piles before it."""
        size = sum(map(_size, values))
        if size <= self.room:
            self.room -= size
            return list(values)
        pile: list[Any] = []
        size = 0
        for value in values:
            pile.append(value)
            size += _size(value)
            if size >= s.PILE_BYTES:
                yield s.SavedPile(pile)
                pile, size = [], 0
        yield s.SavedPile(pile)
        return len(values)

    def lines(self) -> Entries:
        for queue, place in self.queues.items():
            for policy, lane in queue.retained.lanes.items():
                for ids in _cut([_first_id(ended) for ended in lane if not is_gone(ended)]):
                    yield s.SavedLine(place, policy, ids)
            for ids in _cut(list(queue.dead)):
                yield s.SavedLine(place, None, ids)

    # --- remembered for a time -----------------------------------------------------------------------

    def armed(self, kind: int, expected: int) -> Iterator[tuple[int, Any]]:
        """What will fire, and when, in that order and each once. Asserts that there are `expected` of them."""
        at = 0
        seen: set[Any] = set()
        heap = self.shard.deadlines.heap
        for entry in sorted(entry for entry in heap if entry[1] == kind and is_armed(entry[0], kind, entry[3])):
            if entry[0] != at:
                at, seen = entry[0], set()
            if entry[3] not in seen:
                seen.add(entry[3])
                expected -= 1
                yield at, entry[3]
        assert not expected, "something would never expire"

    def ages(self) -> Entries:
        for at, (queue, policy) in self.armed(kinds.AGE, sum(len(queue.retained.armed) for queue in self.queues)):
            yield s.SavedAge(self.queues[queue], policy, at)

    def keys(self) -> Entries:
        expiring = 0
        for queue, place in self.queues.items():
            expiring += len(queue.requests)
            for number, table in enumerate(s.KEY_TABLES):
                for name, held in getattr(queue, table).items():
                    if held.expires_at:
                        expiring += 1
                    else:
                        yield s.SavedKey(place, number, name, held.job, 0)
        for _, (queue, table, name) in self.armed(kinds.KEY, expiring):
            held, place = getattr(queue, table)[name], self.queues[queue]
            if table == "requests":
                yield s.SavedRequest(place, name, *fields_of(held.reply), held.expires_at)
            else:
                yield s.SavedKey(place, s.KEY_TABLES.index(table), name, held.job, held.expires_at)

    def claims(self) -> Entries:
        settled = 0
        for tenant in self.tenants:
            for name, claim in tenant.claims.items():
                if claim.held:
                    yield self.claim(tenant, name)
                else:
                    settled += 1
        for _, (tenant, name) in self.armed(kinds.CLAIM, settled):
            yield self.claim(tenant, name)

    def claim(self, tenant: Tenant, name: str) -> s.SavedClaim:
        claim = tenant.claims[name]
        return s.SavedClaim(self.tenants[tenant], name, claim.token, claim.runs, claim.held, claim.expires_at)

    def transactions(self) -> Entries:
        all_of_them = [found for tenant in self.tenants for found in tenant.transactions.values()]
        stages, over = sum(len(found.stages) for found in all_of_them), sum(1 for found in all_of_them if found.outcome)
        for _, (tenant, name, stage_name) in self.armed(kinds.STAGE, stages):
            for part in tenant.transactions[name].stages[stage_name].parts:
                yield from self.part(self.tenants[tenant], part.record)
        for _, (tenant, name) in self.armed(kinds.TRANSACTION, over):
            found = tenant.transactions[name]
            outcome = found.outcome
            published, runs = outcome.outcome == "published", list(outcome.runs)
            yield s.SavedOutcome(self.tenants[tenant], name, published, outcome.created, runs, found.expires_at)

    def answers(self) -> Entries:
        for (tenant, sender), answers in self.shard.senders.items():
            for number, reply in answers.items():
                yield s.SavedAnswer(tenant, sender, number, *fields_of(reply))

    def bulks(self) -> Entries:
        for tenant, place in self.tenants.items():
            for bulk in tenant.bulks.values():
                counts = (bulk.looked, bulk.changed, bulk.refused)
                yield s.SavedBulk(place, bulk.made, bulk.cursor, *counts, bulk.state, bulk.next_at, bulk.ended_at)

    def schedules(self) -> Entries:
        """Ordered by name, because schedules that are due together are handled in that order."""
        for queue, place in self.queues.items():
            for name in sorted(queue.schedules):
                planned = queue.schedules[name]
                yield s.SavedSchedule(
                    place,
                    name,
                    planned.schedule,
                    planned.created_at,
                    planned.changed_at,
                    planned.anchor,
                    planned.paused,
                    planned.runs,
                    planned.next_slot,
                    planned.done_to,
                    planned.made_up_to,
                    planned.jobs,
                    list(planned.last or ()),
                )

    def kv(self) -> Entries:
        """Ordered by key, because entries that expire together are removed in that order."""
        for tenant, place in self.tenants.items():
            for key in tenant.kv.keys_from(""):
                entry = tenant.kv[key]
                yield s.SavedKv(place, key, entry.value, entry.codec, entry.expires_at)

    def part(self, tenant: int, part: rec.PartStaged) -> Entries:
        self.room = s.PILE_BYTES
        found: Any = part.payloads
        stored = found if type(found) is StoredRun else None
        payloads = yield from self.apart(found if stored is None else ())
        yield s.SavedPart(
            part.at,
            tenant,
            part.transaction,
            part.stage,
            part.queue,
            payloads,
            stored,
            part.options,
            part.each,
            part.part,
            part.expires_at,
        )


def _counters(scope: Scope) -> s.Counters:
    return scope.counts, scope.totals, scope.recent, scope.recent_second


def _slice(piece: Slice) -> s.SavedSlice:
    span = piece.span
    return s.SavedSlice(
        piece.origin,
        span.start,
        span.stop,
        span.left,
        sorted(span.holes or ()),
        piece.token,
        piece.worker,
        piece.claim,
        piece.started_at,
        piece.lease_ms,
        piece.lease_until,
        piece.fires_at,
        piece.heard_at,
    )


def _run(run: EndedRun, results: s.Values | None) -> s.SavedRun:
    return s.SavedRun(
        run.origin,
        run.start,
        run.stop,
        run.state,
        run.ended_at,
        run.serial,
        run.started_at,
        run.worker,
        run.reason,
        results,
        run.codec,
    )


def _first_id(ended: EndedEntry) -> int:
    return ended.batch.id_at(ended.start) if type(ended) is EndedRun else ended.lowest


def _size(value: bytes | Stored | None) -> int:
    return len(value) if type(value) is bytes else 16


def _cut(values: list[Any]) -> Iterator[list[Any]]:
    """Pieces of a list that fit into one entry."""
    return (values[start : start + s.IDS_MAX] for start in range(0, len(values), s.IDS_MAX))
