"""A batch that is kept as one thing behaves as the jobs in it: same answers, same events, whatever happens to some."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit, Retention, Settings
from stoker.model.replies import Delivery, Transaction
from stoker.model.states import State
from stoker.testing import World
from tests.conformance.support import all_events

STEADY = Backoff("exponential", 100, 10_000, "none")
BATCH = [b"%d" % number for number in range(10)]


class Script:
    """Commands against one world, with everything that came back."""

    def __init__(self, *, batching: bool) -> None:
        retention = Retention(completed_age_ms=60_000, completed_count=20)
        self.world = World(Settings(batching=batching, seed=5, retention=retention))
        self.heard: list[object] = []
        self.tokens: list[int] = []

    def __call__(self, command: c.Command[Any]) -> Any:
        try:
            reply = self.world.client.execute(command)
        except StokerError as error:
            self.heard.append((type(command).__name__, error.code))
            return None
        self.heard.append((type(command).__name__, self.plain(reply)))
        return reply

    def push(self, options: Options | None = None, payloads: Sequence[bytes] = BATCH, queue: str = "q") -> list[int]:
        return list(self(c.PushBatch(queue, payloads, options or Options())).ids)

    def pull(self, count: int, **fields: Any) -> tuple[list[int], int]:
        delivery = self(c.Pull(["q"], count, **fields))
        return [job.id for job in delivery], delivery.token

    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    def plain(self, value: object) -> object:
        """A value without the ways to write it: runs and ranges spelled out, tokens by order of appearance."""
        if isinstance(value, Delivery):
            return [self.plain(list(value)), value.next_at]
        if isinstance(value, Transaction):
            ids = [first + (step << 6) for first, count in value.runs for step in range(count)]
            return [value.outcome, value.created, ids]
        if isinstance(value, msgspec.Struct):
            fields = {name: self.plain(getattr(value, name)) for name in value.__struct_fields__ if name != "looked"}
            if "token" in fields:
                fields["token"] = self.rank(value.token)  # type: ignore[attr-defined]
            return fields
        if isinstance(value, Mapping):
            return {key: self.plain(content) for key, content in sorted(value.items())}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [self.plain(content) for content in value]
        return value

    def rank(self, token: int) -> int:
        if token not in self.tokens:
            self.tokens.append(token)
        return self.tokens.index(token)

    def look(self) -> None:
        """Everything there is to see, now."""
        for command in (
            c.GetStats(),
            c.GetStats("q"),
            c.Browse(ascending=True, limit=1_000),
            c.ListDead("q", limit=1_000),
            c.GetDeadStats("q"),
            c.GetPriorities("q"),
            c.ListQueues(),
        ):
            self(command)
        for job in self.world.client.browse("q", ascending=True, limit=1_000).jobs:
            self(c.Why(job.id))

    def end(self) -> list[object]:
        self.look()
        for event in all_events(self.world.client):
            self.heard.append(self.plain(msgspec.structs.replace(event, sequence=0, index=0)))
        self.world.close()
        return self.heard


def sliced_and_partly_acknowledged(s: Script) -> None:
    ids = s.push()
    s.push(Options(priority=1), [b"urgent"])
    _, first = s.pull(4)
    s.look()
    _, second = s.pull(3)
    s(c.Ack([ids[1], ids[2]], first, [b"result", None]))
    s(c.Ack([ids[5], ids[0], ids[9]], second))
    s(c.Ack(ids, None))


def failed_and_tried_again(s: Script) -> None:
    ids = s.push(Options(backoff=STEADY, max_attempts=2))
    _, token = s.pull(6)
    s(c.Fail(ids[1:4], token, "bad", "ValueError"))
    s(c.Fail([ids[0]], token, "worse", retry=False))
    s(c.Fail([ids[4]], token, delay_ms=0))
    s.look()
    s.advance(100)
    s.pull(3)
    s(c.Fail(ids[:5], None, "again"))
    s.advance(1_000)
    s(c.RetryDead("q", limit=2))
    s.pull(10)


def failed_with_jitter(s: Script) -> None:
    ids = s.push(Options(backoff=Backoff("linear", 1_000, 10_000, "full")))
    _, token = s.pull(10)
    s(c.Fail(ids, token))
    s.advance(700)
    s.pull(10)


def cancelled_inside(s: Script) -> None:
    ids = s.push()
    s(c.Cancel(ids[0]))
    s(c.Cancel(ids[4]))
    s(c.Cancel(ids[9]))
    got, token = s.pull(3)
    s(c.Cancel(got[1]))
    s(c.Extend(got, token))
    s(c.Release(got, token))
    s.pull(10)
    s(c.Cancel(ids[4]))


def reprioritised_inside(s: Script) -> None:
    ids = s.push()
    s(c.ChangePriority(ids[7], 5))
    s(c.ChangePriority(ids[3], -5))
    s(c.ChangePriority(ids[8], 0))
    s.pull(4)
    s(c.ChangePriority(ids[9], 1))
    s.look()
    s.pull(10)


def delayed_promoted_and_moved(s: Script) -> None:
    ids = s.push(Options(delay_ms=1_000))
    s(c.Promote(ids[6]))
    s(c.Promote(ids[0]))
    s(c.MoveToDelayed(ids[3], 200))
    s(c.MoveToDelayed(ids[9], 0))
    s.pull(2)
    s.look()
    s.advance(200)
    s.pull(10)
    s.advance(800)
    s.pull(10)


def leases_expired(s: Script) -> None:
    ids = s.push(Options(lease_ms=500, backoff=STEADY, max_crashes=2, max_attempts=5))
    _, token = s.pull(6)
    s(c.Extend([ids[1], ids[2]], token, 900))
    s(c.Ack([ids[3]], token))
    s.advance(500)
    s.look()
    s(c.Ack(ids[:6], token))
    s.advance(400)
    got, token = s.pull(20)
    s.advance(5_000)
    s(c.Ack(got, token))
    s.pull(20)
    s.advance(5_000)


def timed_out(s: Script) -> None:
    ids = s.push(Options(timeout_ms=300, backoff=STEADY, max_attempts=2))
    _, token = s.pull(5)
    s(c.Extend(ids[:5], token))
    s(c.SetProgress(ids[2], 50, "half", token))
    s.advance(300)
    s.look()
    s.advance(1_000)
    s.pull(20)
    s.advance(1_000)


def expired_by_ttl(s: Script) -> None:
    s.push(Options(ttl_ms=400))
    s.pull(3)
    s.advance(200)
    got, token = s.pull(2)
    s(c.Release(got, token))
    s.advance(200)
    s.pull(10)


def ttl_of_dead_letters(s: Script) -> None:
    s(c.SetQueuePolicy("q", None, DeadLetterPolicy(take_expired=True, take_cancelled=True, entries_max=6)))
    ids = s.push(Options(ttl_ms=400))
    s(c.Cancel(ids[5]))
    s.advance(400)
    s(c.RetryDead("q", limit=3))
    s.pull(10)


def released_and_snoozed(s: Script) -> None:
    ids = s.push()
    _, token = s.pull(8)
    s(c.Release(ids[2:5], token))
    s(c.Release([ids[6]], token, 300))
    s(c.Release(ids[:3], token))
    s.look()
    s.pull(4)
    s.advance(300)
    s.pull(10)


def extended(s: Script) -> None:
    ids = s.push(Options(lease_ms=1_000))
    _, token = s.pull(5)
    s.advance(500)
    s(c.Extend(ids, token))
    s(c.Extend(ids[1:3], token, 50))
    s(c.Extend(ids[:2], token + 1))
    s.advance(50)
    s.look()
    s.advance(950)


def claimed(s: Script) -> None:
    ids = s.push(Options(lease_ms=1_000))
    s.pull(4, claim="c")
    s(c.Ack([ids[1]]))
    s.pull(10, claim="c")
    s(c.ExtendClaim("c"))
    s(c.Release([ids[0]]))
    s.pull(2, claim="d")
    s(c.ReleaseClaim("d"))
    s(c.AckClaim("c", {ids[2]: b"result"}))
    s.pull(10, claim="c")
    s.pull(10)
    s.advance(1_000)
    s.pull(10, claim="c")


def grouped(s: Script) -> None:
    ids = s.push(Options(group_id="g", backoff=STEADY))
    s.push(Options(group_id="h"), BATCH[:3])
    s.pull(10)
    s.look()
    s(c.Fail([ids[0]]))
    s.pull(10)
    s.advance(100)
    s.pull(10)
    s(c.Ack([ids[0]]))
    s(c.Cancel(ids[1]))
    s.pull(10)


def limited(s: Script) -> None:
    s(c.SetRateLimit("q", RateLimit(4, 1_000)))
    s(c.SetConcurrency("q", 5))
    s.push()
    got, token = s.pull(10)
    s(c.Ack(got[:1], token))
    s.look()
    s.advance(600)
    s.pull(10)
    s(c.Pause("q"))
    s.advance(600)
    s.pull(10)
    s(c.Resume("q"))
    s.pull(10)


def depended_on(s: Script) -> None:
    ids = s.push()
    s(c.Push("q", b"behind", Options(depends_on=(Dependency(ids[3]), Dependency(ids[8], "continue")))))
    s(c.PushBatch("q", BATCH, Options(depends_on=(Dependency(ids[2]),))))
    _, token = s.pull(9)
    s(c.Ack(ids[3:8], token))
    s(c.Fail([ids[8]], token, retry=False))
    s.look()
    s(c.Fail([ids[2]], token, retry=False))
    s.pull(100)


def last_in_first_out(s: Script) -> None:
    s.push(Options(lifo=True))
    s.pull(3)
    s.push(Options(lifo=True), BATCH[:2])
    got, token = s.pull(4)
    s(c.Release(got[1:3], token))
    s.pull(20)


def drained_and_cleaned(s: Script) -> None:
    ids = s.push()
    s.push(Options(delay_ms=500))
    s.pull(3)
    s(c.Clean("q", State.WAITING, limit=2))
    s(c.Drain("q"))
    s(c.Clean("q", State.DELAYED, limit=3))
    s(c.Drain("q", True))
    s(c.Ack(ids[:3]))
    s(c.Clean("q", State.COMPLETED, limit=1))
    s(c.Clean("q", State.CANCELLED, limit=5))


def forgotten(s: Script) -> None:
    ids = s.push(Options(keep_completed_count=4, keep_completed_age_ms=1_000))
    _, token = s.pull(10)
    s(c.Ack(ids[:3], token))
    s.advance(500)
    s(c.Ack(ids[3:7], token))
    s.look()
    s.advance(600)
    s.look()
    s.advance(500)


def told_about(s: Script) -> None:
    ids = s.push()
    s(c.AppendLog(ids[4], "waiting"))
    s(c.UpdatePayload(ids[5], b"new"))
    _, token = s.pull(7)
    s(c.SetProgress(ids[2], 40, "so far", token))
    s(c.AppendPartial(ids[3], b"chunk", None, token))
    s(c.AppendLog(ids[3], "line", "debug", token))
    s(c.GetPartials(ids[3]))
    s(c.GetLogs(ids[3]))
    s.look()
    s(c.Ack(ids[:7], token))
    s(c.WaitJob(ids[2], 0))


def discarded(s: Script) -> None:
    ids = s.push()
    s(c.Discard(ids[9]))
    s(c.Discard(ids[0]))
    _, token = s.pull(3)
    s(c.Discard(ids[2]))
    s(c.Ack(ids[1:4], token))
    s(c.UpdatePayload(ids[0], b"mended"))
    s(c.RetryDead("q"))
    s.pull(10)


def obliterated(s: Script) -> None:
    s.push()
    s.pull(3)
    s(c.Obliterate("q"))
    s(c.Obliterate("q", True))
    s.push()
    s.pull(20)


def with_keys(s: Script) -> None:
    s.push(Options(unique_key="k", on_conflict="replace"))
    s.push(Options(unique_key="k"))
    s.push(Options(custom_id="c", debounce_id="d"))
    s(c.PushBatch("q", BATCH, request_key="r"))
    s(c.PushBatch("q", BATCH, request_key="r"))
    s.pull(100)


def with_a_bad_item(s: Script) -> None:
    each = [Options()] * 3 + [Options(ttl_ms=-1)] + [Options()] * 3 + [Options(priority=1)] + [Options()] * 2
    s(c.PushBatch("q", BATCH, each=each))
    s(c.PushBatch("q", BATCH, each=each, atomic=True))
    s.pull(5)
    s.pull(50)


def published(s: Script) -> None:
    for part in range(3):
        s(c.Stage("t", "s", "q", BATCH, part=part))
    s(c.Stage("t", "other", "q", BATCH))
    s(c.Publish("t", ["s"]))
    s(c.Publish("t", ["s", "other"]))
    s.pull(100)


def pushed_one_by_one(s: Script) -> None:
    """Neighbours that might be kept together, with a stranger among them."""
    for number in range(6):
        s(c.Push("q", b"%d" % number))
        s.advance(number % 2)
    s(c.Push("q", b"stranger", Options(tags=("t",))))
    for number in range(3):
        s(c.Push("q", b"%d" % number))
    ids, token = s.pull(4)
    s(c.Ack(ids[1:3], token))
    s(c.Fail(ids[:1], token))
    s.look()
    s.pull(20)


SCENARIOS = [
    sliced_and_partly_acknowledged,
    failed_and_tried_again,
    failed_with_jitter,
    cancelled_inside,
    reprioritised_inside,
    delayed_promoted_and_moved,
    leases_expired,
    timed_out,
    expired_by_ttl,
    ttl_of_dead_letters,
    released_and_snoozed,
    extended,
    claimed,
    grouped,
    limited,
    depended_on,
    last_in_first_out,
    drained_and_cleaned,
    forgotten,
    told_about,
    discarded,
    obliterated,
    with_keys,
    with_a_bad_item,
    published,
    pushed_one_by_one,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nobody_can_tell_the_difference(scenario: Callable[[Script], None]):
    heard = []
    for batching in (True, False):
        script = Script(batching=batching)
        scenario(script)
        heard.append(script.end())
    assert heard[0] == heard[1]


def at_random(s: Script, seed: int) -> None:
    """A hundred and fifty commands of every kind, mostly about jobs that are there."""
    chance = random.Random(seed)
    known: list[int] = []
    tokens: list[int | None] = [None]

    def some() -> list[int]:
        if not known:
            return [64]
        begin = chance.randrange(len(known))
        return known[begin : begin + chance.randint(1, 6)]

    def options() -> Options:
        return Options(
            priority=chance.choice([0, 0, 0, 1]),
            delay_ms=chance.choice([0, 0, 0, 50]),
            ttl_ms=chance.choice([0, 0, 300]),
            timeout_ms=chance.choice([0, 0, 150]),
            lease_ms=chance.choice([100, 30_000]),
            max_attempts=chance.choice([1, 2, 3]),
            backoff=Backoff("fixed", 40, 40, chance.choice(["none", "equal"])),
            lifo=chance.random() < 0.2,
            group_id=chance.choice([None, None, "g"]),
            keep_completed_count=chance.choice([None, 3]),
        )

    for _ in range(150):
        match chance.randrange(14):
            case 0 | 1:
                known += s.push(options(), BATCH[: chance.randint(1, 10)])
            case 2:
                known.append(s(c.Push("q", b"single", options())).id)
            case 3 | 4 | 5:
                _, token = s.pull(chance.randint(1, 6), lease_ms=chance.choice([None, None, 200]))
                tokens.append(token)
            case 6:
                s(c.Ack(some(), chance.choice(tokens[-2:])))
            case 7:
                s(c.Fail(some(), chance.choice(tokens[-2:]), "x", retry=chance.random() < 0.8))
            case 8:
                s(c.Release(some(), chance.choice(tokens[-2:]), chance.choice([0, 30])))
            case 9:
                s(c.Extend(some(), None, chance.choice([None, 80])))
            case 10:
                s(chance.choice([c.Cancel, c.Promote, c.Discard])(some()[0]))
            case 11:
                s(c.ChangePriority(some()[0], chance.randint(-1, 1)))
            case 12:
                s(chance.choice([c.MoveToDelayed(some()[0], 20), c.RetryDead("q", limit=2), c.Drain("q")]))
            case _:
                s.advance(chance.choice([1, 30, 100, 500]))
        if chance.random() < 0.05:
            s.look()


@pytest.mark.parametrize("seed", range(12))
def test_nobody_can_tell_the_difference_at_random(seed: int):
    heard = []
    for batching in (True, False):
        script = Script(batching=batching)
        at_random(script, seed)
        heard.append(script.end())
    assert heard[0] == heard[1]
    assert len(heard[0]) > 300, "something has happened"
