"""Says what is wrong with a history, in the words that such checks have elsewhere: lost, invented, doubled.

It knows nothing of engines and journals, only what a client was told and what was there after each crash. The rules:

    lost        a push that was answered is there after every crash, or has ended
    invented    nothing is there that nobody has asked for, or whose absence after a crash was seen
    torn        of one command that was never answered, all or nothing is there
    reused      no id and no token is given out twice
    revived     what has completed, was cancelled or has failed for good stays so
    doubled     nobody is given a job that another one holds by a lease that runs
    unleased    who holds a job by a lease that runs, before and after a crash, may settle it
    unfenced    who holds it no longer may not

What was never answered (an *unknown* outcome) may have happened or not; what is found after the crash decides it for
good. Job keys, not ids, tell jobs apart: an id is something that a broker says.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import shard_of
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.states import State
from tests.crash.history import Entry, Intent, Recovered, Refused, Reply, Seen, key_of
from tests.crash.workload import Memory

ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)

Settling = c.Ack | c.Fail | c.Release | c.Extend
PUSHES = (c.Push, c.PushBatch, c.Stage)


class Known(msgspec.Struct):
    """What a client knows about a job."""

    key: bytes
    id: int
    options: Options
    end: State | None = None
    token: int = 0
    """Of the delivery that somebody holds."""
    until: int = 0
    """When that lease ends."""
    delivered_in: int = 0
    """The number of crashes before that delivery."""
    deliveries: int = 0
    cancelling: bool = False
    """Its cancellation was asked for while it ran: it ends with its lease, at the latest."""
    loose: bool = False
    """Something was asked for and not answered: it may stand anywhere."""

    def is_held(self, now: int) -> bool:
        """Is it certainly under a lease that runs?"""
        return self.token > 0 and now < self.until and not self.loose and self.end is None


class Checker:
    """Reads a history entry by entry."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = defaultdict(list)
        """What is wrong, by rule."""
        self.counts: Counter[str] = Counter()
        """What the history has reached: it proves nothing about what it never did."""
        self._now = 0
        self._pending: c.Command[Any] | None = None
        """Asked for, and not answered yet."""
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
        self._jobs: dict[int, Known] = {}
        self._by_key: dict[bytes, Known] = {}
        self._tokens: set[tuple[int, int]] = set()
        """With the shards that they were given in: each counts for itself."""

    def read(self, entry: Entry) -> None:
        match entry:
            case Intent():
                self._intend(entry)
            case Reply():
                self._learn(self._answered(), entry.reply)
            case Refused():
                self._refused(self._answered(), entry)
            case Recovered():
                self._now = max(self._now, entry.at)
                self._crash(entry.jobs)

    def check_drained(self, seen: Sequence[Seen], pushed: int) -> None:
        """In the end: everything that was promised has ended, and the broker has counted as many."""
        self._look(seen)
        for job in seen:
            if job.state not in ENDS:
                self._wrong("lost", f"{job.key!r} is {job.state} and was never delivered again")
        if pushed != len(self._promised):
            self._wrong("lost", f"{pushed} jobs were pushed by the broker's count, {len(self._promised)} by ours")

    def memory(self) -> Memory:
        """What a client goes on with after a crash."""
        live = [job for job in self._jobs.values() if job.end is None]
        held = [(job.id, job.token) for job in live if job.token]
        again = self._unanswered if can_be_repeated(self._unanswered) else None
        return Memory(self._now, held[-60:], [job.id for job in live[-40:]], again, len(live))

    def _wrong(self, rule: str, what: str) -> None:
        self.found[rule].append(f"at {self._now}: {what}")

    # --- asking ----------------------------------------------------------------------------------

    def _intend(self, intent: Intent) -> None:
        assert self._pending is None, "one command at a time"
        self._pending, self._now = intent.command, intent.at
        command = intent.command
        self.counts[type(command).__name__] += 1
        if isinstance(command, PUSHES):
            options = options_of(command)
            self.counts["attempts"] += len(options)
            self._options |= options
            if not isinstance(command, c.Stage):
                self._asked |= options.keys()
                self._gone -= options.keys()
        elif isinstance(command, c.Publish):
            self._asked |= set(self._named_by(command))

    def _answered(self) -> c.Command[Any]:
        command, self._pending = self._pending, None
        assert command is not None, "an answer to nothing"
        return command

    def _named_by(self, command: c.Publish) -> list[bytes]:
        stages = self._stages[command.transaction]
        return [key for name in command.stages for key in stages.get(name, ())]

    # --- answers ---------------------------------------------------------------------------------

    def _learn(self, command: c.Command[Any], reply: Any) -> None:
        match command:
            case c.Push():
                self._pushed(key_of(command.payload), reply.id, reply.duplicate_by)
            case c.PushBatch():
                for item, (payload, job) in enumerate(zip(command.payloads, reply.ids, strict=True)):
                    if item in reply.refused:
                        self._wrong("lost", f"item {item} of {command} was refused: {reply.refused[item]}")
                    self._pushed(key_of(payload), job, reply.duplicates.get(item))
            case c.Stage():
                self._stages[command.transaction][command.stage] = list(options_of(command))
            case c.Publish():
                keys = self._named_by(command)
                self._promised |= set(keys)
                self.counts["acknowledged"] += len(keys)
                if reply.created != len(keys):
                    self._wrong("torn", f"{command} created {reply.created} of {len(keys)} jobs")
            case c.Pull():
                self._delivered(reply)
            case c.Ack() | c.Fail() | c.Release() | c.Extend():
                self._settled(command, reply)
            case c.Cancel():
                self._cancelled(reply)

    def _refused(self, command: c.Command[Any], refusal: Refused) -> None:
        if isinstance(command, (*PUSHES, c.Publish, c.Pull)):
            self._wrong("lost", f"{command} was refused: {refusal.message}")

    def _pushed(self, key: bytes, job: int, duplicate_by: str | None) -> None:
        if duplicate_by == "unique_key":  # answered with another one
            self._gone.add(key)
            return
        self._bind(key, job)
        self._promised.add(key)
        self.counts["acknowledged"] += 1
        self.counts["repeated"] += duplicate_by is not None

    def _bind(self, key: bytes, job: int) -> Known:
        """From now on this id means this job, and nothing else ever."""
        known = self._jobs.get(job)
        if known is None:
            if key in self._by_key:
                self._wrong("doubled", f"{key!r} is job {self._by_key[key].id} and job {job}")
            known = self._jobs[job] = self._by_key[key] = Known(key, job, self._options.get(key, DEFAULT_OPTIONS))
        if known.key != key:
            self._wrong("reused", f"id {job} was given to {known.key!r} and to {key!r}")
        return known

    def _delivered(self, delivery: r.Delivery) -> None:
        if not delivery.runs:
            return
        tokens = {(shard_of(job), delivery.token) for job in delivery.ids}
        if tokens & self._tokens:
            self._wrong("reused", f"token {delivery.token} was given twice")
        self._tokens |= tokens
        for run in delivery.runs:
            for job, payload in zip(run.ids, run.payloads, strict=True):
                self._deliver(job, key_of(payload), delivery.token, run.lease_until)

    def _deliver(self, job: int, key: bytes, token: int, until: int) -> None:
        self._check_asked(key)
        known = self._bind(key, job)
        if known.end is not None:
            self._wrong("revived", f"{key!r} was delivered after it was {known.end}")
        if known.is_held(self._now):
            self._wrong("doubled", f"{key!r} was delivered while {known.token} holds it until {known.until}")
        self.counts["deliveries"] += 1
        self.counts["delivered again"] += known.deliveries > 0
        known.token, known.until, known.loose = token, until, False
        known.deliveries += 1
        known.delivered_in = self.counts["crashes"]

    def _settled(self, command: Settling, reply: Any) -> None:
        states = {each.id: each.state for each in reply.jobs} if isinstance(reply, r.Failed) else {}
        tokens = command.tokens
        assert isinstance(tokens, list)
        for job, token in zip(command.ids, tokens, strict=True):
            known = self._jobs[job]
            is_held = known.is_held(self._now) and known.token == token
            if job in reply.refused:
                self.counts["fenced"] += 1
                if is_held:
                    self._wrong("unleased", f"{known} was refused with {reply.refused[job]}")
                continue
            if not is_held and not known.loose:
                self._wrong("unfenced", f"{type(command).__name__} of {known} with {token} was accepted")
            self.counts["outlived"] += known.delivered_in < self.counts["crashes"]
            if isinstance(command, c.Extend):
                known.until = self._now + known.options.lease_ms
                continue
            known.token, known.loose = 0, False
            end = State.COMPLETED if isinstance(command, c.Ack) else states.get(job)
            known.end = end if end in ENDS else None

    def _cancelled(self, view: r.JobView) -> None:
        known = self._jobs[view.id]
        if view.state is State.CANCELLED:
            known.end = State.CANCELLED
        else:
            known.cancelling = True

    # --- after a crash ---------------------------------------------------------------------------

    def _crash(self, seen: Sequence[Seen]) -> None:
        """What was asked for last and never answered is unknown; what is there decides it."""
        self.counts["crashes"] += 1
        command, self._pending = self._pending, None
        self._unanswered = command
        if isinstance(command, (c.Push, c.PushBatch)):
            self._decide([key for key, options in options_of(command).items() if options.unique_key is None], seen)
        elif isinstance(command, c.Publish):
            self._decide(self._named_by(command), seen)
        elif isinstance(command, (c.Ack, c.Fail, c.Release, c.Extend)):
            for job in command.ids:
                self._jobs[job].loose = True
        elif isinstance(command, c.Cancel):
            self._jobs[command.id].loose = True
        self.counts["unknown"] += command is not None
        self._look(seen)

    def _decide(self, keys: Sequence[bytes], seen: Sequence[Seen]) -> None:
        """All of them are there, and stay; or none, and never will be."""
        present = {job.key for job in seen} & set(keys)
        before = self._promised & set(keys)
        if present and len(present) < len(keys) and not before:
            self._wrong("torn", f"{len(present)} of {len(keys)} jobs are there: {sorted(present)}")
        elif present:
            self.counts["recovered"] += len(present)
            self._promised |= present
        elif not before:
            self._gone |= set(keys)
            self.counts["vanished"] += len(keys)

    def _look(self, seen: Sequence[Seen]) -> None:
        for job in seen:
            self._check_asked(job.key)
            self._promised.add(job.key)  # once it was there, it stays
            self._found(self._bind(job.key, job.id), job)
        for key in sorted(self._promised - {job.key for job in seen}):
            known = self._by_key.get(key)
            if known is None:
                self._wrong("lost", f"{key!r} was promised and never seen")
            elif known.end is None and (known.loose or known.cancelling):
                known.end, known.loose = State.COMPLETED, False  # or cancelled, and forgotten by now
            elif known.end is None:
                self._wrong("lost", f"{known} is nowhere")

    def _check_asked(self, key: bytes) -> None:
        if key not in self._asked:
            self._wrong("invented", f"{key!r} was never asked for")
        elif key in self._gone:
            self._wrong("invented", f"{key!r} had been refused, or had not survived")

    def _found(self, known: Known, job: Seen) -> None:
        if known.end is not None:
            if job.state is not known.end:
                self._wrong("revived", f"{known} is {job.state}")
        elif known.loose:
            known.loose = False
            known.token = job.token if job.state is State.ACTIVE and job.token == known.token else 0
            known.until = job.lease_until
            known.end = job.state if job.state in ENDS else None
        elif known.is_held(self._now):
            if job.state is not State.ACTIVE or job.token != known.token:
                self._wrong("unleased", f"{known} is {job.state} with token {job.token}")
        elif job.state is State.COMPLETED:
            self._wrong("invented", f"{known} was completed by nobody")
        elif job.state in ENDS:  # it has lost too many leases, or its last one after it was cancelled
            known.end = job.state


def options_of(command: c.Push | c.PushBatch | c.Stage) -> dict[bytes, Options]:
    """The jobs of a push by their keys."""
    if isinstance(command, c.Push):
        return {key_of(command.payload): command.options}
    each = command.each or [command.options] * len(command.payloads)
    return {key_of(payload): options for payload, options in zip(command.payloads, each, strict=True)}


def can_be_repeated(command: c.Command[Any] | None) -> bool:
    """Does sending it again change nothing if it has happened?"""
    if isinstance(command, c.PushBatch) and command.request_key is not None:
        return True
    if isinstance(command, (c.Push, c.PushBatch)):
        each = options_of(command).values()
        return all(options.custom_id is not None and options.unique_key is None for options in each)
    return False
