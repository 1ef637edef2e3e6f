"""Says what is wrong with a history, in the words that such checks have elsewhere: lost, invented, doubled.

It knows nothing of engines and journals. It reads what clients asked and heard, what a look at the queue found after a
crash or in the end, and in the end the queue's own story of each job. Every harness that kills, stops or starves
something brings its history here. The rules:

    lost        a push that was answered is there after every crash, and ends in the end
    invented    nothing is there that no client asked for, or that was refused, or whose absence after a crash was seen
    torn        of one command that was never answered, all or nothing is there
    reused      no id and no token is given out twice
    revived     what has completed, was cancelled or has failed for good stays so, with the result that was accepted
    doubled     no job has two ids, and none is given to a client while another one holds it by a lease that runs
    unleased    a client that holds a job by a lease that runs may settle it, also after a crash
    unfenced    a client that no longer holds it may not: its lease is over, it has settled it, or another one got it
    untold      the queue's story of a job has every delivery, at its time; it completed once, by a client that said so

What was never answered (an *unknown* outcome) may have happened or not; a look decides it for good. Keys in the
payloads, not ids, tell jobs apart: an id is something that a broker says.

Commands take time: one is carried out at some moment between its intent and its outcome. A rule is broken only if no
such moment would keep it. The tokens of a job's deliveries grow, so they tell the order in which these were made.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.events import Event, EventKind
from stoker.model.ids import shard_of
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.states import State
from tests.histories.history import (
    Began,
    Ended,
    Entry,
    Intent,
    Recovered,
    Refused,
    Reply,
    Seen,
    Stopping,
    Unsure,
    key_of,
)
from tests.histories.workload import Memory

ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)
NEVER = 2**60
UNNAMED = b""
"""The key of a job that is known by its id alone."""

Settling = c.Ack | c.Fail | c.Release | c.Extend
SETTLING = (c.Ack, c.Fail, c.Release, c.Extend)
PUSHES = (c.Push, c.PushBatch, c.Stage)
NOT_YOURS = ("lost_lease", "not_found", "wrong_state")
"""How a client learns that it does not hold a job any more."""

CLOCK_MS = 100
"""How far the clocks of a queue and of its clients may be apart on one machine."""

OUT_OF_ACTIVE = (
    EventKind.COMPLETED,
    EventKind.RETRYING,
    EventKind.FAILED,
    EventKind.CANCELLED,
    EventKind.RELEASED,
    EventKind.SNOOZED,
)


class Lease(msgspec.Struct):
    """Of one delivery of a job."""

    until: int
    """It runs at least until then."""
    over: int
    """And no longer than until then."""
    settled: bool = False
    """It has ended before its time: the delivery was acknowledged, failed or released."""
    heard_at: int = 0
    """When its client heard of the delivery."""
    crashes: int = 0
    """The number of crashes before that."""


class Known(msgspec.Struct):
    """What clients know about a job."""

    key: bytes
    id: int
    options: Options
    end: State | None = None
    end_token: int = 0
    """Of the delivery that ended it; 0 if none did."""
    end_step: int = 0
    result: bytes | msgspec.UnsetType | None = msgspec.UNSET
    """That of the ack that was accepted."""
    offered: list[bytes | None] = []
    """Those of all acks that were asked for."""
    leases: dict[int, Lease] = {}
    """By token."""
    under_way: int = 0
    """Commands that were sent and may move it."""
    cancelling: bool = False
    """Its cancellation was asked for while it ran: it ends with its lease, at the latest."""
    loose: bool = False
    """Something was asked for and never answered: it may stand anywhere."""
    unanswered: set[tuple[type[Any], int]] = set()
    """How clients wanted to settle which deliveries, and never heard whether it happened. If it did, a client that asks
    for the same again later, and whose answer is lost once more, is told by the job's story that it has happened.
    """

    def __str__(self) -> str:
        stands = "live" if self.end is None else f"{self.end} by {self.end_token}"
        leases = ", ".join(
            f"{token} until {lease.until}{' (settled)' * lease.settled}" for token, lease in self.leases.items()
        )
        return f"{self.key!r} ({self.id}, {stands}, delivered with {leases or 'nothing'})"

    @property
    def token(self) -> int:
        """Of its newest delivery."""
        return max(self.leases, default=0)

    def is_held(self, now: int) -> bool:
        """Is it certainly under a lease that runs?"""
        lease = self.leases.get(self.token)
        is_sure = not self.loose and not self.under_way and self.end is None
        return is_sure and lease is not None and not lease.settled and now < lease.until

    def is_over(self, token: int, now: int) -> bool:
        """Has the lease of this delivery certainly ended?"""
        lease = self.leases.get(token)
        return self.end is not None or token < self.token or lease is None or lease.settled or now >= lease.over


class Asked(msgspec.Struct):
    """A command that was sent."""

    at: int
    step: int
    command: c.Command[Any]
    over: frozenset[int] = frozenset()
    """The jobs that it wants to settle by deliveries that were certainly over when it was sent."""


class Delivery(msgspec.Struct):
    """As the queue tells it."""

    began: int
    attempt: int
    ended: int = NEVER
    how: EventKind | None = None


class Checker:
    """Reads a history entry by entry. `excused` are codes that a push or a pull may be refused with."""

    def __init__(self, clock_ms: int = 0, excused: frozenset[str] = frozenset()) -> None:
        self.found: dict[str, list[str]] = defaultdict(list)
        """What is wrong, by rule."""
        self.counts: Counter[str] = Counter()
        """What the history has reached: it proves nothing about what it never did."""
        self.missing: list[int] = []
        """Jobs that are known by their ids and are not there in the end."""
        self._clock_ms, self._excused = clock_ms, excused
        self._now = 0
        self._step = 0
        self._is_stopping = False
        self._pending: dict[str, Asked] = {}
        """What each client has asked for and not heard of yet."""
        self._undecided: list[Asked] = []
        """What will never be answered."""
        self._unanswered: c.Command[Any] | None = None
        """The one that the last crash left so."""
        self._options: dict[bytes, Options] = {}
        """Of every job that was ever asked for."""
        self._asked: set[bytes] = set()
        """Jobs that may be there."""
        self._promised: set[bytes] = set()
        """Jobs that must be there, or have ended."""
        self._gone: set[bytes] = set()
        """Jobs that must not be there: refused, or found not to have survived."""
        self._stages: dict[str, dict[str, list[bytes]]] = defaultdict(dict)
        """The jobs of every transaction, by stage."""
        self._unstaged: set[tuple[str, str]] = set()
        """Stages that may not be there."""
        self._jobs: dict[int, Known] = {}
        self._by_key: dict[bytes, Known] = {}
        self._tokens: set[tuple[int, int]] = set()
        """With the shards that they were given in: each counts for itself."""
        self._began: dict[int, list[tuple[int, Began]]] = defaultdict(list)
        """Of each job, with the earliest time at which the delivery can have been made."""
        self._ended: set[tuple[int, int]] = set()
        """Jobs and the attempts in which a client was through with them."""

    def read(self, entry: Entry) -> None:
        self._step += 1
        match entry:
            case Intent():
                self._intend(entry)
            case Reply():
                self._learn(self._answered(entry), entry.reply)
            case Refused():
                self._refused(self._answered(entry), entry)
            case Unsure():
                asked = self._answered(entry)
                self._leave_open(asked)
                if isinstance(asked.command, SETTLING):
                    for job, token in tokens_of(asked.command):
                        self._jobs[job].unanswered.add((type(asked.command), token))
            case Recovered():
                self._now = max(self._now, entry.at)
                self._crash(entry.jobs)
            case Stopping():
                self._stop(entry)
            case Began():
                self._began[entry.job].append((entry.at, entry))
            case Ended():
                self._ended.add((entry.job, entry.attempt))

    def check_drained(self, seen: Sequence[Seen], pushed: int, *, all_kept: bool = False) -> None:
        """In the end: everything that was promised has ended, and the broker has counted as many.

        `all_kept` says that ended jobs stay readable, so that all of them must be seen.
        """
        self._decide_all(seen)
        self._look(seen, all_kept)
        for job in seen:
            if job.state not in ENDS:
                self._wrong("lost", f"{job.key!r} is {job.state} and was never delivered again")
        if pushed != len(self._promised):
            self._wrong("lost", f"{pushed} jobs were pushed by the broker's count, {len(self._promised)} by ours")

    def memory(self) -> Memory:
        """What a client goes on with after a crash."""
        live = [job for job in self._jobs.values() if job.end is None]
        held = [(job.id, job.token) for job in live if job.token and not job.leases[job.token].settled]
        again = self._unanswered if can_be_repeated(self._unanswered) else None
        return Memory(self._now, held[-60:], [job.id for job in live[-40:]], again, len(live))

    def _wrong(self, rule: str, what: str) -> None:
        self.found[rule].append(f"at {self._now}: {what}")

    # --- asking ----------------------------------------------------------------------------------

    def _intend(self, intent: Intent) -> None:
        assert intent.client not in self._pending, "a client asks for one thing at a time"
        self._now = max(self._now, intent.at)
        command = intent.command
        asked = self._pending[intent.client] = Asked(intent.at, self._step, command)
        self.counts[type(command).__name__] += 1
        if isinstance(command, PUSHES):
            self._intend_push(command)
        elif isinstance(command, c.Publish):
            self._asked |= set(self._keys_of(command))
        elif isinstance(command, SETTLING):
            self._intend_settling(asked, command)
        elif isinstance(command, c.Cancel):
            self._jobs[command.id].under_way += 1

    def _intend_push(self, command: c.Push | c.PushBatch | c.Stage) -> None:
        options = options_of(command)
        self.counts["attempts"] += len(options)
        self.counts["fsync"] += getattr(command, "durability", None) == "fsync"
        self._options |= options
        if isinstance(command, c.Stage):
            self._stages[command.transaction][command.stage] = list(options)
            self._unstaged.add((command.transaction, command.stage))
        else:
            self._asked.update(options)  # `|=` with the keys of a dict copies the whole set
            self._gone.difference_update(options)

    def _intend_settling(self, asked: Asked, command: Settling) -> None:
        pairs = tokens_of(command)
        asked.over = frozenset(job for job, token in pairs if self._jobs[job].is_over(token, asked.at - self._clock_ms))
        for place, (job, token) in enumerate(pairs):
            known = self._jobs[job]
            known.under_way += 1
            if isinstance(command, c.Ack):
                known.offered = [*known.offered, None if command.results is None else command.results[place]]
                self._ended |= {(job, begun.attempt) for _, begun in self._began[job] if begun.token == token}
            elif isinstance(command, c.Extend) and token in known.leases:
                known.leases[token].over = NEVER

    def _answered(self, outcome: Reply | Refused | Unsure) -> Asked:
        asked = self._pending.pop(outcome.client, None)
        assert asked is not None, "an answer to nothing"
        self._now = max(self._now, outcome.at)
        for job in jobs_of(asked.command):
            self._jobs[job].under_way -= 1
        return asked

    def _leave_open(self, asked: Asked) -> None:
        self.counts["unknown"] += 1
        self._undecided.append(asked)
        for job in jobs_of(asked.command):
            self._jobs[job].loose = True
            self._jobs[job].cancelling |= isinstance(asked.command, c.Cancel)

    def _keys_of(self, command: c.Command[Any]) -> list[bytes]:
        """The jobs that it makes."""
        if isinstance(command, (c.Push, c.PushBatch)):
            return list(options_of(command))
        return self._named_by(command) if isinstance(command, c.Publish) else []

    def _named_by(self, command: c.Publish) -> list[bytes]:
        stages = self._stages[command.transaction]
        return [key for name in command.stages for key in stages.get(name, ())]

    # --- answers ---------------------------------------------------------------------------------

    def _learn(self, asked: Asked, reply: Any) -> None:
        command = asked.command
        match command:
            case c.Push():
                self._pushed(key_of(command.payload), reply.id, reply.duplicate_by)
            case c.PushBatch():
                for item, (payload, job) in enumerate(zip(command.payloads, reply.ids, strict=True)):
                    if item in reply.refused:
                        self._wrong("lost", f"item {item} of {shown(command)} was refused: {reply.refused[item]}")
                    else:
                        self._pushed(key_of(payload), job, reply.duplicates.get(item))
            case c.Stage():
                self._unstaged.discard((command.transaction, command.stage))
            case c.Publish():
                keys = self._named_by(command)
                self._promised |= set(keys)
                self.counts["acknowledged"] += len(keys)
                if reply.created != len(keys):
                    self._wrong("torn", f"{shown(command)} created {reply.created} of {len(keys)} jobs")
            case c.Pull():
                self._delivered(asked, reply)
            case c.Ack() | c.Fail() | c.Release() | c.Extend():
                self._settled(asked, command, reply)
            case c.Cancel():
                self._cancelled(reply)

    def _refused(self, asked: Asked, refusal: Refused) -> None:
        command = asked.command
        self.counts[refusal.code] += 1
        if isinstance(command, c.Stage):
            self._stages[command.transaction].pop(command.stage, None)
        elif isinstance(command, (c.Push, c.PushBatch, c.Publish)):
            before = {key for other in self._undecided for key in self._keys_of(other.command)}
            self._gone |= set(self._keys_of(command)) - self._promised - before
        if isinstance(command, (*PUSHES, c.Publish, c.Pull)) and not self._is_excused(command, refusal.code):
            self._wrong("lost", f"{shown(command)} was refused: {refusal.code}, {refusal.message}")

    def _is_excused(self, command: c.Command[Any], code: str) -> bool:
        if isinstance(command, c.Publish) and code == "unknown_stage":
            staged = self._stages[command.transaction]
            return any((command.transaction, name) in self._unstaged or name not in staged for name in command.stages)
        return code in self._excused

    def _pushed(self, key: bytes, job: int, duplicate_by: str | None) -> None:
        if duplicate_by == "unique_key":  # answered with another one, whose own push may never have been answered
            self._gone.add(key)
            self._jobs.setdefault(job, Known(UNNAMED, job, DEFAULT_OPTIONS))
            return
        self._bind(key, job)
        self._promised.add(key)
        self.counts["acknowledged"] += 1
        self.counts["repeated"] += duplicate_by is not None

    def _bind(self, key: bytes, job: int) -> Known:
        """From now on this id means this job, and nothing else ever."""
        known = self._jobs.setdefault(job, Known(UNNAMED, job, DEFAULT_OPTIONS))
        if known.key == UNNAMED:
            if key in self._by_key:
                self._wrong("doubled", f"{key!r} is job {self._by_key[key].id} and job {job}")
            self._by_key[key] = known
            known.key, known.options = key, self._options.get(key, DEFAULT_OPTIONS)
        if known.key != key:
            self._wrong("reused", f"id {job} was given to {known.key!r} and to {key!r}")
        return known

    def _delivered(self, asked: Asked, delivery: r.Delivery) -> None:
        if not delivery.runs:
            return
        tokens = {(shard_of(job), delivery.token) for job in delivery.ids}
        if tokens & self._tokens:
            self._wrong("reused", f"token {delivery.token} was given twice")
        self._tokens |= tokens
        for run in delivery.runs:
            for job, payload in zip(run.ids, run.payloads, strict=True):
                self._deliver(asked, job, key_of(payload), delivery.token, run)

    def _deliver(self, asked: Asked, job: int, key: bytes, token: int, run: r.Run) -> None:
        self._check_asked(key)
        known = self._bind(key, job)
        is_after_end = token > known.end_token if known.end_token else asked.step > known.end_step
        if known.end is not None and is_after_end:
            self._wrong("revived", f"{key!r} was delivered after it was {known.end}")
        self._check_alone(known, token, run.lease_until)
        self.counts["deliveries"] += 1
        self.counts["delivered again"] += bool(known.leases)
        if token > known.token:
            known.loose = False
        until = 0 if self._is_stopping else run.lease_until
        lease = Lease(until, run.lease_until, heard_at=self._now, crashes=self.counts["crashes"])
        known.leases = {**known.leases, token: lease}
        self._began[job].append((asked.at, Began(self._now, job, token, run.attempt)))

    def _check_alone(self, known: Known, token: int, until: int) -> None:
        """Is no other delivery of this job under a lease that runs?"""
        newest = known.token
        if token in known.leases:
            self._wrong("doubled", f"{known.key!r} was delivered twice with {token}")
        elif token > newest:
            if known.is_held(self._now + self._clock_ms):
                lease = known.leases[newest]
                self._wrong("doubled", f"{known.key!r} was delivered while {newest} holds it until {lease.until}")
        elif (
            not self._is_stopping and known.leases[newest].heard_at + self._clock_ms < until
        ):  # this client was told late of an older one
            self._wrong("doubled", f"{known.key!r} was delivered with {newest} while {token} held it until {until}")

    def _settled(self, asked: Asked, command: Settling, reply: Any) -> None:
        states = {each.id: each.state for each in reply.jobs} if isinstance(reply, r.Failed) else {}
        for place, (job, token) in enumerate(tokens_of(command)):
            known = self._jobs[job]
            if job in reply.refused:
                self._check_may_be_refused(known, token, reply.refused[job])
                if isinstance(command, c.Extend) and reply.refused[job] in NOT_YOURS and token in known.leases:
                    known.leases[token].over = min(known.leases[token].over, self._now + self._clock_ms)
                continue
            if job in asked.over and (type(command), token) not in known.unanswered:
                self._wrong("unfenced", f"{type(command).__name__} of {known} with {token} was accepted")
            elif known.end is not None and (isinstance(command, c.Ack) or token == known.end_token):
                self._wrong("revived", f"{type(command).__name__} of {known} with {token} was accepted, too")
            lease = known.leases.setdefault(token, Lease(0, 0))
            self.counts["outlived"] += lease.crashes < self.counts["crashes"]
            self.counts["settled"] += 1
            if isinstance(command, c.Extend):
                lease.until = 0 if self._is_stopping else asked.at + known.options.lease_ms
                lease.over = self._now + known.options.lease_ms
                continue
            lease.settled, known.loose = True, False
            end = State.COMPLETED if isinstance(command, c.Ack) else states.get(job)
            if end in ENDS:
                self._end(known, end, token)
            if isinstance(command, c.Ack):
                known.result = None if command.results is None else command.results[place]

    def _check_may_be_refused(self, known: Known, token: int, code: str) -> None:
        self.counts["fenced" if code in NOT_YOURS else code] += 1
        if code == "unknown":
            known.loose = True
        elif code not in self._excused and token == known.token and known.is_held(self._now + self._clock_ms):
            self._wrong("unleased", f"{known} was refused with {code}")

    def _end(self, known: Known, state: State, token: int = 0) -> None:
        if token and token < known.token:
            self._wrong("revived", f"{known} is {state} by {token}, and was delivered with {known.token} after that")
        known.end, known.end_token, known.end_step = state, token, self._step

    def _cancelled(self, view: r.JobView) -> None:
        known = self._jobs[view.id]
        if view.state is State.CANCELLED:
            if known.end is None:
                self._end(known, State.CANCELLED)
            self.counts["cancelled"] += 1
        else:
            known.cancelling = True

    # --- after a crash, and in the end -----------------------------------------------------------

    def _crash(self, seen: Sequence[Seen]) -> None:
        """What was asked for and never answered is unknown; what is there decides it."""
        self.counts["crashes"] += 1
        self._unanswered = next((asked.command for asked in self._pending.values()), None)
        self._decide_all(seen)
        self._look(seen)

    def _stop(self, stopping: Stopping) -> None:
        self._is_stopping = not stopping.over
        for known in self._jobs.values():
            for lease in known.leases.values():
                lease.until = 0

    def _decide_all(self, seen: Sequence[Seen]) -> None:
        for asked in self._pending.values():
            for job in jobs_of(asked.command):
                self._jobs[job].under_way -= 1
            self._leave_open(asked)
        self._pending.clear()
        undecided, self._undecided = self._undecided, []
        there = {job.key for job in seen}
        for asked in undecided:
            command = asked.command
            keys = [key for key in self._keys_of(command) if self._options[key].unique_key is None]
            if keys:
                self._decide(keys, there)

    def _decide(self, keys: Sequence[bytes], there: Set[bytes]) -> None:
        """All of them are there, and stay; or none, and never will be."""
        present = {key for key in keys if key in self._by_key or key in there}
        before = self._promised & set(keys)
        if present and len(present) < len(keys) and not before:
            self._wrong("torn", f"{len(present)} of {len(keys)} jobs are there: {sorted(present)}")
        elif present:
            self.counts["recovered"] += len(present)
            self._promised |= present
        elif not before:
            self._gone |= set(keys)
            self.counts["vanished"] += len(keys)

    def _look(self, seen: Sequence[Seen], all_kept: bool = False) -> None:
        for job in seen:
            self._check_asked(job.key)
            self._promised.add(job.key)  # once it was there, it stays
            self._found(self._bind(job.key, job.id), job)
        for key in sorted(self._promised - {job.key for job in seen}):
            known = self._by_key.get(key)
            if known is None:
                self._wrong("lost", f"{key!r} was promised and never seen")
            elif all_kept:
                self._wrong("lost", f"{known} is nowhere, and nothing is removed here")
                self.missing.append(known.id)
            elif known.end is None and (known.loose or known.cancelling):
                known.loose = False
                self._end(known, State.COMPLETED)  # or cancelled, and forgotten by now
            elif known.end is None:
                self._wrong("lost", f"{known} is nowhere")

    def _check_asked(self, key: bytes) -> None:
        if key not in self._asked:
            self._wrong("invented", f"{key!r} was never asked for")
        elif key in self._gone:
            self._wrong("invented", f"{key!r} had been refused, or had not survived")

    def _found(self, known: Known, job: Seen) -> None:
        self._check_result(known, job)
        if known.end is not None:
            if job.state is not known.end:
                self._wrong("revived", f"{known} is {job.state}")
        elif known.loose:
            self._settle_loose(known, job)
        elif known.is_held(self._now + self._clock_ms):
            if job.state is not State.ACTIVE or job.token != known.token:
                self._wrong("unleased", f"{known} is {job.state} with token {job.token}")
        elif job.state is State.COMPLETED:
            self._wrong("invented", f"{known} was completed by no client")
        elif job.state in ENDS:  # it has lost too many leases, or its last one after it was cancelled
            self._end(known, job.state)

    def _settle_loose(self, known: Known, job: Seen) -> None:
        """It may stand anywhere; now it is known where."""
        known.loose = False
        lease = known.leases.get(known.token)
        if lease is not None:
            lease.settled = job.state is not State.ACTIVE or job.token != known.token
            lease.until = lease.over = job.lease_until
        if job.state in ENDS:
            self._end(known, job.state)

    def _check_result(self, known: Known, job: Seen) -> None:
        if job.state is not State.COMPLETED or job.result is msgspec.UNSET:
            return
        if known.result is not msgspec.UNSET and job.result != known.result:
            self._wrong("revived", f"{known} has the result {job.result!r}")
        elif job.result not in known.offered:
            self._wrong("invented", f"{known} has the result {job.result!r}, which no client brought")

    # --- the queue's own story ---------------------------------------------------------------------

    def check_told(self, stories: Mapping[int, Sequence[Event]]) -> None:
        """`stories` has the events of every job that was pushed."""
        for job in self._began.keys() - stories.keys():
            self._wrong("invented", f"job {job} began and was never pushed")
        for job, events in stories.items():
            deliveries = deliveries_of(events)
            self._check_completions(job, deliveries)
            tokens = Counter(begun.token for _, begun in self._began[job])
            for token, times in tokens.items():
                if times > 1:
                    self._wrong("doubled", f"job {job} began {times} times in the delivery {token}")
            for since, begun in self._began[job]:
                self._check_begun(begun, since, deliveries)

    def _check_completions(self, job: int, deliveries: Sequence[Delivery]) -> None:
        completed = [delivery.attempt for delivery in deliveries if delivery.how is EventKind.COMPLETED]
        known = self._jobs.get(job)
        wanted = 1 if known is None or known.end is State.COMPLETED else 0
        if len(completed) != wanted:
            self._wrong("untold", f"job {job} completed {len(completed)} times by its story")
        for attempt in completed:
            if (job, attempt) not in self._ended:
                self._wrong("untold", f"job {job} completed in attempt {attempt}, which no client was through with")

    def _check_begun(self, begun: Began, since: int, deliveries: Sequence[Delivery]) -> None:
        """Made between the two times, and known to the queue as valid at some moment between them."""
        own = [delivery for delivery in deliveries if delivery.attempt == begun.attempt]
        apart = max(CLOCK_MS, self._clock_ms)
        if not own:
            self._wrong("untold", f"{begun} is in an attempt that was never made")
        elif not any(one.began - apart <= begun.at and since <= one.ended + apart for one in own):
            self._wrong("untold", f"{begun}: no lease of that attempt was valid then")


def deliveries_of(events: Sequence[Event]) -> list[Delivery]:
    """Of one job, in order."""
    found: list[Delivery] = []
    for event in events:
        if event.kind is EventKind.STARTED:
            found.append(Delivery(event.at, event.attempt))
        elif event.kind in OUT_OF_ACTIVE and found and found[-1].how is None:
            found[-1].ended, found[-1].how = event.at, event.kind
    return found


def options_of(command: c.Push | c.PushBatch | c.Stage) -> dict[bytes, Options]:
    """The jobs of a push by their keys."""
    if isinstance(command, c.Push):
        return {key_of(command.payload): command.options}
    each = command.each or [command.options] * len(command.payloads)
    return {key_of(payload): options for payload, options in zip(command.payloads, each, strict=True)}


def shown(command: c.Command[Any]) -> str:
    """In a few words: payloads may be large."""
    return f"{type(command).__name__} of {list(options_of(command))}" if isinstance(command, PUSHES) else repr(command)


def tokens_of(command: Settling) -> list[tuple[int, int]]:
    """The jobs that it names, each with its token."""
    tokens = command.tokens
    assert tokens is not None, "a client settles what it holds"
    each = [tokens] * len(command.ids) if isinstance(tokens, int) else tokens
    return list(zip(command.ids, each, strict=True))


def jobs_of(command: c.Command[Any]) -> Sequence[int]:
    """The jobs that it may move."""
    if isinstance(command, SETTLING):
        return command.ids
    return [command.id] if isinstance(command, c.Cancel) else ()


def can_be_repeated(command: c.Command[Any] | None) -> bool:
    """Does sending it again change nothing if it has happened?"""
    if isinstance(command, c.PushBatch) and command.request_key is not None:
        return True
    if isinstance(command, (c.Push, c.PushBatch)):
        each = options_of(command).values()
        return all(options.custom_id is not None and options.unique_key is None for options in each)
    return False
