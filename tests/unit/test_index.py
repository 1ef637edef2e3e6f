"""From ids to jobs, and walking over all of them in both directions."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.index import BLOCK_BITS, COMPACT_MIN, Index
from stoker.engine.jobs import SingleJob, UniformBatch
from stoker.model.ids import SHARD_BITS, STEP, make_id
from stoker.model.options import DEFAULT_OPTIONS, Options
from tests.unit.support import QUICK, new_batch, new_job, new_queue

BLOCK = 1 << (BLOCK_BITS - SHARD_BITS)
LIFO = Options(lifo=True)


def walked(index: Index, after: int | None, ascending: bool) -> list[int]:
    found = index.walk(after, ascending)
    return [entry.id if type(entry) is SingleJob else entry[0].id_at(entry[1]) for entry in found]


# Each part is (is a batch, jobs, is lifo, gap before it); gaps reach over several blocks.
parts = st.lists(
    st.tuples(
        st.booleans(), st.integers(1, 7), st.booleans(), st.sampled_from([0, 0, 1, 5, BLOCK - 3, BLOCK, 3 * BLOCK])
    ),
    max_size=14,
)


def filled(history: list[tuple[bool, int, bool, int]]) -> tuple[Index, list[int], list[UniformBatch]]:
    """An index with jobs and batches as pushes would bring them; all ids; the batches."""
    index, queue, sequence = Index(), new_queue(), 1
    ids: list[int] = []
    batches: list[UniformBatch] = []
    for is_batch, count, lifo, gap in history:
        sequence += gap
        if is_batch:
            batch = new_batch(queue, sequence, count, LIFO if lifo else DEFAULT_OPTIONS)
            index.add_batch(batch)
            batches.append(batch)
        else:
            for number in range(count):
                index.add(new_job(queue, sequence + number))
        ids += [make_id(sequence + number, 0) for number in range(count)]
        sequence += count
    return index, ids, batches


@QUICK
@given(parts, st.booleans(), st.data())
def test_a_walk_meets_every_job_after_an_id_once_and_in_order(history, ascending, data):
    index, ids, _ = filled(history)
    after = data.draw(st.one_of(st.none(), st.sampled_from([0, *ids]), st.integers(0, (ids or [1])[-1] + 2 * STEP)))
    expected = [job for job in ids if after is None or (job > after if ascending else job < after)]
    assert walked(index, after, ascending) == (expected if ascending else expected[::-1])


@QUICK
@given(parts, st.data())
def test_a_walk_goes_on_where_the_last_page_ended(history, data):
    index, ids, _ = filled(history)
    ascending, size = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    met: list[int] = []
    after = None
    while page := walked(index, after, ascending)[:size]:
        met += page
        after = page[-1]
    assert met == (ids if ascending else ids[::-1])


@QUICK
@given(parts)
def test_every_id_is_found_where_it_stands_and_nowhere_else(history):
    index, ids, batches = filled(history)
    members = {batch.id_at(position): (batch, position) for batch in batches for position in range(batch.count)}
    for job_id in range(STEP, (ids[-1] if ids else 0) + 3 * STEP, STEP):
        job, found = index.get(job_id), index.find_batch(job_id)
        if job_id in members:
            assert job is None
            assert found == members[job_id]
        else:
            assert found is None
            assert (job is not None and job.id == job_id) == (job_id in ids)


@QUICK
@given(parts, st.data())
def test_what_was_removed_is_not_met_and_empty_blocks_are_gone(history, data):
    index, ids, _ = filled(history)
    singles = [job.id for job in index.jobs()]
    gone = data.draw(st.sets(st.sampled_from(singles))) if singles else set()
    for job_id in gone:
        index.remove(job_id)
    left = [job_id for job_id in ids if job_id not in gone]
    assert walked(index, None, ascending=True) == left
    assert [job.id for job in index.jobs()] == [job_id for job_id in singles if job_id not in gone]
    assert index._block_numbers == sorted({job.id >> BLOCK_BITS for job in index.jobs()})
    assert set(index._blocks) == set(index._block_numbers)


def test_a_removed_job_may_come_back_below_others():
    """A member of a batch that is split off has an older id than jobs that are there."""
    index, queue = Index(), new_queue()
    for sequence in (5 * BLOCK, 1, 3 * BLOCK, 2):
        index.add(new_job(queue, sequence))
    assert [job.id >> SHARD_BITS for job in index.jobs()] == [1, 2, 3 * BLOCK, 5 * BLOCK]


def test_a_batch_with_nothing_left_is_not_walked():
    index, queue = Index(), new_queue()
    first, second = new_batch(queue, 1, 3), new_batch(queue, 4, 2)
    index.add_batch(first)
    index.add_batch(second)
    first.left = 0
    index.batch_gone()
    assert list(index.batches()) == [second]
    assert walked(index, None, ascending=True) == list(second.ids(0, 2))


def test_batches_with_nothing_left_are_compacted():
    index, queue = Index(), new_queue()
    batches = [new_batch(queue, 1 + 2 * number, 2) for number in range(20 * COMPACT_MIN)]
    for batch in batches:
        index.add_batch(batch)
    for batch in batches[:-1]:
        batch.left = 0
        index.batch_gone()
    assert len(index._batches) <= 2 * COMPACT_MIN + 2
    assert len(index._lowest) == len(index._batches)
    assert index.find_batch(batches[-1].first) == (batches[-1], 0)


def test_a_job_split_off_stands_beside_its_batch():
    """The index offers both; whoever walks asks whether the position is still the batch's own."""
    index, queue = Index(), new_queue()
    batch = new_batch(queue, 1, 3)
    index.add_batch(batch)
    index.add(new_job(queue, 2))
    assert index.get(batch.id_at(1)) is not None
    assert sorted(walked(index, None, ascending=True)) == sorted([*batch.ids(0, 3), batch.id_at(1)])
