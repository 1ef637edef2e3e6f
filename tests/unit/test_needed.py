"""When a checkpoint is due, and which parts of a log may go: decided without a file."""

import msgspec

from stoker.journal.needed import Needs, expired, is_due
from stoker.journal.sqlite import JournalSettings

SMALL = JournalSettings(
    checkpoint_records=10, checkpoint_bytes=1_000, checkpoint_files=4, events_age_ms_max=100, events_bytes_max=250
)


class Part(msgspec.Struct, kw_only=True):
    """A hundred records of one shard, each a row of one byte."""

    name: str = ""
    last: list[int]
    ended_at: int = 0
    bytes: int = 100
    is_rewritten: bool = False

    def ends_at(self, shard: int) -> int:
        return self.last[shard]

    def place_of(self, shard: int, sequence: int) -> tuple[int, int]:
        return sequence, 1


def parts(*ends: int) -> list[Part]:
    return [Part(name=f"p{number}", last=[end], ended_at=end) for number, end in enumerate(ends, 1)]


def test_a_checkpoint_is_due_by_records_bytes_or_parts():
    assert not is_due([], [0], SMALL)
    assert not is_due(parts(9), [0], SMALL)
    assert is_due(parts(10), [0], SMALL)
    assert not is_due(parts(10), [1], SMALL)
    assert is_due([Part(last=[1], bytes=1_000)], [0], SMALL)
    assert is_due(parts(1, 2, 3, 4), [0], SMALL)
    assert not is_due(parts(1, 2, 3, 4), [4], SMALL)


def test_parts_are_past_retention_by_age_or_by_bytes():
    assert expired(parts(10, 20, 30), 30, SMALL) == 1, "the third hundred bytes are too many"
    assert expired(parts(10, 20), 20, SMALL) == 0
    assert expired(parts(10, 20), 110, SMALL) == 1
    assert expired(parts(10, 20), 120, SMALL) == 2


def test_a_part_that_nothing_refers_to_is_not_needed():
    needs = Needs(parts(100, 200, 300))
    needs.add(0, [150, 150, 160])
    assert needs.unneeded() == ["p1", "p3"]
    assert needs.rows["p2"] == {150, 160}


def test_neighbours_that_are_mostly_dead_are_worth_one_new_part():
    needs = Needs(parts(100, 200, 300, 400))
    needs.add(0, [1, 101, 102])
    needs.add(0, range(201, 300))
    needs.add(0, [301])
    assert [part.name for part in needs.mostly_dead(0.3)] == ["p1", "p2"]
    assert needs.mostly_dead(0.005) == []


def test_a_part_that_was_rewritten_is_rewritten_again_only_with_a_neighbour_before_it():
    done = Part(name="done", last=[200], is_rewritten=True)
    alone, both = Needs([done]), Needs([*parts(100), done])
    alone.add(0, [101])
    both.add(0, [1, 101])
    assert alone.mostly_dead(0.3) == []
    assert [part.name for part in both.mostly_dead(0.3)] == ["p1", "done"]
