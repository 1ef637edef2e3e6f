"""One shard: its state, and the way of a command through it.

`execute` lets time pass up to `now`, decides the command, and serves whoever waits. Decisions emit records;
`emit` is the only place where a record takes effect. What came of it is fetched by the runtime: the records to
be journaled (`take_records`), the replies to parked commands (`take_effects`), and the time to come back (`next_at`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from stoker.engine import (
    apply_delivery,
    apply_flows,
    apply_kv,
    apply_pending,
    apply_push,
    apply_queue,
    apply_schedules,
    apply_transactions,
    checks,
    control,
    dead,
    finishing,
    kv,
    looking,
    messages,
    pulling,
    pushing,
    quick,
    schedules,
    senders,
    timers,
    transactions,
    workflow_views,
    workflows,
)
from stoker.engine.calendars import Calendar, NoCalendar
from stoker.engine.crowds import Crowd, Pace
from stoker.engine.deadlines import NEVER, SWEEP_MIN, Deadlines
from stoker.engine.edges import settle
from stoker.engine.ends import in_id_order, lowest
from stoker.engine.flows import Flow, Step
from stoker.engine.index import Index
from stoker.engine.jobs import ACTIVE, FAILED, Batch, Job, Members, Part
from stoker.engine.keys import OldKeys
from stoker.engine.moves import forget, split
from stoker.engine.parking import Parked
from stoker.engine.ranges import RangeSet
from stoker.engine.ready import Ready
from stoker.engine.retained import Ended, Retained
from stoker.engine.senders import Senders
from stoker.engine.state import Appliers, Claim, Queue, Scope, StagedPart, Tenant
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import DEFAULT_OPTIONS, Options, Settings
from stoker.model.states import STATES
from stoker.records import records as rec

INTERNED_MAX = 1024
"""Options kept for sharing between jobs; beyond that they are started anew."""


class Shard:
    """Some queues with everything that belongs to them."""

    def __init__(self, number: int = 0, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self.number = number
        self.settings = settings or Settings()
        self.limits = limits
        self.level: r.Level = "memory"
        """What its journal gives everybody who asks for nothing else."""
        self.queue_levels: dict[tuple[str, str], r.Level] = {}
        """What queues ask for, by tenant and name, where it is not what everybody gets."""
        self.default_retention: tuple[int, int] | None = None
        # the last numbers that were given
        self.sequence = 0
        """To a job."""
        self.token = 0
        """To a delivery."""
        self.epoch = 0
        """How often its journal has been opened."""
        self.never_given = RangeSet()
        """Sequence numbers left out after a crash, so that none is given twice: whoever had one, his job is lost."""
        self._numbers = 0
        # time
        self.now = 0
        self.ahead_ms = 0
        """How far the shard's time is ahead of the calendar: the clock on the wall may have been set back."""
        self.deadlines = Deadlines()
        self.calendar: Calendar = NoCalendar()
        self.schedules = 0
        """How many there are, of all tenants."""
        self.crowd = Crowd()
        self.pace = Pace()
        # jobs, and whose they are
        self.tenants: dict[str, Tenant] = {}
        self.index = Index()
        self.dependents: dict[int, dict[int, None]] = {}
        """Who waits for a job to end, by its id."""
        self.senders: Senders = {}
        """Answers that may be asked for again."""
        self._interned: dict[Options, Options] = {}
        self.simple: dict[int, Options] = {}
        """Checked and interned options that take the short ways of `quick.py`, by their `id()`."""
        self._scope = Scope()
        self.touched: list[Queue] = []
        """Queues whose counters have moved since they were last added up."""
        # other shards
        self.outbox: dict[int, dict[int, tuple[str, rec.Message]]] = {}
        """Messages that other shards have not taken yet: by shard and number, with the tenant."""
        self.sent: dict[int, int] = {}
        """The number of the last message to each shard."""
        self.taken: dict[int, int] = {}
        """The number of the last message taken from each shard."""
        self.early: dict[int, list[rec.TellStep | rec.FillStep]] = {}
        """What other shards have said about workflows that are not known here yet, by their ids."""
        self.watchers: dict[int, str] = {}
        """Jobs that somebody in another shard waits for, and whose they are."""
        # what whoever runs the shard lends it
        self.no_room: Callable[[str, int], str] | None = None
        """Says why a tenant's job with so many bytes cannot be taken, if that is so: for jobs that schedules push."""
        self.is_full: Callable[[], bool] | None = None
        """Says whether memory is full."""
        self.knows: Callable[[int], bool] | None = None
        """Says whether an id of another shard was ever given; None if there is no other."""
        self.stored_payloads: Callable[[int], Sequence[bytes]] | None = None
        """Reads the payloads of one of its records back."""
        self.old_keys: OldKeys | None = None
        """Keys of ended jobs that have left memory."""
        # those who wait for an answer
        self._parked: list[tuple[int, int, Parked]] = []
        self._parked_most = SWEEP_MIN
        self.job_waiters: dict[int, dict[Parked, None]] = {}
        self.claim_waiters: dict[tuple[str, str], dict[Parked, None]] = {}
        """Pulls that wait to make a claim; when another one makes it, they get the same jobs."""
        # what is on its way out, or only for this moment
        self.records: list[rec.Record] = []
        self.effects: list[tuple[Parked, Any]] = []
        self.dirty: list[Queue] = []
        """Queues for which something may have become possible that somebody waits for."""
        self.ended_waits: deque[r.Ended] = deque()
        self.claims_made: list[tuple[str, str]] = []
        self.settling: deque[tuple[int, int]] = deque()
        """Jobs that have ended, and how, whose edges are still to be settled."""
        self.moved_steps: deque[tuple[Flow, Step]] = deque()
        """Steps of workflows that stand otherwise than before, which others behind them are still to hear of."""
        self.watching: dict[int, list[tuple[int, int]]] = {}
        """Jobs of other shards that new ones wait for, by shard; asked for at the end of the push."""
        self.staged: list[tuple[StagedPart, int]] = []
        """Parts of stages that were written in this turn, and their places among its records."""
        self.configure(self.settings, limits)

    def configure(self, settings: Settings, limits: Limits) -> None:
        """How it behaves from now on."""
        self.settings, self.limits = settings, limits
        kept = settings.retention
        policy = (kept.completed_age_ms, kept.completed_count)
        self.default_retention = policy if all(policy) else None
        self._start_interning()  # those that are known were checked against the limits of before

    # --- the way of a command --------------------------------------------------------------------

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The reply, or a `Parked` whose reply comes through the effects. Raises `Refused` and leaves no trace."""
        if now >= self.deadlines.earliest:
            self.advance(now)
        if now == self.now:
            now = self.now  # one object for all jobs of a millisecond: they keep it, 32 bytes each otherwise
        else:
            self.now = now
        try:
            reply = DECIDE[type(command)](self, tenant, command, now)
        except errors.Refused:
            self._drop_named(tenant, command)
            raise
        if self.moved_steps:
            self.settle_edges(now)
        if self.dirty or self.ended_waits or self.claims_made:
            self.serve(now)
        return reply

    def advance(self, now: int) -> None:
        """Let everything happen that was due by `now`, each at its own time."""
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
        """Something happens."""
        self.records.append(record)
        APPLY[type(record)](self, record)

    @property
    def scope(self) -> Scope:
        """The counters of the whole shard."""
        self.add_up()
        return self._scope

    def add_up(self) -> None:
        """Bring the counters of tenants and shard up to date: O(queues touched since the last time)."""
        while self.touched:
            self.touched.pop().add_up()

    def take_records(self) -> list[rec.Record]:
        records, self.records = self.records, []
        return records

    def take_effects(self) -> list[tuple[Parked, Any]]:
        effects, self.effects = self.effects, []
        return effects

    @property
    def next_at(self) -> int | None:
        """When to come back, at the latest."""
        heap, parked = self.deadlines.heap, self._parked
        if heap and parked:
            return min(heap[0][0], parked[0][0])
        return heap[0][0] if heap else parked[0][0] if parked else None

    def close(self) -> None:
        """Let go of everything; the structs are not garbage collected, so the knots are cut here."""
        for parked in self.waiting():
            parked.give_up()
        self.tenants.clear()
        self.index = Index()
        self.deadlines = Deadlines()
        self._parked.clear()

    def waiting(self) -> list[Parked]:
        """The commands that still wait for their reply."""
        return [parked for _, _, parked in self._parked if not parked.done]

    # --- those who wait --------------------------------------------------------------------------

    def park_until(self, parked: Parked) -> None:
        if len(self._parked) >= self._parked_most:  # most were answered long before their time: let them go
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

    def serve(self, now: int) -> None:
        """Answer those who wait for what has become possible."""
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
        """Those whose time is over get an empty answer; those who gave up leave nothing behind."""
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
                job = looking.view(self, self.readable(parked.tenant, command.id), now)
                self.answer(parked, looking.ended(job))
            self._leave_lines(parked)

    def _leave_lines(self, parked: Parked) -> None:
        """Somebody who is answered or gone stands in no line any more."""
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

    def _drop_named(self, tenant: str, command: c.Command[Any]) -> None:
        """A refused command leaves no queue behind."""
        owner, name = self.tenants.get(tenant), getattr(command, "queue", None)
        if owner is None:
            return
        if type(name) is str and name in owner.queues:
            self.drop_unknown(owner.queues[name])
        if not owner.queues and not owner.is_used:
            del self.tenants[tenant]

    def drop_unknown(self, queue: Queue) -> None:
        """A queue that only waiting pulls have named is forgotten with the last of them."""
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

    def queue(self, tenant: str, name: str) -> Queue:
        owner = self.tenants.get(tenant)
        if owner is None:
            owner = self.tenant(tenant)
        queue = owner.queues.get(name)
        if queue is None:
            retained = Retained(self.index, self._forget)
            queue = owner.queues[name] = Queue(owner, name, Ready(), retained, self.settings.dead_letters, self._scope)
        return queue

    def _forget(self, ended: Ended, jobs: int) -> None:
        forget(self, ended, jobs)

    def known_queue(self, tenant: str, name: str) -> Queue | None:
        owner = self.tenants.get(tenant)
        queue = owner.queues.get(name) if owner is not None and type(name) is str else None
        return queue if queue is not None and queue.known else None

    def check_room(self, tenant: str, names: Iterable[str]) -> None:
        """Refuse new queues beyond what a tenant may have."""
        owner = self.tenants.get(tenant)
        known = {name for name, queue in owner.queues.items() if queue.known} if owner is not None else set()
        most = self.limits.queues_per_tenant_max
        if len(known.union(names)) > max(most, len(known)):
            raise errors.LimitExceeded(f"{most} queues are there already: obliterate some, or use fewer names")

    def queue_for_writing(self, tenant: str, name: str) -> Queue:
        """The queue, which may be new if the tenant has room for another one."""
        owner = self.tenants.get(tenant)
        if type(name) is not str:
            checks.name(name)
        if owner is not None:
            queue = owner.queues.get(name)
            if queue is not None and queue.known:
                return queue  # its name was checked when it was made
            if len(owner.queues) >= self.limits.queues_per_tenant_max:
                self.check_room(tenant, [name])
        checks.name(name)
        return self.queue(tenant, name)

    def state_of(self, part: Part) -> int:
        if type(part) is Job:
            return part.state
        batch, position = part.batch, part.start
        if position in batch.waiting:
            return batch.pending
        if batch.slices.find(position) is not None:
            return ACTIVE
        run = batch.ended.find(position)
        assert run is not None
        return run.state

    def member(self, entry: Job | tuple[Batch, int]) -> Part | None:
        """A candidate from the index, if it is still readable there."""
        if type(entry) is Job:
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
            raise errors.NotFound(
                f"job {checks.short(job_id)} not found: it never was, is forgotten, or belongs to somebody else"
            )
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
        """A job that is known to be there."""
        part = self.find(job_id)
        assert part is not None, f"job {job_id} must be there"
        return part

    def claimed_parts(self, tenant: str, claim: Claim, name: str) -> list[Part]:
        """The deliveries still held under a claim, in id order."""
        parts: list[Part] = []
        for first, count in claim.runs:
            step = STEP if count > 0 else -STEP
            jobs = range(first, first + step * abs(count), step)
            found, _ = finishing.held(self, tenant, jobs, claim.token)
            parts += [piece for part in found if is_claimed(part, name) for piece in in_id_order(part)]
        return sorted(parts, key=lowest)

    def delivered_run(self, part: Part) -> r.Run:
        """A delivery once more, as its pull brought it."""
        payloads: Any  # stored ones are read on their way out: runtime/loading.py
        if type(part) is Job:
            detail = part.details()
            payloads = (part.payload,)
            return r.Run(
                part.queue.name,
                (part.id,),
                payloads,
                part.options,
                detail.attempts,
                part.pushed_at,
                detail.lease_until,
            )
        piece = part.slice
        assert piece is not None
        payloads = part.batch.payloads[part.start : part.stop]
        return r.Run(part.queue.name, part.ids, payloads, part.options, 1, part.pushed_at, piece.lease_until)

    # --- for apply_*.py --------------------------------------------------------------------------

    def own_job(self, job_id: int) -> Job:
        """The job as one of its own, split off its batch if it was part of one."""
        job = self.index.get(job_id)
        if job is None:
            found = self.index.find_batch(job_id)
            assert found is not None, f"job {job_id} must be there"
            job = split(self, *found)
        return job

    def own_jobs(self, first: int, count: int) -> Iterable[Job]:
        step = STEP if count > 0 else -STEP
        return [self.own_job(job_id) for job_id in range(first, first + step * abs(count), step)]

    def intern(self, options: Options) -> Options:
        """Equal options of plain jobs are one object in memory."""
        if options is DEFAULT_OPTIONS or options.workflow is not None or not apply_push.is_plain(options):
            return options
        found = self._interned.get(options)
        if found is None:
            if len(self._interned) >= INTERNED_MAX:
                self._start_interning()
            found = self._interned[options] = options
            if quick.is_simple(options):
                self.simple[id(options)] = options
        return found

    def _start_interning(self) -> None:
        self._interned = {DEFAULT_OPTIONS: DEFAULT_OPTIONS}
        self.simple = {id(DEFAULT_OPTIONS): DEFAULT_OPTIONS}

    def number_next(self) -> int:
        self._numbers += 1
        return self._numbers

    def settle_edges(self, at: int) -> None:
        settle(self, at)


def drop_waiter(table: dict[Any, dict[Parked, None]], key: Any, parked: Parked) -> None:
    """Take somebody out of a table of waiters."""
    waiters = table.get(key)
    if waiters is not None:
        waiters.pop(parked, None)
        if not waiters:
            del table[key]


def is_claimed(part: Part, name: str) -> bool:
    lease = part.detail if type(part) is Job else part.slice
    return lease is not None and lease.claim == name


def replay(
    records: Iterable[rec.Record], number: int = 0, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS
) -> Shard:
    """The shard to which these records have happened."""
    shard = Shard(number, settings, limits)
    apply_again(shard, records)
    return shard


def apply_again(shard: Shard, records: Iterable[rec.Record]) -> None:
    """Let happen what has happened before: what followed from it stands in the records, too."""
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
    c.PushWorkflow: workflows.push,
    c.FillStep: workflows.fill,
    c.Stage: transactions.stage,
    c.Publish: transactions.publish,
    c.Abort: transactions.abort,
    c.Pull: pulling.pull,
    c.Ack: finishing.ack,
    c.Fail: finishing.fail,
    c.Release: finishing.release,
    c.Extend: finishing.extend,
    c.AckClaim: finishing.ack_claim,
    c.ReleaseClaim: finishing.release_claim,
    c.ExtendClaim: finishing.extend_claim,
    c.SetProgress: finishing.set_progress,
    c.AppendLog: finishing.append_log,
    c.AppendPartial: finishing.append_partial,
    c.GetJob: looking.get_job,
    c.FindJob: looking.find_job,
    c.GetLogs: looking.get_logs,
    c.GetPartials: looking.get_partials,
    c.WaitJob: looking.wait_job,
    c.Browse: looking.browse,
    c.GetWorkflow: workflow_views.get_workflow,
    c.ListWorkflows: workflow_views.list_workflows,
    c.GetInputs: workflow_views.get_inputs,
    c.CancelWorkflow: workflows.cancel,
    c.RetryWorkflow: workflows.retry,
    c.Why: looking.why,
    c.ListQueues: looking.list_queues,
    c.GetQueue: looking.get_queue,
    c.GetStats: looking.get_stats,
    c.GetPriorities: looking.get_priorities,
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
    c.Drain: control.drain,
    c.Clean: control.clean,
    c.Obliterate: control.obliterate,
    c.ListDead: dead.list_dead,
    c.GetDeadStats: dead.get_dead_stats,
    c.RetryDead: dead.retry_dead,
    c.PurgeDead: dead.purge_dead,
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
"""Who decides which command. Reading events is the journal's business, not the engine's."""

APPLY: Appliers = {
    **apply_push.APPLY,
    **apply_delivery.APPLY,
    **apply_pending.APPLY,
    **apply_queue.APPLY,
    **apply_transactions.APPLY,
    **messages.APPLY,
    **apply_kv.APPLY,
    **apply_schedules.APPLY,
    **senders.APPLY,
    **apply_flows.APPLY,
}
"""What each record does to the state."""
