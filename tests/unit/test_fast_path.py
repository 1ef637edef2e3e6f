"""The short ways of `engine/fast_path.py` do exactly what the general ones do.

The same random histories of single jobs run twice: as they are, and with every short way closed. Replies,
records, answers to those who wait, the state and the time to come back must be equal after every step.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker.engine import fast_path, shard_state
from stoker.engine.audit import audit
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.model.options import DEFAULT_OPTIONS, Dependency, Options, Retention, Settings
from stoker.model.states import State
from stoker.records.codec import encode
from stoker.records.records import AgedOut
from tests.soaking import SOAKS

SHORT_LIVED = Settings(retention=Retention(completed_age_ms=400, completed_count=5))
STEPS = 400


class History:
    """Random commands about single jobs; learns ids and tokens from the replies."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.jobs: list[int] = [64]
        self.held: list[tuple[int, int]] = [(64, 1)]

    def a_job(self) -> int:
        return self.chance.choice(self.jobs[-6:])

    def a_delivery(self) -> tuple[int, int]:
        return self.chance.choice(self.held[-3:])

    def step(self) -> tuple[int, str, c.Command[Any]]:
        chance = self.chance
        draws: list[tuple[int, Callable[[], c.Command[Any]]]] = [
            (40, lambda: c.Push("q", bytes(chance.randrange(4)))),
            (50, self.pull),
            (50, self.ack),
            (9, lambda: c.Push("q", b"", Options(priority=chance.choice([-1, 1])))),
            (5, lambda: c.Push("q", b"", Options(tags=("a",), max_attempts=1))),
            (2, lambda: c.Push("q", b"", Options(lifo=True))),
            (1, lambda: c.PushBatch("q", [b""] * chance.randrange(1, 4))),
            (3, lambda: c.Push("r", b"", Options(depends_on=(Dependency(self.a_job(), "continue"),)))),
            (4, lambda: c.Fail((self.a_delivery()[0],), None, "broken", delay_ms=chance.choice([0, None, 20]))),
            (3, lambda: c.Release((self.a_delivery()[0],), None, chance.choice([0, 20]))),
            (3, lambda: c.Extend((self.a_delivery()[0],), None, chance.choice([None, 60]))),
            (2, lambda: c.Cancel(self.a_job())),
            (2, lambda: c.ChangePriority(self.a_job(), chance.choice([0, 0, 1]))),
            (3, lambda: c.WaitJob(self.a_job(), 40)),
            (2, lambda: c.UpdatePayload(self.a_job(), b"changed")),
            (2, lambda: c.Clean("q", State.COMPLETED, limit=chance.choice([1, 9]))),
            (1, lambda: c.RetryDead("q")),
            (1, lambda: c.SetConcurrency("q", 2)),
            (3, lambda: c.SetConcurrency("q", 0)),
            (1, lambda: c.Pause("q")),
            (3, lambda: c.Resume("q")),
            (1, lambda: c.Obliterate("q", chance.random() < 0.3)),
        ]
        draw = chance.choices([draw for _, draw in draws], [weight for weight, _ in draws])[0]
        passed = chance.choice([0, 0, 0, 1, 3, 7, 30, 100])
        return passed, "zeta" if chance.random() < 0.03 else "acme", draw()

    def pull(self) -> c.Command[Any]:
        chance = self.chance
        return c.Pull(
            chance.choice([["q"], ["q"], ["q"], ("q",), ("q",), ["q", "r"], ["nowhere"]]),
            chance.choice([1, 1, 1, 1, 3]),
            chance.choice([0, 0, 0, 25]),
            chance.choice(["", "w1", "w2"]),
            chance.choice([None, None, 200, 900]),
            chance.choice([None] * 9 + ["claim"]),
        )

    def ack(self) -> c.Command[Any]:
        chance = self.chance
        job, token = self.a_delivery()
        tokens = chance.choice([token, token, token, token, None, token + 1, [token]])
        no_results: list[list[bytes | None] | None] = [None] * 5
        results = chance.choice([*no_results, [b"done"], [None]])
        return c.Ack(chance.choice([(job,), [job], range(job, job + 1)]), tokens, results)

    def learn(self, reply: Any) -> None:
        if isinstance(reply, r.Pushed):
            self.jobs.append(reply.id)
        elif isinstance(reply, r.Delivery):
            self.held += [(job.id, job.token) for job in reply]


def plain(value: Any) -> Any:
    """A reply as something that can be compared: lists, tuples and ranges of the same jobs say the same."""
    if isinstance(value, Parked):
        return "parked", value.expires_at
    if isinstance(value, r.Delivery):
        return value.token, value.next_at, list(value)
    return value


def told(seed: int) -> Iterator[tuple[Any, ...]]:
    """A history step by step: what was asked, and everything that came of it."""
    shard, history, now = Shard(settings=SHORT_LIVED), History(seed), 1_000
    for _ in range(STEPS):
        passed, tenant, command = history.step()
        now += passed
        try:
            reply = shard.execute(tenant, command, now)
        except StokerError as error:
            reply = error.code, error.message
        history.learn(reply)
        records = [encode(record) for record in shard.take_records()]
        effects = [(parked.command, plain(found)) for parked, found in shard.take_effects()]
        for _, found in effects:
            history.learn(found)
        audit(shard)
        yield command, plain(reply), records, effects, dump(shard)


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each of the short ways was taken to its end."""
    taken: Counter[str] = Counter()

    def counting(name: str, way: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            found = way(*arguments)
            taken[name] += found is not None
            return found

        return counted

    for name in ("push", "pull", "ack"):
        monkeypatch.setattr(fast_path, name, counting(name, getattr(fast_path, name)))
    return taken


def close_short_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """No options are simple, so every command takes the general way."""

    def intern_nothing_simple(shard: Shard) -> None:
        shard._interned = {DEFAULT_OPTIONS: DEFAULT_OPTIONS}
        shard.simple = {}

    monkeypatch.setattr(Shard, "_start_interning", intern_nothing_simple)
    monkeypatch.setattr(shard_state, "is_simple", lambda options: False)


@pytest.mark.parametrize("seed", range(60 if SOAKS else 3))
def test_the_short_way_does_what_the_general_way_does(
    seed: int, short_ways: Counter[str], monkeypatch: pytest.MonkeyPatch
):
    shortly = list(told(seed))
    taken = dict(short_ways)
    assert min(taken.get(name, 0) for name in ("push", "pull", "ack")) >= 5, (
        f"the short ways were hardly taken: {taken}"
    )
    close_short_ways(monkeypatch)
    for step, (short, general) in enumerate(zip(shortly, told(seed), strict=True)):
        for part in range(5):
            assert short[part] == general[part], f"step {step}: {short[0]}"
    assert dict(short_ways) == taken, "a short way was taken while all were closed"


def test_a_short_ack_frees_the_slot_that_somebody_waits_for(short_ways: Counter[str]):
    shard = Shard()
    for _ in range(3):
        shard.execute("acme", c.Push("q", b""), 1)
    shard.execute("acme", c.Ack(shard.execute("acme", c.Pull(["q"]), 1).ids), 1)  # retention has begun
    second = shard.execute("acme", c.Pull(["q"]), 1)
    shard.execute("acme", c.SetConcurrency("q", 1), 1)
    parked = shard.execute("acme", c.Pull(["q"], wait_ms=1_000), 1)
    assert type(parked) is Parked
    taken = short_ways["ack"]
    shard.execute("acme", c.Ack(second.ids, second.token), 2)
    assert short_ways["ack"] == taken + 1
    ((answered, delivery),) = shard.take_effects()
    assert answered is parked
    assert list(delivery.ids) == [3 << 6]


def retention_records(monkeypatch: pytest.MonkeyPatch, general: bool) -> list[int]:
    """When retention wrote something, in a history with a cleaned job at the front of what is retained."""
    with monkeypatch.context() as patches:
        if general:
            close_short_ways(patches)
        shard = Shard(settings=SHORT_LIVED)
        for now in (1_000, 1_001, 1_002, 1_390, 1_395, 1_410, 1_415, 1_420):
            if now == 1_415:
                shard.execute("acme", c.Clean("q", State.COMPLETED, limit=1), now)
                continue
            shard.execute("acme", c.Push("q", b""), now)
            delivery = shard.execute("acme", c.Pull(["q"]), now)
            shard.execute("acme", c.Ack(delivery.ids, delivery.token), now)
        shard.advance(1_792)
        return [record.at for record in shard.take_records() if type(record) is AgedOut]


def test_both_ways_write_the_same_records_about_retention(monkeypatch: pytest.MonkeyPatch):
    assert retention_records(monkeypatch, general=False) == retention_records(monkeypatch, general=True)


@pytest.mark.parametrize(
    "command",
    [
        c.Ack(["64"]),  # type: ignore[list-item]
        c.Ack([64.0]),  # type: ignore[list-item]
        c.Ack([None]),  # type: ignore[list-item]
        c.Ack([True]),
        c.Ack([]),
        c.Ack([64], 1.0),  # type: ignore[arg-type]
        c.Ack([64], "1"),  # type: ignore[arg-type]
        c.Pull([7]),  # type: ignore[list-item]
        c.Pull(["q"], 1.0),  # type: ignore[arg-type]
        c.Pull(["q"], lease_ms=0),
        c.Push(7, b""),  # type: ignore[arg-type]
        c.Push("q", "text"),  # type: ignore[arg-type]
        c.Push("no queue", b""),
    ],
    ids=repr,
)
def test_nonsense_is_refused_as_on_the_general_path(command: c.Command[Any]):
    shard = Shard()
    shard.execute("acme", c.Push("q", b""), 1)
    shard.execute("acme", c.Pull(["q"]), 1)
    before = dump(shard)
    with pytest.raises(StokerError):
        shard.execute("acme", command, 1)
    assert dump(shard) == before
