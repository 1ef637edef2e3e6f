"""Find the jobs that a filter is about, in steps of bounded work: pages, counts, and the steps of bulk operations.

A step walks the jobs of a shard in id order, from where the last one ended, until it has what it wants or its work is
used up. A unit of work is about a microsecond: a job that is passed over costs one, looking into its payload more. A
state with few jobs is not searched for: its jobs are taken from where the queue has them.
"""

from collections.abc import Iterator
from typing import Any

from stoker.engine import checks
from stoker.engine import deadlines as kinds
from stoker.engine.control import parts_in
from stoker.engine.jobs import ACTIVE, BLOCKED, FAILED, EndedRun, Members, Part, SingleJob, Slice, UniformBatch
from stoker.engine.queries import bytes_of, view
from stoker.engine.retained_jobs import is_gone
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.filters import COUNTED, JobFilter, filter_of, narrows_by
from stoker.model.fingerprints import FINGERPRINT_CHARS, fingerprint_of
from stoker.model.limits import INT_MAX, Limits
from stoker.model.states import STATES
from stoker.records.stored import NotAtHand, Stored

WORK_MAX = 2_000
"""The work of one step in a process: two milliseconds of the loop."""
WORK_MIN = 100
"""The least that a shard may do in a step that concerns all of them."""
RARE_MAX = 2_000
"""So many jobs of a state are taken from their places and sorted, which costs less than a step."""
ARMED_MAX = 20_000
"""Deadlines among which the active jobs are looked for."""
VIEW_WORK = 5
FINGERPRINT_WORK = 8
STORED_WORK = 50
"""Reading a record from the journal."""
MISSED_MAX = 40
"""Records that are read for one step."""
STORED_JOBS, TEXT_BYTES = 20, 4_096
"""So many payloads of a record that was read, or so many bytes that were searched, cost one more."""

SEEN_ONLY_IN_VIEW = frozenset(
    ("worker", "attempts_from", "ended_from", "ended_before", "reason", "fingerprint", "text")
)


def check(wanted: JobFilter, limits: Limits) -> None:
    """Refuse a filter that makes no sense, and name its bad field."""
    if wanted.queue is not None:
        checks.name(wanted.queue)
    if wanted.state is not None and wanted.state not in STATES:
        raise errors.InvalidRequest(f"unknown state {checks.short(wanted.state)}: expected one of {', '.join(STATES)}")
    if wanted.priority is not None:
        checks.number(wanted.priority, "priority", -INT_MAX, INT_MAX)
    if wanted.attempts_from is not None:
        checks.number(wanted.attempts_from, "attempts_from", 0, INT_MAX)
    if wanted.text is not None:
        checks.key(wanted.text, "text", limits)
    if wanted.fingerprint is not None:
        checks.text(wanted.fingerprint, "fingerprint", FINGERPRINT_CHARS, 1)


class JobSearch:
    """One step of a search in a shard. Iterating gives the jobs that match, each as a part of one job."""

    def __init__(
        self,
        shard: ShardState,
        tenant: str,
        wanted: JobFilter,
        after: int | None = None,
        *,
        ascending: bool = False,
        work: int | None = None,
    ) -> None:
        self._shard, self._tenant, self._wanted = shard, tenant, wanted
        self._after, self._ascending = after, ascending
        self._state = None if wanted.state is None else STATES.index(wanted.state)
        self._needs_view = bool(SEEN_ONLY_IN_VIEW & narrows_by(wanted))
        self._text = None if wanted.text is None else wanted.text.encode()
        self._read: tuple[int, Any] = (0, ())
        shared = max(WORK_MIN, WORK_MAX // shard.neighbours)
        self.work = work or (WORK_MAX if wanted.queue is not None else shared)
        """What is left of it."""
        self.missed: dict[int, None] = {}
        """The records whose payloads have to be read before this step can begin, in the order of their jobs."""
        self.looked = 0
        """Jobs of the tenant that were looked at; how many others have stays theirs."""
        self.last = after
        """The last job that was looked at."""
        self.is_over = False
        """Whether there is nothing more to look at."""

    def __iter__(self) -> Iterator[Part]:
        """A step ends before a job whose payload has to be read first. If that is its first job, it looks with what is
        left of its work which payloads come next, and raises `NotAtHand` with all of them.
        """
        rare = self._rare()
        entries = self._walked() if rare is None else iter(rare)
        for job_id, part in entries:
            if self.work <= 0 or len(self.missed) >= MISSED_MAX:
                break
            self.work -= 1
            is_found = False
            if part is not None and part.queue.tenant.name == self._tenant:
                try:
                    is_found = self._matches(part)
                except NotAtHand as missed:
                    if self.last != self._after:
                        return
                    self.missed |= dict.fromkeys(missed.args[1])
                if self.missed:
                    continue
                self.looked += 1
            if not self.missed:
                self.last = job_id
            if is_found:
                assert part is not None
                yield part
        else:
            self.is_over = not self.missed
        if self.missed:
            raise NotAtHand(self._shard.number, tuple(self.missed))

    # --- where to look -------------------------------------------------------------------------------

    def _walked(self) -> Iterator[tuple[int, Part | None]]:
        """All jobs of the shard, and None for a batch that is passed over as a whole."""
        member = self._shard.member
        for job_id, entry in self._shard.index.look(self._after, self._ascending, self._may_have):
            yield job_id, None if entry is None else member(entry)

    def _may_have(self, batch: UniformBatch) -> bool:
        """Whether a batch may have a job that matches."""
        if not self._is_meant(batch):
            return False
        state = self._state
        if state is None:
            return True
        if state < ACTIVE:
            return batch.pending == state and batch.waiting.left > 0
        if state == ACTIVE:
            return bool(batch.slices)
        return any(run.state == state for run in batch.ended)

    def _rare(self) -> list[tuple[int, Part]] | None:
        """The jobs of the state in order, if they are few enough to be taken from their places."""
        owner = self._shard.tenants.get(self._tenant)
        queue = self._wanted.queue
        if owner is None or (queue is not None and queue not in owner.queues):
            return []
        state = self._state
        if state is None or state == BLOCKED:
            return None
        self._shard.add_up()
        counts = owner.scope.counts if queue is None else owner.queues[queue].counts
        if counts[state] > RARE_MAX:
            return None
        queues = list(owner.queues.values()) if queue is None else [owner.queues[queue]]
        self.work -= len(queues) // 10
        parts = self._taken(queues, state)
        if parts is None:
            return None
        after, sign = self._after, 1 if self._ascending else -1
        found = [(one.lowest, one) for part in parts for one in each(part)]
        found = [entry for entry in found if after is None or entry[0] * sign > after * sign]
        self.work -= len(parts) // 4
        return sorted(found, key=lambda entry: entry[0] * sign)

    def _taken(self, queues: list[QueueState], state: int) -> list[Part] | None:
        if state < ACTIVE:
            return [part for queue in queues if queue.counts[state] for part in parts_in(self._shard, queue, (state,))]
        if state == ACTIVE:
            return self._leased(queues)
        if state == FAILED:
            return [job for queue in queues for job in queue.dead.values()]
        return [part for queue in queues if queue.counts[state] for part in retained(queue, state)]

    def _leased(self, queues: list[QueueState]) -> list[Part] | None:
        """The active jobs, by the deadlines of their leases."""
        heap = self._shard.deadlines.heap
        if len(heap) > ARMED_MAX:
            return None
        self.work -= len(heap) // 20
        holders = {id(holder): holder for _, kind, _, holder in heap if kind == kinds.LEASE}
        meant, found = set(queues), list[Part]()
        for holder in holders.values():
            if type(holder) is SingleJob:
                if holder.state == ACTIVE and holder.queue in meant:
                    found.append(holder)
            elif type(holder) is Slice and holder.batch.queue in meant:
                found += [Members(holder.batch, start, stop) for start, stop in holder.span.runs()]
        return found

    # --- what matches --------------------------------------------------------------------------------

    def _matches(self, part: Part) -> bool:
        owner = part if type(part) is SingleJob else part.batch
        if not self._is_meant(owner) or (self._state is not None and self._shard.state_of(part) != self._state):
            return False
        return not self._needs_view or self._view_matches(part)

    def _is_meant(self, owner: SingleJob | UniformBatch) -> bool:
        """What the jobs of a batch have in common."""
        wanted, options, queue = self._wanted, owner.options, owner.queue
        return (
            queue.tenant.name == self._tenant
            and wanted.queue in (None, queue.name)
            and (wanted.tag is None or wanted.tag in options.tags)
            and wanted.group_id in (None, options.group_id)
            and wanted.name in (None, options.name)
            and wanted.workflow in (None, options.workflow)
            and wanted.parent_id in (None, options.parent_id)
            and wanted.priority in (None, options.priority)
            and (wanted.pushed_from is None or owner.pushed_at >= wanted.pushed_from)
            and (wanted.pushed_before is None or owner.pushed_at < wanted.pushed_before)
        )

    def _view_matches(self, part: Part) -> bool:
        self.work -= VIEW_WORK
        wanted, job = self._wanted, view(self._shard, part, 0)
        ended_at = job.finished_at
        if (
            wanted.worker not in (None, job.worker)
            or wanted.reason not in (None, job.reason)
            or (wanted.attempts_from is not None and job.attempts < wanted.attempts_from)
            or (wanted.ended_from is not None and not (ended_at and ended_at >= wanted.ended_from))
            or (wanted.ended_before is not None and not (ended_at and ended_at < wanted.ended_before))
        ):
            return False
        if wanted.fingerprint is not None:
            self.work -= FINGERPRINT_WORK
            if fingerprint_of(job.error_class, job.error) != wanted.fingerprint:
                return False
        return self._text is None or self._has_text(job)

    def _has_text(self, job: r.JobView) -> bool:
        text, wanted = self._text, self._wanted.text
        assert text is not None and wanted is not None
        if wanted in job.cause:
            return True
        return any(text in self._bytes_of(value) for value in (job.payload, job.result) if value is not None)

    def _bytes_of(self, value: Any) -> bytes:
        """A payload or a result, read from the journal if it is there. What is damaged matches nothing."""
        if type(value) is Stored:
            if self._read[0] != value.sequence:
                if value.sequence in self.missed:
                    raise NotAtHand(self._shard.number, ())
                self.work -= STORED_WORK
                assert self._shard.stored_payloads is not None
                try:
                    self._read = (value.sequence, self._shard.stored_payloads(value.sequence))
                except errors.Unavailable:
                    raise
                except errors.StokerError:
                    self._read = (value.sequence, ())
                self.work -= len(self._read[1]) // STORED_JOBS
            payloads = self._read[1]
            value = payloads[value.place] if value.place < len(payloads) else b""
        self.work -= len(value) // TEXT_BYTES
        return value  # type: ignore[no-any-return]


def each(part: Part) -> Iterator[Part]:
    """The jobs of a part, one by one."""
    if type(part) is SingleJob:
        yield part
    elif type(part) is Members:
        yield from (Members(part.batch, place, place + 1) for place in range(part.start, part.stop))


def retained(queue: QueueState, state: int) -> Iterator[Part]:
    """The ended jobs of a queue in this state that are no dead letters."""
    for lane in queue.retained.lanes.values():
        for ended in lane:
            if ended.state == state and not is_gone(ended):
                yield Members(ended.batch, ended.start, ended.stop) if type(ended) is EndedRun else ended


# --- commands ----------------------------------------------------------------------------------------


def browse(shard: ShardState, tenant: str, command: c.Browse, now: int) -> r.Page:
    checks.count(command.limit, "limit", shard.limits.browse_jobs_max)
    wanted = filter_of(command)
    check(wanted, shard.limits)
    search = JobSearch(shard, tenant, wanted, command.after, ascending=command.ascending)
    found: list[r.JobView] = []
    room = shard.limits.reply_bytes_max
    for part in search:
        if len(found) == command.limit or room <= 0:
            return r.Page(found, found[-1].id, search.looked)
        found.append(view(shard, part, now))
        room -= bytes_of(found[-1])
    return r.Page(found, None if search.is_over else search.last, search.looked)


def count_jobs(shard: ShardState, tenant: str, command: c.CountJobs, now: int) -> r.Counted:
    """Count the jobs of this shard that match, in id order, from where the last step ended."""
    wanted = filter_of(command)
    check(wanted, shard.limits)
    exact = counted(shard, tenant, wanted) if command.after is None else None
    if exact is not None:
        return r.Counted(exact)
    search = JobSearch(shard, tenant, wanted, command.after, ascending=True, work=WORK_MAX)
    count = sum(1 for _ in search)
    return r.Counted(count, search.looked, None if search.is_over else search.last)


def counted(shard: ShardState, tenant: str, wanted: JobFilter) -> int | None:
    """What the counters say; None if the filter is about more than they know."""
    if not narrows_by(wanted) <= COUNTED:
        return None
    owner = shard.tenants.get(tenant)
    if owner is None or (wanted.queue is not None and wanted.queue not in owner.queues):
        return 0
    if wanted.queue is None:
        shard.add_up()
    counts = owner.scope.counts if wanted.queue is None else owner.queues[wanted.queue].counts
    return sum(counts[: len(STATES)]) if wanted.state is None else counts[STATES.index(wanted.state)]
