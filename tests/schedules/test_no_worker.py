"""`skip_if_no_worker`: what counts as a worker at a slot, for how long, and that a replay asks nothing of that."""

import pytest

from stoker.engine.parking import Parked
from stoker.engine.presence import WORKER_SEEN_MS
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.options import Options
from stoker.model.schedules import Schedule
from stoker.records import records as rec

START = 1_700_000_000_000
MINUTE = 60_000
SLOT = START + 10 * MINUTE
WAIT = 10 * MINUTE
LAST = SLOT - WORKER_SEEN_MS
"""The last moment before the slot that counts."""


@pytest.fixture
def shard() -> Shard:
    """With a schedule whose next slot is at `SLOT`."""
    shard = Shard()
    shard.execute("t", c.PutSchedule("q", "s", Schedule(every_ms=10 * MINUTE, skip_if_no_worker=True)), START)
    return shard


def outcome(shard: Shard) -> tuple[str, str]:
    """What became of the slot."""
    shard.advance(SLOT)
    (run,) = shard.execute("t", c.GetSchedule("q", "s"), SLOT).last_runs
    return run.outcome, run.reason


def ids_of(delivery: r.Delivery) -> list[int]:
    return [job for run in delivery.runs for job in run.ids]


PUSHED, SKIPPED = ("pushed", ""), ("skipped", "no_worker")


def test_without_a_sign_of_a_worker_the_slot_is_skipped(shard: Shard):
    shard.execute("t", c.Push("q", b"waits"), SLOT - 1)
    assert outcome(shard) == SKIPPED
    assert shard.execute("t", c.GetSchedule("q", "s"), SLOT).runs == 0


@pytest.mark.parametrize(("wait_ms", "expected"), [(0, SKIPPED), (MINUTE, SKIPPED), (WAIT, PUSHED)])
def test_a_pull_that_waits_is_a_worker(shard: Shard, wait_ms: int, expected: tuple[str, str]):
    shard.execute("t", c.Pull(["other", "q"], wait_ms=wait_ms), START + 1)
    assert outcome(shard) == expected


@pytest.mark.parametrize(("at", "expected"), [(LAST, PUSHED), (LAST - 1, SKIPPED)])
def test_a_pull_counts_for_a_while_after_it_came(shard: Shard, at: int, expected: tuple[str, str]):
    shard.execute("t", c.Pull(["q"]), at)
    assert outcome(shard) == expected


@pytest.mark.parametrize(("until", "expected"), [(LAST, PUSHED), (LAST - 1, SKIPPED)])
@pytest.mark.parametrize("looks", [True, False])
def test_a_pull_counts_for_a_while_after_its_wait(shard: Shard, until: int, expected: tuple[str, str], looks: bool):
    """Whether its end was noticed before the slot or with it."""
    shard.execute("t", c.Pull(["q"], wait_ms=until - START - 1), START + 1)
    if looks:
        shard.advance(SLOT - 1)
    assert outcome(shard) == expected


def test_a_pull_that_was_given_up_does_not_wait(shard: Shard):
    parked = shard.execute("t", c.Pull(["q"], wait_ms=WAIT), START + 1)
    assert isinstance(parked, Parked)
    parked.give_up()
    assert outcome(shard) == SKIPPED


def test_a_running_job_is_a_worker(shard: Shard):
    shard.execute("t", c.Push("q", b"long", Options(lease_ms=30 * MINUTE)), START + 1)
    shard.execute("t", c.Pull(["q"]), START + 1)
    assert outcome(shard) == PUSHED


def test_a_worker_whose_lease_has_ended_is_none(shard: Shard):
    shard.execute("t", c.Push("q", b"lost", Options(lease_ms=MINUTE)), START + 1)
    shard.execute("t", c.Pull(["q"]), START + 1)
    assert outcome(shard) == SKIPPED


@pytest.mark.parametrize(("at", "expected"), [(LAST, PUSHED), (LAST - 1, SKIPPED)])
@pytest.mark.parametrize("settle", [c.Ack, c.Fail])
@pytest.mark.parametrize("count", [1, 2])
def test_a_worker_counts_for_a_while_after_it_settled_a_job(
    shard: Shard, settle: type[c.Ack | c.Fail], count: int, at: int, expected: tuple[str, str]
):
    """It is about to pull again. One job and two take different ways through the engine."""
    shard.execute("t", c.PushBatch("q", [b""] * count, Options(lease_ms=30 * MINUTE, max_attempts=1)), START + 1)
    delivery = shard.execute("t", c.Pull(["q"], count), START + 1)
    shard.execute("t", settle(ids_of(delivery), delivery.token), at)
    assert outcome(shard) == expected


def test_a_job_that_was_handed_back_is_no_sign_of_a_worker(shard: Shard):
    """A worker that stops does that."""
    shard.execute("t", c.Push("q", b"", Options(lease_ms=30 * MINUTE)), START + 1)
    delivery = shard.execute("t", c.Pull(["q"]), START + 1)
    shard.execute("t", c.Release(ids_of(delivery), delivery.token), SLOT - 1)
    assert outcome(shard) == SKIPPED


def test_a_worker_of_another_queue_or_tenant_is_none(shard: Shard):
    shard.execute("t", c.Pull(["other"], wait_ms=WAIT), SLOT - 1)
    shard.execute("u", c.Pull(["q"], wait_ms=WAIT), SLOT - 1)
    assert outcome(shard) == SKIPPED


def test_run_now_asks_for_no_worker(shard: Shard):
    assert shard.execute("t", c.RunSchedule("q", "s"), START + 1).created


@pytest.mark.parametrize("wait_ms", [0, WAIT])
def test_a_replay_has_the_outcome_from_the_record(shard: Shard, wait_ms: int):
    """Pulls are not journaled, so nothing that a replay has could tell it."""
    if wait_ms:
        shard.execute("t", c.Pull(["q"], wait_ms=wait_ms), START + 1)
    shard.advance(SLOT)
    records = shard.take_records()
    again = replay(records)
    assert dump(again) == dump(shard)
    kinds = [type(record) for record in records if isinstance(record, rec.ScheduledPush | rec.SlotPassed)]
    assert kinds == [rec.ScheduledPush if wait_ms else rec.SlotPassed]


def test_a_restart_forgets_pulls(shard: Shard):
    shard.execute("t", c.Pull(["q"]), SLOT - 1)
    assert outcome(replay(shard.take_records())) == SKIPPED


def test_a_restart_keeps_running_jobs(shard: Shard):
    shard.execute("t", c.Push("q", b""), SLOT - 1)
    shard.execute("t", c.Pull(["q"]), SLOT - 1)
    assert outcome(replay(shard.take_records())) == PUSHED
