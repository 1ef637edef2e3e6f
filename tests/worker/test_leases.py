"""Leases are renewed while handlers run, and their loss and cancellations reach the handlers."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stoker
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.replies import Extended
from stoker.model.states import State
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from stoker.worker.context import Context, current_job
from stoker.worker.errors import JobCancelled, LeaseLost
from stoker.worker.handler import Batch
from stoker.worker.lane import JobChunk
from stoker.worker.leases import LeaseKeeper
from stoker.worker.worker import Worker
from tests.client.serving import ServerThread
from tests.worker.running import LEASE_MS, LIVED_MS, WAIT_S, Beside, handler, happens, outlive_the_lease, push

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


def test_a_thread_that_ignores_its_cancel_frees_its_slot_when_the_queue_times_it_out(queue: Client):
    stuck, told, other, never = threading.Event(), threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        stuck.set()
        ctx = here()
        while not ctx.cancelled:
            time.sleep(0.001)
        told.set()
        never.wait()

    try:
        with Beside(Worker(queue, [handler(hang), handler(other.set, name="other")], concurrency=1)):
            job = push(queue, "hang", timeout_ms=3_000, max_attempts=1)
            happens(stuck)
            queue.cancel(job)
            happens(told)
            push(queue, "other")
            happens(other)
    finally:
        never.set()


@pytest.mark.parametrize("where", ["directory", "tcp", "http", "grpc"])
def test_a_cancel_reaches_every_kind_of_handler_long_before_its_lease_is_renewed(where: str, tmp_path: Path):
    """With a lease of ten minutes the next renewal is 200 seconds away."""
    with reached(where, tmp_path) as url, stoker.connect(url) as client, Beside(Worker(client, WAITING)):
        jobs = [push(client, waiting.name, 1, queue=waiting.queue, lease_ms=600_000) for waiting in WAITING]
        until = time.monotonic() + WAIT_S
        while client.get_counts().active < len(jobs):
            assert time.monotonic() < until, "they did not start"
            time.sleep(0.001)
        for job in jobs:
            client.cancel(job)
        ended = [client.wait_job(job, 50_000).state for job in jobs]
    assert ended == [State.CANCELLED] * len(jobs)


async def wait(value: int) -> None:
    await asyncio.Event().wait()


async def wait_together(values: list[int]) -> None:
    await asyncio.Event().wait()


def wait_plain(value: int) -> None:
    while True:
        here().check()
        time.sleep(0.001)


WAITING = [
    handler(wait, queue="async"),
    handler(wait_plain, name="plain", queue="thread"),
    handler(wait_together, name="together", queue="batch", batch=Batch(size=1)),
]


@contextmanager
def reached(where: str, directory: Path) -> Iterator[str]:
    """A URL for a data directory, or for a server with this listener alone."""
    if where == "directory":
        yield f"sqlite:///{directory}/queue"
        return
    off, here = TcpListener(listen="off"), "127.0.0.1:0"
    config = ServerConfig(
        tcp=TcpListener(listen=here) if where == "tcp" else off,
        http=HttpListener(listen=here if where == "http" else "off"),
        grpc=GrpcListener(listen=here if where == "grpc" else "off"),
    )
    with ServerThread(config) as server:
        yield f"{where}://127.0.0.1:{server.port}"


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


def chunk(*ids: int, token: int = 1, received_at: float = 0.0) -> JobChunk:
    from stoker.model.options import Options

    return JobChunk(handler(print), token, "q", ids, [b"[]"] * len(ids), Options(lease_ms=30_000), 1, 0, received_at)


def test_everything_in_hand_is_renewed_in_one_call_at_a_third_of_the_lease():
    queue, now = Queue(Extended(3, 0)), [0.0]
    held = [chunk(1, 2), chunk(3, token=2, received_at=3.0)]
    keeper = LeaseKeeper(queue.execute, lambda: held, lambda chunk, job: None, lambda chunk, job: None, lambda: now[0])
    keeper._next_at = 1e9
    now[0] = 9.0
    keeper.renew_due()
    assert [command.renew for command in queue.asked] == [False], "it only looked"
    now[0] = 10.0
    keeper.renew_due()
    assert queue.asked[1:] == [c.Extend([1, 2, 3], [1, 1, 2])], "a renewal is a look, too"
    assert [one.renew_at for one in held] == [20.0, 20.0]


def test_what_runs_for_longer_than_a_moment_is_looked_at_every_second():
    """Short jobs cost the queue nothing, and a look renews nothing."""
    queue, now = Queue(Extended(1, 0, {}, [3])), [0.0]
    held = [chunk(1, 2), chunk(3, token=2)]
    held[0].left = 0
    flagged = []
    keeper = LeaseKeeper(
        queue.execute, lambda: held, lambda chunk, job: flagged.append(job), lambda chunk, job: None, lambda: now[0]
    )
    for now[0] in (0.0, 0.5, 0.99, 1.0, 1.5, 1.99):
        keeper._next_at = 1e9
        keeper.renew_due()
    assert queue.asked == [c.Extend([3], [2], renew=False)]
    assert flagged == [3]
    assert keeper._next_at == 2.0, "when the next look is due"
    assert held[1].renew_at == 10.0


def test_a_worker_with_thousands_of_jobs_looks_less_often():
    queue, now = Queue(Extended(1, 0)), [0.0]
    held = [chunk(*range(1, 2_001))]
    keeper = LeaseKeeper(queue.execute, lambda: held, lambda chunk, job: None, lambda chunk, job: None, lambda: now[0])
    keeper._next_at, now[0] = 1e9, 1.0
    keeper.renew_due()
    assert (len(queue.asked[0].ids), keeper._next_at) == (2_000, 5.0)


def test_a_look_that_fails_is_tried_again_and_loses_nothing():
    from stoker.model.errors import Unreachable

    held, now = [chunk(1)], [0.0]
    keeper = LeaseKeeper(
        Queue(Unreachable("gone")).execute,
        lambda: held,
        lambda chunk, job: None,
        lambda chunk, job: None,
        lambda: now[0],
    )
    keeper._next_at, now[0] = 1e9, 1.0
    keeper.renew_due()
    assert (held[0].flags, held[0].renew_at, keeper._next_at) == ({}, 10.0, 2.0)


def test_jobs_that_are_done_are_not_renewed_and_never_lost():
    held = [chunk(1, 2)]
    held[0].over.add(1)
    flagged = []
    queue = Queue(Extended(0, 0, {2: "lost_lease"}))
    keeper = LeaseKeeper(
        queue.execute, lambda: held, lambda chunk, job: flagged.append(job), lambda chunk, job: None, lambda: 10.0
    )
    keeper._next_at = 1e9
    keeper.renew_due()
    assert queue.asked[0].ids == [2]
    assert flagged == [2]
    assert held[0].flags == {2: "lost"}


def test_a_renewal_that_failed_is_tried_again_soon():
    from stoker.model.errors import Unreachable

    held = [chunk(1)]
    keeper = LeaseKeeper(
        Queue(Unreachable("gone")).execute, lambda: held, lambda chunk, job: None, lambda chunk, job: None, lambda: 10.0
    )
    keeper._next_at = 1e9
    keeper.renew_due()
    assert 10.0 < held[0].renew_at < 11.0
    assert held[0].flags == {}
