"""An application in a harness: nothing happens by itself, and jobs run as with a real queue and worker."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import stoker
from stoker.model.errors import InvalidRequest, NotFound
from stoker.testing import Harness, StillBusy, harness
from stoker.testing.broker import HeldBroker
from tests.testing.shop import (
    Order,
    again,
    app,
    both,
    count,
    fetch,
    for_ever,
    hang,
    heavy,
    pack,
    pause,
    rarely,
    seen,
    thank,
    where,
)

ORDER = Order(UUID(int=7), items=3)


def test_nothing_runs_by_itself(world: Harness):
    job = thank.push_sync("Ada")
    world.advance("1d")
    assert (seen, job.status_sync()) == ([], "waiting")


def test_a_drain_runs_what_is_due_and_what_that_pushes(world: Harness):
    job = pack.push_sync(ORDER)
    later = thank.options(delay="1h").push_sync("later")
    done = world.drain()
    assert (job.result_sync(), seen) == (3, [str(ORDER.id)])
    assert (len(done.completed), done.ran) == (2, 2)
    assert later.status_sync() == "delayed"


def test_drains_may_follow_each_other(world: Harness):
    for customer in ("Ada", "Bob", "Cleo"):
        thank.push_sync(customer)
        assert world.drain().ran == 1
    assert world.drain().ran == 0
    assert seen == ["Ada", "Bob", "Cleo"]


def test_delays_end_when_time_is_advanced(world: Harness):
    thank.options(delay="5m").push_sync("Ada")
    world.advance(timedelta(minutes=4, seconds=59))
    assert world.drain().ran == 0
    world.advance("1s")
    assert world.drain().ran == 1


def test_retries_happen_at_their_times(world: Harness):
    start = world.now
    job = fetch.push_sync(works_in=3)
    done = world.run_for("1m")
    assert (done.retried, done.completed) == ((job.id, job.id), (job.id,))
    assert job.result_sync() == 3
    (first, second) = job.view_sync().history
    assert [attempt.started_at - round(start.timestamp() * 1000) for attempt in (first, second)] == [0, 1_000]
    assert world.now == start + timedelta(minutes=1)


def test_time_can_be_run_up_to_a_moment():
    start = datetime(2026, 12, 24, 12, tzinfo=UTC)
    with harness(app, start=start) as world:
        job = thank.options(run_at=start + timedelta(hours=6)).push_sync("Ada")
        world.run_until(start + timedelta(hours=5))
        assert job.status_sync() == "delayed"
        world.run_until(start + timedelta(hours=6))
        assert job.status_sync() == "completed"
        with pytest.raises(InvalidRequest, match="has passed"):
            world.run_until(start)
        with pytest.raises(InvalidRequest, match="time zone"):
            world.run_until(datetime(2027, 1, 1))
        with pytest.raises(InvalidRequest, match="time zone"):
            harness(app, start=datetime(2027, 1, 1))


@pytest.mark.parametrize("duration", [60, 1.5, "soon", "5"])
def test_a_duration_without_a_unit_is_refused(world: Harness, duration: object):
    with pytest.raises(InvalidRequest, match="not a duration"):
        world.advance(duration)  # type: ignore[arg-type]


def test_what_failed_and_what_was_snoozed_is_told(world: Harness):
    dead, snoozed = fetch.options(max_attempts=1).push_sync(9), pause.push_sync()
    done = world.drain()
    assert (done.failed, done.snoozed, done.completed) == ((dead.id,), (snoozed.id,), ())
    assert ["ConnectionError: nobody answers" in error for error in done.errors] == [True]
    with pytest.raises(AssertionError, match="ConnectionError: nobody answers"):
        done.check()
    assert world.run_for("2h").failed == (snoozed.id,)


def test_a_failure_is_told_in_the_log_of_the_worker(world: Harness, caplog: pytest.LogCaptureFixture):
    job = fetch.push_sync(works_in=2)
    world.run_for("1m")
    assert [record.getMessage() for record in caplog.records if record.name == "stoker.worker"] == [
        f"job {job.id} (fetch) failed in attempt 1 of 3: ConnectionError: nobody answers"
    ]


def test_a_check_of_a_good_drain_is_the_drain(world: Harness):
    thank.push_sync("Ada")
    assert len(world.drain().check().completed) == 1


def test_a_job_that_comes_back_for_ever_is_noticed(world: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.testing.app_harness.DELIVERIES_MAX", 50)
    for_ever.push_sync()
    with pytest.raises(StillBusy, match="forever"):
        world.drain()


def test_asking_for_a_result_that_nobody_works_on_is_an_error_and_no_endless_wait(world: Harness):
    job = thank.push_sync("Ada")
    before = world.now
    with pytest.raises(StillBusy, match="drain"):
        job.result_sync()
    with pytest.raises(StillBusy, match="drain"):
        job.wait_sync(timeout="10s")
    assert world.now == before


def test_a_pull_of_the_test_itself_never_waits(world: Harness):
    before = world.now
    assert not world.client.pull("mail", wait_ms=60_000)
    job = thank.push_sync("Ada")
    assert world.client.pull("mail", wait_ms=60_000).ids == (job.id,)
    assert world.now == before


def test_a_job_that_comes_back_all_the_time_is_noticed_in_a_long_run(world: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.testing.app_harness.STEPS_MAX", 20)
    again.push_sync()
    with pytest.raises(StillBusy, match="all the time"):
        world.run_for("1d")


def test_a_handler_may_wait_for_another_job(world: Harness):
    job = both.push_sync("Ada")
    world.drain().check()
    assert job.result_sync() == "thank you, Ada!"


def test_handlers_for_processes_and_for_batches_run_too(world: Harness):
    square = heavy.push_sync(7)
    words = count.push_batch_sync(["tea", "", "water"])
    done = world.drain()
    assert square.result_sync() == 49
    assert (words[0].result_sync(), words[2].result_sync()) == (3, 5)
    assert done.retried == (words[1].id,)
    assert seen == [3]


def test_a_handler_whose_time_is_over_ends_when_the_queue_says_so(world: Harness):
    """The worker goes by real time and drops it; the queue goes by the test's."""
    job = hang.push_sync()
    assert world.drain().ran == 0
    assert job.status_sync() == "active"
    assert world.run_for("1s").failed == (job.id,)
    assert job.view_sync().reason == "timeout"


def test_rates_of_a_worker_hold_no_test_up(world: Harness):
    rarely.push_batch_sync([()] * 3)
    assert world.drain().ran == 3


def test_in_asynchronous_tests_handlers_run_on_the_loop_of_the_test(world: Harness):
    async def test() -> None:
        job = await where.push()
        done = await world.drain_async()
        assert done.completed == (job.id,)
        assert seen == [asyncio.get_running_loop()]

    asyncio.run(test())


def test_time_can_be_run_in_asynchronous_tests(world: Harness):
    async def test() -> None:
        start = world.now
        job = await fetch.push(works_in=3)
        done = await world.run_for_async("10s")
        assert (done.retried, done.completed) == ((job.id, job.id), (job.id,))
        await thank.options(delay="1h").push("Ada")
        await world.run_until_async(start + timedelta(hours=2))
        assert seen[-1] == "Ada"

    asyncio.run(test())


def test_handlers_may_wait_for_each_other_in_asynchronous_tests_too(world: Harness):
    async def test() -> str:
        job = await both.push("Ada")
        (await world.drain_async()).check()
        return await job.result()

    assert asyncio.run(test()) == "thank you, Ada!"


def test_a_handler_that_hangs_is_noticed_in_asynchronous_tests(world: Harness):
    async def test() -> None:
        await hang.options(timeout="0s").push()
        with pytest.raises(StillBusy, match="still run"):
            await world.drain_async(timeout_s=0.05)

    asyncio.run(test())


def test_both_ways_of_draining_may_be_mixed(world: Harness):
    thank.push_sync("Ada")
    world.drain()

    async def test() -> None:
        await thank.push("Bob")
        await world.drain_async()

    asyncio.run(test())
    thank.push_sync("Cleo")
    world.drain()
    assert seen == ["Ada", "Bob", "Cleo"]


def test_a_drain_inside_an_event_loop_works_too(world: Harness):
    async def test() -> str:
        job = await thank.push("Ada")
        world.drain()
        return await job.result()

    assert asyncio.run(test()) == "thank you, Ada"


def test_the_app_goes_back_to_where_it_was():
    other = stoker.App("memory://kit-goes-back")

    @other.job
    def greet(name: str) -> str:
        return name

    with other:
        before = greet.push_sync("before")
        with harness(other) as world:
            greet.push_sync("inside")
            assert len(world.pushed()) == 1
            with harness(other) as inner:
                greet.push_sync("further inside")
                assert len(inner.pushed()) == 1
            assert world.drain().ran == 1
        with stoker.connect("memory://kit-goes-back") as queue:
            assert queue.get_counts().waiting == 0, (
                "nobody has it open any more: a named queue in memory ends with that"
            )
        assert before.created


def test_schedules_push_when_time_is_run():
    shop = stoker.App("memory://")

    @shop.schedule("0 8 * * *", zone="Europe/Vienna")
    @shop.job
    def report() -> None: ...

    start = datetime(2026, 3, 27, 12, tzinfo=UTC)  # the clocks change in the night to the 29th
    with harness(shop, start=start) as world:
        world.run_for("3d")
        assert [(job.at.day, job.at.hour) for job in world.pushed()] == [(28, 7), (29, 6), (30, 6)]


def test_what_has_ended_can_be_looked_at_for_long_unless_a_test_asks_for_less(world: Harness):
    job = thank.push_sync("Ada")
    world.run_for("30d")
    assert job.result_sync() == "thank you, Ada"
    with harness(app, settings=stoker.Settings()) as forgetful:
        job = thank.push_sync("Ada")
        forgetful.run_for("30d")
        with pytest.raises(NotFound):
            job.result_sync()


def test_a_schedule_that_cannot_be_leaves_the_app_where_it_was():
    shop = stoker.App("memory://kit-bad-schedule")

    @shop.schedule("0 8 * * *")
    @shop.job
    def report(month: str) -> None: ...

    with pytest.raises(stoker.StokerError), harness(shop):
        pass
    assert shop.broker is not None
    assert shop._owns_broker
    shop.close()


def test_a_workflow_over_several_queues_runs_to_its_end_after_a_retry():
    """The worker has queues of different weight by then: it must not leave one out."""
    shop = stoker.App("memory://")
    broken = [True]

    @shop.job(queue="web", max_attempts=1)
    def fragile() -> str:
        if broken:
            raise ConnectionError(broken.pop())
        return "well"

    @shop.job(queue="reports")
    async def tell(what: str = stoker.Input()) -> str:
        return f"all is {what}"

    with harness(shop) as world:
        run = stoker.workflow(fragile.s() >> tell.s()).push_sync()
        world.drain()
        assert run.status_sync() == "failed"
        run.retry_sync()
        world.drain().check()
        assert run.result_sync() == "all is well"


def test_worlds_share_nothing():
    with harness(app) as one:
        thank.push_sync("Ada")
        with harness(app) as two:
            assert two.client.get_counts().waiting == 0
        assert one.client.get_counts().waiting == 1


def test_an_app_without_jobs_can_still_be_looked_at():
    with harness(stoker.App("memory://")) as world:
        world.client.push("anything", b"")
        assert [job.queue for job in world.pushed()] == ["anything"]


def test_the_worker_has_cleaned_up_before_the_queue_closes(monkeypatch: pytest.MonkeyPatch):
    """A closed queue answers pulls at once: a worker that still ran asked again and again, and never heard its stop."""
    steps: list[str] = []
    shop, close = stoker.App(), HeldBroker.close

    def pool() -> Iterator[str]:
        yield "pool"
        steps.append("the worker cleaned up")

    @shop.job(queue="shop")
    def buy(what: str, db: str = stoker.Depends(pool, scope="worker")) -> str:
        return f"{what} from {db}"

    def closed(broker: HeldBroker) -> None:
        steps.append("the queue closes")
        close(broker)

    monkeypatch.setattr(HeldBroker, "close", closed)
    with harness(shop) as world:
        buy.push_sync("tea")
        world.drain().check()
    assert steps == ["the worker cleaned up", "the queue closes"]
