"""The asynchronous client says the same to the same broker."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stoker.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, LostLease, NotFound, UnknownDependency
from stoker.model.options import DeadLetterPolicy, Dependency, Options
from stoker.model.replies import Counts
from stoker.model.states import State
from tests.conformance.brokers import ContractWorld
from tests.conformance.support import NEVER


@pytest.fixture
def queue(world: ContractWorld) -> AsyncClient:
    return AsyncClient(world.broker)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def methods(kind: type) -> dict[str, list[str]]:
    """The public methods with the names, kinds and defaults of their parameters."""
    return {
        name: [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in signature_of(member)]
        for name, member in vars(kind).items()
        if not name.startswith("_") and callable(member)
    }


def signature_of(member: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(member).parameters.values())


def test_it_has_the_methods_of_the_other_one():
    assert methods(AsyncClient) == methods(Client)
    assert len(methods(Client)) > 50


def test_everything_that_asks_the_broker_is_awaited():
    plain = {"close", "as_tenant"}
    for name in methods(AsyncClient).keys() - plain:
        member = getattr(AsyncClient, name)
        assert inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member), name


def test_a_jobs_life(world: ContractWorld, queue: AsyncClient):
    async def main() -> None:
        pushed = await queue.push("q", b"hello", priority=2)
        (job,) = await queue.pull("q", worker="w")
        assert (job.id, job.payload, job.options.priority) == (pushed.id, b"hello", 2)
        await queue.set_progress(job.id, 50, "half", job.token)
        await queue.append_log(job.id, "line")
        await queue.append_partial(job.id, b"chunk")
        assert (await queue.extend(job.id, job.token)).lease_until == world.now + 30_000
        await queue.ack(job.id, job.token, b"done")
        ended = await queue.wait_job(job.id)
        assert (ended.state, ended.result) == (State.COMPLETED, b"done")
        assert await queue.get_state(job.id) is State.COMPLETED
        assert await queue.get_result(job.id) == b"done"
        assert (await queue.get_progress(job.id)).percent == 50
        assert [line.message for line in await queue.get_logs(job.id)] == ["line"]
        assert [chunk.data for chunk in await queue.get_partials(job.id)] == [b"chunk"]

    run(main)


def test_failing_releasing_and_the_way_back(world: ContractWorld, queue: AsyncClient):
    async def main() -> None:
        pushed = await queue.push("q", b"")
        (job,) = await queue.pull("q")
        assert (await queue.nack(job.id, job.token, 50, "busy")).state is State.DELAYED
        await queue.promote(job.id)
        (job,) = await queue.pull("q")
        await queue.release(job.id, job.token)
        (job,) = await queue.pull("q")
        await queue.snooze(job.id, job.token, 10)
        world.advance(10)
        (job,) = await queue.pull("q")
        assert (await queue.fail(job.id, job.token, "broken", retry=False)).state is State.FAILED
        assert [view.id for view in (await queue.list_dead("q")).jobs] == [pushed.id]
        assert (await queue.get_dead_stats("q")).total == 1
        assert list((await queue.retry_dead("q")).ids) == [pushed.id]
        assert (await queue.get_job(pushed.id)).attempts == 0
        await queue.discard(pushed.id)
        assert await queue.purge_dead("q") == 1

    run(main)


def test_batches(queue: AsyncClient):
    async def main() -> None:
        ids = list((await queue.push_batch("q", [b"a", b"b", b"c", b"d"], tags=("t",))).ids)
        delivery = await queue.pull("q", 4)
        assert (await queue.ack_batch(ids[:1], delivery.token)).count == 1
        assert len((await queue.fail_batch(ids[1:2], delivery.token, retry=False)).jobs) == 1
        assert (await queue.release_batch(ids[2:3], delivery.token)).count == 1
        assert (await queue.extend_batch(ids[3:], delivery.token)).count == 1
        assert await queue.get_counts("q") == Counts(completed=1, failed=1, waiting=1, active=1)

    run(main)


def test_claims_and_transactions(queue: AsyncClient):
    async def main() -> None:
        assert (await queue.stage("t", "s", "q", [b"a", b"b", b"c"])).jobs == 3
        assert (await queue.publish("t", ["s"])).created == 3
        assert (await queue.abort("u")).outcome == "aborted"
        for claim in ("one", "two"):
            assert len(await queue.pull("q", claim=claim)) == 1
            assert len(await queue.pull("q", claim=claim)) == 1
        assert (await queue.extend_claim("one")).count == 1
        assert (await queue.ack_claim("one")).count == 1
        assert (await queue.release_claim("two")).count == 1

    run(main)


def test_looking_and_control(queue: AsyncClient):
    async def main() -> None:
        job = (await queue.push("q", b"", custom_id="c")).id
        assert (await queue.find_job("c")).id == job
        assert [view.id for view in (await queue.browse("q")).jobs] == [job]
        assert (await queue.why(job)).jobs_ahead == 0
        assert list(await queue.list_queues()) == ["q"]
        await queue.pause("q")
        await queue.set_rate_limit("q", 5)
        await queue.set_concurrency("q", 2)
        await queue.set_queue_policy("q", dead_letters=DeadLetterPolicy(entries_max=3))
        view = await queue.get_queue("q")
        assert (view.paused, view.concurrency, view.dead_letters.entries_max) == (True, 2, 3)
        await queue.resume("q")
        await queue.clear_rate_limit("q")
        await queue.clear_concurrency("q")
        await queue.change_priority(job, 3)
        await queue.update_payload(job, b"new")
        await queue.move_to_delayed(job, 100)
        assert (await queue.cancel(job)).state is State.CANCELLED
        assert list(await queue.clean("q", State.CANCELLED)) == [job]
        await queue.push("q", b"")
        assert await queue.drain("q") == 1
        await queue.obliterate("q")
        assert (await queue.get_stats()).counts == Counts()

    run(main)


def test_events(queue: AsyncClient):
    async def main() -> None:
        await queue.push("q", b"")
        assert [str(event.kind) for event in (await queue.read_events()).events] == ["pushed"]
        assert [str(event.kind) async for event in queue.subscribe(idle_ms=10)] == ["pushed"]

    run(main)


def test_refusals_are_the_same_errors(queue: AsyncClient):
    async def main() -> None:
        with pytest.raises(InvalidRequest):
            await queue.push("not a name", b"")
        with pytest.raises(InvalidRequest, match="dealy_ms"):
            await queue.push("q", b"", dealy_ms=5)
        with pytest.raises(UnknownDependency):
            await queue.push("q", b"", Options(depends_on=(Dependency(NEVER),)))
        with pytest.raises(NotFound):
            await queue.get_job(NEVER)
        job = (await queue.push("q", b"")).id
        with pytest.raises(LostLease):
            await queue.ack(job, 1)

    run(main)


def test_another_tenant_is_another_handle(queue: AsyncClient):
    async def main() -> None:
        await queue.push("q", b"")
        assert len(await queue.as_tenant("acme").pull("q")) == 0
        assert len(await queue.pull("q")) == 1

    run(main)


def test_both_clients_see_one_broker(world: ContractWorld, queue: AsyncClient):
    async def main() -> None:
        job = world.client.push("q", b"").id
        (delivered,) = await queue.execute(c.Pull(["q"]))
        assert delivered.id == job
        assert world.client.get_state(job) is State.ACTIVE

    run(main)


def test_waiting_under_a_clock_that_tests_move(world: ContractWorld, queue: AsyncClient):
    async def main() -> None:
        job = (await queue.push("q", b"", delay_ms=300)).id
        begin = world.now
        (delivered,) = await queue.pull("q", wait_ms=1_000)
        assert delivered.id == job
        assert world.now == begin + 300
        assert len(await queue.pull("q", wait_ms=1_000)) == 0
        assert world.now == begin + 1_300

    run(main)
