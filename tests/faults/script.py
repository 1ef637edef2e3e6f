"""A fixed piece of work for a broker with four shards: the same seed and the same replies make the same commands.

Every verb that moves jobs, single and in batches, at all three levels; transactions over all shards; readers of events;
time that passes; and rounds of upkeep, asked for at fixed places so that files are finished and checkpoints made there.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import shard_for
from stoker.model.options import Backoff, Options

SHARDS = 4
TENANT = "default"
START_MS = 1_700_000_000_000


def _queues() -> list[str]:
    """Two queues in every shard."""
    found: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
    for number in range(1_000):
        found[shard_for(TENANT, f"q{number}", SHARDS)].append(f"q{number}")
    return [name for names in found.values() for name in names[:2]]


QUEUES = _queues()
"""Those of shard 0 first."""


class Keep(msgspec.Struct, frozen=True):
    """A round of upkeep."""


class Pass(msgspec.Struct, frozen=True):
    """Time passes."""

    ms: int


class Listen(msgspec.Struct, frozen=True):
    """Somebody asks in a thread of his own, and waits for the answer."""

    command: c.Command[Any]


Step = c.Command[Any] | Keep | Pass | Listen


class Script:
    """Says what comes next, and learns from the replies."""

    def __init__(self, seed: int, steps: int) -> None:
        self._seed = seed
        self._chance = random.Random(seed)
        self._number = 0
        self._held: list[tuple[int, int]] = []
        self._known: list[int] = []
        self._steps = steps

    def __iter__(self) -> Iterator[Step]:
        yield Listen(c.Pull([QUEUES[3]], 3, 500_000))
        yield Listen(c.ReadEvents(2, 10_000, wait_ms=500_000))
        yield c.PushBatch(QUEUES[3], [self._payload() for _ in range(5)], Options(delay_ms=200, lease_ms=400))
        for number in range(self._steps):
            yield from self._some(number)
        yield Keep()

    def _some(self, number: int) -> Iterator[Step]:
        if number % 6 == 5:
            yield Keep()
        if number % 15 == 7:
            yield from self._transaction(number)
        if number % 9 == 4:
            yield Pass(self._chance.choice([1, 50, 300]))
        way = self._chance.choice(WAYS)
        command = way(self)
        if command is not None:
            yield command

    def learn(self, reply: Any) -> None:
        match reply:
            case r.Pushed():
                self._known.append(reply.id)
            case r.PushedBatch():
                self._known += [job for job in reply.ids if job]
            case r.Delivery():
                self._held += [(job, reply.token) for job in reply.ids]

    def _payload(self) -> bytes:
        self._number += 1
        return b"%d;" % self._number + bytes(self._chance.choice([0, 20, 300, 2_000]))

    def _options(self) -> Options:
        chance = self._chance
        return Options(
            priority=chance.choice([0, 0, 5]),
            delay_ms=chance.choice([0, 0, 100]),
            lease_ms=chance.choice([200, 60_000]),
            max_attempts=chance.choice([0, 2]),
            backoff=Backoff("fixed", 40, 40, "none"),
            lifo=chance.random() < 0.1,
            unique_key=chance.choice([None, None, None, "a"]),
            group_id=chance.choice([None, None, None, "g"]),
        )

    def _level(self) -> r.Level | None:
        levels: list[r.Level | None] = [None, "memory", "commit", "fsync"]
        return self._chance.choice(levels)

    def _transaction(self, number: int) -> Iterator[Step]:
        """A stage in one queue of each shard; the last one is published or not."""
        name = f"t{self._seed}-{number}"
        for shard in range(SHARDS):
            payloads = [self._payload() for _ in range(self._chance.choice([1, 3]))]
            yield c.Stage(name, f"s{shard}", QUEUES[shard * 2], payloads, part=0)
        if self._chance.random() < 0.8:
            yield c.Publish(name, [f"s{shard}" for shard in range(SHARDS)], self._level())
        else:
            yield c.Abort(name)

    def push(self) -> Step:
        return c.Push(self._chance.choice(QUEUES), self._payload(), self._options(), self._level())

    def push_batch(self) -> Step:
        payloads = [self._payload() for _ in range(self._chance.choice([2, 6]))]
        options = msgspec.structs.replace(self._options(), unique_key=None, group_id=None)
        key = f"k{self._seed}-{self._number}"
        return c.PushBatch(self._chance.choice(QUEUES), payloads, options, request_key=key, durability=self._level())

    def pull(self) -> Step:
        queues = self._chance.sample(QUEUES, self._chance.choice([1, 4, 8]))
        return c.Pull(queues, self._chance.choice([1, 4]), worker="w")

    def _some_held(self) -> tuple[list[int], list[int]] | None:
        if not self._held:
            return None
        some = self._chance.sample(self._held, min(len(self._held), self._chance.choice([1, 3])))
        self._held = [one for one in self._held if one not in some]
        return [job for job, _ in some], [token for _, token in some]

    def ack(self) -> Step | None:
        some = self._some_held()
        return some and c.Ack(*some, [b"result" for _ in some[0]])

    def fail(self) -> Step | None:
        some = self._some_held()
        return some and c.Fail(*some, error="broken")

    def extend(self) -> Step | None:
        some = self._some_held()
        return some and c.Extend(*some)

    def cancel(self) -> Step | None:
        return c.Cancel(self._chance.choice(self._known)) if self._known else None

    def update(self) -> Step | None:
        return c.UpdatePayload(self._chance.choice(self._known), self._payload()) if self._known else None

    def look(self) -> Step | None:
        return c.GetJob(self._chance.choice(self._known)) if self._known else None

    def read_events(self) -> Step:
        return c.ReadEvents(self._chance.randrange(SHARDS), self._chance.choice([0, 5]), 40)


Way = Callable[[Script], Step | None]

WAYS: list[Way] = [
    *[Script.push] * 5,
    *[Script.push_batch] * 3,
    *[Script.pull] * 5,
    *[Script.ack] * 4,
    Script.fail,
    Script.fail,
    Script.extend,
    Script.cancel,
    Script.update,
    Script.look,
    Script.read_events,
    Script.read_events,
]
