"""What workers bring counts as memory and leaves it when there is much: results, partial results, new payloads, texts.

It is read back from the log wherever it is asked for, also after a restart and when the log has been cleaned up.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from stoker.engine.audit import audit
from stoker.model import commands as c
from stoker.model.errors import MemoryFull
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from tests.journal.test_published import ONE_SHARD, Place

LIMIT = 200_000
SETTINGS = msgspec.structs.replace(ONE_SHARD, memory_bytes_max=LIMIT)
JOBS = 60
RESULT_BYTES = 20_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "data", SETTINGS)
    yield place
    place.close()


def in_memory(place: Place) -> int:
    return place.broker.runtime.memory.bytes


def results_held(place: Place) -> int:
    """Bytes of results that the shard really has, whatever it counts."""
    index = place.broker.runtime.shards[0].index
    found = [job.detail.result for job in index.jobs() if job.detail is not None]
    found += [result for batch in index.batches() for run in batch.ended for result in run.results or ()]
    return sum(len(result) for result in found if type(result) is bytes)


def work(place: Place, together: bool, options: Options = DEFAULT_OPTIONS) -> dict[int, bytes]:
    """Jobs that are done, and what each returned: far more than there is room for."""
    found: dict[int, bytes] = {}
    for _ in range(JOBS // 10):
        place.client.push_batch("q", [b"payload"] * 10, options)
        delivery = place.client.pull("q", 10)
        results = {job.id: os.urandom(RESULT_BYTES) for job in delivery}
        if together:
            place.client.ack_batch(list(results), delivery.token, list(results.values()))
        else:
            for job, result in results.items():
                place.client.ack(job, delivery.token, result)
        found |= results
        assert in_memory(place) < LIMIT
        assert results_held(place) < LIMIT
    audit(place.broker.runtime.shards[0])
    return found


def read_back(place: Place, ids: Iterable[int]) -> dict[int, bytes | None]:
    return {job: place.client.get_job(job).result for job in ids}


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_results_leave_memory_and_are_read_back(place: Place, together: bool):
    results = work(place, together)
    assert read_back(place, results) == results
    assert {job: place.client.wait_job(job).result for job in results} == results
    shown = place.client.browse("q", state=State.COMPLETED, limit=10).jobs
    assert [job.result for job in shown] == [results[job.id] for job in shown]
    assert in_memory(place) < LIMIT


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_results_are_there_after_a_restart_and_stay_out_of_memory(place: Place, together: bool):
    results = work(place, together)
    place.reopen()
    assert max(in_memory(place), results_held(place)) < LIMIT
    assert read_back(place, results) == results


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_results_outlive_the_cleaning_of_the_log(place: Place, together: bool):
    """Retention drops and rewrites files of the log; what a retained job returned is still referred to."""
    results = work(place, together)
    place.forget()
    assert read_back(place, results) == results
    place.reopen()
    assert in_memory(place) < LIMIT
    assert read_back(place, results) == results


def test_what_is_forgotten_takes_no_memory(place: Place):
    before = in_memory(place)
    work(place, True, Options(keep_completed_count=5))
    work(place, False, Options(keep_completed_count=5))
    place.client.clean("q", State.COMPLETED, limit=1_000)
    place.client.obliterate("q")
    audit(place.broker.runtime.shards[0])
    assert in_memory(place) < before + 200_000 // 4


@pytest.mark.parametrize("options", [Options(), Options(remove_on_complete=True)], ids=["retained", "kept"])
def test_the_next_step_of_a_workflow_reads_results_that_left_memory(place: Place, options: Options):
    work(place, False)
    steps = [Step("a", [b""] * 5, options), Step("b", [b""], after=[Edge(0)])]
    place.client.push_workflow(steps)
    delivery = place.client.pull("a", 5)
    results = {job.id: os.urandom(RESULT_BYTES) for job in delivery}
    place.client.ack_batch(list(results), delivery.token, list(results.values()))
    assert in_memory(place) < LIMIT
    audit(place.broker.runtime.shards[0])
    (last,) = place.client.pull("b", lease_ms=600_000)
    for _ in range(2):
        assert {one.id: one.result for one in place.client.get_inputs(last.id).inputs} == results
        place.forget()
        place.reopen()


def test_partial_results_leave_memory_and_are_read_back(place: Place):
    job = place.client.push("q", b"").id
    token = place.client.pull("q", lease_ms=600_000).token
    chunks = [os.urandom(RESULT_BYTES) for _ in range(JOBS)]
    for chunk in chunks:
        place.client.append_partial(job, chunk, token=token)
        assert in_memory(place) < LIMIT
    for _ in range(2):
        assert [chunk.data for chunk in place.client.get_partials(job)] == chunks
        assert place.client.execute(c.GetStory(job)).events[-1].data == chunks[-1]
        audit(place.broker.runtime.shards[0])
        place.reopen()
    place.forget()
    assert [chunk.data for chunk in place.client.get_partials(job)] == chunks


def test_new_payloads_leave_memory_and_are_read_back(place: Place):
    ids = place.client.push_batch("q", [b""] * JOBS).ids
    payloads = {job: os.urandom(RESULT_BYTES) for job in ids}
    for job, payload in payloads.items():
        place.client.update_payload(job, payload)
        assert in_memory(place) < LIMIT
    assert {job.id: job.payload for job in place.client.pull("q", JOBS)} == payloads


def test_near_the_limit_logs_are_refused_and_work_is_ended_all_the_same(place: Place):
    options = Options(lease_ms=600_000)
    ids = place.client.push_batch("q", [b""] * 10, options).ids
    token = place.client.pull("q", 10).token
    while not place.broker.runtime.memory.is_full:
        place.client.append_log(ids[0], "x" * 1_000, token=token)
    with pytest.raises(MemoryFull, match="memory limit"):
        place.client.append_log(ids[0], "x", token=token)
    with pytest.raises(MemoryFull):
        place.client.append_partial(ids[0], b"x", token=token)
    with pytest.raises(MemoryFull):
        place.client.push("q", b"")
    assert in_memory(place) < LIMIT * 1.1
    place.client.ack(ids[1], token, b"x" * 1_000_000)
    assert place.client.get_job(ids[1]).result == b"x" * 1_000_000
    place.client.fail(ids[2], token, "y" * 10_000, stack="z" * 60_000, retry=False)
    letter = place.client.get_job(ids[2])
    assert (letter.state, len(letter.error), len(letter.stack)) == (State.FAILED, 256, 256)
    assert in_memory(place) < LIMIT * 1.1
    place.client.ack(ids[0], token)
    place.client.clean("q", State.COMPLETED, limit=1_000)
    place.client.push("q", b"")
