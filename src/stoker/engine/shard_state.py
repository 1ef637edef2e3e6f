"""What a shard holds: tenants, queues, jobs, deadlines and waiting commands, and how they are found.

Decisions and appliers take it as an argument. It knows none of them: `shard.py` adds the way of a command through it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappush
from typing import Any

from stoker.engine import checks
from stoker.engine.calendars import Calendar, NoCalendar
from stoker.engine.deadlines import SWEEP_MIN, Deadlines
from stoker.engine.index import Index
from stoker.engine.jobs import ACTIVE, FAILED, Members, Part, SingleJob, UniformBatch
from stoker.engine.old_keys import OldKeys
from stoker.engine.parking import Parked
from stoker.engine.plain_options import is_plain, is_simple
from stoker.engine.range_set import RangeSet
from stoker.engine.ready import ReadyJobs
from stoker.engine.retained_jobs import EndedEntry, RetainedJobs
from stoker.engine.senders import Senders
from stoker.engine.slot_pacing import SlotBacklog, SlotPace
from stoker.engine.state import QueueState, Scope, StagedPart, Tenant
from stoker.engine.workflow_state import ShardWorkflow, StepState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import DEFAULT_OPTIONS, Options, Settings
from stoker.model.states import STATES
from stoker.records import records as rec

INTERNED_MAX = 1024
"""Options kept for sharing between jobs. When there are more, the table is cleared."""


class ShardState:
    """Some queues with everything that belongs to them."""

    def __init__(self, number: int = 0, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.number = number
        self.settings = settings or Settings()
        self.limits = limits
        self.level: r.Level = "memory"
        """The durability that the journal gives by default."""
        self.queue_levels: dict[tuple[str, str], r.Level] = {}
        """Levels of queues that ask for one of their own, by tenant and name."""
        self.default_retention: tuple[int, int] | None = None
        # the last numbers that were given out
        self.sequence = 0
        """The last sequence number of a job."""
        self.token = 0
        """The last token of a delivery."""
        self.epoch = 0
        """How often the journal has been opened."""
        self.never_given = RangeSet()
        """Sequence numbers left out after a crash, so that none is given out twice. A job that had one of them is lost.
        """
        self.neighbours = 1
        """How many shards this process has, this one included. Steps of bounded work share what a process may do."""
        self._numbers = 0
        # time
        self.now = 0
        self.ahead_ms = 0
        """How far the shard's time is ahead of the calendar, because the wall clock may have been set back."""
        self.deadlines = Deadlines()
        self.calendar: Calendar = NoCalendar()
        self.schedules = 0
        """The number of schedules of all tenants."""
        self.backlog = SlotBacklog()
        self.pace = SlotPace()
        # tenants and their jobs
        self.tenants: dict[str, Tenant] = {}
        self.index = Index()
        self.dependents: dict[int, dict[int, None]] = {}
        """The jobs that wait for a job to end, by its id."""
        self.senders: Senders = {}
        """Answers that may be asked for again."""
        self._interned: dict[Options, Options] = {}
        self.simple: dict[int, Options] = {}
        """Checked and interned options that take the short paths of `fast_path.py`, by their `id()`."""
        self._scope = Scope()
        self.touched: list[QueueState] = []
        """Queues whose counters have changed since they were last added up."""
        # other shards
        self.outbox: dict[int, dict[int, tuple[str, rec.Message]]] = {}
        """Messages that other shards have not taken yet: by shard and number, with the tenant."""
        self.sent: dict[int, int] = {}
        """The number of the last message to each shard."""
        self.taken: dict[int, int] = {}
        """The number of the last message taken from each shard."""
        self.early: dict[int, list[rec.TellStep | rec.FillStepHere]] = {}
        """Messages of other shards about workflows that have not arrived here yet, by workflow id."""
        self.watchers: dict[int, str] = {}
        """Jobs that jobs of other shards wait for, with their tenants."""
        # hooks that the runtime provides
        self.no_room: Callable[[str, int], str] | None = None
        """Says why a tenant's job of this many bytes cannot be accepted, or returns an empty text. For jobs that
        schedules push.
        """
        self.is_full: Callable[[], bool] | None = None
        """Says whether memory is full."""
        self.quiet_bytes: float = -1
        """Memory is counted after a turn only if the index uses more bytes than this."""
        self.knows: Callable[[int], bool] | None = None
        """Says whether an id of another shard was ever given out. None if there is no other shard."""
        self.stored_payloads: Callable[[int], Sequence[bytes]] | None = None
        """Reads the payloads of one of the shard's records from the journal. Raises `NotAtHand` if it would take long.
        """
        self.expect_payloads: Callable[[Iterable[int]], None] | None = None
        """Has the payloads of records read, for a later step."""
        self.old_keys: OldKeys | None = None
        """Keys of ended jobs that have left memory."""
        # commands that wait for an answer
        self._parked: list[tuple[int, int, Parked]] = []
        self._parked_most = SWEEP_MIN
        self.job_waiters: dict[int, dict[Parked, None]] = {}
        self.claim_waiters: dict[tuple[str, str], dict[Parked, None]] = {}
        """Pulls that wait to make a claim. If another pull makes it, they get the same jobs."""
        # output, and state of the current turn
        self.records: list[rec.Record] = []
        self.effects: list[tuple[Parked, Any]] = []
        self.dirty: list[QueueState] = []
        """Queues in which something may have become possible for a waiting pull."""
        self.ended_waits: deque[r.Ended] = deque()
        self.claims_made: list[tuple[str, str]] = []
        self.settling: deque[tuple[int, int]] = deque()
        """Ended jobs and their final states, whose edges are still to be settled."""
        self.moved_steps: deque[tuple[ShardWorkflow, StepState]] = deque()
        """Steps of workflows whose standing has changed, and whose later steps are still to be decided."""
        self.watching: dict[int, list[tuple[int, int]]] = {}
        """Jobs of other shards that new jobs wait for, by shard. Their shards are asked at the end of the push."""
        self.staged: list[tuple[StagedPart, int]] = []
        """Parts of stages that were written in this turn, and their places among its records."""
        self.configure(self.settings, limits)

    def configure(self, settings: Settings, limits: Limits) -> None:
        """Use these settings and limits from now on."""
        self.settings, self.limits = settings, limits
        kept = settings.retention
        policy = (kept.completed_age_ms, kept.completed_count)
        self.default_retention = policy if all(policy) else None
        self._start_interning()  # known options were checked against the old limits

    def emit(self, record: rec.Record) -> None:
        """Journal a record and apply it."""
        raise NotImplementedError

    # --- counters and deadlines --------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """The counters of the whole shard."""
        self.add_up()
        return self._scope

    def add_up(self) -> None:
        """Bring the counters of tenants and shard up to date. The cost grows with the queues touched since the last
        time.
        """
        while self.touched:
            self.touched.pop().add_up()

    @property
    def next_at(self) -> int | None:
        """The time of the next deadline, or earlier."""
        heap, parked = self.deadlines.heap, self._parked
        if heap and parked:
            return min(heap[0][0], parked[0][0])
        return heap[0][0] if heap else parked[0][0] if parked else None

    # --- waiting commands ----------------------------------------------------------------------------

    def park_until(self, parked: Parked) -> None:
        if len(self._parked) >= self._parked_most:  # most were answered long before their time: drop them
            done = [entry[2] for entry in self._parked if entry[2].done]
            self._parked = [entry for entry in self._parked if not entry[2].done]
            heapify(self._parked)
            self._parked_most = max(SWEEP_MIN, 2 * len(self._parked))
            for gone in done:
                self._leave_lines(gone)
        heappush(self._parked, (parked.expires_at, self.number_next(), parked))
        self.deadlines.earliest = min(self.deadlines.earliest, parked.expires_at)

    def answer(self, parked: Parked, reply: Any) -> None:
        parked.done = True
        self.effects.append((parked, reply))

    def _leave_lines(self, parked: Parked) -> None:
        """Remove an answered or abandoned command from all wait lists."""
        command = parked.command
        if type(command) is c.WaitJob:
            drop_waiter(self.job_waiters, command.id, parked)
            return
        assert type(command) is c.Pull
        if command.claim is not None:
            drop_waiter(self.claim_waiters, (parked.tenant, command.claim), parked)
        owner = self.tenants.get(parked.tenant)
        for name in command.queues:
            if owner is not None and name in owner.queues:
                self.drop_unknown(owner.queues[name])

    def drop_unknown(self, queue: QueueState) -> None:
        """Forget a queue that only waiting pulls have named, after the last of them."""
        while queue.waiters and queue.waiters[0].done:
            queue.waiters.popleft()
        idle = not queue.known and not queue.waiters and not queue.requests
        if idle and queue.tenant.queues.get(queue.name) is queue:
            del queue.tenant.queues[queue.name]

    # --- finding things --------------------------------------------------------------------------

    def tenant(self, name: str) -> Tenant:
        tenant = self.tenants.get(name)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(name, self.touched)
        return tenant

    def queue(self, tenant: str, name: str) -> QueueState:
        owner = self.tenants.get(tenant)
        if owner is None:
            owner = self.tenant(tenant)
        queue = owner.queues.get(name)
        if queue is None:
            retained = RetainedJobs(self.index, self._forget)
            queue = owner.queues[name] = QueueState(
                owner, name, ReadyJobs(), retained, self.settings.dead_letters, self._scope
            )
        return queue

    def _forget(self, ended: EndedEntry, jobs: int) -> None:
        """The first `jobs` of an ended job or run are no longer readable."""
        raise NotImplementedError

    def known_queue(self, tenant: str, name: str) -> QueueState | None:
        owner = self.tenants.get(tenant)
        queue = owner.queues.get(name) if owner is not None and type(name) is str else None
        return queue if queue is not None and queue.known else None

    def check_room(self, tenant: str, names: Iterable[str]) -> None:
        """Refuse new queues beyond the tenant's limit."""
        owner = self.tenants.get(tenant)
        known = {name for name, queue in owner.queues.items() if queue.known} if owner is not None else set()
        most = self.limits.queues_per_tenant_max
        if len(known.union(names)) > max(most, len(known)):
            raise errors.LimitExceeded(f"a tenant may have at most {most} queues: obliterate some, or use fewer names")

    def queue_for_writing(self, tenant: str, name: str) -> QueueState:
        """The queue. It is created if the tenant may have another one."""
        owner = self.tenants.get(tenant)
        if type(name) is not str:
            checks.name(name)
        if owner is not None:
            queue = owner.queues.get(name)
            if queue is not None and queue.known:
                return queue  # its name was checked when it was created
            if len(owner.queues) >= self.limits.queues_per_tenant_max:
                self.check_room(tenant, [name])
        checks.name(name)
        return self.queue(tenant, name)

    def state_of(self, part: Part) -> int:
        if type(part) is SingleJob:
            return part.state
        batch, position = part.batch, part.start
        if position in batch.waiting:
            return batch.pending
        if batch.slices.find(position) is not None:
            return ACTIVE
        run = batch.ended.find(position)
        assert run is not None
        return run.state

    def member(self, entry: SingleJob | tuple[UniformBatch, int]) -> Part | None:
        """A candidate from the index, if it is still readable there."""
        if type(entry) is SingleJob:
            return entry
        batch, position = entry
        if position in batch.waiting or batch.slices.find(position) or batch.ended.find(position):
            return Members(batch, position, position + 1)
        return None

    def find(self, job_id: int) -> Part | None:
        job = self.index.get(job_id)
        if job is not None:
            return job
        found = self.index.find_batch(job_id)
        return self.member(found) if found is not None else None

    def readable(self, tenant: str, job_id: int) -> Part:
        part = self.find(job_id) if type(job_id) is int else None
        if part is None or part.queue.tenant.name != tenant:
            raise checks.not_found("job", job_id)
        return part

    def live(self, tenant: str, job_id: int, verb: str) -> Part:
        part = self.readable(tenant, job_id)
        state = self.state_of(part)
        if state > ACTIVE:
            raise errors.WrongState(f"job {job_id} is {STATES[state]}: it can no longer {verb}")
        return part

    def live_or_dead(self, tenant: str, job_id: int, verb: str) -> Part:
        part = self.readable(tenant, job_id)
        state = self.state_of(part)
        if state > ACTIVE and state != FAILED:
            raise errors.WrongState(f"job {job_id} is {STATES[state]}: it can no longer {verb}")
        return part

    def is_live(self, tenant: Tenant, job_id: int) -> bool:
        part = self.find(job_id)
        return part is not None and part.queue.tenant is tenant and self.state_of(part) <= ACTIVE

    def part(self, job_id: int) -> Part:
        """A job that must exist."""
        part = self.find(job_id)
        assert part is not None, f"job {job_id} must be there"
        return part

    # --- for engine/apply/ --------------------------------------------------------------------------

    def intern(self, options: Options) -> Options:
        """Equal options of plain jobs become one object in memory."""
        if options is DEFAULT_OPTIONS or options.workflow is not None or not is_plain(options):
            return options
        found = self._interned.get(options)
        if found is None:
            if len(self._interned) >= INTERNED_MAX:
                self._start_interning()
            found = self._interned[options] = options
            if is_simple(options):
                self.simple[id(options)] = options
        return found

    def _start_interning(self) -> None:
        self._interned = {DEFAULT_OPTIONS: DEFAULT_OPTIONS}
        self.simple = {id(DEFAULT_OPTIONS): DEFAULT_OPTIONS}

    def number_next(self) -> int:
        self._numbers += 1
        return self._numbers


def drop_waiter(table: dict[Any, dict[Parked, None]], key: Any, parked: Parked) -> None:
    """Remove a command from a table of waiting commands."""
    waiters = table.get(key)
    if waiters is not None:
        waiters.pop(parked, None)
        if not waiters:
            del table[key]
