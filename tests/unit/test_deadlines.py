"""The heap of everything that happens by itself."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine import deadlines as kinds
from stoker.engine import timers
from stoker.engine.deadlines import SWEEP_MIN, Deadlines
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.records.records import BecameDue
from tests.unit.support import QUICK

entries = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 10)), max_size=40)


def fired(deadlines: Deadlines, now: int) -> list[tuple[int, int, list[Any]]]:
    found = []
    while (due := deadlines.pop_equal(now)) is not None:
        found.append(due)
    return found


@QUICK
@given(entries, st.integers(0, 13))
def test_what_is_due_fires_by_time_then_kind_and_together(armed: list[tuple[int, int]], now: int):
    deadlines = Deadlines()
    for number, (at, kind) in enumerate(armed):
        deadlines.arm(at, kind, number)
    expected: dict[tuple[int, int], list[int]] = {}
    for number, moment in enumerate(armed):
        if moment[0] <= now:
            expected.setdefault(moment, []).append(number)
    assert fired(deadlines, now) == [(*moment, numbers) for moment, numbers in sorted(expected.items())]
    assert len(deadlines.heap) == sum(at > now for at, _ in armed)


@QUICK
@given(entries, st.integers(0, 12))
def test_a_sweep_keeps_what_it_is_told_to_and_the_order(armed: list[tuple[int, int]], lost: int):
    deadlines = Deadlines()
    for number, (at, kind) in enumerate(armed):
        deadlines.arm(at, kind, number)
    deadlines.sweep(lambda at, kind, holder: at != lost)
    numbers = [number for _, _, found in fired(deadlines, 99) for number in found]
    assert numbers == sorted((n for n, (at, _) in enumerate(armed) if at != lost), key=lambda n: (*armed[n], n))


def test_a_deadline_is_reached_at_its_time_and_not_before():
    deadlines = Deadlines()
    deadlines.arm(100, kinds.LEASE, "job")
    assert deadlines.pop_equal(99) is None
    assert deadlines.pop_equal(100) == (100, kinds.LEASE, ["job"])
    assert deadlines.pop_equal(100) is None


def test_holders_are_never_compared():
    deadlines = Deadlines()
    for _ in range(10):
        deadlines.arm(1, kinds.DUE, object())
    due = deadlines.pop_equal(1)
    assert due is not None
    assert len(due[2]) == 10


def test_the_kinds_stand_in_the_documented_order():
    """Due times, ttls, leases, dead letters (retry before expiry), keys and retention, the rest as it is documented."""
    in_order = [
        kinds.DUE,
        kinds.TTL,
        kinds.LEASE,
        kinds.DEAD_RETRY,
        kinds.DEAD_AGE,
        kinds.KEY,
        kinds.AGE,
        kinds.STAGE,
        kinds.TRANSACTION,
        kinds.CLAIM,
        kinds.KV,
        kinds.EDGES,
        kinds.FLOW,
        kinds.SCHEDULE,
        kinds.SLOTS,
        kinds.REFILL,
        kinds.BULK,
    ]
    assert in_order == list(range(len(timers.HANDLERS)))


def test_after_a_sweep_an_entry_stands_once():
    deadlines, holder = Deadlines(), object()
    for _ in range(3):
        deadlines.arm(7, kinds.LEASE, holder)
    deadlines.arm(8, kinds.LEASE, holder)
    deadlines.sweep(lambda at, kind, holder: True)
    assert fired(deadlines, 99) == [(7, kinds.LEASE, [holder]), (8, kinds.LEASE, [holder])]


def test_jobs_of_several_queues_become_due_in_id_order():
    """Whichever queue was the first to be told of that moment."""
    shard = Shard()
    first = shard.execute("acme", c.Push("b", b""), 1).id
    second = shard.execute("acme", c.Push("a", b"", Options(delay_ms=99)), 1).id
    shard.execute("acme", c.Pull(["b"]), 1)
    shard.execute("acme", c.Fail([first], delay_ms=50), 50)
    shard.take_records()
    shard.advance(100)
    due = [record for record in shard.take_records() if type(record) is BecameDue]
    assert [record.runs for record in due] == [[(first, 1)], [(second, 1)]]


def test_finished_deliveries_leave_o_live_entries():
    """F9 for leases: what was acknowledged is swept out when it is in the majority."""
    shard = Shard()
    for now in range(1, 5 * SWEEP_MIN):
        shard.execute("acme", c.Push("q", b""), now)
        delivery = shard.execute("acme", c.Pull(["q"]), now)
        shard.execute("acme", c.Ack(delivery.ids, delivery.token), now)
    assert len(shard.deadlines.heap) <= 2 * SWEEP_MIN + 2


def test_heartbeats_leave_o_live_entries():
    """F9 for leases: a job that is renewed again and again stands once, not once for each renewal."""
    shard = Shard()
    shard.execute("acme", c.Push("q", b""), 1)
    delivery = shard.execute("acme", c.Pull(["q"]), 1)
    for now in range(2, 5 * SWEEP_MIN):
        shard.execute("acme", c.Extend(delivery.ids, delivery.token), now)
    assert len(shard.deadlines.heap) <= SWEEP_MIN + 2


DAY_MS = 86_400_000
ROUNDS = 6 * SWEEP_MIN


def finish(shard: Shard, options: Options, now: int) -> None:
    shard.execute("acme", c.Push("q", b"", options), now)
    delivery = shard.execute("acme", c.Pull(["q"]), now)
    shard.execute("acme", c.Ack(delivery.ids, delivery.token), now)


def finish_with_a_ttl(shard: Shard, now: int) -> None:
    finish(shard, Options(ttl_ms=DAY_MS, remove_on_complete=True), now)


def finish_with_a_key(shard: Shard, now: int) -> None:
    finish(shard, Options(unique_key="k", unique_ttl_ms=DAY_MS, remove_on_complete=True), now)


def extend_a_key(shard: Shard, now: int) -> None:
    options = Options(unique_key="k", unique_ttl_ms=DAY_MS, on_conflict="extend")
    shard.execute("acme", c.Push("q", b"", options), now)


def release_again(shard: Shard, now: int) -> None:
    if not shard.sequence:
        shard.execute("acme", c.Push("q", b"", Options(ttl_ms=DAY_MS)), now)
    delivery = shard.execute("acme", c.Pull(["q"]), now)
    shard.execute("acme", c.Release(delivery.ids, delivery.token), now)


def bury_and_purge(shard: Shard, now: int) -> None:
    job = shard.execute("acme", c.Push("q", b""), now).id
    shard.execute("acme", c.Discard(job), now)
    shard.execute("acme", c.PurgeDead("q"), now)


def delay_and_obliterate(shard: Shard, now: int) -> None:
    shard.execute("acme", c.Push("q", b"", Options(delay_ms=DAY_MS)), now)
    shard.execute("acme", c.Obliterate("q"), now)


@pytest.mark.parametrize(
    "round_of",
    [finish_with_a_ttl, finish_with_a_key, extend_a_key, release_again, bury_and_purge, delay_and_obliterate],
)
def test_what_is_over_leaves_o_live_entries(round_of: Callable[[Shard, int], None]):
    """F9 for all deadlines: of what no longer waits for its time nothing stays until that time."""
    shard = Shard()
    for now in range(1, ROUNDS):
        round_of(shard, now)
    assert len(shard.deadlines.heap) <= 4 * SWEEP_MIN + 4


def test_answered_pulls_leave_o_live_entries():
    """F9 for those who wait: a pull that was answered is not kept until its time would have been over."""
    shard = Shard()
    for now in range(1, ROUNDS):
        shard.execute("acme", c.Pull(["q"], wait_ms=600_000), now)
        shard.execute("acme", c.Push("q", b""), now)
    assert not shard.waiting()
    assert len(shard._parked) <= 4 * SWEEP_MIN + 4
