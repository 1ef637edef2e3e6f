"""Random work for a broker: every verb that moves jobs, over queues that live in different shards.

Every payload begins with a key that is never used again, so that a job can be told from all others. What a client must
know to go on after a crash (deliveries that it holds, jobs it has heard of, a push that was never answered) is its
`Memory`; it is handed to the next process.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import shard_for
from stoker.model.options import Backoff, Options
from tests.histories.history import key_of

SHARDS = 4
TENANT = "default"

STEADY = Backoff("fixed", 40, 40, "none")
CROWDED = 120
"""So many live jobs and the work turns from pushing to finishing."""


def _queues(each: int) -> list[str]:
    """As many names for every shard."""
    found: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
    number = 0
    while any(len(names) < each for names in found.values()):
        name = f"q{number}"
        names = found[shard_for(TENANT, name, SHARDS)]
        if len(names) < each:
            names.append(name)
        number += 1
    return sorted(name for names in found.values() for name in names)


QUEUES = _queues(2)


class Memory(msgspec.Struct):
    """What outlives a crash with the client."""

    now: int
    held: list[tuple[int, int]] = []
    """Jobs in the hands of workers, with their tokens."""
    known: list[int] = []
    """Jobs that were heard of, lately."""
    unanswered: c.Command[Any] | None = None
    """A push that may have happened, and that can be sent again without harm."""
    live: int = 0


class Manner(msgspec.Struct, frozen=True):
    """What the jobs and the pulls are like."""

    leases_ms: tuple[int, ...] = (60, 400, 60_000)
    waits_ms: tuple[int, ...] = (0,)
    fsyncs: float = 0.0
    """So many of the pushes ask to be on disk before they are answered."""
    kept: int | None = None
    """So many ended jobs of a queue stay readable, and none is removed before."""


QUICK = Manner()
"""Under a clock that the test moves."""


class Work:
    """Chooses the next command, and learns from the replies."""

    def __init__(self, seed: str, memory: Memory, manner: Manner = QUICK) -> None:
        self.chance = random.Random(seed)
        self.now = memory.now
        self._name = seed
        self._manner = manner
        self._numbers = 0
        self._held = list(memory.held)
        self._known = list(memory.known)
        self._live = memory.live
        self._unanswered = memory.unanswered
        self._plan: list[c.Command[Any]] = []
        """What is left of a transaction."""

    def next(self) -> c.Command[Any]:
        """Time goes on, and this is to be done."""
        self.now += self.chance.choice([0, 0, 0, 1, 1, 3, 10, 80])
        if self._unanswered is not None:
            again, self._unanswered = self._unanswered, None
            return again
        if self._plan and self.chance.random() < 0.6:
            return self._plan.pop(0)
        ways = FINISHING if self._live > CROWDED else GROWING
        while True:
            way = self.chance.choices([way for way, _ in ways], [weight for _, weight in ways])[0]
            command = way(self)
            if command is not None:
                return command

    def learn(self, command: c.Command[Any], reply: Any) -> None:
        match reply:
            case r.Pushed():
                self._add([reply.id], reply.created)
            case r.PushedBatch():
                self._add([job for job in reply.ids if job], reply.created)
            case r.Transaction():
                self._live += reply.created
            case r.Delivery():
                self._held += [(job, reply.token) for job in reply.ids]
            case r.Settled() | r.Failed():
                assert isinstance(command, (c.Ack, c.Fail, c.Release))
                done = set(command.ids)
                self._held = [(job, token) for job, token in self._held if job not in done]
                if isinstance(command, c.Ack):
                    self._live -= len(done)

    def repeat(self, command: c.Command[Any]) -> None:
        """Send it once more: its outcome is unknown, and a second sending does no harm."""
        self._unanswered = command

    def _add(self, jobs: list[int], created: int) -> None:
        self._known = [*self._known, *jobs][-40:]
        self._live += created

    # --- commands --------------------------------------------------------------------------------

    def _payload(self) -> bytes:
        self._numbers += 1
        filler = self.chance.choice([0, 0, 10, 100, 100, 3_000, 9_000])
        return b"%s/%d;" % (self._name.encode(), self._numbers) + bytes(filler)

    def _options(self, payload: bytes, batch: bool = False) -> Options:
        """Options that a push can be repeated with: `custom_id` is the job's own key."""
        chance = self.chance
        plain: dict[str, Any] = {
            "priority": chance.choice([0, 0, 0, 5]),
            "delay_ms": chance.choice([0, 0, 0, 20]),
            "lease_ms": chance.choice(self._manner.leases_ms),
            "max_attempts": chance.choice([0, 0, 2, 5]),
            "max_crashes": chance.choice([0, 0, 2]),
            "backoff": STEADY,
            "lifo": chance.random() < 0.1,
            "remove_on_complete": chance.random() < 0.1 and self._manner.kept is None,
            "keep_completed_count": self._manner.kept,
        }
        if not batch:
            plain |= {
                "custom_id": key_of(payload).decode() if chance.random() < 0.7 else None,
                "unique_key": chance.choice(["a", "b"]) if chance.random() < 0.05 else None,
                "group_id": chance.choice(["g", "h"]) if chance.random() < 0.2 else None,
            }
        return Options(**plain)

    def _durability(self) -> r.Level | None:
        return "fsync" if self._manner.fsyncs and self.chance.random() < self._manner.fsyncs else None

    def push(self) -> c.Command[Any]:
        payload = self._payload()
        return c.Push(self.chance.choice(QUEUES), payload, self._options(payload), durability=self._durability())

    def push_batch(self) -> c.Command[Any]:
        payloads = [self._payload() for _ in range(self.chance.choice([2, 3, 5, 20]))]
        key = key_of(payloads[0]).decode() if self.chance.random() < 0.7 else None
        options = self._options(payloads[0], batch=True)
        return c.PushBatch(
            self.chance.choice(QUEUES), payloads, options, request_key=key, durability=self._durability()
        )

    def push_each(self) -> c.Command[Any]:
        payloads = [self._payload() for _ in range(self.chance.choice([2, 4, 8]))]
        each = [self._options(payload) for payload in payloads]
        return c.PushBatch(self.chance.choice(QUEUES), payloads, each=each, atomic=self.chance.random() < 0.5)

    def transaction(self) -> c.Command[Any] | None:
        """Stages in several queues, and so in several shards; published, aborted or left alone."""
        if self._plan:
            return None
        name = key_of(self._payload()).decode()
        stages = [f"s{number}" for number in range(self.chance.choice([1, 2, 3, 4]))]
        for stage in stages:
            payloads = [self._payload() for _ in range(self.chance.choice([1, 2, 6]))]
            options = self._options(payloads[0], batch=True)
            self._plan.append(c.Stage(name, stage, self.chance.choice(QUEUES), payloads, options, part=0))
        ends: list[c.Command[Any]] = [c.Publish(name, stages), c.Publish(name, stages[:1]), c.Abort(name)]
        self._plan += self.chance.choices([[ends[0]], [ends[1]], [ends[2]], []], [6, 2, 1, 1])[0]
        return self._plan.pop(0)

    def pull(self) -> c.Command[Any]:
        queues = self.chance.sample(QUEUES, self.chance.choice([1, 1, 3, len(QUEUES)]))
        count, wait_ms = self.chance.choice([1, 1, 4, 12]), self.chance.choice(self._manner.waits_ms)
        return c.Pull(queues, count, wait_ms=wait_ms, worker="w")

    def _some_held(self) -> tuple[list[int], list[int]] | None:
        if not self._held:
            return None
        some = dict(self.chance.sample(self._held, min(len(self._held), self.chance.choice([1, 1, 3, 12]))))
        return list(some), list(some.values())

    def ack(self) -> c.Command[Any] | None:
        some = self._some_held()
        if some is None:
            return None
        if self.chance.random() < 0.7:
            return c.Ack(*some)
        return c.Ack(*some, [self.chance.choice([None, self._result(0), self._result(2_000)]) for _ in some[0]])

    def _result(self, filler: int) -> bytes:
        """No other ack brings the same."""
        self._numbers += 1
        return b"%s/%d" % (self._name.encode(), self._numbers) + bytes(filler)

    def fail(self) -> c.Command[Any] | None:
        some = self._some_held()
        return some and c.Fail(*some, error="broken", retry=self.chance.random() < 0.7)

    def release(self) -> c.Command[Any] | None:
        some = self._some_held()
        return some and c.Release(*some, delay_ms=self.chance.choice([0, 30]))

    def extend(self) -> c.Command[Any] | None:
        some = self._some_held()
        return some and c.Extend(*some)

    def cancel(self) -> c.Command[Any] | None:
        return c.Cancel(self.chance.choice(self._known)) if self._known else None

    def report(self) -> c.Command[Any] | None:
        if not self._held:
            return None
        job, token = self.chance.choice(self._held)
        kinds: list[Callable[[], c.Command[Any]]] = [
            lambda: c.SetProgress(job, 50, "half", token),
            lambda: c.AppendLog(job, "line", token=token),
            lambda: c.AppendPartial(job, b"chunk", token=token),
        ]
        return self.chance.choice(kinds)()

    def key_value(self) -> c.Command[Any]:
        chance = self.chance
        key, value, ttl_ms = chance.choice("abc"), bytes(chance.choice([0, 10, 3_000])), chance.choice([0, 0, 30, 400])
        kinds: list[Callable[[], c.Command[Any]]] = [
            lambda: c.KvSet(key, value, ttl_ms),
            lambda: c.KvSetMany([c.KvEntry(one, value, ttl_ms, "json") for one in "abc"]),
            lambda: c.KvIncrement("n", chance.choice([1, -3])),
            lambda: c.KvExpire(key, ttl_ms),
            lambda: c.KvDelete([key]),
        ]
        return chance.choice(kinds)()


Ways = list[tuple[Callable[[Work], c.Command[Any] | None], int]]

GROWING: Ways = [
    (Work.push, 8),
    (Work.push_batch, 3),
    (Work.push_each, 2),
    (Work.transaction, 2),
    (Work.pull, 8),
    (Work.ack, 6),
    (Work.fail, 2),
    (Work.release, 1),
    (Work.extend, 2),
    (Work.cancel, 1),
    (Work.report, 1),
    (Work.key_value, 1),
]
FINISHING: Ways = [(Work.pull, 8), (Work.ack, 12), (Work.fail, 1), (Work.extend, 1), (Work.push, 1)]
