"""The ready order against a sorted list, and what it costs to find the front."""

from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stoker.engine.jobs import ACTIVE, GONE, WAITING, SingleJob, UniformBatch
from stoker.engine.ready import SWEEP_MIN, ReadyJobs, ReadyLevel
from stoker.engine.shard import Shard
from stoker.engine.state import QueueState
from stoker.engine.state_dump import ready_ids
from stoker.model import commands as c
from stoker.model.ids import sequence_of
from stoker.model.options import Options, Settings
from tests.unit.support import new_batch, new_job, new_queue


def place(job_id: int, options: Options) -> tuple[int, int, int]:
    """Where a job stands, straight from the rule."""
    sequence = sequence_of(job_id)
    return -options.priority, 0 if options.lifo else 1, -sequence if options.lifo else sequence


class ReadyAndList(RuleBasedStateMachine):
    """Whatever comes, leaves and comes back, the ready order is the sorted list of what waits."""

    @initialize()
    def start(self) -> None:
        self.queue: QueueState = new_queue()
        self.ready = self.queue.ready
        self.sequence = 0
        self.waiting: dict[int, Options] = {}
        self.jobs: dict[int, SingleJob] = {}
        self.batches: list[UniformBatch] = []

    def order(self) -> list[int]:
        return sorted(self.waiting, key=lambda job_id: place(job_id, self.waiting[job_id]))

    def options(self, priority: int, lifo: bool) -> Options:
        return Options(priority=priority, lifo=lifo)

    @rule(priority=st.integers(-1, 1), lifo=st.booleans())
    def push(self, priority: int, lifo: bool) -> None:
        self.sequence += 1
        job = new_job(self.queue, self.sequence, self.options(priority, lifo))
        self.jobs[job.id] = job
        self.waiting[job.id] = job.options
        self.ready.add_new(job)

    @rule()
    def push_default(self) -> None:
        self.sequence += 1
        job = new_job(self.queue, self.sequence)
        self.jobs[job.id] = job
        self.waiting[job.id] = job.options
        self.ready.add_new(job)

    @rule(priority=st.integers(-1, 1), lifo=st.booleans(), count=st.integers(2, 6), late=st.booleans())
    def push_batch(self, priority: int, lifo: bool, count: int, late: bool) -> None:
        options = self.options(priority, lifo)
        batch = new_batch(self.queue, self.sequence + 1, count, options)
        self.sequence += count
        self.batches.append(batch)
        if late:  # a delayed batch: it comes when younger ones are there
            batch.due = 1
            return
        self.waiting |= dict.fromkeys(batch.ids(0, count), options)
        self.ready.add_new(batch)

    @precondition(lambda self: any(batch.due for batch in self.batches))
    @rule()
    def batch_becomes_due(self) -> None:
        batch = next(batch for batch in self.batches if batch.due)
        batch.due = 0
        self.waiting |= dict.fromkeys(batch.ids(0, batch.count), batch.options)
        self.ready.add(batch)

    @rule(most=st.integers(1, 8))
    def take(self, most: int) -> None:
        found = self.ready.front_run(most)
        order = self.order()
        if found is None:
            assert not order
            return
        entry, count = found
        if type(entry) is UniformBatch:
            start = entry.waiting.start
            ids = list(entry.ids(start, start + count))
            entry.waiting.remove(start, start + count)
            for job_id in ids:  # as if each had been split off at once
                job = self.jobs[job_id] = new_job(self.queue, sequence_of(job_id), entry.options)
                job.state = ACTIVE
        else:
            assert type(entry) is SingleJob
            ids = [entry.id]
            entry.state = ACTIVE
        assert 1 <= len(ids) <= most
        assert ids == order[: len(ids)], "a run must end where another entry's turn comes"
        for job_id in ids:
            del self.waiting[job_id]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        job = self.own(data.draw(st.sampled_from(sorted(self.waiting))))
        job.state = GONE
        del self.waiting[job.id]
        self.ready.left()

    @precondition(lambda self: any(job.state != WAITING for job in self.jobs.values()))
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from([job for job in self.jobs.values() if job.state != WAITING]))
        job.state = WAITING
        self.waiting[job.id] = job.options
        self.ready.add(job)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), priority=st.integers(-1, 1))
    def change_priority(self, data: st.DataObject, priority: int) -> None:
        job = self.own(data.draw(st.sampled_from(sorted(self.waiting))))
        if job.options.priority != priority:
            reprioritise(self.ready, job, priority)
            self.waiting[job.id] = job.options

    @precondition(lambda self: len(self.waiting) > 3)
    @rule()
    def many_leave(self) -> None:
        """Enough to bring about a sweep."""
        job = self.own(min(self.waiting))
        for priority in range(10, 10 + 2 * SWEEP_MIN):
            reprioritise(self.ready, job, priority)
        self.waiting[job.id] = job.options

    def own(self, job_id: int) -> SingleJob:
        """The job, split off its batch as the engine does it."""
        if job_id in self.jobs:
            return self.jobs[job_id]
        batch = next(batch for batch in self.batches if not batch.due and job_id in batch.ids(0, batch.count))
        position = batch.ids(0, batch.count).index(job_id)
        job = self.jobs[job_id] = new_job(self.queue, sequence_of(job_id), batch.options)
        batch.waiting.remove(position, position + 1)
        self.ready.add(job)
        return job

    @invariant()
    def the_order_is_the_sorted_list(self) -> None:
        assert list(ready_ids(self.queue)) == self.order()

    @invariant()
    def the_front_is_the_first(self) -> None:
        front, order = self.ready.front(), self.order()
        if front is None:
            assert not order
        else:
            first = front.id_at(front.waiting.start) if type(front) is UniformBatch else front.lowest
            assert first == order[0]

    @invariant()
    def the_size_is_what_is_stored(self) -> None:
        assert self.ready.size == entries_in(self.ready)


ReadyAndList.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestReadyAgainstAList = ReadyAndList.TestCase


def test_a_job_that_comes_back_stands_before_the_rest_of_a_batch_that_came_late():
    """A batch that stands between others is found by where it begins now, not by where it once began."""
    queue = new_queue()
    old, batch, young = new_job(queue, 1), new_batch(queue, 2, 5), new_job(queue, 10)
    for entry in (old, young, batch):
        queue.ready.add(entry)
    old.state = ACTIVE
    assert queue.ready.front_run(2) == (batch, 2)
    batch.waiting.remove(0, 2)
    back = new_job(queue, 2)
    queue.ready.add(back)
    assert queue.ready.front() is back
    back.state = ACTIVE
    assert queue.ready.front_run(9) == (batch, 3)


def reprioritise(ready: ReadyJobs, job: SingleJob, priority: int) -> None:
    job.state = GONE
    ready.left()
    job.options = msgspec.structs.replace(job.options, priority=priority)
    job.state = WAITING
    ready.add(job)


def entries_in(ready: ReadyJobs) -> int:
    """How many entries it holds, valid or not."""
    return sum(len(level.line) + len(level.early) for level in ready._levels.values())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many entries were looked at since the last time somebody asked."""
    seen = 0
    valid = ReadyLevel.valid

    def counted(level: ReadyLevel, entry: SingleJob | UniformBatch) -> bool:
        nonlocal seen
        seen += 1
        return valid(level, entry)

    def since() -> int:
        nonlocal seen
        found, seen = seen, 0
        return found

    monkeypatch.setattr(ReadyLevel, "valid", counted)
    return since  # type: ignore[return-value]


# --- F9: what has left does not pile up ------------------------------------------------------------


def test_n_changes_of_priority_leave_o_live_entries():
    """F9: one job changed again and again stands a few times, not once for each change."""
    queue = new_queue()
    jobs = [new_job(queue, sequence) for sequence in range(1, 11)]
    for job in jobs:
        queue.ready.add_new(job)
    for turn in range(10_000):
        reprioritise(queue.ready, jobs[turn % 3], turn % 7)
    assert entries_in(queue.ready) <= 2 * (SWEEP_MIN + len(jobs))


def test_changes_of_priority_leave_o_live_entries_while_work_goes_on():
    """F9: entries that leave by the front must not hide those that pile up behind it."""
    shard = Shard()
    first = shard.execute("acme", c.Push("q", b""), 1).id
    changed = shard.execute("acme", c.Push("q", b""), 1).id
    for turn in range(2_000):
        shard.execute("acme", c.Push("q", b"", Options(priority=5)), 1)
        delivery = shard.execute("acme", c.Pull(["q"]), 1)
        shard.execute("acme", c.Ack(delivery.ids, delivery.token), 1)
        shard.execute("acme", c.ChangePriority(changed, -(turn % 2)), 1)
    assert list(ready_ids(shard.queue("acme", "q"))) == [first, changed]
    assert entries_in(shard.queue("acme", "q").ready) <= 4 * SWEEP_MIN


def test_cancelled_jobs_leave_o_live_entries():
    """F9: a sweep comes with the fifth part that is stale, and the levels that are empty go with it."""
    queue = new_queue()
    jobs = [new_job(queue, sequence, Options(priority=sequence % 50)) for sequence in range(1, 5_001)]
    for job in jobs:
        queue.ready.add_new(job)
    for job in jobs[3:]:
        job.state = GONE
        queue.ready.left()
    assert entries_in(queue.ready) <= SWEEP_MIN + 3 + 1
    assert len(queue.ready._levels) <= SWEEP_MIN + 3 + 1
    assert [entry.lowest for entry in queue.ready.entries()] == [job.id for job in reversed(jobs[:3])]


def test_sweeping_costs_a_few_looks_an_entry(looks: Callable[[], int]):
    queue = new_queue()
    jobs = [new_job(queue, sequence) for sequence in range(1, 20_001)]
    for job in jobs:
        queue.ready.add_new(job)
    for job in jobs:
        job.state = GONE
        queue.ready.left()
    assert looks() <= 6 * len(jobs)


# --- what stands in front of the one ready job ------------------------------------------------------


def test_a_hundred_thousand_cancelled_jobs_do_not_stand_in_the_way(looks: Callable[[], int]):
    queue = new_queue()
    jobs = [new_job(queue, sequence, Options(priority=9)) for sequence in range(1, 100_001)]
    last = new_job(queue, 100_001)
    for job in [*jobs, last]:
        queue.ready.add_new(job)
    for job in jobs:
        job.state = GONE
        queue.ready.left()
    looks()
    assert queue.ready.front() is last
    assert looks() <= SWEEP_MIN + 2


def test_fifty_thousand_delayed_jobs_of_high_priority_do_not_stand_in_the_way(looks: Callable[[], int]):
    shard = Shard(settings=Settings(batching=False))
    urgent = Options(priority=9, delay_ms=60_000)
    for _ in range(5):
        shard.execute("acme", c.PushBatch("q", [b""] * 10_000, urgent), 1)
    ready = shard.execute("acme", c.Push("q", b"", Options(priority=-9)), 1).id
    looks()
    assert list(shard.execute("acme", c.Pull(["q"]), 2).ids) == [ready]
    assert looks() <= 2
    assert entries_in(shard.queue("acme", "q").ready) <= 1


def test_a_hundred_thousand_jobs_of_busy_groups_do_not_stand_in_the_way(looks: Callable[[], int]):
    shard = Shard()
    for group in range(10):
        options = Options(priority=9, group_id=f"g{group}")
        shard.execute("acme", c.PushBatch("q", [b""] * 10_000, options), 1)
    assert len(shard.execute("acme", c.Pull(["q"], 1_000), 2)) == 10, "one of each group"
    ready = shard.execute("acme", c.Push("q", b"", Options(priority=-9)), 2).id
    looks()
    assert list(shard.execute("acme", c.Pull(["q"]), 2).ids) == [ready]
    assert looks() <= 10 + 2
    assert entries_in(shard.queue("acme", "q").ready) <= 10 + 1


def test_a_batch_is_one_entry_however_many_jobs_it_has():
    shard = Shard()
    shard.execute("acme", c.PushBatch("q", [b""] * 10_000), 1)
    assert entries_in(shard.queue("acme", "q").ready) == 1


def test_pulling_a_backlog_one_by_one_looks_at_each_entry_a_few_times(looks: Callable[[], int]):
    shard = Shard(settings=Settings(batching=False))
    shard.execute("acme", c.PushBatch("q", [b""] * 5_000, Options(priority=1)), 1)
    for _ in range(5_000):
        shard.execute("acme", c.Pull(["q"]), 1)
    assert looks() <= 3 * 5_000
