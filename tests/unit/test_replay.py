"""A shard is what its records say: replayed, interrupted, replayed twice, stored in batches or one by one."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from stoker.engine.audit import audit
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.engine.timers import is_armed
from stoker.model import commands as c
from stoker.model.filters import JobFilter
from stoker.model.ids import make_id
from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit, Retention, Settings
from stoker.model.schedules import Schedule
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from stoker.records import records as rec
from stoker.records.codec import decode, encode

SETTINGS = Settings(
    seed=5,
    retention=Retention(completed_age_ms=2_000, completed_count=6),
    stage_ttl_ms=700,
    transaction_ttl_ms=900,
    claim_ttl_ms=500,
    request_ttl_ms=800,
)
RETRY_SOON = DeadLetterPolicy(auto_retry=True, auto_retry_interval_ms=100, auto_retries_max=2)
FOR_GOOD = Options(unique_key="k", max_attempts=1)


def job(sequence: int) -> int:
    return make_id(sequence, 0)


Moment = tuple[int, c.Command[Any] | None]

GRAPH = [
    Step("w", [b"1"], Options(max_attempts=1)),
    Step("w", [b"2", b"3"], after=[Edge(0)]),
    Step("w", after=[Edge(0)], key="late", open=True),
    Step("w", [b"4"], Options(delay_ms=60_000), [Edge(1), Edge(2, "continue")]),
]

SCRIPT: list[Moment] = [
    # pushes of all kinds: jobs 1 to 15
    (1_000, c.Push("q", b"first", sending=c.Sending("web", 0))),
    (1_000, c.PushBatch("q", [b"1", b"22", b"333", b"4444", b"55555"])),
    (1_000, c.PushBatch("q", [b"", b""], Options(tags=("red",)), request_key="request", sending=c.Sending("web", 1))),
    (1_000, c.PushBatch("q", [b"", b""], request_key="request")),
    (1_000, c.Push("q", b"", Options(unique_key="k", unique_ttl_ms=300))),
    (1_010, c.Push("q", b"", Options(unique_key="k", unique_ttl_ms=400, on_conflict="extend"))),
    (1_010, c.Push("q", b"", Options(delay_ms=50, backoff=Backoff("fixed", 10, 10, "full")))),
    (1_010, c.Push("q", b"", Options(delay_ms=5_000))),
    (1_010, c.Push("q", b"", Options(depends_on=(Dependency(job(1)),)))),
    (1_010, c.Push("q", b"", Options(depends_on=(Dependency(job(1)), Dependency(job(3))), ttl_ms=9_000))),
    (1_010, c.Push("q", b"", Options(custom_id="mine", custom_id_ttl_ms=100))),
    (1_010, c.Push("q", b"", Options(debounce_id="burst", debounce_ms=200, group_id="g"))),
    # deliveries and what becomes of them
    (1_020, c.Pull(["q"], 4, worker="w1")),
    (1_021, c.Extend([job(1), job(2), job(3)], None, 40_000)),
    (1_021, c.SetProgress(job(1), 50, "half way")),
    (1_021, c.AppendLog(job(2), "slow", "warning")),
    (1_021, c.AppendPartial(job(1), b"chunk")),
    (1_022, c.Cancel(job(2))),
    (1_023, c.Ack([job(1)], None, [b"done"])),
    (1_024, c.Fail([job(2)], None, "stopped")),
    (1_025, c.Fail([job(3)], None, "broken", "OSError", "line 1")),
    (1_026, c.Promote(job(11))),
    (1_070, None),
    (1_071, c.MoveToDelayed(job(14), 500)),
    (1_072, c.ChangePriority(job(5), 3)),
    (1_073, c.UpdatePayload(job(6), b"changed")),
    (1_074, c.Discard(job(6))),
    (1_075, c.Pull(["q"], 1, claim="claim", worker="w2")),
    (1_076, c.ExtendClaim("claim", 9_000)),
    (1_077, c.ReleaseClaim("claim")),
    (1_078, c.Pull(["q"], 3)),
    (1_079, c.Release([job(5)], None, 60)),
    (1_080, c.Ack([job(4)])),
    (1_081, c.Cancel(job(8))),
    (1_082, c.RetryDead("q")),
    (1_083, c.Discard(job(6))),
    (1_084, c.Clean("q", State.COMPLETED, limit=1)),
    (1_085, c.Drain("q")),
    # a queue with limits, whose dead letters come back by themselves
    (1_100, c.SetRateLimit("d", RateLimit(1, 10, 2))),
    (1_100, c.SetConcurrency("d", 2)),
    (1_100, c.SetQueuePolicy("d", "skip", RETRY_SOON)),
    (1_100, c.Push("d", b"", FOR_GOOD)),
    (1_100, c.Pull(["d"])),
    (1_101, c.Fail([job(16)])),
    (1_102, c.Push("d", b"", FOR_GOOD)),
    (1_250, c.Cancel(job(17))),
    (1_350, c.Pull(["d"], 5)),
    (1_351, c.Fail([job(16)], retry=False)),
    (1_352, c.PurgeDead("d")),
    # transactions
    (1_400, c.Stage("tx", "a", "q", [b"1", b"2"], Options(lifo=True), part=1)),
    (1_400, c.Stage("tx", "a", "s", [b"3"], part=2)),
    (1_400, c.Stage("tx", "b", "s", [b"never"])),
    (1_401, c.Publish("tx", ["a"])),
    (1_402, c.Stage("late", "a", "s", [b"never"])),
    (1_403, c.Abort("other")),
    (1_410, c.Pull(["s"], 1, lease_ms=5)),
    (1_500, None),
    # key-value entries
    (1_501, c.KvSetMany([c.KvEntry("a", b"1"), c.KvEntry("b", b"2", 50), c.KvEntry("c", b"3", 2_000)])),
    (1_502, c.KvIncrement("a", 5)),
    (1_503, c.KvExpire("a", 5_000)),
    (1_504, c.KvDelete(["c", "none"])),
    # a workflow that fails, is retried, filled and cancelled; another one that ends and is forgotten
    (1_600, c.PushWorkflow(GRAPH, "nightly")),
    (1_601, c.Pull(["w"], 10)),
    (1_602, c.Fail([job(22)], None, retry=False)),
    (1_603, c.RetryWorkflow(job(21))),
    (1_604, c.Pull(["w"], 10)),
    (1_605, c.FillStep(job(22), "late", [b"1", b"2", b"3"])),
    (1_606, c.Ack([job(22)], None, [b"done"])),
    (1_607, c.PushWorkflow(GRAPH)),
    (1_608, c.CancelWorkflow(job(29))),
    (1_609, c.PushWorkflow([Step("w", [b""])])),
    (1_610, c.Pull(["w"], 10)),
    (1_611, c.Ack([job(35)])),
    # schedules: one skips while its job is live, one is missed, one has a single slot
    (1_620, c.PutSchedule("c", "skips", Schedule(every_ms=1_000, overlap="skip", jitter_ms=20))),
    (1_620, c.PutSchedule("c", "queues", Schedule(every_ms=1_000, overlap="queue", grace_ms=10, misfire="all"))),
    (1_620, c.PutSchedule("c", "once", Schedule(at=1_700, options=Options(delay_ms=5)))),
    (1_621, c.PutSchedule("c", "gone", Schedule(every_ms=1_000))),
    (1_622, c.PauseSchedule("c", "gone")),
    (1_623, c.ResumeSchedule("c", "gone")),
    (1_624, c.RunSchedule("c", "gone")),
    (1_625, c.PutSchedule("c", "gone", Schedule(every_ms=1_000, payload=b"new"))),
    (1_626, c.DeleteSchedule("c", "gone")),
    (1_630, c.StartBulk("none", "retry", JobFilter(name="none"))),
    # time does the rest
    (2_500, c.Pause("s")),
    (2_600, None),
    (2_700, c.Obliterate("s", True)),
    (9_000, c.Push("q", b"last")),
]


class Live:
    """The script as it happened: after every step the number of records so far and the state."""

    def __init__(self, settings: Settings = SETTINGS, script: list[Moment] = SCRIPT) -> None:
        self.shard = Shard(settings=settings)
        self.records: list[rec.Record] = []
        self.steps: list[tuple[int, dict[str, Any]]] = []
        for step in script:
            self.records += perform(self.shard, step)
            audit(self.shard)
            self.steps.append((len(self.records), deepcopy(dump(self.shard))))  # it shows lists that live on


def perform(shard: Shard, step: Moment) -> list[rec.Record]:
    now, command = step
    if command is None:
        shard.advance(now)
    else:
        shard.execute("acme", command, now)
    return shard.take_records()


@pytest.fixture(scope="module")
def live() -> Live:
    return Live()


def test_the_script_uses_every_record(live: Live):
    between_shards_and_stores = {
        "Opened",
        "MessageSent",
        "MessageTaken",
        "MessagesArrived",
        "KeysStored",
        "PartPublished",
    }
    between_shards_and_stores |= {"StepHeard", "HeardEarly", "Watched"}
    used = {type(record).__name__ for record in live.records}
    assert used == {kind.__name__ for kind in rec.ALL} - between_shards_and_stores


def test_a_replay_is_the_live_shard_after_every_step(live: Live):
    for count, state in live.steps:
        again = replay(live.records[:count], settings=SETTINGS)
        audit(again)
        assert dump(again) == state


def test_a_replay_from_bytes_is_the_live_shard(live: Live):
    stored = [encode(record) for record in live.records]
    assert dump(replay(map(decode, stored), settings=SETTINGS)) == live.steps[-1][1]


def test_a_replay_repeated_is_the_same(live: Live):
    first, second = (replay(live.records, settings=SETTINGS) for _ in range(2))
    assert dump(first) == dump(second)
    assert first.next_at == second.next_at


@pytest.mark.parametrize("stop", range(0, len(SCRIPT), 3))
def test_a_shard_that_was_interrupted_goes_on_as_if_it_had_not_been(live: Live, stop: int):
    """Recovered after any step it decides all further steps as the other one did, and writes the same records."""
    count, _ = live.steps[stop]
    again = replay(live.records[:count], settings=SETTINGS)
    written = [record for step in SCRIPT[stop + 1 :] for record in perform(again, step)]
    audit(again)
    assert written == live.records[count:]
    assert dump(again) == live.steps[-1][1]


def test_a_shard_that_is_interrupted_after_every_step_goes_on_as_if_it_had_not_been(live: Live):
    records: list[rec.Record] = []
    for step in SCRIPT:
        shard = replay(map(decode, map(encode, records)), settings=SETTINGS)
        records += perform(shard, step)
    assert records == live.records


def test_looking_changes_nothing(live: Live):
    """Who asks in between finds the same, and changes nothing of what comes."""
    shard = Shard(settings=SETTINGS)
    records: list[rec.Record] = []
    for step in SCRIPT:
        records += perform(shard, step)
        for question in (c.Browse(limit=50), c.GetStats(), c.ListQueues(), c.ListDead("q"), c.GetStats("d")):
            shard.execute("acme", question, step[0])
        assert not shard.take_records()
    assert records == live.records


def test_sweeping_the_deadlines_at_any_time_changes_nothing(live: Live):
    """What a sweep takes out would have done nothing; what it leaves happens in the same order."""
    shard = Shard(settings=SETTINGS)
    records: list[rec.Record] = []
    for step in SCRIPT:
        shard.deadlines.sweep(is_armed)
        records += perform(shard, step)
        audit(shard)
    assert records == live.records
    assert dump(shard) == live.steps[-1][1]


UNTOLD: dict[str, Any] = {
    "token": 0,
    "fires_at": 0,
    "lease_ms": 0,
    "blockers": {},
    "logs": [],
    "partials": [],
    "next_chunk": 0,
    "revived": False,
}
"""What a dump does not say of a job in a batch, and of one that has only ever waited."""


def test_batches_and_single_jobs_are_the_same_state(live: Live):
    unbatched = Live(msgspec.structs.replace(SETTINGS, batching=False))
    for step, (_, batched), (_, single) in zip(SCRIPT, live.steps, unbatched.steps, strict=True):
        assert told_alike(batched) == told_alike(single), step


def told_alike(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"jobs": [UNTOLD | job for job in state["jobs"]]}
