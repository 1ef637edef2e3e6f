"""A shard that was saved and loaded is the same shard: it knows the same, and does the same from then on."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from stoker.engine import checkpoint_format, fast_path
from stoker.engine import deadlines as kinds
from stoker.engine.audit import audit, audit_counts
from stoker.engine.checkpoint_saving import load, references, save
from stoker.engine.index import BATCH_BYTES
from stoker.engine.jobs import Detail
from stoker.engine.shard import Shard, apply_again, replay
from stoker.engine.state import Planned
from stoker.engine.state_dump import dump
from stoker.engine.timers import is_armed
from stoker.model import commands as c
from stoker.model.errors import Damaged, NewerFormat, Refused
from stoker.model.ids import make_id
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import (
    DEFAULT_OPTIONS,
    Backoff,
    DeadLetterPolicy,
    Dependency,
    Options,
    RateLimit,
    Retention,
    Settings,
)
from stoker.model.states import State
from stoker.records import records as rec
from stoker.records.codec import decode, encode
from stoker.records.stored import Stored, StoredRun
from tests.model.driver import Driver
from tests.model.pair import LIMITS, SMALL, START, plain
from tests.soaking import SOAKS

Step = tuple[int, c.Command[Any] | None]

NOW = Backoff("fixed", 0, 0, "none")
SOON = Backoff("fixed", 50, 50, "none")
SHORT = Settings(
    retention=Retention(completed_age_ms=100, completed_count=3),
    stage_ttl_ms=100,
    transaction_ttl_ms=100,
    claim_ttl_ms=100,
    request_ttl_ms=100,
)


def job(sequence: int) -> int:
    return make_id(sequence, 0)


def perform(shard: Shard, step: Step, tenant: str = "acme") -> tuple[Any, list[rec.Record]]:
    """The reply or the code of the refusal, and what happened."""
    now, command = step
    try:
        if command is None:
            shard.advance(now)
            return None, shard.take_records()
        return plain(shard.execute(tenant, command, now)), shard.take_records()
    except Refused as error:
        return error.code, shard.take_records()


def built(*steps: Step, settings: Settings | None = None, limits: Limits = DEFAULT_LIMITS) -> Shard:
    """The shard to which this has happened; nothing of it may have been refused."""
    shard = Shard(settings=settings, limits=limits)
    for step in steps:
        reply, _ = perform(shard, step)
        assert not isinstance(reply, str), f"{step}: {reply}"
    return shard


def again(shard: Shard) -> Shard:
    """The shard once more, out of bytes."""
    loaded, position = load(save(shard, 4711))
    assert position == 4711
    audit(loaded)
    audit_counts(loaded)
    assert dump(loaded) == dump(shard)
    assert armed(loaded) == armed(shard)
    assert loaded.index.bytes == shard.index.bytes - BATCH_BYTES * gone_batches(shard)
    return loaded


def gone_batches(shard: Shard) -> int:
    """Batches that wait to be taken out of the index: they are not saved."""
    return len(shard.index._batches) - len(list(shard.index.batches()))


def armed(shard: Shard) -> set[tuple[int, int, str]]:
    """Deadlines that hold, but for those that only make somebody look at a queue."""
    return {
        (at, kind, named(holder))
        for at, kind, _, holder in shard.deadlines.heap
        if kind not in (kinds.DUE, kinds.REFILL) and is_armed(at, kind, holder)
    }


def named(holder: Any) -> str:
    if isinstance(holder, tuple):
        return repr([getattr(part, "name", part) for part in holder])
    if isinstance(holder, Planned):
        return repr([holder.queue.tenant.name, holder.queue.name, holder.name])
    return repr([type(holder).__name__, getattr(holder, "lowest", None) or (holder.batch.first, holder.origin)])


def goes_on(shard: Shard, *steps: Step) -> list[Any]:
    """What a loaded shard answers from here on: the same as the one that was saved, with the same records."""
    loaded = again(shard)
    replies = []
    for step in steps:
        found = perform(loaded, step)
        assert found == perform(shard, step), step
        replies.append(found[0])
    audit(loaded)
    assert dump(loaded) == dump(shard)
    return replies


def pulled(reply: Any) -> list[int]:
    return [found["id"] >> 6 for found in reply["delivery"]]


def states(shard: Shard, *sequences: int) -> list[str]:
    return [shard.execute("acme", c.GetJob(job(n)), shard.now).state for n in sequences]


# --- whatever has happened -------------------------------------------------------------------------------


@pytest.fixture(params=["whole", "cut up"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as it is, and once with bounds so small that everything is spread over many chunks."""
    if request.param == "cut up":
        for bound, value in (("CHUNK_ENTRIES", 3), ("CHUNK_BYTES", 300), ("PILE_BYTES", 8), ("IDS_MAX", 2)):
            monkeypatch.setattr(checkpoint_format, bound, value)


def commands(driver: Driver, count: int) -> Iterator[tuple[int, str, c.Command[Any]]]:
    """Random commands that do not wait, and schedules that ask for no workers: pulls are not saved."""
    now = START
    for _ in range(count):
        passed, tenant, command = driver.draw()
        now += passed
        if isinstance(command, c.Pull | c.WaitJob):
            command = msgspec.structs.replace(command, wait_ms=0)
        if isinstance(command, c.PutSchedule):
            schedule = msgspec.structs.replace(command.schedule, skip_if_no_worker=False)
            command = msgspec.structs.replace(command, schedule=schedule)
        yield now, tenant, command


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize(("seed", "batching"), [(seed, seed % 3 != 0) for seed in range(1, 40 if SOAKS else 4)])
def test_a_loaded_shard_goes_on_as_if_nothing_had_been(seed: int, batching: bool):
    driver = Driver(seed)
    shard = Shard(settings=msgspec.structs.replace(SMALL, batching=batching), limits=LIMITS)
    loaded: list[Shard] = []
    for number, (now, tenant, command) in enumerate(commands(driver, 500)):
        try:
            reply = shard.execute(tenant, command, now)
        except Refused as error:
            reply = error.code
        driver.learn(tenant, command, reply)
        expected = (reply if isinstance(reply, str) else plain(reply), shard.take_records())
        for other in loaded:
            assert perform(other, (now, command), tenant) == expected, f"command {number}: {command}"
        if number % 8 == 0:
            loaded = [again(shard), *loaded[:2]]
    for other in loaded:
        audit(other)
        assert dump(other) == dump(shard)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_checkpoint_and_the_records_after_it_are_the_live_shard(seed: int):
    """The state of a checkpoint is itself made of a checkpoint and records, and no time passes while it is made."""
    driver = Driver(seed)
    live = Shard(settings=SMALL, limits=LIMITS)
    made = Shard(settings=SMALL, limits=LIMITS)
    records: list[rec.Record] = []
    for number, (now, tenant, command) in enumerate(commands(driver, 600)):
        try:
            driver.learn(tenant, command, live.execute(tenant, command, now))
        except Refused:
            pass
        records += live.take_records()
        if number % 50 == 49:
            apply_again(made, [decode(encode(record)) for record in records])
            records.clear()
            made, _ = load(save(made, number))
            audit(made)
            assert dump(made) == dump(live)


def test_saving_changes_nothing():
    shard, other = (built((1, c.PushBatch("q", [b""] * 9)), (2, c.Pull(["q"], 4))) for _ in range(2))
    assert list(save(shard, 1)) == list(save(shard, 1))
    assert dump(shard) == dump(other)


def test_a_detail_is_saved_whole():
    apart = {"partial_codecs", "history_classes"}
    assert {*checkpoint_format.SavedDetail.__struct_fields__} == {*Detail.__struct_fields__, *apart}


# --- the shard and its queues ----------------------------------------------------------------------------


def test_numbers_settings_and_messages_come_back():
    shard = built((5, c.Push("q", b"")), (6, c.Pull(["q"])), settings=SHORT, limits=LIMITS)
    publish, abort = rec.PublishStages("tx", ["a", "b"]), rec.AbortTransaction("ty")
    shard.emit(rec.Opened(7, "", 3, 100, 200, SHORT, LIMITS))
    for to, number, message in ((2, 1, publish), (2, 2, abort), (5, 1, abort)):
        shard.emit(rec.MessageSent(7, "acme", to, number, message))
    shard.emit(rec.MessageTaken(7, "acme", 9, 12))
    loaded = again(shard)
    for name in ("number", "now", "sequence", "token", "epoch", "settings", "limits", "sent", "taken", "outbox"):
        assert getattr(loaded, name) == getattr(shard, name), name
    assert loaded.default_retention == (100, 3)
    assert loaded.outbox[2] == {1: ("acme", publish), 2: ("acme", abort)}


def test_policies_pauses_and_limits_come_back():
    letters = DeadLetterPolicy(entries_max=7, auto_retry=True)
    shard = built(
        (1, c.SetQueuePolicy("q", "skip", letters, "fsync")),
        (1, c.SetConcurrency("q", 2)),
        (1, c.Pause("p")),
        (1, c.PushBatch("q", [b""] * 5)),
        (1, c.Push("p", b"")),
    )
    loaded = again(shard)
    assert loaded.queue_levels == shard.queue_levels == {("acme", "q"): "fsync"}
    assert loaded.queue("acme", "q").durability == "fsync"
    pull = (2, c.Pull(["p", "q"], 9))
    view, two, none = goes_on(shard, (2, c.GetQueue("q")), pull, pull)
    assert (view["group_on_retry"], view["concurrency"]) == ("skip", 2)
    assert (pulled(two), pulled(none)) == ([1, 2], [])


def test_a_rate_limit_goes_on_where_it_was():
    shard = built(
        (0, c.SetRateLimit("q", RateLimit(1, 100, 3))), (0, c.PushBatch("q", [b""] * 9)), (50, c.Pull(["q"], 3))
    )
    later = [(at, c.Pull(["q"], 9)) for at in (149, 150, 249, 250)]
    assert [len(pulled(reply)) for reply in goes_on(shard, *later)] == [0, 1, 0, 1]


def test_the_last_minute_and_the_totals_come_back_for_queue_tenant_and_shard():
    shard = built((1_000, c.PushBatch("q", [b""] * 6)), (1_000, c.Push("gone", b"")), (1_000, c.Pull(["q", "gone"], 7)))
    perform(shard, (5_000, c.Ack([job(1), job(2)])))
    perform(shard, (30_000, c.Ack([job(7), job(3)])))
    perform(shard, (30_000, c.Obliterate("gone")))
    asked = [(at, c.GetStats(queue)) for at in (30_500, 64_999, 65_000, 90_000) for queue in ("q", None)]
    assert [reply["completed_last_minute"] for reply in goes_on(shard, *asked)] == [3, 4, 3, 4, 1, 2, 0, 0]
    assert again(shard).scope.totals == shard.scope.totals
    assert again(shard).scope.last_minute(31) == 4


def test_who_waits_is_not_saved():
    shard = built((1, c.Push("q", b"")))
    shard.execute("nobody", c.Pull(["none"], wait_ms=100), 1)
    loaded, _ = load(save(shard, 1))
    assert list(loaded.tenants) == ["acme"]
    assert loaded.next_at is None


def test_equal_plain_options_are_one_object_again():
    """So that the short ways are open: `fast_path.py` knows options by their `id()`."""
    tagged = Options(tags=("a",))
    shard = built((1, c.Push("q", b"")), (1, c.Push("q", b"", tagged)), (1, c.PushBatch("q", [b""] * 2, tagged)))
    built_up = [(2, c.Pull(["q"])), (3, c.Ack([job(1)]))]
    for step in built_up:
        perform(shard, step)
    loaded = again(shard)
    one, batch = loaded.index.get(job(2)), next(loaded.index.batches())
    assert one is not None
    assert one.options is batch.options
    assert loaded.index.get(job(1)).options is DEFAULT_OPTIONS  # type: ignore[union-attr]
    assert loaded.intern(Options(tags=("a",))) is one.options
    delivery = fast_path.pull(loaded, loaded.queue("acme", "q"), c.Pull(["q"]), 4)
    assert delivery is not None
    assert list(delivery.ids) == [job(2)]
    assert fast_path.ack(loaded, "acme", job(2), None, 5) is not None


# --- waiting ---------------------------------------------------------------------------------------------


def test_the_ready_order_comes_back():
    shard = built(
        (1, c.PushBatch("q", [b""] * 6)),
        (1, c.Push("q", b"", Options(priority=2))),
        (1, c.PushBatch("q", [b""] * 3, Options(lifo=True))),
        (1, c.Push("q", b"")),
        (1, c.PushBatch("q", [b""] * 2, Options(priority=2, lifo=True))),
        (2, c.ChangePriority(job(3), 2)),
        (2, c.UpdatePayload(job(5), b"on its own")),
        (2, c.Cancel(job(9))),
        (2, c.Cancel(job(1))),
    )
    (reply,) = goes_on(shard, (3, c.Pull(["q"], 20)))
    assert pulled(reply) == [13, 12, 3, 7, 10, 8, 2, 4, 5, 6, 11]


def test_a_lifo_batch_with_holes_and_a_delivery_comes_back():
    shard = built(
        (1, c.PushBatch("q", [bytes(n) for n in range(10)], Options(lifo=True, max_attempts=1, lease_ms=100))),
        (2, c.Pull(["q"], 5, worker="w", claim="mine")),
        (3, c.Cancel(job(8))),
        (3, c.Cancel(job(3))),
        (4, c.Ack([job(10), job(9)], results=[b"ten", b"nine"])),
    )
    perform(shard, (5, c.UpdatePayload(job(7), b"split")))
    batch = next(shard.index.batches())
    assert all((batch.waiting.holes, len(batch.slices), len(batch.ended)))
    *_, claim, _ = goes_on(
        shard, (6, c.Browse(limit=20)), (6, c.Pull(["q"], 2)), (7, c.Pull(["q"], claim="mine")), (102, None)
    )
    assert pulled(claim) == [6, 7, 8]
    assert states(shard, 10, 7, 6) == [State.COMPLETED, State.FAILED, State.FAILED]


def test_groups_keep_their_line_their_holder_and_their_head():
    group = Options(group_id="g")
    shard = built(
        (1, c.PushBatch("q", [b""] * 4, group)), (1, c.Push("q", b"", Options(group_id="h"))), (2, c.Pull(["q"]))
    )
    other, _, second = goes_on(shard, (3, c.Pull(["q"], 9)), (3, c.Ack([job(1)])), (4, c.Pull(["q"], 9)))
    assert (pulled(other), pulled(second)) == ([5], [2])


def test_a_group_waits_for_its_job_that_will_be_retried():
    held = Options(group_id="g", backoff=SOON)
    shard = built((1, c.PushBatch("q", [b""] * 3, held)), (1, c.Push("q", b"", Options(group_id="g", delay_ms=20))))
    perform(shard, (2, c.Pull(["q"])))
    perform(shard, (3, c.Fail([job(1)])))
    pulls = [(at, c.Pull(["q"], 9)) for at in (4, 30, 60)]
    assert [pulled(reply) for reply in goes_on(shard, *pulls)] == [[], [], [1]]


def test_a_group_may_be_held_by_a_younger_job_than_those_who_wait():
    shard = built(
        (1, c.SetQueuePolicy("q", "skip")),
        (1, c.PushBatch("q", [b""] * 3, Options(group_id="g", backoff=SOON))),
        (2, c.Pull(["q"])),
        (3, c.Fail([job(1)])),
        (4, c.Pull(["q"])),
        (99, None),
    )
    assert shard.queue("acme", "q").groups["g"].holder.id == job(2)  # type: ignore[union-attr]
    replies = goes_on(shard, (100, c.Pull(["q"], 9)), (100, c.Ack([job(2)])), (100, c.Pull(["q"], 9)))
    assert (pulled(replies[0]), pulled(replies[2])) == ([], [1])


def test_delayed_jobs_and_batches_become_due():
    shard = built(
        (1, c.Push("q", b"", Options(delay_ms=300))),
        (1, c.PushBatch("q", [b""] * 3, Options(delay_ms=200))),
        (1, c.Push("q", b"", Options(delay_ms=100))),
        (2, c.Promote(job(3))),
        (2, c.MoveToDelayed(job(1), 400)),
    )
    pulls = [(at, c.Pull(["q"], 9)) for at in (3, 101, 201, 401, 402)]
    assert [pulled(reply) for reply in goes_on(shard, *pulls)] == [[3], [5], [2, 4], [], [1]]


def test_blocked_jobs_come_free_in_the_same_order():
    edges = (Dependency(job(1)), Dependency(job(2), "continue"))
    shard = built(
        (1, c.PushBatch("q", [b""] * 2)),
        (1, c.Push("q", b"", Options(depends_on=edges[:1]))),
        (1, c.Push("r", b"", Options(depends_on=edges, delay_ms=50))),
        (1, c.Push("q", b"", Options(depends_on=edges, ttl_ms=30))),
        (1, c.Push("q", b"", Options(depends_on=edges[:1], priority=1))),
        (2, c.Pull(["q"], 2)),
        (3, c.Fail([job(2)], retry=False)),
    )
    why, _, first, second = goes_on(
        shard, (4, c.Why(job(5))), (40, c.Ack([job(1)])), (41, c.Pull(["q", "r"], 9)), (51, c.Pull(["q", "r"], 9))
    )
    assert why["blocked_by"] == [job(1)]
    assert (pulled(first), pulled(second)) == ([6, 3], [4])
    assert states(shard, 5) == [State.EXPIRED]


def test_it_is_remembered_for_ever_who_ended_badly():
    shard = built(
        (1, c.PushBatch("q", [b""] * 9)),
        (2, c.Pull(["q"], 1)),
        (3, c.Fail([job(1)], retry=False)),
        (4, c.PurgeDead("q")),
    )
    for n in (3, 5, 6):
        perform(shard, (5, c.Cancel(job(n))))
    late = [(6_000_000, c.Push("r", b"", Options(depends_on=(Dependency(job(n)),)))) for n in (1, 3, 4, 6)]
    goes_on(shard, *late)
    assert states(shard, 10, 11, 12, 13) == [State.FAILED, State.FAILED, State.BLOCKED, State.FAILED]


def test_jobs_expire_at_their_time_unless_they_came_back_from_the_dead():
    shard = built(
        (1, c.PushBatch("q", [b""] * 2, Options(ttl_ms=100))),
        (1, c.PushBatch("q", [b""] * 2, Options(ttl_ms=150, delay_ms=5_000))),
        (1, c.Push("q", b"", Options(ttl_ms=200, priority=1))),
        (1, c.Push("q", b"", Options(ttl_ms=200, priority=2))),
        (2, c.Pull(["q"], 2)),
        (3, c.Release([job(5)])),
        (3, c.Fail([job(6)], retry=False)),
        (4, c.RetryDead("q")),
    )
    goes_on(shard, (100, None), (101, None), (151, None), (200, None), (201, None), (900, None))
    assert states(shard, 1, 2, 3, 4, 5) == [State.EXPIRED] * 5
    assert states(shard, 6) == [State.WAITING]
    assert shard.execute("acme", c.GetJob(job(4)), 900).finished_at == 151


def test_a_job_that_is_released_too_late_expires_then():
    shard = built((1, c.Push("q", b"", Options(ttl_ms=10))), (2, c.Pull(["q"])), (50, c.Release([job(1)])))
    goes_on(shard, (50, None))
    assert shard.execute("acme", c.GetJob(job(1)), 50).finished_at == 50


# --- deliveries ------------------------------------------------------------------------------------------


def test_leases_and_timeouts_end_at_their_time():
    patient = Options(lease_ms=100, timeout_ms=150, backoff=NOW, max_attempts=1)
    shard = built(
        (1, c.PushBatch("q", [b""] * 4, patient)),
        (1, c.Push("q", b"", Options(lease_ms=70, max_crashes=2, backoff=NOW))),
        (2, c.Pull(["q"], 5, worker="w")),
        (50, c.Extend([job(1), job(2), job(3), job(4)], lease_ms=500)),
        (60, c.Ack([job(2)])),
        (72, c.Pull(["q"], 1)),
    )
    goes_on(shard, (141, None), (142, None), (151, None), (152, None))
    assert states(shard, 1, 2, 3, 5) == [State.FAILED, State.COMPLETED, State.FAILED, State.FAILED]
    view = shard.execute("acme", c.GetJob(job(5)), 152)
    assert (view.crashes, view.history[0].reason, view.finished_at) == (2, "stalled", 142)


def test_everything_that_was_told_about_a_job_comes_back():
    shard = built((1, c.Push("q", b"", Options(backoff=NOW))), (2, c.Pull(["q"], worker="w")), limits=LIMITS)
    for step in (
        (3, c.Fail([job(1)], error="boom", error_class="Late", stack="line 1")),
        (4, c.Pull(["q"], worker="v")),
        (5, c.SetProgress(job(1), 40, "half")),
        *((6, c.AppendLog(job(1), f"line {n}", "warn")) for n in range(4)),
        *((7, c.AppendPartial(job(1), b"part", n)) for n in (0, 9)),
        (8, c.Cancel(job(1))),
    ):
        perform(shard, step)
    asked = [c.GetJob(job(1)), c.GetLogs(job(1)), c.GetPartials(job(1))]
    view, logs, partials, *_ = goes_on(
        shard,
        *((9, command) for command in asked),
        (9, c.AppendLog(job(1), "more")),
        (9, c.AppendPartial(job(1), b"next")),
        (9, c.Extend([job(1)])),
        *((9, command) for command in asked),
        (9, c.Ack([job(1)], results=[b"done"])),
        (10, c.GetJob(job(1))),
    )
    assert view["progress"] == {"type": "Progress", "percent": 40, "message": "half"}
    assert (view["attempts"], view["cancel_requested"], view["history"][0]["error"]) == (2, True, "boom")
    assert (view["error_class"], view["history"][0]["error_class"]) == ("Late", "Late")
    assert [line["message"] for line in logs["lines"]] == ["line 1", "line 2", "line 3"]
    assert [chunk["index"] for chunk in partials["chunks"]] == [0, 9]


def test_how_many_lines_a_job_keeps_was_decided_with_its_first():
    shard = built((1, c.Push("q", b"")), (1, c.Pull(["q"])), limits=LIMITS)
    perform(shard, (1, c.AppendLog(job(1), "first")))
    shard.emit(rec.Opened(2, "", 1, 1, 1, shard.settings, DEFAULT_LIMITS))
    shard.take_records()
    *_, logs = goes_on(shard, *((3, c.AppendLog(job(1), str(n))) for n in range(5)), (3, c.GetLogs(job(1))))
    assert len(logs["lines"]) == LIMITS.log_lines_max


def test_a_claim_can_be_asked_again_and_is_forgotten_in_time():
    shard = built((1, c.PushBatch("q", [b""] * 5)), (2, c.Pull(["q"], 2, claim="a")), settings=SHORT)
    perform(shard, (3, c.Pull(["q"], 1, claim="b")))
    perform(shard, (4, c.Ack([job(3)])))
    held, settled, acked, kept, new = goes_on(
        shard,
        (5, c.Pull(["q"], 1, claim="a")),
        (5, c.Pull(["q"], 1, claim="b")),
        (6, c.AckClaim("a")),
        (103, c.Pull(["q"], 1, claim="b")),
        (104, c.Pull(["q"], 1, claim="b")),
    )
    assert (pulled(held), pulled(settled), acked["count"]) == ([1, 2], [], 2)
    assert (pulled(kept), pulled(new)) == ([], [4])


# --- ends ------------------------------------------------------------------------------------------------


def test_ended_jobs_are_forgotten_by_count():
    shard = built((1, c.PushBatch("q", [b""] * 9)), (2, c.Pull(["q"], 9)), (3, c.Ack([job(5)])), settings=SHORT)
    perform(shard, (4, c.Ack([job(1), job(2)], results=[b"one", b"two"])))
    loaded = again(shard)
    assert list(map(str, states(loaded, 5, 1, 2))) == [State.COMPLETED] * 3
    goes_on(shard, (5, c.Ack([job(9)])), (6, c.Browse("q", State.COMPLETED)), (7, c.Ack([job(3), job(4)])))
    readable = shard.execute("acme", c.Browse("q", State.COMPLETED), 7).jobs
    assert sorted(view.id >> 6 for view in readable) == [3, 4, 9]


def test_ended_jobs_are_forgotten_by_age():
    own = Options(keep_completed_age_ms=40, keep_completed_count=100)
    longer = Settings(retention=Retention(completed_age_ms=100, completed_count=100))
    shard = built((1, c.PushBatch("q", [b""] * 4)), (1, c.PushBatch("q", [b""] * 2, own)), settings=longer)
    for step in ((2, c.Pull(["q"], 9)), (3, c.Ack([job(2)])), (13, c.Ack([job(5)])), (23, c.Ack([job(1), job(6)]))):
        perform(shard, step)
    looks = [(at, c.Browse("q", State.COMPLETED)) for at in (52, 53, 62, 63, 102, 103, 122, 123)]
    found = [[view["id"] >> 6 for view in page["jobs"]] for page in goes_on(shard, *looks)]
    assert [sorted(ids) for ids in found] == [[1, 2, 5, 6], [1, 2, 6], [1, 2, 6], [1, 2], [1, 2], [1], [1], []]


def test_a_job_is_kept_as_was_decided_when_it_ended():
    """A new retention is for those that end from now on."""
    shard = built((1, c.PushBatch("q", [b""] * 4)), (2, c.Pull(["q"], 4)), (3, c.Ack([job(1), job(2)])), settings=SHORT)
    longer = msgspec.structs.replace(SHORT, retention=Retention(completed_age_ms=5_000, completed_count=10))
    shard.emit(rec.Opened(4, "", 2, shard.sequence, shard.token, longer, shard.limits))
    shard.take_records()
    goes_on(shard, (5, c.Ack([job(3)])), (103, c.GetJob(job(1))), (103, c.Ack([job(4)])))
    assert [view.id >> 6 for view in shard.execute("acme", c.Browse("q"), 103).jobs] == [4, 3]


def test_dead_letters_keep_their_order_and_leave_in_time():
    letters = DeadLetterPolicy(entries_max=3, age_ms_max=100)
    shard = built(
        (1, c.SetQueuePolicy("q", dead_letters=letters)), (1, c.PushBatch("q", [b""] * 5)), (2, c.Pull(["q"], 5))
    )
    for at, n in ((3, 4), (4, 1), (5, 3)):
        perform(shard, (at, c.Fail([job(n)], error="broken", retry=False)))
    pages = goes_on(
        shard, *((at, command) for at in (6, 7, 103, 104, 107) for command in (c.ListDead("q"), c.GetDeadStats("q")))
    )
    found = [[view["id"] >> 6 for view in page["jobs"]] for page in pages[::2]]
    assert found == [[4, 1, 3], [4, 1, 3], [1, 3], [3], []]
    evicted = built(
        (1, c.SetQueuePolicy("q", dead_letters=letters)), (1, c.PushBatch("q", [b""] * 5)), (2, c.Pull(["q"], 5))
    )
    for at, n in ((3, 4), (4, 1), (5, 3)):
        perform(evicted, (at, c.Fail([job(n)], retry=False)))
    *_, page = goes_on(evicted, (6, c.Fail([job(2)], retry=False)), (6, c.ListDead("q")))
    assert [view["id"] >> 6 for view in page["jobs"]] == [1, 3, 2]


def test_dead_letters_are_retried_by_themselves_and_wait_for_their_key():
    letters = DeadLetterPolicy(auto_retry=True, auto_retry_interval_ms=50, auto_retries_max=2)
    keyed = Options(unique_key="k", max_attempts=1)
    shard = built(
        (1, c.SetQueuePolicy("q", dead_letters=letters)),
        (1, c.Push("q", b"", keyed)),
        (2, c.Pull(["q"])),
        (3, c.Fail([job(1)])),
        (4, c.Push("q", b"", keyed)),
        (60, None),
    )
    pull = c.Pull(["q"])
    pulls = goes_on(shard, (61, c.Cancel(job(2))), (1_052, pull), (1_053, pull), (1_054, c.Fail([job(1)])))
    assert (pulled(pulls[1]), pulled(pulls[2])) == ([], [1])
    (reply,) = goes_on(shard, (1_104, pull))
    assert pulled(reply) == [1]
    assert goes_on(shard, (1_105, c.Fail([job(1)])), (9_999, c.GetDeadStats("q")))[1]["total"] == 1


# --- what is remembered ----------------------------------------------------------------------------------


def duplicate(reply: Any) -> int:
    return 0 if reply["created"] else reply["id"] >> 6


def test_unique_keys_are_held_until_their_time():
    held, short = (
        Options(unique_key=key, unique_ttl_ms=ttl, on_conflict="extend") for key, ttl in (("a", 0), ("b", 50))
    )
    shard = built((1, c.Push("q", b"", held)), (1, c.Push("q", b"", short)), (30, c.Push("q", b"", short)))
    keep = [Options(unique_key=key) for key in "ab"]
    replies = goes_on(shard, *((at, c.Push("q", b"", options)) for at in (79, 80) for options in keep))
    assert [duplicate(reply) for reply in replies] == [1, 2, 1, 0]


def test_a_custom_id_is_remembered_after_the_end_of_its_job():
    mine = Options(custom_id="mine", custom_id_ttl_ms=100, remove_on_complete=True)
    shard = built((1, c.Push("q", b"", mine)), (1, c.Push("q", b"", Options(custom_id="live"))), (2, c.Pull(["q"])))
    perform(shard, (3, c.Ack([job(1)])))
    replies = goes_on(
        shard, (4, c.Push("q", b"", Options(custom_id="live"))), *((at, c.Push("q", b"", mine)) for at in (102, 103))
    )
    assert [duplicate(reply) for reply in replies] == [2, 1, 0]


def test_a_debounce_window_stays_open_until_its_end():
    calm = Options(debounce_id="d", debounce_ms=100)
    shard = built((1, c.Push("q", b"", calm)))
    replies = goes_on(shard, *((at, c.Push("q", b"", calm)) for at in (50, 100, 101)))
    assert [duplicate(reply) for reply in replies] == [1, 1, 0]


def test_a_request_gets_the_same_answer_until_it_is_forgotten():
    each = [Options(custom_id="a"), Options(custom_id="a"), Options(depends_on=(Dependency(job(99)),)), Options()]
    batch = c.PushBatch("q", [b"", b"", b"", b""], each=each, request_key="r")
    refused = c.PushBatch("new", [b""], each=each[2:3], request_key="r")
    shard = built((1, c.PushBatch("q", [b""] * 7, request_key="plain")), (2, batch), (2, refused), settings=SHORT)
    replies = goes_on(
        shard,
        (3, c.PushBatch("q", [b""], request_key="plain")),
        (3, batch),
        (3, refused),
        (101, c.PushBatch("q", [b""], request_key="plain")),
        (101, batch),
        (102, c.GetStats()),
    )
    assert replies[0]["ids"] == [job(n) for n in range(1, 8)]
    assert replies[1]["ids"] == replies[4]["ids"] == [job(8), job(8), 0, job(9)]
    assert replies[1]["duplicates"] == {1: "custom_id"}
    assert replies[2]["refused"] == {0: "unknown_dependency"}
    assert replies[3]["ids"] == [job(10)]


def test_stages_keep_their_parts_and_expire():
    shard = built(
        (1, c.Stage("tx", "a", "q", [b"1", b"2"], part=7)),
        (2, c.Stage("tx", "a", "r", [b"3"], each=[Options(priority=3)])),
        (3, c.Stage("tx", "b", "q", [b"4"])),
        (4, c.Stage("ty", "a", "q", [b"5"], part=1)),
        settings=SHORT,
    )
    same_part, late, published, over, forgotten = goes_on(
        shard,
        (50, c.Stage("tx", "a", "q", [b"1", b"2"], part=7)),
        (103, c.Publish("tx", ["b"])),
        (103, c.Publish("ty", ["a"])),
        (202, c.Publish("ty", ["a"])),
        (203, c.Publish("ty", ["a"])),
    )
    assert same_part["jobs"] == 3
    assert late == forgotten == "unknown_stage"
    assert published == over
    assert published["created"] == 1


def test_a_published_stage_has_all_its_jobs():
    shard = built(
        (1, c.Stage("tx", "a", "q", [b"1", b"2"], Options(lifo=True))),
        (2, c.Stage("tx", "a", "q", [b"3"], each=[Options(priority=3, tags=("x",))])),
    )
    _, delivered = goes_on(shard, (3, c.Publish("tx", ["a"])), (4, c.Pull(["q"], 9)))
    assert [found["payload"] for found in delivered["delivery"]] == [b"3", b"2", b"1"]


def test_an_aborted_transaction_stays_aborted_until_it_is_forgotten():
    shard = built((1, c.Abort("tx")), settings=SHORT)
    stages = goes_on(shard, *((at, c.Stage("tx", "a", "q", [b""])) for at in (100, 101)))
    assert stages[0] == "transaction_over"
    assert stages[1]["jobs"] == 1


def test_what_ends_at_the_same_moment_ends_in_the_same_order():
    """Neither by name nor by queue: in the order in which it was begun."""
    shard = built(
        *((1, c.Push(queue, b"", Options(debounce_id="d", debounce_ms=100))) for queue in ("z", "a", "m")),
        *((1, c.Stage(name, "s", "q", [b""])) for name in ("tz", "ta")),
        *((1, c.Abort(name)) for name in ("uz", "ua")),
        *((1, c.Pull([queue], claim=queue)) for queue in ("m", "z", "a")),
        *((1, c.Ack([job(n)])) for n in (2, 3, 1)),
        settings=SHORT,
    )
    records = perform(again(shard), (101, None))[1]
    assert [getattr(record, "queue", "") or getattr(record, "transaction", "") for record in records[:8]] == [
        *("z", "a", "m"),
        *("a", "m", "z"),
        *("tz", "ta"),
    ]
    goes_on(shard, (101, None))


# --- payloads in the journal -----------------------------------------------------------------------------


def stored_shard() -> Shard:
    """Payloads of the records 1 to 6: a batch, a lifo batch, jobs of their own, a stage, an update."""
    shard = Shard(settings=SHORT)
    runs: Sequence[tuple[int, int, Options]] = (
        (1, 4, DEFAULT_OPTIONS),
        (2, 3, Options(lifo=True)),
        (3, 2, Options(group_id="g")),
    )
    for sequence, count, options in runs:
        payloads: Any = StoredRun(sequence, 0, count, [10 + n for n in range(count)])
        shard.emit(rec.JobsPushed(1, "acme", "q", job(shard.sequence + 1), payloads, options, sizes=payloads.sizes))
    single: Any = StoredRun(4, 0, 1, 99)
    shard.emit(rec.JobsPushed(1, "acme", "q", job(shard.sequence + 1), single))
    staged: Any = StoredRun(5, 0, 2, 7)
    shard.emit(rec.PartStaged(1, "acme", "tx", "a", "q", staged, DEFAULT_OPTIONS, None, None, 101, staged.sizes))
    update: Any = Stored(6, 0, 3)
    shard.emit(rec.PayloadUpdated(1, "acme", "q", job(2), update))
    shard.emit(rec.JobsPushed(1, "acme", "q", job(shard.sequence + 1), (b"in memory",)))
    shard.take_records()
    return shard


def test_payloads_in_the_journal_stay_there():
    loaded = again(stored_shard())
    batch, lifo = loaded.index.batches()
    assert batch.payloads == StoredRun(1, 0, 4, [10, 11, 12, 13])
    assert lifo.payloads == StoredRun(2, 2, 3, [12, 11, 10], -1)
    assert (batch.sizes, lifo.sizes) == ([10, 11, 12, 13], [12, 11, 10])
    payloads = [one.payload for one in loaded.index.jobs()]
    assert payloads == [Stored(6, 0, 3), Stored(3, 0, 10), Stored(3, 1, 11), Stored(4, 0, 99), b"in memory"]
    (part,) = loaded.tenants["acme"].transactions["tx"].stages["a"].parts
    assert part.record.payloads == part.stored == StoredRun(5, 0, 2, 7)


def test_the_state_says_which_records_it_still_needs():
    shard = stored_shard()
    steps: list[tuple[Step, set[int]]] = [
        ((2, None), {1, 2, 3, 4, 5, 6}),
        ((3, c.UpdatePayload(job(2), b"here again")), {1, 2, 3, 4, 5}),
        ((3, c.Cancel(job(5))), {1, 2, 3, 4, 5}),
        ((3, c.Pull(["q"], 9)), {1, 2, 3, 4, 5}),
        ((4, c.Ack([job(n) for n in (10, 6, 7)])), {1, 2, 3, 4, 5}),
        ((5, c.Clean("q", State.CANCELLED)), {1, 2, 3, 4, 5}),
        ((5, c.Clean("q", State.COMPLETED)), {1, 3, 5}),
        ((6, c.Ack([job(n) for n in (1, 3, 4)])), {1, 3, 5}),
        ((6, c.Abort("tx")), {1, 3}),
        ((106, None), {3}),
        ((107, c.Cancel(job(9))), {3}),
        ((108, c.Drain("q")), {3}),
        ((109, c.Obliterate("q", True)), set()),
    ]
    for step, expected in steps:
        goes_on(shard, step)
        assert set(references(shard)) == set(references(again(shard))) == expected, step


def test_published_jobs_need_the_record_that_staged_them():
    shard = stored_shard()
    before = shard.sequence
    steps: list[tuple[Step, set[int]]] = [
        ((2, c.Publish("tx", ["a"])), {1, 2, 3, 4, 5, 6}),
        ((3, c.Obliterate("q", True)), set()),
    ]
    for step, expected in steps:
        goes_on(shard, step)
        assert set(references(shard)) == set(references(again(shard))) == expected, step
    assert shard.sequence == before + 2


# --- chunks ----------------------------------------------------------------------------------------------


def test_chunks_are_bounded():
    """However much belongs to one batch, one job or one stage; the largest payload alone may be larger."""
    big = b"x" * 50_000
    shard = built(
        (1, c.PushBatch("q", [big] * 100)),
        (1, c.PushBatch("q", [big] * 100)),
        (1, c.Stage("tx", "a", "q", [big] * 100)),
        (1, c.PushBatch("r", [b""] * 10_000, each=[Options(trace=str(n) * 50) for n in range(10_000)])),
        (2, c.Pull(["q"], 150)),
    )
    for start in range(1, 80, 4):
        perform(shard, (3, c.Ack([job(n) for n in range(start, start + 3)], results=[big] * 3)))
    for _ in range(50):
        perform(shard, (4, c.AppendPartial(job(100), big)))
    found = list(save(shard, 1))
    assert max(map(len, found)) < checkpoint_format.CHUNK_BYTES + checkpoint_format.PILE_BYTES + 2 * len(big)
    assert sum(map(len, found)) > 20 * checkpoint_format.CHUNK_BYTES
    again(shard)


def test_many_jobs_are_many_chunks():
    shard = built(*((1, c.Push("q", b"%d" % n)) for n in range(10_000)))
    assert len(list(save(shard, 1))) > 2
    (reply,) = goes_on(shard, (2, c.Pull(["q"], 10_000)))
    assert pulled(reply) == list(range(1, 10_001))


@pytest.mark.parametrize("missing", [slice(1), slice(1, 2), slice(2, 3), slice(-1, None), slice(None)])
def test_what_is_not_all_there_is_refused(missing: slice, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint_format, "CHUNK_ENTRIES", 2)
    found = list(save(built((1, c.PushBatch("q", [b""] * 5, Options(group_id="g")))), 1))
    assert len(found) > 4
    del found[missing]
    with pytest.raises(Damaged):
        load(found)


def test_what_cannot_be_understood_is_refused():
    found = list(save(built((1, c.Push("q", b""))), 1))
    for broken in (b"", b"\xc1", checkpoint_format.encode((1, [], [(99, "no such entry")])), found[1][:-1]):
        with pytest.raises(Damaged):
            load([found[0], broken])
        with pytest.raises(Damaged):
            load([broken])


def test_what_a_later_release_has_saved_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoint_format, "FORMAT", checkpoint_format.FORMAT + 1)
    later = list(save(Shard(), 1))
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match=f"format {checkpoint_format.FORMAT + 1}"):
        load(later)


def test_a_shard_without_anything_comes_back():
    loaded = again(Shard(number=0, settings=SHORT))
    assert dump(loaded) == dump(replay([], settings=SHORT))
    assert perform(loaded, (1, c.Push("q", b"")))[0]["id"] == job(1)
