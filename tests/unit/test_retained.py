"""Retention by age and count against a naive list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.apply.moves import forget
from stoker.engine.jobs import COMPLETED, EndedRun
from stoker.engine.retained_jobs import ended_at, is_gone, serial_of, size_of
from stoker.engine.shard import Shard
from tests.unit.support import QUICK, new_batch, new_job

Policy = tuple[int, int]

POLICIES: list[Policy] = [(50, 4), (50, 1), (20, 6), (1_000, 3)]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("end"), st.sampled_from(POLICIES), st.integers(1, 5), st.integers(0, 8)),
        st.tuples(st.just("end_job"), st.sampled_from(POLICIES), st.just(1), st.integers(0, 8)),
        st.tuples(st.just("clean"), st.just((0, 0)), st.integers(0, 5), st.integers(0, 8)),
        st.tuples(st.just("age"), st.just((0, 0)), st.just(0), st.integers(0, 70)),
    ),
    max_size=40,
)


class Shelf:
    """Ended jobs under both the real rules and the naive ones."""

    def __init__(self) -> None:
        self.shard = Shard()
        self.queue = self.shard.queue("acme", "q")
        self.retained = self.queue.retained
        self.naive: list[tuple[int, int, Policy]] = []
        """(serial, end, policy) of what is readable."""
        self.serial = 0
        self.sequence = 0
        self.now = 0

    def end(self, policy: Policy, jobs: int, *, quickly: bool = False) -> None:
        retained = self.retained
        self.naive += [(self.serial + number, self.now, policy) for number in range(1, jobs + 1)]
        self.serial += jobs
        self.queue.count(COMPLETED, jobs)
        self.sequence += 1
        if quickly or jobs == 1:
            job = new_job(self.queue, self.sequence)
            job.state = COMPLETED
            self.shard.index.add(job)
            detail = job.details()
            detail.ended_at = self.now
            if quickly:
                retained.add_job(job, detail, policy)
            else:
                detail.serial = retained.serial + 1
                retained.add(job, 1, policy)
        else:
            batch = new_batch(self.queue, self.sequence, jobs + 2)  # the run is not at the batch's start
            self.sequence += jobs + 1
            self.shard.index.add_batch(batch)
            run = EndedRun(batch, 2, 2, jobs + 2, COMPLETED, self.now, retained.serial + 1)
            batch.ended.add(run)
            retained.add(run, jobs, policy)
        self.naive = [kept for kept in self.naive if self.serial - kept[0] < kept[2][1]]

    def age(self) -> None:
        for policy in POLICIES:
            oldest = self.retained.age_out(policy, self.now)
            self.naive = [kept for kept in self.naive if kept[2] != policy or kept[1] + policy[0] > self.now]
            assert oldest == min((kept[1] for kept in self.naive if kept[2] == policy), default=0)

    def clean(self, place: int) -> None:
        """Somebody removes one entry from wherever it stands."""
        entries = list(self.retained.entries())
        if entries:
            ended = entries[place % len(entries)]
            serials = range(serial_of(ended), serial_of(ended) + size_of(ended))
            self.naive = [kept for kept in self.naive if kept[0] not in serials]
            forget(self.shard, ended, size_of(ended))

    def readable(self) -> list[tuple[int, int]]:
        entries = self.retained.entries()
        return [(serial_of(ended) + n, ended_at(ended)) for ended in entries for n in range(size_of(ended))]


@QUICK
@given(steps)
def test_what_is_readable_is_what_the_naive_list_says(history: list[tuple[str, Policy, int, int]]):
    shelf = Shelf()
    for verb, policy, number, gap in history:
        shelf.now += gap
        if verb == "clean":
            shelf.clean(number)
        elif verb == "age":
            shelf.age()
        else:
            shelf.end(policy, number, quickly=verb == "end_job")
        assert shelf.readable() == [(serial, at) for serial, at, _ in shelf.naive]
        assert shelf.retained.serial == shelf.serial
        assert shelf.queue.counts[COMPLETED] == len(shelf.naive)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_job_is_pushed_out_by_exactly_count_newer_ones(count: int):
    shelf = Shelf()
    shelf.end((1_000, count), 1)
    for newer in range(count):
        assert shelf.readable()[0][0] == 1, f"after {newer} newer ones it is still there"
        shelf.end((1_000, 100), 1)
    assert shelf.readable()[0][0] == 2


def test_a_run_is_pushed_out_job_by_job():
    shelf = Shelf()
    shelf.end((1_000, 4), 5)
    assert [serial for serial, _ in shelf.readable()] == [2, 3, 4, 5]
    shelf.end((1_000, 4), 2)
    assert [serial for serial, _ in shelf.readable()] == [4, 5, 6, 7]


def test_a_job_is_forgotten_when_it_has_its_age_and_not_a_millisecond_earlier():
    shelf = Shelf()
    shelf.now = 7
    shelf.end((50, 4), 1)
    assert shelf.retained.age_out((50, 4), 56) == 7
    assert shelf.readable()
    assert shelf.retained.age_out((50, 4), 57) == 0
    assert not shelf.readable()


def test_what_is_gone_leaves_nothing_behind():
    """A queue that is busy now and then keeps nothing of the times before."""
    shelf = Shelf()
    for _ in range(1_000):
        shelf.end((50, 4), 1, quickly=True)
        shelf.now += 100
        shelf.age()
    assert not shelf.retained.lanes
    assert len(shelf.retained._by_serial) <= 2 * len(POLICIES)


def test_cleaned_jobs_do_not_pile_up():
    shelf = Shelf()
    for _ in range(1_000):
        shelf.end((10_000, 50), 1)
        shelf.clean(0)
    assert sum(map(len, shelf.retained.lanes.values())) <= 50
    assert all(is_gone(ended) for lane in shelf.retained.lanes.values() for ended in lane)
