"""How a worker ends: running jobs are finished or handed back, and no attempt is lost."""

import asyncio
import threading

import pytest

from stoker.client.sync import Client
from stoker.model.errors import Closed, StokerError
from stoker.model.states import State
from stoker.worker.context import Context, current_job
from stoker.worker.outcomes import Snooze
from stoker.worker.worker import Worker
from tests.worker.running import LEASE_MS, Beside, handler, happens, push, push_many

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


class Held:
    """A handler that waits until it may go on."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.started, self.go_on = threading.Event(), threading.Event()
        self.runs = 0

    def work(self, *numbers: int) -> None:
        self.runs += 1
        self.started.set()
        happens(self.go_on)

    async def work_async(self, *numbers: int) -> None:
        self.runs += 1
        self.started.set()
        while not self.go_on.is_set():  # noqa: ASYNC110  # another thread sets it
            await asyncio.sleep(0.001)

    def handler(self):
        return handler(self.work_async if self.kind == "async" else self.work, name="work")


@kinds
def test_stopping_lets_what_runs_finish_and_takes_nothing_new(queue: Client, kind: str):
    held = Held(kind)
    with Beside(Worker(queue, [held.handler()])) as beside:
        job = push(queue, "work")
        happens(held.started)
        beside.worker.stop()
        beside.hears()
        late = push(queue, "work")
        held.go_on.set()
        beside.join()
    assert beside.is_finished
    assert (queue.get_state(job), queue.get_state(late)) == (State.COMPLETED, State.WAITING)


@kinds
def test_what_was_fetched_ahead_is_handed_back_at_no_cost(queue: Client, kind: str):
    held = Held(kind)
    with Beside(Worker(queue, [held.handler()], concurrency=1, prefetch=10)) as beside:
        ids = push_many(queue, "work", range(5))
        happens(held.started)
        beside.worker.stop()
        held.go_on.set()
        beside.join()
    assert beside.is_finished
    states = [queue.get_job(job).state for job in ids]
    assert states[0] is State.COMPLETED
    waiting = [queue.get_job(job) for job in ids[1:] if queue.get_state(job) is State.WAITING]
    assert len(waiting) + held.runs == 5
    assert all(view.attempts == 0 for view in waiting)


@kinds
def test_the_second_stop_hands_back_what_runs_at_no_cost(queue: Client, kind: str):
    held = Held(kind)
    with Beside(Worker(queue, [held.handler()])) as beside:
        job = push(queue, "work", max_attempts=1)
        happens(held.started)
        beside.worker.stop()
        beside.worker.stop_now()
        beside.join()
        held.go_on.set()
    assert beside.is_finished is False
    view = queue.get_job(job)
    assert (view.state, view.attempts) == (State.WAITING, 0)


@kinds
def test_what_does_not_finish_in_time_is_handed_back(queue: Client, kind: str):
    held = Held(kind)
    with Beside(Worker(queue, [held.handler()], drain="10ms")) as beside:
        job = push(queue, "work")
        happens(held.started)
        beside.worker.stop()
        beside.join()
        held.go_on.set()
    assert beside.is_finished is False
    assert (queue.get_state(job), queue.get_job(job).attempts) == (State.WAITING, 0)


def test_handlers_see_that_the_worker_stops(queue: Client):
    started = threading.Event()

    def work() -> None:
        ctx = current_job()
        assert isinstance(ctx, Context)
        started.set()
        while not ctx.stopping:
            pass
        raise Snooze(0)

    with Beside(Worker(queue, [handler(work)])) as beside:
        job = push(queue, "work")
        happens(started)
    assert beside.is_finished
    assert (queue.get_state(job), queue.get_job(job).attempts) == (State.WAITING, 0)


def test_cancelling_works_while_the_worker_drains(queue: Client):
    started = threading.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    with Beside(Worker(queue, [handler(work)])) as beside:
        job = push(queue, "work", lease_ms=LEASE_MS)
        happens(started)
        beside.worker.stop()
        queue.cancel(job)
        beside.join()
    assert beside.is_finished
    assert queue.get_state(job) is State.CANCELLED


def test_a_worker_that_is_stopped_before_it_starts_ends_at_once(queue: Client):
    worker = Worker(queue, [handler(print)])
    worker.stop()
    assert asyncio.run(worker.serve())


def test_a_caller_who_cancels_serve_gets_his_jobs_back(queue: Client):
    started = threading.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async def main() -> None:
        serving = asyncio.create_task(Worker(queue, [handler(work)]).serve())
        await asyncio.to_thread(happens, started)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    job = push(queue, "work")
    asyncio.run(main())
    assert (queue.get_state(job), queue.get_job(job).attempts) == (State.WAITING, 0)


def test_a_worker_whose_queue_was_closed_says_so():
    import stoker

    client = stoker.connect("memory://")
    client.close()
    with pytest.raises(Closed):
        asyncio.run(Worker(client, [handler(print)]).serve())


def test_a_queue_name_that_is_none_ends_the_worker_with_the_reason(queue: Client):
    with pytest.raises(StokerError, match="queue"):
        asyncio.run(Worker(queue, [handler(print, queue="not a name")]).serve())


def test_a_worker_that_runs_cannot_be_run_twice(queue: Client):
    from stoker.worker.errors import BadHandler

    async def main() -> None:
        worker = Worker(queue, [handler(print)])
        serving = asyncio.create_task(worker.serve())
        await asyncio.sleep(0)
        with pytest.raises(BadHandler, match="runs already"):
            await worker.serve()
        worker.stop()
        await serving

    asyncio.run(main())


def test_its_entry_in_the_list_of_workers_comes_and_goes(queue: Client):
    held = Held("thread")
    with Beside(Worker(queue, [held.handler()], id="here")):
        push(queue, "work")
        happens(held.started)
        while not queue.list_workers():
            pass
        assert [view.id for view in queue.list_workers()] == ["here"]
        held.go_on.set()
    assert queue.list_workers() == []
