"""What lies only in PostgreSQL is read off the event loop: a read that hangs holds up no other command."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import pytest

import stoker
from stoker.client.aio import AsyncClient
from stoker.journal.postgres.journal import TABLES_TOGETHER
from stoker.model.commands import ReadRecords
from stoker.model.filters import JobFilter
from stoker.model.ids import shard_of
from stoker.model.options import Options
from stoker.model.replies import Records
from tests.journal.toy_roles import PATIENCE_S, until
from tests.postgres.seat import Seat

OLD = b"payload " * 100

Asked = Callable[[AsyncClient, int], Awaitable[object]]
"""Asks for something old, and says whether the answer was right."""


@pytest.fixture
def reopened(cluster: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Seat], Seat]:
    """Opens a seat again: nothing of its log is in memory then. A read that hangs does so until the test ends it."""
    monkeypatch.setattr("stoker.journal.postgres.journal.READ_S", PATIENCE_S)
    monkeypatch.setattr("stoker.journal.postgres.store.HANG_UP_S", 2 * PATIENCE_S)

    def again(seat: Seat) -> Seat:
        seat.close()
        return Seat(cluster)

    return again


def old_job(seat: Seat) -> int:
    """The first of a batch: the payloads of batches stay in PostgreSQL when a seat is opened."""
    return seat.client.push_batch("old", [OLD, OLD]).ids[0]


@contextmanager
def hanging_reads(seat: Seat) -> Iterator[Callable[[], None]]:
    """The backend that answers reads is stopped, until it is told to go on."""
    seat.journal._reads.submit(seat.journal._ask_here, "SELECT 1", None).result(PATIENCE_S)
    assert seat.journal.reader._connection is not None
    backend = seat.journal.reader._connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    stopped = [backend]

    def go_on() -> None:
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    try:
        yield go_on
    finally:
        go_on()


def is_reading(seat: Seat) -> bool:
    return bool(seat.journal.reader._busy_since)


async def until_reading(seat: Seat) -> None:
    await asyncio.to_thread(until, lambda: is_reading(seat))


async def payload_pulled(client: AsyncClient, job: int) -> object:
    return [(found.id, found.attempt, found.payload) for found in await client.pull("old")] == [(job, 1, OLD)]


async def payload_seen(client: AsyncClient, job: int) -> object:
    return (await client.get_job(job)).payload == OLD


async def text_found(client: AsyncClient, job: int) -> object:
    return [view.id for view in (await client.search(JobFilter(queue="old", text="payload"))).jobs][-1] == job


async def events_read(client: AsyncClient, job: int) -> object:
    return (await client.read_events(shard_of(job))).events[0].job == job


async def records_read(client: AsyncClient, job: int) -> object:
    found: Records = await client.execute(ReadRecords(shard_of(job), payloads=True))
    return any(OLD in record.body for record in found.records)


async def story_told(client: AsyncClient, job: int) -> object:
    return len((await client.story(job)).events) == 1


def check_others_are_answered(seat: Seat, job: int, asked: Asked, hangs_s: float = PATIENCE_S) -> None:
    """While a read hangs, everything that needs no read is answered; afterwards so is the command that needs it.

    The read hangs until then, but no longer than `hangs_s`: the event loop may hang with it.
    """
    answered: list[object] = []
    is_answered = threading.Event()

    def hang(go_on: Callable[[], None]) -> None:
        is_answered.wait(hangs_s)
        go_on()

    async def run(go_on: Callable[[], None]) -> None:
        client = AsyncClient(seat.broker)
        hanging = threading.Thread(target=hang, args=(go_on,))
        hanging.start()

        async def old() -> None:
            assert await asked(client, job)
            answered.append("old")

        waiting = asyncio.create_task(old())
        await asyncio.sleep(0)  # it is handed in first
        await client.push("new", b"new")
        answered.append("pushed")
        (delivered,) = await client.pull("new")
        answered.append(delivered.payload)
        await client.ack(delivered.id, delivered.token)
        answered.append("acknowledged")
        await until_reading(seat)
        is_answered.set()
        await asyncio.wait_for(waiting, PATIENCE_S)
        hanging.join()

    with hanging_reads(seat) as go_on:
        asyncio.run(run(go_on))
    assert answered == ["pushed", b"new", "acknowledged", "old"]


@pytest.mark.parametrize(
    "asked", [payload_pulled, payload_seen, text_found, events_read, records_read, story_told], ids=lambda f: f.__name__
)
def test_a_read_that_hangs_holds_up_no_command_that_needs_none(
    cluster: str, reopened: Callable[[Seat], Seat], asked: Asked
):
    seat = Seat(cluster)
    job = old_job(seat)
    seat = reopened(seat)
    check_others_are_answered(seat, job, asked)
    seat.close()


def test_a_planted_bug_that_reads_on_the_loop_is_noticed(
    cluster: str, reopened: Callable[[Seat], Seat], monkeypatch: pytest.MonkeyPatch
):
    seat = Seat(cluster)
    job = old_job(seat)
    seat = reopened(seat)
    monkeypatch.setattr("stoker.journal.postgres.journal.may_wait", lambda: True)
    monkeypatch.setattr("tests.journal.toy_roles.PATIENCE_S", 0.5)  # no read is seen to hang beside an answer
    with pytest.raises(AssertionError):
        check_others_are_answered(seat, job, payload_pulled, hangs_s=0.5)
    seat.close()


def test_a_job_whose_payload_cannot_be_read_in_time_goes_back_as_if_never_pulled(
    cluster: str, reopened: Callable[[Seat], Seat], monkeypatch: pytest.MonkeyPatch
):
    seat = Seat(cluster)
    job = old_job(seat)
    seat = reopened(seat)
    monkeypatch.setattr("stoker.journal.postgres.journal.READ_S", 0.1)
    with hanging_reads(seat):
        assert not seat.client.pull("old").ids
    monkeypatch.setattr("stoker.journal.postgres.journal.READ_S", PATIENCE_S)
    (delivered,) = seat.client.pull("old")
    assert (delivered.id, delivered.attempt, delivered.payload) == (job, 1, OLD)
    seat.close()


def test_a_job_whose_lease_ends_while_it_is_read_is_not_given_out(cluster: str, reopened: Callable[[Seat], Seat]):
    """Its worker could not settle it: it was given out and lost again and again while reads took longer than leases."""
    seat = Seat(cluster)
    old_job(seat)
    seat = reopened(seat)

    async def run(go_on: Callable[[], None]) -> Any:
        client = AsyncClient(seat.broker)
        pulling = asyncio.create_task(client.pull("old", 2, lease_ms=50))
        await until_reading(seat)
        await asyncio.to_thread(until, lambda: not seat.client.get_counts("old").active)
        go_on()
        return await asyncio.wait_for(pulling, PATIENCE_S)

    with hanging_reads(seat) as go_on:
        assert list(asyncio.run(run(go_on)).ids) == []
    again = seat.client.pull("old", 2, wait_ms=60_000)
    assert {(found.attempt, found.payload) for found in again} == {(2, OLD)}
    seat.close()


def test_a_claim_brings_the_same_jobs_again_when_they_have_to_be_read(cluster: str, reopened: Callable[[Seat], Seat]):
    """All of them are still held: none counts as lost."""
    seat = Seat(cluster)
    seat.client.push_batch("old", [OLD] * 3)
    first = seat.client.pull("old", 3, claim="claim", lease_ms=600_000)
    seat = reopened(seat)
    again = seat.client.pull("old", 3, claim="claim", lease_ms=600_000)
    assert [(found.id, found.payload) for found in again] == [(job, OLD) for job in first.ids]
    seat.close()


def test_a_pull_that_waited_gets_a_job_whose_payload_had_to_be_read(cluster: str, reopened: Callable[[Seat], Seat]):
    seat = Seat(cluster)
    old_job(seat)
    held = list(seat.client.pull("old", 2))
    seat = reopened(seat)

    async def run() -> Any:
        client = AsyncClient(seat.broker)
        waiting = asyncio.create_task(client.pull("old", wait_ms=60_000))
        await asyncio.to_thread(until, lambda: bool(seat.broker._waiters))
        await client.release(held[0].id, held[0].token)
        return await asyncio.wait_for(waiting, PATIENCE_S)

    (delivered,) = asyncio.run(run())
    assert (delivered.id, delivered.attempt, delivered.payload) == (held[0].id, 1, OLD)
    seat.close()


def test_a_caller_that_leaves_while_its_job_is_read_returns_it(cluster: str, reopened: Callable[[Seat], Seat]):
    seat = Seat(cluster)
    job = old_job(seat)
    seat = reopened(seat)

    async def run(go_on: Callable[[], None]) -> Any:
        client = AsyncClient(seat.broker)
        leaving = asyncio.create_task(client.pull("old", 2))
        await until_reading(seat)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        go_on()
        return await client.pull("old", wait_ms=60_000)

    with hanging_reads(seat) as go_on:
        (delivered,) = asyncio.run(run(go_on))
    assert (delivered.id, delivered.attempt) == (job, 1)
    seat.close()


def test_a_close_returns_jobs_that_are_being_read(
    cluster: str, reopened: Callable[[Seat], Seat], monkeypatch: pytest.MonkeyPatch
):
    seat = Seat(cluster)
    job = old_job(seat)
    seat = reopened(seat)
    monkeypatch.setattr("stoker.journal.postgres.journal.READ_S", 1.0)  # a close waits for it

    async def run() -> object:
        pulling = asyncio.create_task(AsyncClient(seat.broker).pull("old"))
        await until_reading(seat)
        await asyncio.to_thread(seat.close)
        return (await asyncio.gather(pulling, return_exceptions=True))[0]

    with hanging_reads(seat):
        assert isinstance(asyncio.run(run()), stoker.StokerError)
    again = Seat(cluster)
    (delivered,) = again.client.pull("old")
    assert (delivered.id, delivered.attempt) == (job, 1)
    again.close()


def test_a_bulk_operation_waits_for_payloads_that_have_to_be_read(cluster: str, reopened: Callable[[Seat], Seat]):
    seat = Seat(cluster)
    *jobs, other = seat.client.push_batch("old", [OLD] * 5 + [b"other"]).ids
    seat = reopened(seat)

    async def run(go_on: Callable[[], None]) -> None:
        client = AsyncClient(seat.broker)
        keeper = asyncio.create_task(seat.broker.keep_time())
        await client.start_bulk("key", "cancel", JobFilter(queue="old", text="payload"))
        await until_reading(seat)
        await client.push("new", b"new")
        assert (await client.get_bulk("key")).state == "running"
        go_on()
        await asyncio.to_thread(until, lambda: seat.client.get_bulk("key").state != "running")
        keeper.cancel()

    with hanging_reads(seat) as go_on:
        asyncio.run(asyncio.wait_for(run(go_on), PATIENCE_S))
    assert all(seat.client.get_job(job).state == "cancelled" for job in jobs)
    assert seat.client.get_job(other).state == "waiting"
    seat.close()


def test_staged_payloads_that_have_to_be_read_are_published(cluster: str, reopened: Callable[[Seat], Seat]):
    """Jobs with options of their own are checked when they are published, so their payloads are needed then."""
    seat = Seat(cluster)
    each = [Options(priority=1), Options(priority=2)]
    seat.client.stage("transaction", "stage", "old", [OLD, OLD], each=each)
    seat = reopened(seat)

    async def run(go_on: Callable[[], None]) -> int:
        client = AsyncClient(seat.broker)
        publishing = asyncio.create_task(client.publish("transaction", ["stage"]))
        await until_reading(seat)
        await client.push("new", b"new")
        assert not publishing.done()
        go_on()
        return (await asyncio.wait_for(publishing, PATIENCE_S)).created

    with hanging_reads(seat) as go_on:
        assert asyncio.run(run(go_on)) == 2
    assert [found.payload for found in seat.client.pull("old", 10)] == [OLD, OLD]
    seat.close()


def old_batches(seat: Seat, count: int) -> list[bytes]:
    """Batches of two, each in a row of its own; their payloads in order."""
    payloads = [b"<%d>" % number for number in range(2 * count)]
    for first in range(0, len(payloads), 2):
        seat.client.push_batch("old", payloads[first : first + 2])
    return payloads


def count_reads(seat: Seat, asked: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note every statement with which the seat reads."""
    ask = seat.journal._ask_here

    def noted(statement: LiteralString, given: Any) -> list[tuple[Any, ...]]:
        asked.append(statement)
        return ask(statement, given)

    monkeypatch.setattr(seat.journal, "_ask_here", noted)


def test_the_payloads_of_a_page_and_of_a_delivery_are_read_together(
    cluster: str, reopened: Callable[[Seat], Seat], monkeypatch: pytest.MonkeyPatch
):
    """One statement for each row made a page of old jobs take as many round trips as it has jobs."""
    seat = Seat(cluster)
    payloads = old_batches(seat, 40)
    seat = reopened(seat)
    asked: list[object] = []
    count_reads(seat, asked, monkeypatch)
    assert [view.payload for view in seat.client.browse("old", ascending=True).jobs] == payloads
    assert len(asked) == 1
    seat = reopened(seat)
    count_reads(seat, asked, monkeypatch)
    assert [delivered.payload for delivered in seat.client.pull("old", 80)] == payloads
    assert len(asked) == 2
    seat.close()


def test_payloads_in_many_partitions_are_read_together(
    cluster: str, reopened: Callable[[Seat], Seat], monkeypatch: pytest.MonkeyPatch
):
    """A statement for each partition made a page of jobs of many days slow."""
    seat, payloads = Seat(cluster), []
    for _ in range(TABLES_TOGETHER + 3):
        payloads += old_batches(seat, 1)
        with seat.store._working:
            seat.store.go_on()
        until(lambda: seat.journal.reached(seat.store._seal_when))
        seat.upkeep(1)
    seat = reopened(seat)
    asked: list[object] = []
    count_reads(seat, asked, monkeypatch)
    assert [view.payload for view in seat.client.browse("old", ascending=True).jobs] == payloads
    assert len(asked) == 2
    seat.close()


def test_a_damaged_row_among_those_read_together_fails_only_its_own_jobs(
    cluster: str, reopened: Callable[[Seat], Seat]
):
    seat = Seat(cluster)
    payloads = old_batches(seat, 3)
    seat = reopened(seat)
    log = seat.journal.log
    damage = "UPDATE {s}.{table} SET data = set_byte(data, length(data) - 1, 0) WHERE position(%s::bytea IN data) > 0"
    with log.database.connect() as connection:
        done = connection.execute(log.database.sql(damage, table=seat.journal.tables[-1].table), (payloads[2],))
    assert done.rowcount == 1
    assert [delivered.payload for delivered in seat.client.pull("old", 6)] == payloads[:2] + payloads[4:]
    seat.close()
