"""Many schedules that are due at one moment: other requests do not wait for all of them, and each slot is pushed
once.
"""

from collections.abc import Iterator

import pytest

from stoker.engine.audit import audit
from stoker.engine.shard import Shard, replay
from stoker.engine.slot_pacing import PAUSE_MS, SLOTS
from stoker.model import commands as c
from stoker.model.schedules import Schedule
from stoker.records import records as rec
from stoker.testing import World

START = 1_700_000_000_000
MINUTE = 60_000
MANY = 3 * SLOTS + 50
ONCE = Schedule(every_ms=MINUTE, grace_ms=0, misfire="skip")
"""Too late by a millisecond, and a slot is missed."""


def due_at_once(schedule: Schedule = ONCE, count: int = MANY, history: list[rec.Record] | None = None) -> Shard:
    shard = Shard()
    for number in range(count):
        shard.execute("t", c.PutSchedule("q", f"s{number:04}", schedule), START)
    (history if history is not None else []).extend(shard.take_records())
    return shard


def pushes(shard: Shard) -> list[rec.ScheduledPush]:
    records = shard.take_records()
    assert all(type(record) is rec.ScheduledPush for record in records)
    return [record for record in records if type(record) is rec.ScheduledPush]


def turns(shard: Shard, now: int) -> Iterator[list[rec.ScheduledPush]]:
    while shard.backlog:
        now += PAUSE_MS
        shard.advance(now)
        audit(shard)
        yield pushes(shard)


def test_a_turn_deals_with_so_many_slots_and_the_next_ones_with_the_others():
    shard = due_at_once()
    shard.advance(START + MINUTE)
    audit(shard)
    found = [pushes(shard), *turns(shard, START + MINUTE)]
    assert [len(turn) for turn in found] == [SLOTS, SLOTS, SLOTS, 50]
    told = [record for turn in found for record in turn]
    assert [record.name for record in told] == [f"s{number:04}" for number in range(MANY)]
    assert {(record.slot, record.at) for record in told} == {(START + MINUTE, START + MINUTE)}


def test_whoever_comes_in_between_is_served():
    shard = due_at_once()
    shard.advance(START + MINUTE)
    assert shard.next_at == START + MINUTE + PAUSE_MS
    shard.execute("t", c.Push("other", b"x"), START + MINUTE + 1)
    assert len(shard.take_records()) == SLOTS + 1


def test_slots_that_are_made_up_for_are_not_all_made_up_for_in_one_turn():
    shard = due_at_once(Schedule(every_ms=MINUTE, misfire="all", misfires_max=SLOTS), count=3)
    shard.advance(START + SLOTS * MINUTE)
    found = [pushes(shard), *turns(shard, START + SLOTS * MINUTE)]
    assert [len(turn) for turn in found] == [SLOTS] * 3
    told = sorted((record.name, record.slot, record.at) for turn in found for record in turn)
    slots = [START + number * MINUTE for number in range(1, SLOTS + 1)]
    assert told == [(f"s{number:04}", slot, slot) for number in range(3) for slot in slots]


def test_what_was_changed_meanwhile_is_dealt_with_by_its_new_rule():
    shard = due_at_once()
    shard.advance(START + MINUTE)
    shard.execute("t", c.DeleteSchedule("q", "s0340"), START + MINUTE)
    shard.execute("t", c.PauseSchedule("q", "s0341"), START + MINUTE)
    shard.execute("t", c.PutSchedule("q", "s0342", Schedule(every_ms=2 * MINUTE)), START + MINUTE)
    shard.take_records()
    told = [record.name for turn in turns(shard, START + MINUTE) for record in turn]
    assert told == [f"s{number:04}" for number in range(SLOTS, MANY) if number not in (340, 341, 342)]


@pytest.mark.parametrize("place", [1, SLOTS - 1, SLOTS, SLOTS + 1, 2 * SLOTS])
def test_a_restart_goes_on_with_those_that_are_left(place: int):
    history: list[rec.Record] = []
    shard = due_at_once(Schedule(every_ms=MINUTE), history=history)
    shard.advance(START + MINUTE)
    history += [*pushes(shard), *(record for turn in turns(shard, START + MINUTE) for record in turn)]
    again = replay(history[: MANY + place])
    audit(again)
    now = START + MINUTE + 5_000
    again.advance(now)
    rest = [*pushes(again), *(record for turn in turns(again, now) for record in turn)]
    assert sorted(record.name for record in rest) == [f"s{number:04}" for number in range(place, MANY)]
    assert {record.slot for record in rest} == {START + MINUTE}


def test_shards_of_one_process_share_what_a_turn_may_take():
    with World(shards=4) as world:
        for number in range(MANY):
            world.client.execute(c.PutSchedule(f"q{number % 10}", f"s{number}", ONCE))
        world.advance(MINUTE)
        assert world.client.get_stats().totals.pushed == SLOTS
        for _ in range(MANY // SLOTS):
            world.advance(PAUSE_MS)
        assert world.client.get_stats().totals.pushed == MANY
