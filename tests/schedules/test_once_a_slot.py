"""Each slot is over once: pushed or passed by, never both and never twice, wherever the records end in between.

A shard with schedules of all policies lives for a while; then it is made anew from each beginning of its records, as
after a restart there, and goes on. Whoever reads all records finds every slot exactly once.
"""

import random
from collections.abc import Iterator, Sequence

import pytest

from stoker.engine.audit import audit
from stoker.engine.checkpoint_saving import load, save
from stoker.engine.shard import Shard, apply_again
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.model.schedules import Schedule
from stoker.records import records as rec
from stoker.records.codec import decode, encode
from stoker.runtime.calendar import IanaCalendar

START = 1_700_000_000_000
MINUTE = 60_000
END = START + 40 * MINUTE

SCHEDULES = {
    "allow": Schedule(every_ms=MINUTE, misfire="all", misfires_max=1_000),
    "late": Schedule(every_ms=MINUTE, grace_ms=3_600_000, jitter_ms=20_000),
    "skip": Schedule(every_ms=MINUTE, overlap="skip", misfire="skip", options=Options(lease_ms=5_000, max_attempts=2)),
    "queue": Schedule(every_ms=MINUTE, overlap="queue", grace_ms=90_000, options=Options(unique_key="k")),
    "cron": Schedule(cron="*/20 * * * * *", misfire="once", grace_ms=10_000),
    "short": Schedule(every_ms=MINUTE, runs_max=7, misfire="all", misfires_max=2),
}
RESTS = (20_000, MINUTE, 7 * MINUTE)


def slots_of(name: str) -> list[int]:
    """All that there are until the end."""
    if name == "cron":
        first = START - START % 20_000 + 20_000
        return list(range(first, END + 1, 20_000))
    return list(range(START + MINUTE, END + 1, MINUTE))


def made() -> Shard:
    shard = Shard()
    shard.calendar = IanaCalendar()
    for name, schedule in SCHEDULES.items():
        shard.execute("t", c.PutSchedule("q", name, schedule), START)
    return shard


def life(seed: int) -> list[rec.Record]:
    """Time passes, sometimes unwatched; jobs are worked off now and then, and schedules paused and run by hand."""
    shard, rng, now = made(), random.Random(seed), START
    while now < START + 25 * MINUTE:
        now += rng.choice((500, 7_000, MINUTE, 5 * MINUTE))
        shard.advance(now)
        roll = rng.random()
        if roll < 0.3:
            delivery = shard.execute("t", c.Pull(["q"], 5), now)
            if delivery.token and rng.random() < 0.7:
                shard.execute("t", c.Ack(delivery.ids, delivery.token), now)
        elif roll < 0.4:
            shard.execute("t", c.RunSchedule("q", "allow"), now)
    return [decode(encode(record)) for record in shard.take_records()]


def over(records: Sequence[rec.Record], name: str) -> Iterator[int]:
    """The slots of a schedule that these records end, in order."""
    for record in records:
        if isinstance(record, rec.ScheduledPush) and record.name == name and not record.manual:
            yield record.slot
        if isinstance(record, rec.SlotPassed) and record.name == name and not record.manual:
            yield from (slot for slot in slots_of(name) if record.slot <= slot <= (record.until or record.slot))


def again(records: Sequence[rec.Record], through_bytes: bool) -> Shard:
    shard = Shard()
    apply_again(shard, records)
    audit(shard)
    if through_bytes:
        loaded, _ = load(save(shard, len(records)))
        assert dump(loaded) == dump(shard)
        shard = loaded
    shard.calendar = IanaCalendar()
    return shard


def go_on(shard: Shard, last: int, rest: int) -> list[rec.Record]:
    """Somebody is back after `rest`, and looks at the clock now and then."""
    now = min(last + rest, END)
    while now < END:
        shard.advance(now)
        now += rest
    shard.advance(END + MINUTE)  # what has jitter comes later than its slot
    audit(shard)
    return list(shard.take_records())


@pytest.mark.parametrize("seed", range(3))
def test_every_slot_is_over_once_wherever_the_records_end(seed: int):
    records = life(seed)
    assert len(records) > 50
    for place in range(len(SCHEDULES), len(records) + 1):
        rest = RESTS[place % len(RESTS)]
        shard = again(records[:place], through_bytes=place % 2 == 0)
        told = [*records[:place], *go_on(shard, records[place - 1].at, rest)]  # type: ignore[attr-defined]
        for name in SCHEDULES:
            expected = slots_of(name)
            found = [slot for slot in over(told, name) if slot <= END]
            if name == "short":
                expected = [slot for slot in expected if slot <= found[-1]]
                assert sum(isinstance(one, rec.ScheduledPush) and one.name == name for one in told) <= 7
            assert found == expected, f"seed {seed}, records up to {place}, schedule {name}"


def test_a_slot_and_its_job_are_one_record():
    """If they were two, an end between them would push the slot twice or never."""
    shard = made()
    shard.take_records()
    shard.advance(START + MINUTE)
    (pushed,) = [one for one in shard.take_records() if isinstance(one, rec.ScheduledPush) and one.name == "allow"]
    assert (pushed.slot, pushed.next_slot, pushed.payloads) == (START + MINUTE, START + 2 * MINUTE, (b"",))


@pytest.mark.parametrize("back", [1, MINUTE, 86_400_000])
def test_a_clock_that_was_set_back_repeats_no_slot(back: int):
    """The shard's time goes on; slots are times of the calendar, and come when it gets there again."""
    shard = made()
    shard.advance(START + 10 * MINUTE)
    before = list(shard.take_records())
    later = again(before, through_bytes=True)
    later.ahead_ms = back
    now = START + 10 * MINUTE
    for _ in range(30):
        now += MINUTE
        later.advance(now)
    told = [*before, *later.take_records()]
    for name in ("allow", "late", "cron"):
        found = list(over(told, name))
        assert found == [slot for slot in slots_of(name) if slot <= found[-1]]
        assert max(found) <= max(now - back, START + 10 * MINUTE), "nothing comes before the calendar says so"
