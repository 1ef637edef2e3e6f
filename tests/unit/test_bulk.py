"""A bulk operation goes on after a crash between any two steps: no job is hit twice, and none is missed."""

from collections import Counter
from typing import Any

import pytest

from stoker.engine.audit import audit
from stoker.engine.checkpoint_loading import load
from stoker.engine.checkpoint_saving import save
from stoker.engine.shard import Shard, replay
from stoker.engine.state_dump import dump
from stoker.model import commands as c
from stoker.model.bulk import BulkAction
from stoker.model.filters import JobFilter
from stoker.model.options import Options
from stoker.records import records as rec

JOBS = 130
BEGAN = 1_000
HIT: dict[BulkAction, type[rec.Record]] = {
    "retry": rec.Revived,
    "delete": rec.DeadRemoved,
    "priority": rec.Reprioritised,
}


def prepared(action: BulkAction) -> tuple[Shard, list[rec.Record]]:
    """A shard with dead letters, or with waiting jobs for actions on those, and its records."""
    shard = Shard()
    shard.execute("t", c.PushBatch("q", [b"x"] * JOBS, Options(max_attempts=1)), 1)
    if action != "priority":
        batch = shard.execute("t", c.Pull(["q"], JOBS), 2)
        ids = [job.id for job in batch]
        shard.execute("t", c.Fail(ids, batch.token, "boom"), 3)
    shard.execute("t", c.StartBulk("b", action, JobFilter(queue="q"), 5 if action == "priority" else None), BEGAN)
    return shard, shard.take_records()


def ended(shard: Shard) -> tuple[list[list[rec.Record]], Any]:
    """The records of each turn until the operation is over, and how it ended."""
    turns, now = [], max(BEGAN, shard.now)
    while True:
        now += 10
        shard.advance(now)
        turns.append(shard.take_records())
        view = shard.execute("t", c.GetBulk("b"), now)
        if view.state != "running":
            return turns, view


def hits(records: list[rec.Record], action: BulkAction) -> Counter[int]:
    found: Counter[int] = Counter()
    for record in records:
        if type(record) is HIT[action]:
            found.update(record.jobs if isinstance(record, rec.DeadRemoved) else [record.job])  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("action", list(HIT))
def test_a_crash_between_any_two_steps_hits_nothing_twice_and_misses_nothing(action: BulkAction):
    shard, before = prepared(action)
    turns, view = ended(shard)
    assert view.changed == JOBS
    assert len(turns) > 2
    for survived in range(len(turns) + 1):
        kept = before + [record for turn in turns[:survived] for record in turn]
        again = replay(kept)
        audit(again)
        rest: list[rec.Record] = []
        if again.execute("t", c.GetBulk("b"), again.now).state == "running":
            rest = [record for turn in ended(again)[0] for record in turn]
        assert hits(kept + rest, action) == Counter(dict.fromkeys(hits(kept + rest, action), 1))
        assert len(hits(kept + rest, action)) == JOBS
        assert again.execute("t", c.GetBulk("b"), again.now).changed == JOBS
        audit(again)


def test_a_checkpoint_has_it():
    shard, _ = prepared("retry")
    shard.advance(BEGAN + 1)
    shard.take_records()
    loaded, _ = load(save(shard, 0))
    assert dump(loaded) == dump(shard)
    assert ended(loaded)[1].changed == JOBS


def test_a_replay_is_the_same_shard():
    shard, before = prepared("delete")
    turns, _ = ended(shard)
    assert dump(replay(before + [record for turn in turns for record in turn])) == dump(shard)


def test_steps_that_were_slept_through_do_not_come_all_at_once():
    shard, _ = prepared("retry")
    shard.advance(BEGAN + 3_600_000)
    steps = [record for record in shard.take_records() if type(record) is rec.BulkStepped]
    assert len(steps) == 1


def test_ended_operations_are_forgotten_in_the_end():
    shard = Shard()
    for number in range(60):
        shard.execute("t", c.StartBulk(f"b{number}", "retry"), BEGAN + number * 10)
        shard.advance(BEGAN + number * 10 + 5)
    found = shard.execute("t", c.ListBulks(), 10_000).bulks
    assert [view.key for view in found] == [f"b{number}" for number in range(59, 9, -1)]
