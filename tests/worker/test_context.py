"""What a handler may know and say about its job."""

import asyncio
import logging
import threading

import pytest

from stoker.client.sync import Client
from stoker.model.replies import Progress
from stoker.model.states import State
from stoker.testing import World
from stoker.worker.context import Context, JobLogHandler, current_job
from stoker.worker.errors import SoftTimeout
from stoker.worker.outcomes import Snooze
from stoker.worker.worker import Worker
from tests.worker.running import Beside, handler, happens, push, push_many

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


def both(kind: str, function):
    """The same function, plain or `async`."""

    async def run(*args, ctx: Context):
        return function(*args, ctx=ctx)

    return handler(run if kind == "async" else function, name="run", context="ctx")


@kinds
def test_the_context_knows_its_job(world: World, kind: str):
    seen = []

    def run(*, ctx: Context) -> None:
        seen.append((ctx.id, ctx.queue, ctx.name, ctx.attempt, ctx.max_attempts, ctx.is_last_attempt, ctx.pushed_at))
        assert (ctx.cancelled, ctx.lost, ctx.stopping, ctx.deadline) == (False, False, False, None)
        assert current_job() is ctx

    job = push(world.client, "run", max_attempts=1)
    Worker(world.client, [both(kind, run)]).run_until_idle()
    assert seen == [(job, "default", "run", 1, 1, True, world.now)]
    assert world.client.get_state(job) is State.COMPLETED


@kinds
def test_each_job_of_a_run_has_a_context_of_its_own(world: World, kind: str):
    seen = []

    def run(number: int, *, ctx: Context) -> None:
        seen.append((number, ctx.id))

    ids = push_many(world.client, "run", range(100))
    Worker(world.client, [both(kind, run)], concurrency=1, prefetch=200).run_until_idle()
    assert sorted(seen) == list(enumerate(ids))


@kinds
def test_progress_log_and_partial_results_are_there_before_the_job_is_settled(world: World, kind: str):
    def run(*, ctx: Context) -> None:
        ctx.progress(10)
        ctx.progress(50.7, "half")
        ctx.log("copied %d of %d", 1, 2, level="warning")
        ctx.log("100%")
        ctx.emit(b"piece")
        raise Snooze("1m")

    job = push(world.client, "run")
    Worker(world.client, [both(kind, run)]).run_until_idle()
    view = world.client.get_job(job)
    assert view.progress == Progress(50, "half")
    assert [(line.level, line.message) for line in world.client.get_logs(job)] == [
        ("warning", "copied 1 of 2"),
        ("info", "100%"),
    ]
    assert [chunk.data for chunk in world.client.get_partials(job)] == [b"piece"]


def test_a_checkpoint_survives_a_retry_and_leaves_with_the_job(world: World):
    seen = []

    def run(*, ctx: Context) -> None:
        seen.append(ctx.restore(default=0))
        if len(seen) < 3:
            ctx.checkpoint(seen[-1] + 10)
            raise ValueError("again")

    job = push(world.client, "run", max_attempts=5)
    worker = Worker(world.client, [both("thread", run)])
    for _ in range(3):
        worker.run_until_idle()
        world.advance("1m")
    assert seen == [0, 10, 20]
    assert world.client.get_state(job) is State.COMPLETED
    assert world.client.kv_keys("stoker:checkpoint:*").keys == []


def test_checkpoints_are_awaited_in_async_handlers(world: World):
    seen = []

    async def run(*, ctx: Context) -> None:
        seen.append(await ctx.restore())
        await ctx.checkpoint({"page": 7})
        if len(seen) == 1:
            raise ValueError("again")

    push(world.client, "run")
    worker = Worker(world.client, [handler(run, context="ctx")])
    for _ in range(2):
        worker.run_until_idle()
        world.advance("1m")
    assert seen == [None, {"page": 7}]


@kinds
def test_current_job_is_that_of_the_handler_and_none_elsewhere(world: World, kind: str):
    seen = {}

    async def run(number: int) -> None:
        await asyncio.sleep(0)
        found = current_job()
        seen[number] = found.id if found else None

    def run_plain(number: int) -> None:
        found = current_job()
        seen[number] = found.id if found else None

    ids = push_many(world.client, "run", range(20))
    Worker(world.client, [handler(run if kind == "async" else run_plain, name="run")]).run_until_idle()
    assert seen == dict(enumerate(ids))
    assert current_job() is None


def test_lines_of_logging_are_attached_to_the_job(world: World):
    logger = logging.getLogger("tests.worker.attached")
    logger.setLevel(logging.INFO)
    attached = JobLogHandler()
    logger.addHandler(attached)
    try:

        def run(number: int) -> None:
            logger.info("number %s is 100%%", number)
            raise ValueError("so that the log stays")

        ids = push_many(world.client, "run", range(2), max_attempts=1)
        logger.info("outside of any job")
        Worker(world.client, [handler(run)]).run_until_idle()
    finally:
        logger.removeHandler(attached)
    lines = [[line.message for line in world.client.get_logs(job)] for job in ids]
    assert lines == [["number 0 is 100%"], ["number 1 is 100%"]]


def test_a_soft_timeout_is_an_exception_in_a_coroutine(queue: Client):
    async def run(*, ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except SoftTimeout:
            await asyncio.sleep(0)
            return "saved"
        return "never"

    with Beside(Worker(queue, [handler(run, context="ctx", soft_timeout_ms=20)])):
        job = push(queue, "run")
        assert queue.wait_job(job).result == b'"saved"'


def test_a_soft_timeout_that_is_not_caught_fails_the_delivery(queue: Client):
    async def run() -> None:
        await asyncio.Event().wait()

    with Beside(Worker(queue, [handler(run, soft_timeout_ms=20)])):
        job = push(queue, "run", max_attempts=1)
        ended = queue.wait_job(job)
    assert (ended.state, ended.error) == (State.FAILED, "its soft timeout has passed")


def test_a_soft_timeout_is_a_flag_in_a_thread(queue: Client):
    def run(*, ctx: Context) -> str:
        while not ctx.soft_timed_out:
            pass
        with pytest.raises(SoftTimeout):
            ctx.check()
        return "stopped"

    with Beside(Worker(queue, [handler(run, context="ctx", soft_timeout_ms=20)])):
        job = push(queue, "run")
        assert queue.wait_job(job).result == b'"stopped"'


def test_the_deadline_is_that_of_the_timeout(queue: Client):
    left = []
    done = threading.Event()

    def run(*, ctx: Context) -> None:
        left.append(ctx.remaining_s)
        done.set()

    with Beside(Worker(queue, [handler(run, context="ctx")])):
        push(queue, "run", timeout_ms=60_000)
        happens(done)
    assert left[0] is not None
    assert 0 < left[0] <= 60
