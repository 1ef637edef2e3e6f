"""Jobs are taken into free slots only; what was fetched ahead and cannot begin goes back."""

import asyncio
import contextvars
import threading
import time
from contextvars import Context, ContextVar

import pytest

from stoker.client.sync import Client
from stoker.model.options import RateLimit
from stoker.model.states import State
from stoker.testing import World
from stoker.worker import thread_lane
from stoker.worker.context import is_still
from stoker.worker.queues import QueueSettings
from stoker.worker.worker import Worker
from tests.worker.running import WAIT_S, Beside, handler, happens, push, push_many

WAIT_MS = 60_000

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


class Counting:
    """A handler that counts how often it runs at the same time."""

    def __init__(self, kind: str, each: int = 20) -> None:
        self.kind = kind
        self.now = self.most = self.total = 0
        self._lock = threading.Lock()
        self._each = each

    def begin(self) -> None:
        with self._lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def end(self) -> None:
        with self._lock:
            self.now -= 1

    def work(self, number: int) -> None:
        self.begin()
        time.sleep(0.001)
        self.end()

    async def work_async(self, number: int) -> None:
        self.begin()
        await asyncio.sleep(0.001)
        self.end()

    def handler(self, **settings):
        return handler(self.work_async if self.kind == "async" else self.work, name="work", **settings)


@kinds
def test_never_more_than_the_concurrency(world: World, kind: str):
    counting = Counting(kind)
    push_many(world.client, "work", range(100))
    Worker(world.client, [counting.handler()], concurrency=3).run_until_idle()
    assert counting.total == 100
    assert counting.most <= 3


@kinds
def test_never_more_of_a_queue_than_it_may_have(world: World, kind: str):
    counting = Counting(kind)
    push_many(world.client, "work", range(50))
    settings = {"default": QueueSettings(concurrency=2)}
    Worker(world.client, [counting.handler()], concurrency=10, queues=settings).run_until_idle()
    assert counting.total == 50
    assert counting.most <= 2


@kinds
def test_a_job_waits_in_the_queue_while_all_slots_are_taken(queue: Client, kind: str):
    started, go_on = threading.Semaphore(0), threading.Event()

    def work(number: int) -> None:
        started.release()
        happens(go_on)

    async def work_async(number: int) -> None:
        await asyncio.to_thread(work, number)

    with Beside(Worker(queue, [handler(work if kind == "thread" else work_async, name="work")], concurrency=2)):
        ids = push_many(queue, "work", range(3))
        assert started.acquire(timeout=WAIT_S)
        assert started.acquire(timeout=WAIT_S)
        assert queue.get_counts().waiting == 1
        assert queue.get_job(ids[2]).attempts == 0
        go_on.set()
        assert queue.wait_job(ids[2]).state is State.COMPLETED


@kinds
def test_jobs_behind_one_that_hangs_are_worked_on_or_handed_back(queue: Client, kind: str):
    """A thousand short jobs teach the worker to fetch ahead; then one of them hangs in the only slot."""
    hangs, go_on = threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 0:
            hangs.set()
            happens(go_on)

    async def work_async(number: int) -> None:
        if number == 0:
            hangs.set()
            while not go_on.is_set():  # noqa: ASYNC110  # another thread sets it
                await asyncio.sleep(0.001)

    function = work if kind == "thread" else work_async
    with Beside(Worker(queue, [handler(function, name="work")], concurrency=1)):
        warm = push_many(queue, "work", range(1, 1_000))
        queue.wait_job(warm[-1])
        ids = push_many(queue, "work", range(100))
        happens(hangs)
        until = time.monotonic() + WAIT_S
        while queue.get_state(ids[50]) is not State.WAITING:
            assert time.monotonic() < until, "they are kept behind the one that hangs"
            time.sleep(0.005)
        assert queue.get_state(ids[0]) is State.ACTIVE
        go_on.set()
        assert queue.wait_job(ids[-1]).state is State.COMPLETED
        assert queue.get_stats().totals.failed == 0
        assert queue.get_job(ids[50]).attempts == 1, "going back cost nothing"


def test_a_thread_that_is_late_to_leave_its_job_still_gets_the_next(queue: Client, monkeypatch: pytest.MonkeyPatch):
    """The job is settled, confirmed, and the worker looks for room, all before the thread counts as free."""
    settled = threading.Event()

    def late(clean: Context) -> bool:
        happens(settled)
        time.sleep(0.1)  # the worker looks for room meanwhile
        return is_still(clean)

    monkeypatch.setattr(thread_lane, "is_still", late)
    with Beside(Worker(queue, [handler(lambda number: time.sleep(0.02), name="work")], concurrency=1)):
        for number in range(2):
            (job,) = push_many(queue, "work", [number])
            assert queue.wait_job(job).state is State.COMPLETED
            settled.set()


def test_other_threads_go_on_with_the_jobs_behind_one_that_hangs(queue: Client):
    hangs, go_on = threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 0:
            hangs.set()
            happens(go_on)

    with Beside(Worker(queue, [handler(work)], concurrency=2)):
        warm = push_many(queue, "work", range(1, 1_000))
        queue.wait_job(warm[-1])
        ids = push_many(queue, "work", range(100))
        happens(hangs)
        assert queue.wait_job(ids[-1]).state is State.COMPLETED
        assert queue.get_state(ids[0]) is State.ACTIVE
        go_on.set()


@kinds
def test_a_rate_limit_of_the_worker_holds_jobs_back(queue: Client, kind: str):
    five = threading.Semaphore(0)

    async def work_async(number: int) -> None:
        five.release()

    def work(number: int) -> None:
        five.release()

    limited = handler(work if kind == "thread" else work_async, name="work", rate=RateLimit(5, 3_600_000))
    push_many(queue, "work", range(20))
    with Beside(Worker(queue, [limited])):
        for _ in range(5):
            assert five.acquire(timeout=WAIT_S)
    counts = queue.get_counts()
    assert (counts.completed, counts.waiting) == (5, 15)


def test_a_queue_that_is_full_does_not_hold_up_another(queue: Client):
    started, go_on, other = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        happens(go_on)

    worker = Worker(
        queue,
        [handler(hold, queue="slow"), handler(other.set, name="other", queue="quick")],
        queues={"slow": QueueSettings(concurrency=1), "quick": 1},
    )
    with Beside(worker):
        push(queue, "hold", queue="slow")
        happens(started)
        late = push(queue, "hold", queue="slow")
        push(queue, "other", queue="quick")
        happens(other)
        assert queue.get_state(late) is State.WAITING
        go_on.set()
        assert queue.wait_job(late).state is State.COMPLETED


def test_many_coroutines_wait_at_the_same_time(queue: Client):
    running, most, all_there = [0], [0], threading.Event()

    async def work(number: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        if running[0] == 500:
            all_there.set()
        while not all_there.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    ids = push_many(queue, "work", range(500))
    with Beside(Worker(queue, [handler(work)], concurrency=500)):
        assert queue.wait_job(ids[-1]).state is State.COMPLETED
    assert most[0] == 500


mark: ContextVar[int] = ContextVar("mark", default=0)


@kinds
def test_what_a_handler_leaves_in_context_variables_is_gone_with_its_job(world: World, kind: str):
    seen: list[int] = []

    def work(number: int) -> None:
        seen.append(mark.get())
        if number % 3 == 0:
            mark.set(number + 1)

    async def work_async(number: int) -> None:
        work(number)

    function = work if kind == "thread" else work_async
    push_many(world.client, "work", range(50))
    Worker(world.client, [handler(function, name="work")], concurrency=1, prefetch=100).run_until_idle()
    assert seen == [0] * 50


class Unequal:
    """A value that cannot be compared, as arrays are."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("neither equal nor not")

    __hash__ = object.__hash__


thing: ContextVar[Unequal | None] = ContextVar("thing", default=None)


@kinds
def test_values_that_cannot_be_compared_do_no_harm_in_context_variables(world: World, kind: str):
    def work(number: int) -> None:
        assert thing.get() is None
        thing.set(Unequal())
        thing.set(Unequal())

    async def work_async(number: int) -> None:
        work(number)

    thing.set(Unequal())
    try:
        ids = push_many(world.client, "work", range(5))
        functions = {"thread": work, "async": work_async}
        worker = Worker(world.client, [handler(functions[kind], name="work")], concurrency=1, prefetch=10)
        contextvars.Context().run(worker.run_until_idle)
    finally:
        thing.set(None)
    assert [world.client.get_state(job) for job in ids] == [State.COMPLETED] * 5


def test_timeouts_inside_handlers_are_their_own(world: World):
    """Jobs of one slot share a task: what one of them cancels in it must not reach the next."""
    outcomes: list[str] = []

    async def work(number: int) -> None:
        try:
            async with asyncio.timeout(0.001 if number % 2 else 60):
                await asyncio.sleep(0.01 if number % 2 else 0)
            outcomes.append("done")
        except TimeoutError:
            outcomes.append("late")

    push_many(world.client, "work", range(10))
    Worker(world.client, [handler(work)], concurrency=1, prefetch=100).run_until_idle()
    assert outcomes == ["done", "late"] * 5
    assert world.client.get_counts().completed == 10


def test_a_cancellation_that_comes_as_a_job_ends_does_not_reach_the_next(world: World):
    async def work(number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if number % 2 == 0:
            task.cancel()  # and returns before anybody notices
        else:
            await asyncio.sleep(0)

    ids = push_many(world.client, "work", range(10))
    Worker(world.client, [handler(work)], concurrency=1, prefetch=100).run_until_idle()
    assert [world.client.get_state(job) for job in ids] == [State.COMPLETED] * 10


def test_coroutines_that_never_wait_let_the_event_loop_have_its_turn(world: World):
    """The loop's own callbacks run while thousands of such jobs are waiting."""
    turns: list[int] = []
    done = [0]

    async def work(number: int) -> None:
        if number == 0:
            asyncio.get_running_loop().call_soon(lambda: turns.append(done[0]))
        until = time.perf_counter() + 0.000_1
        while time.perf_counter() < until:
            pass
        done[0] += 1

    push_many(world.client, "work", range(500))
    Worker(world.client, [handler(work)], concurrency=1, prefetch=1_000).run_until_idle()
    assert 0 < turns[0] < 500


def test_one_job_needs_one_slot(queue: Client):
    """A second task would be made for nothing before the job begins."""
    seen: list[int] = []

    async def work(number: int) -> None:
        slots = [task for task in asyncio.all_tasks() if "CoroutineLane._work" in repr(task.get_coro())]
        seen.append(len(slots))

    with Beside(Worker(queue, [handler(work, name="work")])):
        for number in range(3):
            assert queue.wait_job(push(queue, "work", number), WAIT_MS).finished
    assert seen == [1, 1, 1]
