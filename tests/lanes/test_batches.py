"""Batch handlers: what is called together, when, and what becomes of each job."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model.states import State
from stoker.worker.context import Context
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Batch
from stoker.worker.worker import Worker
from tests.lanes import jobs
from tests.worker.running import LEASE_MS, LIVED_MS, Beside, handler, happens, outlive_the_lease, push, push_many

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


class Calls:
    """A batch handler that notes its calls."""

    def __init__(self, kind: str, batch: Batch, answer=None, **settings) -> None:
        self.lists: list[list[Any]] = []
        self.answer = answer or (lambda numbers: None)

        def plain(numbers, **more):
            self.lists.append(numbers)
            return self.answer(numbers, **more)

        async def coroutine(numbers, **more):
            return plain(numbers, **more)

        self.handler = handler(coroutine if kind == "async" else plain, name="many", batch=batch, **settings)

    @property
    def sizes(self) -> list[int]:
        return [len(numbers) for numbers in self.lists]


def settle(queue: Client, calls: Calls, **settings) -> None:
    Worker(queue, [calls.handler], registered=False, **settings).run_until_idle()


def result(queue: Client, job: int) -> object:
    value = queue.get_result(job)
    return None if value is None else msgspec.json.decode(value)


@kinds
def test_jobs_are_called_together_up_to_the_size_and_each_gets_its_result(queue: Client, kind: str):
    calls = Calls(kind, Batch(size=10, max_wait_ms=20), lambda numbers: [number * 2 for number in numbers])
    ids = push_many(queue, "many", range(25))
    settle(queue, calls)
    assert sorted(calls.sizes) == [5, 10, 10]
    assert [result(queue, job) for job in ids] == [2 * number for number in range(25)]


@kinds
def test_an_exception_in_the_list_is_the_end_of_one_job(queue: Client, kind: str):
    calls = Calls(kind, Batch(size=4), lambda numbers: [ValueError("odd") if n % 2 else n for n in numbers])
    ids = push_many(queue, "many", range(4), max_attempts=1)
    settle(queue, calls)
    views = [queue.get_job(job) for job in ids]
    assert [view.state for view in views] == [State.COMPLETED, State.FAILED] * 2
    assert views[1].error == "odd"


@kinds
def test_an_exception_that_is_raised_is_the_end_of_all(queue: Client, kind: str):
    def fail(numbers):
        raise RuntimeError("all of them")

    calls = Calls(kind, Batch(size=3), fail)
    ids = push_many(queue, "many", range(3), max_attempts=1)
    settle(queue, calls)
    assert [queue.get_job(job).error for job in ids] == ["all of them"] * 3


@kinds
@pytest.mark.parametrize(
    ("answer", "complaint"), [([1], "returned 1 results for 3 jobs"), ("abc", "returned str"), (5, "returned int")]
)
def test_what_is_no_list_of_one_result_for_each_fails_all_of_them(
    queue: Client, kind: str, answer: object, complaint: str
):
    calls = Calls(kind, Batch(size=3), lambda numbers: answer)
    ids = push_many(queue, "many", range(3), max_attempts=5)
    settle(queue, calls)
    assert all(complaint in queue.get_job(job).error for job in ids)
    assert all(queue.get_state(job) is State.FAILED for job in ids), "trying again would bring the same"


@kinds
def test_returning_nothing_completes_all(queue: Client, kind: str):
    ids = push_many(queue, "many", range(3))
    settle(queue, Calls(kind, Batch(size=3)))
    assert {queue.get_state(job) for job in ids} == {State.COMPLETED}


def test_bytes_bound_a_call_but_never_to_less_than_one_job(queue: Client):
    calls = Calls("thread", Batch(size=100, bytes_max=60, max_wait_ms=0))
    push_many(queue, "many", ["x" * 20, "y" * 20, "z" * 20, "w" * 500, "v"])
    settle(queue, calls)
    assert [[text[0] for text in texts] for texts in calls.lists] in (
        [["x", "y"], ["z"], ["w"], ["v"]],
        [["x", "y"], ["z", "w"], ["v"]],
    )


def test_jobs_that_come_one_by_one_are_collected_across_pulls(queue: Client):
    called = threading.Event()
    calls = Calls("thread", Batch(size=3, max_wait_ms=60_000), lambda numbers: called.set())
    with Beside(Worker(queue, [calls.handler])):
        ids = [push(queue, "many", number) for number in range(3)]
        happens(called)
    assert calls.lists == [[0, 1, 2]]
    assert {queue.get_state(job) for job in ids} == {State.COMPLETED}


def test_jobs_that_are_collected_keep_their_leases(queue: Client):
    """They wait for longer than their leases, which are renewed meanwhile."""
    called = threading.Event()
    calls = Calls("thread", Batch(size=4, max_wait_ms=60_000), lambda numbers: called.set())
    ids = push_many(queue, "many", range(3), lease_ms=LIVED_MS, max_attempts=1)
    with Beside(Worker(queue, [calls.handler])):
        while queue.get_counts("default").active < 3:
            threading.Event().wait(0.001)
        outlive_the_lease(queue, ids[-1])
        ids.append(push(queue, "many", 3))
        happens(called)
    assert calls.sizes == [4]
    assert [queue.get_job(job).attempts for job in ids] == [1] * 4


@kinds
def test_what_is_being_collected_goes_back_when_the_worker_stops(queue: Client, kind: str):
    calls = Calls(kind, Batch(size=10, max_wait_ms=60_000))
    ids = push_many(queue, "many", range(3))
    with Beside(Worker(queue, [calls.handler])) as beside:
        while queue.get_counts("default").active < 3:
            threading.Event().wait(0.001)
        beside.worker.stop()
        beside.join()
    views = [queue.get_job(job) for job in ids]
    assert [(view.state, view.attempts) for view in views] == [(State.WAITING, 0)] * 3
    assert calls.lists == []


def test_a_payload_that_does_not_fit_is_the_end_of_its_job_alone(queue: Client):
    calls = Calls("thread", Batch(size=3), lambda numbers: numbers)
    good = push(queue, "many", 1)
    bad = queue.push("default", b"{", name="many", codec="json").id
    other = push(queue, "many", 2)
    settle(queue, calls)
    assert (result(queue, good), result(queue, other)) == (1, 2)
    assert queue.get_state(bad) is State.FAILED


def test_several_parameters_are_lists_side_by_side(queue: Client):
    def pairs(left: list[int], right: list[str]) -> list[str]:
        return [f"{number}{text}" for number, text in zip(left, right, strict=True)]

    known = handler(pairs, name="many", batch=Batch(size=10))
    ids = [push(queue, "many", number, "x") for number in range(3)]
    odd = push(queue, "many", 9, max_attempts=1)
    Worker(queue, [known], registered=False).run_until_idle()
    assert [result(queue, job) for job in ids] == ["0x", "1x", "2x"]
    assert "same arguments" in queue.get_job(odd).error


def test_the_context_of_a_batch_speaks_for_all_of_its_jobs(queue: Client):
    seen: list[int] = []

    def many(numbers: list[int], ctx: Context) -> None:
        ctx.progress(40, "on the way")
        seen.extend(job.id for job in ctx.jobs)  # type: ignore[attr-defined]

    ids = push_many(queue, "many", range(3))
    Worker(queue, [handler(many, batch=Batch(size=3), context="ctx")], registered=False).run_until_idle()
    assert seen == ids
    assert [queue.get_progress(job).percent for job in ids] == [40] * 3


def test_a_cancelled_job_leaves_the_collection_and_the_others_stay(queue: Client):
    called = threading.Event()
    calls = Calls("thread", Batch(size=3, max_wait_ms=60_000), lambda numbers: called.set())
    first, *others = push_many(queue, "many", range(2), lease_ms=LEASE_MS)
    with Beside(Worker(queue, [calls.handler])):
        while queue.get_counts("default").active < 2:
            threading.Event().wait(0.001)
        queue.cancel(first)
        while queue.get_state(first) is not State.CANCELLED:
            threading.Event().wait(0.001)
        others += push_many(queue, "many", [2, 3])
        happens(called)
    assert calls.lists == [[1, 2, 3]]
    assert {queue.get_state(job) for job in others} == {State.COMPLETED}


def test_a_call_of_which_nobody_wants_a_job_is_cancelled(queue: Client):
    began, stopped = threading.Event(), threading.Event()

    async def many(numbers: list[int]) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    ids = push_many(queue, "many", range(2), lease_ms=LEASE_MS)
    with Beside(Worker(queue, [handler(many, batch=Batch(size=2))])):
        happens(began)
        for job in ids:
            queue.cancel(job)
        happens(stopped)
    assert {queue.get_state(job) for job in ids} == {State.CANCELLED}


def test_batches_run_in_processes_and_a_crash_costs_those_that_were_called_together(queue: Client):
    ids = push_many(queue, "together", range(0, 20, 2), max_attempts=1)
    Worker(queue, jobs.named("together"), processes=1, registered=False).run_until_idle()
    assert [result(queue, job) for job in ids] == [10] * 10
    poison = push_many(queue, "together", [12, 13], max_attempts=1)
    Worker(queue, jobs.named("together"), processes=1, registered=False).run_until_idle()
    assert all("died" in queue.get_job(job).error for job in poison)


def test_a_call_in_a_process_goes_on_while_one_of_its_jobs_is_wanted(queue: Client, tmp_path: Path):
    began, go = tmp_path / "began", tmp_path / "go"
    held = [[str(began), str(go)]] * 2
    first, second = push_many(queue, "hold_together", held, lease_ms=LIVED_MS, max_attempts=1)
    with Beside(Worker(queue, jobs.named("hold_together"), processes=1)):
        while not began.exists():
            threading.Event().wait(0.001)
        queue.cancel(first)
        renewed = queue.get_job(second).lease_until
        while queue.get_job(second).lease_until == renewed:
            threading.Event().wait(0.001)
        go.touch()
        while queue.get_state(second) is State.ACTIVE:
            threading.Event().wait(0.001)
    assert queue.get_state(second) is State.COMPLETED
    assert queue.get_state(first) in (State.COMPLETED, State.CANCELLED)


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(BadHandler):
        Batch(size=0)
