"""Waiting with the true clock, in threads and tasks. Every wait is woken by something, never by a sleep.

Where a wake-up were lost, the wait would end empty and the test would fail; no test asks how long anything took.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import pytest

import stoker
from stoker import aio
from stoker.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model.errors import Closed
from stoker.model.options import Dependency, Options
from stoker.model.states import State

T = TypeVar("T")

LONG_MS = 50_000
"""Longer than any of these tests takes; only a lost wake-up ever waits for it."""


@pytest.fixture
def client() -> Iterator[Client]:
    with stoker.connect("memory://") as client:
        yield client


def in_background(work: Callable[[], T]) -> "Future[T]":
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def test_a_pull_is_woken_by_a_push_of_another_thread(client: Client):
    """Back and forth a hundred times: each side waits for the other."""

    def echo() -> None:
        for _ in range(100):
            (job,) = client.pull("there", wait_ms=LONG_MS)
            client.push("back", job.payload)
            client.ack(job.id, job.token)

    answered = in_background(echo)
    for number in range(100):
        client.push("there", b"%d" % number)
        (job,) = client.pull("back", wait_ms=LONG_MS)
        assert job.payload == b"%d" % number
        client.ack(job.id, job.token)
    answered.result(60)
    assert client.get_counts().completed == 200


def test_a_pull_is_woken_by_a_delayed_job(client: Client):
    job = client.push("q", b"", delay_ms=30).id
    (delivered,) = client.pull("q", wait_ms=LONG_MS)
    assert delivered.id == job
    view = client.get_job(job)
    assert view.started_at - view.pushed_at >= 30


def test_a_pull_is_woken_by_a_job_that_is_promoted_resumed_or_released(client: Client):
    pulling = in_background(lambda: list(client.pull("q", wait_ms=LONG_MS)))
    job = client.push("q", b"", delay_ms=3_600_000).id
    client.promote(job)
    assert [each.id for each in pulling.result(60)] == [job]
    pulling = in_background(lambda: list(client.pull("q", wait_ms=LONG_MS)))
    client.release(job)
    assert [each.id for each in pulling.result(60)] == [job]
    client.pause("other")
    client.push("other", b"")
    pulling = in_background(lambda: list(client.pull("other", wait_ms=LONG_MS)))
    client.resume("other")
    assert len(pulling.result(60)) == 1


def test_a_pull_is_woken_by_closing(client: Client):
    pulling = in_background(lambda: client.pull("q", wait_ms=LONG_MS))
    client.close()
    assert isinstance(pulling.exception(60), Closed)


def test_a_closed_broker_says_so(client: Client):
    client.close()
    client.close()
    with pytest.raises(Closed) as caught:
        client.push("q", b"")
    assert caught.value.retryable


def test_waiting_for_a_job_is_woken_by_its_end(client: Client):
    job = client.push("q", b"").id
    waiting = in_background(lambda: client.wait_job(job, LONG_MS))
    client.pull("q")
    client.ack(job, result=b"42")
    ended = waiting.result(60)
    assert (ended.state, ended.finished, ended.result) == (State.COMPLETED, True, b"42")


def test_a_reader_of_events_is_woken_by_the_next_one(client: Client):
    reading = in_background(lambda: client.read_events(wait_ms=LONG_MS).events)
    job = client.push("q", b"").id
    assert [event.job for event in reading.result(60)] == [job]


def test_many_threads_share_a_broker(client: Client):
    """Every job is delivered once, whoever pushes and whoever pulls."""

    def produce() -> list[int]:
        return [client.push("q", b"").id for _ in range(200)]

    def consume() -> list[int]:
        done: list[int] = []
        while True:
            (job,) = client.pull("q", wait_ms=LONG_MS)
            client.ack(job.id, job.token)
            if job.payload == b"stop":
                return done
            done.append(job.id)

    producers = [in_background(produce) for _ in range(4)]
    consumers = [in_background(consume) for _ in range(4)]
    pushed = [job for producer in producers for job in producer.result(60)]
    for _ in consumers:
        client.push("q", b"stop", priority=-1)
    done = [job for consumer in consumers for job in consumer.result(60)]
    assert len(set(pushed)) == 800
    assert sorted(done) == sorted(pushed)


def test_a_named_memory_broker_is_shared_in_the_process():
    one, other = stoker.connect("memory://shared-by-two"), stoker.connect("memory://shared-by-two")
    try:
        job = one.push("q", b"").id
        assert [each.id for each in other.pull("q")] == [job]
    finally:
        one.close()
        other.close()


def test_a_nameless_memory_broker_is_ones_own(client: Client):
    with stoker.connect("memory://") as other:
        client.push("q", b"")
        assert len(other.pull("q")) == 0


# --- tasks ---------------------------------------------------------------------------------------


def test_many_tasks_wait_at_once():
    """Two hundred pulls wait; two hundred jobs come; each pull has one and no job is delivered twice."""

    async def main() -> tuple[list[int], list[int]]:
        async with await aio.connect("memory://") as client:
            pulls = [asyncio.create_task(client.pull("q", wait_ms=LONG_MS)) for _ in range(200)]
            await asyncio.sleep(0)
            pushed = [(await client.push("q", b"")).id for _ in range(100)]
            pushed += (await client.push_batch("q", [b""] * 100)).ids
            deliveries = await asyncio.gather(*pulls)
            return pushed, [job.id for delivery in deliveries for job in delivery]

    pushed, delivered = asyncio.run(main())
    assert len(pushed) == 200
    assert sorted(delivered) == sorted(pushed)


@pytest.mark.parametrize("turns", range(6))
def test_a_cancelled_pull_leaves_no_job_delivered_to_nobody(turns: int):
    """However far the push has come when the pull is cancelled: the job is delivered once, as its first attempt."""

    async def main() -> None:
        async with await aio.connect("memory://") as client:
            for head_start in range(6):
                pulling = asyncio.create_task(client.pull("q", wait_ms=LONG_MS))
                for _ in range(head_start):
                    await asyncio.sleep(0)
                pushing = asyncio.create_task(client.push("q", b""))
                for _ in range(turns):
                    await asyncio.sleep(0)
                pulling.cancel()
                outcome, pushed = await asyncio.gather(pulling, pushing, return_exceptions=True)
                if isinstance(outcome, asyncio.CancelledError):
                    outcome = await client.pull("q", wait_ms=LONG_MS)
                assert not isinstance(outcome, BaseException)
                assert not isinstance(pushed, BaseException)
                (job,) = outcome
                assert (job.id, job.attempt) == (pushed.id, 1)
                await client.ack(job.id, job.token)
            assert (await client.get_counts("q")).active == 0

    asyncio.run(main())


def test_a_cancelled_pull_that_waits_in_vain_is_forgotten():
    async def main() -> None:
        async with await aio.connect("memory://") as client:
            pulling = asyncio.create_task(client.pull("q", wait_ms=LONG_MS))
            for _ in range(10):
                await asyncio.sleep(0)
            pulling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pulling
            pushed = await client.push("q", b"")
            assert await client.get_state(pushed.id) is State.WAITING
            (job,) = await client.pull("q")
            assert (job.id, job.attempt) == (pushed.id, 1)

    asyncio.run(main())


def test_waiting_pulls_are_served_in_the_order_they_came():
    async def main() -> None:
        async with await aio.connect("memory://") as client:
            pulls = [asyncio.create_task(client.pull("q", wait_ms=LONG_MS)) for _ in range(10)]
            await asyncio.sleep(0)
            ids = [(await client.push("q", b"")).id for _ in range(4)]
            ids += (await client.push_batch("q", [b""] * 6)).ids
            assert [(await pull).ids[0] for pull in pulls] == ids

    asyncio.run(main())


async def promote(client: AsyncClient) -> None:
    await client.promote((await client.push("q", b"", delay_ms=3_600_000)).id)


async def resume(client: AsyncClient) -> None:
    await client.pause("q")
    await client.push("q", b"")
    await client.resume("q")


async def revive(client: AsyncClient) -> None:
    await client.fail(64, retry=False)
    await client.retry_dead("q")


async def publish(client: AsyncClient) -> None:
    await client.stage("t", "s", "q", [b""])
    await client.publish("t", ["s"])


WAKERS: dict[str, tuple[Options, Callable[[AsyncClient], Awaitable[object]]]] = {
    "push": (Options(), lambda client: client.push("q", b"")),
    "batch": (Options(), lambda client: client.push_batch("q", [b"", b""])),
    "due time": (Options(), lambda client: client.push("q", b"", delay_ms=5)),
    "promote": (Options(), promote),
    "resume": (Options(), resume),
    "release": (Options(), lambda client: client.release(64)),
    "snooze": (Options(), lambda client: client.snooze(64, None, 5)),
    "failure": (Options(), lambda client: client.fail(64, delay_ms=0)),
    "backoff": (Options(), lambda client: client.fail(64, delay_ms=5)),
    "dead letter": (Options(), revive),
    "group": (Options(group_id="g"), lambda client: client.ack(64)),
    "group by cancel": (Options(group_id="g"), lambda client: client.discard(64)),
    "parent": (Options(depends_on=(Dependency(64),)), lambda client: client.ack(64)),
    "publication": (Options(), publish),
}


@pytest.mark.parametrize("waker", WAKERS)
def test_whatever_makes_a_job_ready_wakes_a_waiting_pull(waker: str):
    """Job 64 is running; where its options say so, another job waits behind it."""

    async def main() -> None:
        behind, wake = WAKERS[waker]
        async with await aio.connect("memory://") as client:
            await client.push("q", b"", group_id=behind.group_id)
            assert len(await client.pull("q")) == 1
            if behind != Options():
                await client.push("q", b"", behind)
            pulling = asyncio.create_task(client.pull("q", wait_ms=LONG_MS))
            await asyncio.sleep(0)
            assert not pulling.done()
            await wake(client)
            assert len(await pulling) >= 1

    asyncio.run(main())


@pytest.mark.parametrize("change", ["free a slot", "raise the limit", "lift the limit", "refill", "lift the rate"])
def test_whatever_gives_room_wakes_a_waiting_pull(change: str):
    async def main() -> None:
        async with await aio.connect("memory://") as client:
            if change in ("refill", "lift the rate"):
                await client.set_rate_limit("q", 1, 20 if change == "refill" else 3_600_000)
            else:
                await client.set_concurrency("q", 1)
            first, second = (await client.push_batch("q", [b"", b""])).ids
            assert list((await client.pull("q", 2)).ids) == [first]
            pulling = asyncio.create_task(client.pull("q", wait_ms=LONG_MS))
            await asyncio.sleep(0)
            if change == "free a slot":
                await client.ack(first)
            elif change == "raise the limit":
                await client.set_concurrency("q", 2)
            elif change == "lift the limit":
                await client.clear_concurrency("q")
            elif change == "lift the rate":
                await client.clear_rate_limit("q")
            assert list((await pulling).ids) == [second]

    asyncio.run(main())


def test_a_task_that_waits_does_not_hold_up_the_loop():
    """The pull can only end by what the same loop does meanwhile."""

    async def main() -> list[int]:
        async with await aio.connect("memory://") as client:
            pulling = asyncio.create_task(client.pull("q", wait_ms=LONG_MS))
            await asyncio.sleep(0)
            assert not pulling.done()
            pushed = await client.push("q", b"")
            (job,) = await pulling
            return [pushed.id, job.id]

    pushed, delivered = asyncio.run(main())
    assert pushed == delivered


def test_waiting_tasks_are_answered_by_closing():
    async def main() -> list[BaseException | object]:
        client = await aio.connect("memory://")
        waiting = [asyncio.create_task(client.pull("q", wait_ms=LONG_MS)) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        await client.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in asyncio.run(main())] == [Closed] * 3


def test_a_delayed_job_wakes_a_waiting_task():
    async def main() -> tuple[int, int]:
        async with await aio.connect("memory://") as client:
            pushed = await client.push("q", b"", delay_ms=20)
            (job,) = await client.pull("q", wait_ms=LONG_MS)
            return pushed.id, job.id

    pushed, delivered = asyncio.run(main())
    assert pushed == delivered


def test_several_loops_and_threads_may_use_one_broker():
    """A web application's loop and a worker's thread in one process."""

    async def produce() -> list[int]:
        client = await aio.connect("memory://shared-by-loops")
        return [(await client.push("q", b"%d" % number)).id for number in range(50)]

    consumer = stoker.connect("memory://shared-by-loops")
    try:
        consuming = in_background(lambda: [job.id for _ in range(50) for job in consumer.pull("q", wait_ms=LONG_MS)])
        pushed = asyncio.run(produce())
        assert consuming.result(60) == pushed
    finally:
        consumer.close()
