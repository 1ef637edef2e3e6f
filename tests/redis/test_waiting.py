"""Waiting calls: one thread blocks for all of them. The net is ten minutes here, so that nothing can depend on it."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import stoker
from stoker import Client
from stoker.model import commands as c
from stoker.model.errors import Closed, Unreachable
from tests.redis.servers import RedisServer

NET = "?net_ms=600000"
SOON_S = 60.0
"""Far below the net: a test that needs the net fails."""


def connect(server: RedisServer) -> Client:
    return stoker.connect(server.url + NET)


def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(int(SOON_S * 100)):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)


async def until_async(condition: Callable[[], object], what: str) -> None:
    for _ in range(int(SOON_S * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


def blocked(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"])


def test_a_waiting_pull_gets_what_another_client_pushes(server: RedisServer):
    with connect(server) as worker, connect(server) as producer, ThreadPoolExecutor(1) as pool:
        future = pool.submit(worker.pull, "q", wait_ms=60_000)
        until(lambda: blocked(server) == 1, "it waits in Redis")
        pushed = producer.push("q", b"x")
        assert future.result(SOON_S).ids == range(pushed.id, pushed.id + 64, 64)


def test_a_waiting_pull_gets_a_delayed_job_of_another_client(server: RedisServer):
    """The client that pushed is gone when the job is due: who waits keeps the time."""
    with connect(server) as worker, ThreadPoolExecutor(1) as pool:
        future = pool.submit(worker.pull, "q", wait_ms=60_000)
        until(lambda: blocked(server) == 1, "it waits in Redis")
        with connect(server) as producer:
            producer.push("q", b"x", delay_ms=300)
        assert future.result(SOON_S).runs


def test_the_time_is_handed_on_when_its_keeper_goes_to_work(server: RedisServer):
    """One process knows of a deadline, and gets a job: another process that waits must learn of the deadline."""
    with (
        connect(server) as first,
        connect(server) as second,
        connect(server) as producer,
        ThreadPoolExecutor(2) as pool,
    ):
        one = pool.submit(first.pull, "a", wait_ms=60_000)
        until(lambda: blocked(server) == 1, "the first waits")
        producer.push("b", b"later", delay_ms=3_000)
        other = pool.submit(second.pull, "b", wait_ms=60_000)
        until(lambda: blocked(server) == 2 or other.done(), "both wait")
        producer.push("a", b"now")
        assert one.result(SOON_S).runs
        assert other.result(SOON_S).runs


def test_the_lease_of_a_dead_worker_is_noticed_by_one_that_waits(server: RedisServer):
    with connect(server) as dead, connect(server) as alive:
        dead.push("q", b"x", lease_ms=500, backoff=stoker.Backoff(kind="fixed", base_ms=1))
        assert dead.pull("q").runs
        assert alive.pull("q", wait_ms=60_000).runs[0].attempt == 2


def test_many_pulls_of_a_process_wait_on_one_connection_and_are_served_in_order(server: RedisServer):
    order: list[int] = []
    with connect(server) as worker, connect(server) as producer, ThreadPoolExecutor(12) as pool:

        def pull(number: int) -> None:
            if worker.pull("q", wait_ms=60_000).runs:
                order.append(number)

        futures = []
        for number in range(12):
            futures.append(pool.submit(pull, number))
            until(partial(waits, worker, number + 1), "it waits behind the others")
        until(lambda: blocked(server) == 1, "one connection waits for all")
        for number in range(12):
            producer.push("q", b"x")
            futures[number].result(SOON_S)
        assert order == list(range(12))


def waits(worker: Any, calls: int) -> bool:
    waiters: dict[Any, Any] = worker.broker._waiters
    return any(len(line.tickets) == calls for waiter in waiters.values() for line in list(waiter._tenants.values()))


def test_a_new_pull_does_not_overtake_those_that_wait(server: RedisServer):
    """The last pull comes when a job is there for the first, and its marker is on the way."""
    order: list[int] = []
    with connect(server) as worker, connect(server) as producer, ThreadPoolExecutor(60) as pool:

        def pull(number: int) -> None:
            if worker.pull("q", wait_ms=60_000).runs:
                order.append(number)

        futures = [pool.submit(pull, 0)]
        for number in range(1, 60):
            until(partial(waits, worker, 1), "the one before waits")
            producer.push("q", b"x")
            futures.append(pool.submit(pull, number))
            futures[number - 1].result(SOON_S)
            assert order == list(range(number))
        producer.push("q", b"x")
        futures[-1].result(SOON_S)


def test_a_rate_that_one_pull_has_used_up_lets_the_next_go_on_in_time(server: RedisServer):
    """Both wait in one process, and only the first was woken."""
    with connect(server) as worker, connect(server) as producer, ThreadPoolExecutor(3) as pool:
        producer.set_rate_limit("q", 1, 200, 1)
        futures = []
        for number in range(3):
            futures.append(pool.submit(worker.pull, "q", wait_ms=600_000))
            until(partial(waits, worker, number + 1), "it waits")
        began = time.monotonic()
        producer.push_batch("q", [b"1", b"2", b"3"], lease_ms=600_000)
        assert [future.result(SOON_S).runs[0].payloads for future in futures] == [[b"1"], [b"2"], [b"3"]]
        assert time.monotonic() - began >= 0.399  # Redis counts in whole milliseconds


def test_calls_of_an_event_loop_wait_for_their_turn(server: RedisServer):
    """A server that stands still holds back what is not sent yet: it is refused as not sent, or goes on in order."""

    async def main() -> None:
        queue = await stoker.aio.connect(server.url + NET + "&calls_max=3&timeout_s=60")
        await queue.push("q", b"first")
        with server.client() as admin:
            admin.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        pushes = [asyncio.create_task(queue.push("q", b"%d" % number)) for number in range(50)]
        stream = next(iter(queue.broker._streams.values()))  # type: ignore[attr-defined]
        await until_async(lambda: len(stream._link._waiting) == 3, "three are sent")
        for _ in range(10):
            await asyncio.sleep(0)
            assert len(stream._link._waiting) <= 3
        pushes[4].cancel()
        with server.client() as admin:
            admin.execute_command("CLIENT", "UNPAUSE")
        await asyncio.gather(*pushes, return_exceptions=True)
        delivery = await queue.pull("q", 100)
        told = [payload for run in delivery.runs for payload in run.payloads]
        assert told == [b"first"] + [b"%d" % number for number in range(50) if number != 4]
        await queue.close()

    asyncio.run(main())


def test_a_call_that_never_gets_its_turn_says_so(server: RedisServer):
    async def main() -> None:
        queue = await stoker.aio.connect(server.url + NET + "&calls_max=1&timeout_s=2&retry_s=0")
        await queue.push("q", b"first")
        with server.client() as admin:
            admin.execute_command("CLIENT", "PAUSE", 700, "ALL")
        stream = next(iter(queue.broker._streams.values()))  # type: ignore[attr-defined]
        await stream._turns.acquire()
        with pytest.raises(Unreachable, match="1 calls of this event loop have been before this one"):
            await queue.push("q", b"x")
        stream._turns.release()
        await queue.close()

    asyncio.run(main())


def test_pulls_of_other_queues_join_while_it_blocks(server: RedisServer):
    with connect(server) as worker, connect(server) as producer, ThreadPoolExecutor(4) as pool:
        futures = {}
        for name in "abcd":
            futures[name] = pool.submit(worker.pull, name, wait_ms=60_000)
            time.sleep(0.05)
        for name in "dcba":
            producer.push(name, name.encode())
            assert futures[name].result(SOON_S).runs[0].payloads == [name.encode()]
        assert blocked(server) <= 1


def test_a_wait_for_a_job_is_told_its_end(server: RedisServer):
    with connect(server) as caller, connect(server) as worker, ThreadPoolExecutor(2) as pool:
        job = caller.push("q", b"x").id
        waits = [pool.submit(caller.execute, c.WaitJob(job, 60_000)) for _ in range(2)]
        delivery = worker.pull("q")
        worker.ack(job, delivery.token, b"done")
        assert [wait.result(SOON_S).result for wait in waits] == [b"done", b"done"]


def test_readers_of_events_are_told_of_new_ones(server: RedisServer):
    with connect(server) as reader, connect(server) as producer, ThreadPoolExecutor(1) as pool:
        future = pool.submit(reader.execute, c.ReadEvents(wait_ms=60_000))
        until(lambda: blocked(server) == 1, "it waits in Redis")
        producer.push("q", b"x")
        assert future.result(SOON_S).events


def test_cancelled_waits_leave_nothing_behind(server: RedisServer):
    async def main() -> None:
        queue = await stoker.aio.connect(server.url + NET)
        job = (await queue.push("held", b"x")).id
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(queue.pull("q", wait_ms=60_000)) for _ in range(5)]
        tasks.append(asyncio.create_task(queue.execute(c.WaitJob(job, 60_000))))
        await until_async(lambda: waits(queue, 6), "all wait")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pushed = await queue.push("q", b"x")
        delivery = await queue.pull("q", wait_ms=60_000)
        assert list(delivery.ids) == [pushed.id]
        await queue.close()

    asyncio.run(main())
    with server.client() as client:
        assert not client.exists("stoker:{default/0}:waits")


def test_a_marker_for_a_pull_that_is_gone_wakes_another_process(server: RedisServer):
    """The process that popped it gives it back."""
    with connect(server) as first, connect(server) as second, ThreadPoolExecutor(1) as pool:

        async def give_up() -> None:
            pull = asyncio.create_task(first.broker.execute_async("default", c.Pull(("q",), wait_ms=60_000)))
            await until_async(lambda: blocked(server) == 1, "it waits in Redis")
            pull.cancel()
            await asyncio.gather(pull, return_exceptions=True)

        asyncio.run(give_up())
        future = pool.submit(second.pull, "q", wait_ms=60_000)
        until(lambda: blocked(server) == 2, "both block: the first for nobody")
        with connect(server) as producer:
            producer.push("q", b"x")
        assert future.result(SOON_S).runs


def test_closing_ends_the_waits_and_the_thread(server: RedisServer):
    before = threading.active_count()
    with ThreadPoolExecutor(3) as pool:
        worker = connect(server)
        futures = [pool.submit(worker.pull, "q", wait_ms=60_000) for _ in range(3)]
        until(lambda: blocked(server) == 1, "they wait")
        worker.close()
        for future in futures:
            with pytest.raises(Closed):
                future.result(SOON_S)
    until(lambda: threading.active_count() <= before, "no thread is left")
    until(lambda: blocked(server) == 0, "no connection blocks")


@pytest.mark.parametrize("ends", ["before", "after"])
def test_connections_of_an_event_loop_end_without_a_warning(server: RedisServer, ends: str):
    broker = connect(server).broker
    loop = asyncio.new_event_loop()
    loop.run_until_complete(broker.execute_async("default", c.Push("q", b"x")))
    if ends == "after":
        broker.close()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    broker.close()
    del broker, loop
