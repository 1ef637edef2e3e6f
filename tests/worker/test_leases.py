"""Leases are renewed while handlers run, and their loss and cancellations reach the handlers."""

import asyncio
import threading
import time

import pytest

from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.replies import Extended
from stoker.model.states import State
from stoker.worker.context import Context, current_job
from stoker.worker.errors import JobCancelled, LeaseLost
from stoker.worker.lane import Chunk
from stoker.worker.leases import LeaseKeeper
from stoker.worker.worker import Worker
from tests.worker.running import LEASE_MS, LIVED_MS, Beside, handler, happens, outlive_the_lease, push

BUSY_MS = 4_500
"""A lease where the machine is kept busy: it is enough that it was renewed."""


def here() -> Context:
    found = current_job()
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_may_run_longer_than_its_lease(queue: Client, kind: str):
    started, go_on = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        happens(go_on)

    async def work_async() -> None:
        await asyncio.to_thread(work)

    worker = Worker(queue, [handler(work if kind == "thread" else work_async, name="work")])
    with Beside(worker):
        job = push(queue, "work", lease_ms=LIVED_MS, max_attempts=1)
        happens(started)
        outlive_the_lease(queue, job)
        go_on.set()
        assert queue.wait_job(job).state is State.COMPLETED


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_handler_that_never_lets_go_of_the_interpreter_keeps_its_lease(queue: Client, kind: str):
    """An `async` one keeps the event loop, too: nothing but the thread of the leases can help."""

    def compute() -> None:
        job = here().id
        first = queue.get_job(job).lease_until
        while queue.get_job(job).lease_until == first:
            sum(range(100_000))

    async def compute_async() -> None:
        compute()

    worker = Worker(queue, [handler(compute if kind == "thread" else compute_async, name="compute")])
    with Beside(worker):
        job = push(queue, "compute", lease_ms=BUSY_MS, max_attempts=1)
        assert queue.wait_job(job).state is State.COMPLETED


def test_cancelling_reaches_a_coroutine(queue: Client):
    started, cleaned_up = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()

    with Beside(Worker(queue, [handler(work)])):
        job = push(queue, "work", lease_ms=LEASE_MS)
        happens(started)
        queue.cancel(job)
        happens(cleaned_up)
        assert queue.wait_job(job).state is State.CANCELLED


def test_cancelling_reaches_a_thread_by_its_context(queue: Client):
    started, raised = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        ctx = here()
        while not ctx.cancelled:
            time.sleep(0.001)
        try:
            ctx.check()
        except JobCancelled:
            raised.set()
            raise

    with Beside(Worker(queue, [handler(work)])):
        job = push(queue, "work", lease_ms=LEASE_MS)
        happens(started)
        queue.cancel(job)
        happens(raised)
        assert queue.wait_job(job).state is State.CANCELLED


def test_a_heartbeat_brings_news_early(queue: Client):
    started, told = threading.Event(), threading.Event()

    def work() -> None:
        ctx = here()
        started.set()
        try:
            while True:
                ctx.heartbeat()
                time.sleep(0.001)
        finally:
            told.set()

    with Beside(Worker(queue, [handler(work)])):
        job = push(queue, "work", lease_ms=600_000)
        happens(started)
        queue.cancel(job)
        happens(told)
        assert queue.wait_job(job).state is State.CANCELLED


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_lost_lease_is_told_and_its_late_end_changes_nothing(queue: Client, kind: str):
    started, told, second = threading.Event(), threading.Event(), threading.Event()
    runs = []

    def work() -> str:
        ctx = here()
        runs.append(ctx.attempt)
        if len(runs) > 1:
            second.set()
            return "second"
        started.set()
        while not ctx.lost:
            time.sleep(0.001)
        with pytest.raises(LeaseLost):
            ctx.check()
        told.set()
        happens(second)
        return "first"

    async def work_async() -> str:
        try:
            if runs:
                return work()
            started.set()
            runs.append(1)
            await asyncio.Event().wait()
        finally:
            told.set()
        return "first"

    worker = Worker(queue, [handler(work if kind == "thread" else work_async, name="work")])
    with Beside(worker):
        job = push(queue, "work", lease_ms=LEASE_MS, max_attempts=3)
        happens(started)
        queue.move_to_delayed(job, 0)  # somebody takes it away, as the end of a lease would
        happens(told)
        assert queue.wait_job(job).result == b'"second"'


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_that_the_queue_times_out_frees_its_slot(queue: Client, kind: str):
    stuck, other = threading.Event(), threading.Event()
    never = threading.Event()

    def hang() -> None:
        stuck.set()
        never.wait()

    async def hang_async() -> None:
        stuck.set()
        await asyncio.Event().wait()

    worker = Worker(
        queue,
        [
            handler(hang if kind == "thread" else hang_async, name="hang"),
            handler(other.set, name="other", kind="thread")
            if kind == "thread"
            else handler(as_async(other.set), name="other"),
        ],
        concurrency=1,
    )
    try:
        with Beside(worker):
            job = push(queue, "hang", timeout_ms=2_000, max_attempts=1)
            happens(stuck)
            push(queue, "other")
            happens(other)
            assert queue.wait_job(job).reason == "timeout"
    finally:
        never.set()


def as_async(function):
    async def run() -> None:
        function()

    return run


# --- the keeper by itself ----------------------------------------------------------------------------


class Queue:
    """Answers renewals, and notes them."""

    def __init__(self, reply: Extended | Exception) -> None:
        self.reply = reply
        self.asked: list[c.Extend] = []

    def execute(self, command: c.Command[object]) -> object:
        assert isinstance(command, c.Extend)
        self.asked.append(command)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def chunk(*ids: int, token: int = 1, received_at: float = 0.0) -> Chunk:
    from stoker.model.options import Options

    return Chunk(handler(print), token, "q", ids, [b"[]"] * len(ids), Options(lease_ms=30_000), 1, 0, received_at)


def test_everything_in_hand_is_renewed_in_one_call_at_a_third_of_the_lease():
    queue, now = Queue(Extended(3, 0)), [0.0]
    held = [chunk(1, 2), chunk(3, token=2, received_at=3.0)]
    keeper = LeaseKeeper(queue.execute, lambda: held, lambda chunk, job: None, lambda: now[0])
    keeper._next_at = 1e9
    now[0] = 9.9
    keeper.renew_due()
    assert queue.asked == []
    now[0] = 10.0
    keeper.renew_due()
    assert queue.asked == [c.Extend([1, 2, 3], [1, 1, 2])]
    assert [one.renew_at for one in held] == [20.0, 20.0]


def test_jobs_that_are_done_are_not_renewed_and_never_lost():
    held = [chunk(1, 2)]
    held[0].over.add(1)
    flagged = []
    queue = Queue(Extended(0, 0, {2: "lost_lease"}))
    keeper = LeaseKeeper(queue.execute, lambda: held, lambda chunk, job: flagged.append(job), lambda: 10.0)
    keeper._next_at = 1e9
    keeper.renew_due()
    assert queue.asked[0].ids == [2]
    assert flagged == [2]
    assert held[0].flags == {2: "lost"}


def test_a_renewal_that_failed_is_tried_again_soon():
    from stoker.model.errors import Unreachable

    held = [chunk(1)]
    keeper = LeaseKeeper(Queue(Unreachable("gone")).execute, lambda: held, lambda chunk, job: None, lambda: 10.0)
    keeper._next_at = 1e9
    keeper.renew_due()
    assert 10.0 < held[0].renew_at < 11.0
    assert held[0].flags == {}
