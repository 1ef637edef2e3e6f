"""From a call to a job and back to its result."""

import asyncio
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

import stoker
from stoker import App, Context, Depends, Job, JobFailed, ResultTimeout, State
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound, WrongState
from stoker.model.events import EventKind
from stoker.worker.errors import BadArguments, BadResult
from tests.app.kinds import Opaque, Order, User
from tests.app.working import work

UID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


def test_a_plain_program_pushes_and_gets_the_result(app: App):
    @app.job
    def double(n: int) -> int:
        return 2 * n

    job = double.push_sync(21)
    assert job.created
    assert job.status_sync() is State.WAITING
    assert work(app) == 1
    assert job.result_sync(timeout=5) == 42
    assert job.status_sync() is State.COMPLETED
    assert job.wait_sync() is State.COMPLETED


def test_a_coroutine_pushes_and_gets_the_result(app: App):
    @app.job(queue="mail")
    async def welcome(user_id: int) -> str:
        return f"welcome {user_id}"

    async def main() -> str:
        job = await welcome.push(7)
        assert await job.status() is State.WAITING
        await asyncio.to_thread(work, app)
        assert await job.wait() is State.COMPLETED
        assert (await job.view()).queue == "mail"
        return await job.result("5s")

    assert asyncio.run(main()) == "welcome 7"


def test_the_job_says_which_handler_it_is_for_and_how_it_is_written(app: App):
    @app.job(name="mail.welcome")
    def welcome(user_id: int): ...

    view = welcome.push_sync(7).view_sync()
    assert (view.options.name, view.options.codec) == ("mail.welcome", "msgpack")
    assert msgspec.msgpack.decode(view.payload) == {"user_id": 7}


def test_a_result_has_the_type_of_the_return_annotation(app: App):
    @app.job
    def order(at: datetime) -> Order:
        return Order(UID, Decimal("9.99"), at)

    @app.job
    def users() -> dict[str, User] | None:
        return {"a": User("Ann", [])}

    @app.job
    def nothing() -> None: ...

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    jobs = order.push_sync(noon), users.push_sync(), nothing.push_sync()
    work(app)
    assert jobs[0].result_sync() == Order(UID, Decimal("9.99"), noon)
    assert jobs[1].result_sync() == {"a": User("Ann", [])}
    assert jobs[2].result_sync() is None


def test_a_value_of_the_wrong_type_is_refused_at_the_push(app: App):
    @app.job
    def double(n: int) -> None: ...

    with pytest.raises(BadArguments, match="double: n: expected `int`, got `str`"):
        double.push_sync("seven")  # type: ignore[arg-type]
    assert app.client.get_counts().waiting == 0


def test_types_may_be_left_to_the_worker():
    with App("memory://", validate=False) as app:

        @app.job(max_attempts=1)
        def double(n: int) -> int:
            return 2 * n

        job = double.push_sync("seven")  # type: ignore[arg-type]
        work(app)
        with pytest.raises(JobFailed, match="n: expected `int`, got `str`"):
            job.result_sync()


def test_what_the_worker_fills_in_is_no_part_of_a_push(app: App):
    @app.job
    def greet(ctx: Context, name: str, db: Any = Depends(Opaque)) -> str:
        return f"{db} {name} {ctx}"

    job = greet.push_sync("Ann")
    with pytest.raises(TypeError, match="unexpected keyword argument 'ctx'"):
        greet.push_sync("Ann", ctx=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'db'"):
        greet.push_sync("Ann", db=1)
    work(app, ctx="C", db="D")
    assert job.result_sync() == "D Ann C"


def test_a_batch_function_gets_lists_and_jobs_have_an_element(app: App):
    @app.job(batch=64)
    def embed(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    jobs = embed.push_batch_sync(["a", "bb", "ccc"])
    work(app)
    assert jobs.results_sync() == [1, 2, 3]
    with pytest.raises(BadArguments, match="texts: expected `str`, got `array`"):
        embed.push_sync(["a"])  # type: ignore[arg-type]


# --- many at once ------------------------------------------------------------------------------------


def test_a_batch_takes_tuples_and_mappings_and_steps_and_values(app: App):
    @app.job
    def add(a: int, b: int = 1) -> int:
        return a + b

    jobs = add.push_batch_sync([(1, 2), {"a": 3}, add.s(4, b=5), 6])
    assert (len(jobs), jobs.created) == (4, 4)
    work(app)
    assert jobs.results_sync(5) == [3, 4, 9, 7]
    assert [job.result_sync() for job in jobs[1:3]] == [4, 9]
    assert jobs[-1].result_sync() == 7


def test_a_batch_of_any_size_goes_in_several_requests(app: App):
    @app.job
    async def count(n: int): ...

    async def main() -> Any:
        return await count.push_batch(range(2_500))

    jobs = asyncio.run(main())
    assert len(set(jobs.ids)) == 2_500
    assert app.client.get_counts().waiting == 2_500
    assert not count.push_batch_sync([])


def test_nothing_of_a_batch_is_pushed_if_one_item_does_not_fit(app: App):
    @app.job
    def add(a: int, b: int = 1): ...

    for item, told in ((1, 2, 3), "item 1: .*too many positional"), ("x", "expected `int`"), ({"c": 1}, "item 1: "):
        with pytest.raises((TypeError, BadArguments), match=told):
            add.push_batch_sync([1, item])
    assert app.client.get_counts().waiting == 0


def test_a_batch_has_jobs_of_one_kind(app: App):
    @app.job
    def one(): ...

    @app.job
    def two(): ...

    with pytest.raises(InvalidRequest, match=r"two.s\(\) is not a one"):
        one.push_batch_sync([two.s()])
    with pytest.raises(InvalidRequest, match="has its own options"):
        one.push_batch_sync([one.s().options(delay=1)])


def test_items_of_a_batch_have_keys_of_their_own(app: App):
    @app.job(unique_key="user:{user_id}")
    def sync(user_id: int): ...

    jobs = sync.push_batch_sync([1, 2, 1])
    assert jobs.created == 2
    assert jobs.duplicates == {2: "unique_key"}
    assert jobs[2].id == jobs[0].id
    assert not jobs[2].created


def test_a_request_key_makes_a_batch_harmless_to_repeat(app: App):
    @app.job
    def one(n: int): ...

    first = one.push_batch_sync(range(10), request_key="k")
    second = one.push_batch_sync(range(10), request_key="k")
    assert list(first.ids) == list(second.ids)
    assert app.client.get_counts().waiting == 10


def test_a_refused_item_does_not_hinder_the_others(app: App):
    @app.job(unique_key=lambda n: "x" * n)
    def one(n: int): ...

    jobs = one.push_batch_sync([1, 5_000, 2])
    assert jobs.refused.keys() == {1}
    assert jobs[0].status_sync() is State.WAITING
    with pytest.raises(LimitExceeded, match="item 1: "):
        jobs[1]


# --- options -----------------------------------------------------------------------------------------


def test_options_of_a_push(app: App):
    @app.job
    def one(n: int): ...

    job = one.options(delay="5m", unique_key="user:7").push_sync(7)
    again = one.options(unique_key="user:7").push_sync(7)
    assert job.status_sync() is State.DELAYED
    assert not again.created
    assert again.duplicate_by == "unique_key"
    assert again == job
    job.promote_sync()
    assert job.status_sync() is State.WAITING


def test_a_job_can_wait_for_others(app: App):
    @app.job
    def one(n: int) -> int:
        return n

    first = one.push_batch_sync([1, 2])
    second = one.options(depends_on=first, parent=first[0]).push_sync(3)
    assert second.status_sync() is State.BLOCKED
    assert second.why_sync().blocked_by == tuple(first.ids)
    assert second.view_sync().options.parent_id == first[0].id
    work(app)
    assert second.result_sync() == 3


def test_a_payload_that_is_too_large_names_the_argument(app: App):
    @app.job
    def store(name: str, blob: bytes): ...

    with pytest.raises(
        LimitExceeded, match=r"store: .*payload.*; blob takes 11,000,005 of .* bytes: keep large things"
    ):
        store.push_sync("x", b"0" * 11_000_000)


# --- failing -----------------------------------------------------------------------------------------


def test_a_failed_job_raises_what_happened_to_it(app: App):
    @app.job(max_attempts=2, backoff=0)
    def explode(n: int) -> int:
        raise ZeroDivisionError(f"cannot divide {n}")

    job = explode.push_sync(7)
    work(app)
    with pytest.raises(JobFailed) as caught:
        job.result_sync()
    error = caught.value
    assert (error.job, error.state, error.reason) == (job.id, State.FAILED, "max_attempts_exceeded")
    assert (error.error, error.error_class, error.attempts) == ("cannot divide 7", "ZeroDivisionError", 2)
    assert "in explode" in error.stack
    assert str(error) == (
        f"job {job.id} (explode) has failed after 2 attempts (max_attempts_exceeded):"
        " ZeroDivisionError: cannot divide 7"
    )


def test_a_failed_job_can_be_sent_back_to_work(app: App):
    answers = iter([ValueError("not yet"), None])

    @app.job(max_attempts=1)
    def once() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "done"

    job = once.push_sync()
    with pytest.raises(NotFound, match="only a failed job can be retried"):
        job.retry_sync()
    work(app)
    assert job.status_sync() is State.FAILED
    job.retry_sync()
    work(app)
    assert job.result_sync() == "done"


def test_a_cancelled_job_has_no_result(app: App):
    @app.job
    def one() -> int:
        return 1

    job = one.push_sync()
    assert job.cancel_sync() is State.CANCELLED
    with pytest.raises(JobFailed, match="was cancelled") as caught:
        job.result_sync()
    assert caught.value.state is State.CANCELLED
    with pytest.raises(WrongState):
        job.cancel_sync()


def test_waiting_for_a_result_has_an_end(app: App):
    @app.job
    def one() -> int:
        return 1

    job = one.push_sync()
    with pytest.raises(ResultTimeout, match=f"job {job.id} is still waiting after '10ms'"):
        job.result_sync(timeout="10ms")
    with pytest.raises(TimeoutError):
        asyncio.run(job.result(0))


def test_a_result_that_cannot_be_written_is_named(app: App):
    @app.job(max_attempts=1)
    def one() -> Any:
        return {"a": [Opaque()]}

    job = one.push_sync()
    work(app)
    with pytest.raises(JobFailed, match=r"result\['a'\]\[0\]: a value of type `Opaque` cannot be encoded"):
        job.result_sync()


def test_a_result_that_does_not_fit_its_annotation_is_named(app: App):
    @app.job
    def one() -> list[int]:
        return ["x"]  # type: ignore[list-item]

    job = one.push_sync()
    work(app)
    with pytest.raises(BadResult, match=r"one: result\[0\]: expected `int`, got `str`"):
        job.result_sync()


# --- handles -----------------------------------------------------------------------------------------


def test_a_handle_by_id_reads_the_result_by_the_job_s_name(app: App):
    @app.job(aliases=["old"])
    def order() -> Order:
        return Order(UID, Decimal(1))

    job = order.push_sync()
    work(app)
    assert app.handle(job.id).result_sync() == Order(UID, Decimal(1))
    assert order.handle(job.id).result_sync() == Order(UID, Decimal(1))
    assert app.handle(job.id) == job
    assert {app.handle(job.id), job} == {job}
    with pytest.raises(NotFound):
        app.handle(1 << 40).status_sync()


def test_a_job_that_no_function_made_has_a_result_of_any_type(app: App):
    pushed = app.client.push("raw", b"x")
    (job,) = app.client.pull("raw")
    app.client.ack(job.id, job.token, b"\x93\x01\x02\x03", codec="msgpack")
    assert app.handle(pushed.id).result_sync() == [1, 2, 3]


def test_progress_and_logs_are_read_from_the_queue(app: App):
    @app.job(queue="q")
    def one(): ...

    handle = one.push_sync()
    (job,) = app.client.pull("q")
    app.client.set_progress(job.id, 40, "nearly", job.token)
    app.client.append_log(job.id, "hello", token=job.token)
    assert (handle.progress_sync().percent, handle.progress_sync().message) == (40, "nearly")
    assert [line.message for line in handle.logs_sync()] == ["hello"]

    async def main() -> None:
        assert (await handle.progress()).percent == 40
        assert [line.message for line in await handle.logs()] == ["hello"]

    asyncio.run(main())


def test_events_are_told_from_the_push_to_the_end(app: App):
    @app.job(queue="q")
    def one() -> int:
        return 1

    handle = one.push_sync()
    other = one.push_sync()
    (job,) = app.client.pull("q")
    events = handle.events_sync()
    assert [next(events).kind, next(events).kind] == [EventKind.PUSHED, EventKind.STARTED]
    app.client.set_progress(job.id, 40, token=job.token)
    app.client.ack(job.id, job.token)
    work(app)
    assert [event.kind for event in events] == [EventKind.PROGRESS, EventKind.COMPLETED]
    assert [event.job for event in other.events_sync()] == [other.id] * 3


def test_a_stream_brings_partial_results_as_they_come(app: App):
    @app.job(queue="q")
    async def one() -> int:
        return 1

    async def main() -> list[Any]:
        handle = await one.push()
        (job,) = await app.aclient.pull("q")
        await app.aclient.append_partial(job.id, b"\x01", token=job.token, codec="msgpack")
        stream = handle.stream()
        got = [await anext(stream)]
        await app.aclient.append_partial(job.id, b"raw", token=job.token)
        got.append(await anext(stream))
        await app.aclient.ack(job.id, job.token)
        return [*got, *[value async for value in stream]]

    assert asyncio.run(main()) == [1, b"raw"]


def test_a_stream_of_a_job_that_failed_says_so_at_the_end(app: App):
    @app.job(queue="q", max_attempts=1)
    def one(): ...

    handle = one.push_sync()
    (job,) = app.client.pull("q")
    app.client.append_partial(job.id, b"\x01", token=job.token, codec="msgpack")
    app.client.fail(job.id, job.token, "boom")
    stream = handle.stream_sync()
    assert next(stream) == 1
    with pytest.raises(JobFailed, match="boom"):
        next(stream)


# --- the app and its queue ---------------------------------------------------------------------------


def test_declaring_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STOKER_URL", raising=False)
    app = App()

    @app.job
    def one(): ...

    app.handlers()
    assert list(tmp_path.iterdir()) == []
    one.push_sync()
    assert [entry.name for entry in tmp_path.iterdir()] == ["stoker.db"]
    app.close()
    app.close()


def test_an_app_can_be_used_again_after_it_was_closed(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.job
    def one() -> int:
        return 1

    job = one.push_sync()
    app.close()
    assert job.status_sync() is State.WAITING
    work(app)
    asyncio.run(app.aclose())
    assert job.result_sync() == 1
    app.close()


def test_one_app_serves_several_event_loops_and_threads(app: App):
    @app.job
    async def one(n: int) -> int:
        return n

    def in_a_loop(n: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(one.push(n * 10 + each) for each in range(10)))

        asyncio.run(main())

    threads = [threading.Thread(target=in_a_loop, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4, 6):
        in_a_loop(n)
    page = app.client.browse(limit=100)
    assert sorted(msgspec.msgpack.decode(job.payload)["n"] for job in page.jobs) == list(range(60))


def test_tenants_are_apart():
    with App("memory://stoker-tenants", tenant="a") as one, App("memory://stoker-tenants", tenant="b") as two:
        job = one.job(lambda: None).push_sync()
        assert one.client.get_counts().waiting == 1
        with pytest.raises(NotFound):
            two.handle(job.id).status_sync()


def test_an_app_can_be_lent_a_broker(app: App):
    with stoker.connect("memory://") as client:
        app.use(client.broker)
        app.job(name="one")(lambda: None).push_sync()
        app.use(None)
        assert client.get_counts().waiting == 1  # it is still open
        assert app.client.get_counts().waiting == 0


def test_handles_can_be_shown(app: App):
    @app.job(queue="mail")
    def welcome(user_id: int, *, loud: bool = False): ...

    job: Job[Any] = welcome.push_sync(7)
    assert repr(job) == f"<Job {job.id} welcome>"
    assert repr(app.handle(job.id)) == f"<Job {job.id}>"
    assert repr(welcome) == "<PlainJobType welcome in mail>"
    assert repr(welcome.s(7, loud=True)) == "welcome.s(7, loud=True)"
    assert repr(app) == "<App of 1 jobs>"
    assert repr(welcome.push_batch_sync([1, 2])) == "<JobBatch of 2 welcome>"


def test_a_step_is_a_call_that_was_not_made(app: App):
    @app.job
    def add(a: int, b: int = 1) -> int:
        return a + b

    step = add.options(priority=3).s(4, b=5)
    payload, options = step.options(delay="1s").written()
    assert msgspec.msgpack.decode(payload) == {"a": 4, "b": 5}
    assert (options.priority, options.delay_ms) == (3, 1_000)
    with pytest.raises(TypeError, match="add: too many positional arguments"):
        add.s(1, 2, 3)  # type: ignore[call-arg]
    job = step.push_sync()
    work(app)
    assert job.result_sync() == 9
