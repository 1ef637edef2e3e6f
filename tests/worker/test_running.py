"""A worker runs handlers: arguments in, results out, by name and by queue."""

import threading

import msgspec
import pytest

from stoker.model.states import State
from stoker.testing import World
from stoker.worker.errors import BadHandler
from stoker.worker.worker import Worker
from tests.worker.running import handler, push, push_many


def test_a_plain_function_runs_in_another_thread_and_its_result_is_kept(world: World):
    threads = []

    def add(a: int, b: int) -> int:
        threads.append(threading.current_thread())
        return a + b

    job = push(world.client, "add", 2, 3)
    assert Worker(world.client, [handler(add)]).run_until_idle() == 1
    view = world.client.get_job(job)
    assert (view.state, view.result, view.result_codec) == (State.COMPLETED, b"5", "json")
    assert threads[0] is not threading.current_thread()


def test_an_async_function_runs_and_its_result_is_kept(world: World):
    async def add(a: int, b: int) -> int:
        return a + b

    job = push(world.client, "add", 2, 3)
    Worker(world.client, [handler(add)]).run_until_idle()
    assert world.client.get_job(job).result == b"5"


def test_keyword_arguments_come_by_name(world: World):
    def greet(*, name: str) -> str:
        return f"hello {name}"

    job = world.client.push("default", b'{"name": "Ada"}', name="greet", codec="json").id
    Worker(world.client, [handler(greet)]).run_until_idle()
    assert world.client.get_job(job).result == b'"hello Ada"'


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_thousands_of_jobs_each_run_once(world: World, kind: str):
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    function = note if kind == "async" else seen.append
    ids = push_many(world.client, "note", range(3_000))
    Worker(world.client, [handler(function, name="note", kind=kind)], concurrency=8).run_until_idle()
    assert sorted(seen) == list(range(3_000))
    assert world.client.get_counts().completed == len(ids)


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_each_job_of_a_run_gets_its_own_result(world: World, kind: str):
    async def double(number: int) -> int | None:
        return number * 2 if number % 3 else None

    def double_plain(number: int) -> int | None:
        return number * 2 if number % 3 else None

    function = double if kind == "async" else double_plain
    ids = push_many(world.client, "double", range(500))
    Worker(world.client, [handler(function, name="double")], concurrency=4).run_until_idle()
    results = [world.client.get_job(job).result for job in ids]
    assert results == [msgspec.json.encode(number * 2) if number % 3 else None for number in range(500)]


def test_handlers_are_found_by_alias(world: World):
    job = push(world.client, "old_name")
    Worker(world.client, [handler(lambda: 1, name="new_name", aliases=("old_name",))]).run_until_idle()
    assert world.client.get_state(job) is State.COMPLETED


def test_a_job_without_a_name_goes_to_the_only_handler_of_its_queue(world: World):
    job = world.client.push("mail", b"[]").id
    handlers = [handler(lambda: "sent", name="send", queue="mail"), handler(lambda: 0, name="other")]
    Worker(world.client, handlers).run_until_idle()
    assert world.client.get_job(job).result == b'"sent"'


def test_a_job_without_a_name_fails_where_several_handlers_could_be_meant(world: World):
    job = world.client.push("mail", b"[]").id
    handlers = [handler(lambda: 0, name=name, queue="mail") for name in ("a", "b")]
    Worker(world.client, handlers).run_until_idle()
    view = world.client.get_job(job)
    assert view.state is State.FAILED
    assert "has no name" in view.error
    assert "a, b" in view.error


def test_a_name_that_nobody_knows_goes_back_for_a_while_at_no_cost(world: World):
    job = push(world.client, "not_deployed_yet")
    Worker(world.client, [handler(lambda: 0, name="known")]).run_until_idle()
    view = world.client.get_job(job)
    assert (view.state, view.attempts) == (State.DELAYED, 0)


def test_a_name_that_nobody_knows_for_long_fails_with_the_names_that_there_are(world: World):
    job = push(world.client, "misspelled")
    Worker(world.client, [handler(lambda: 0, name="known")], unknown_for=0).run_until_idle()
    view = world.client.get_job(job)
    assert view.state is State.FAILED
    assert "'misspelled'" in view.error
    assert "known" in view.error


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_arguments_that_cannot_be_read_are_not_tried_again(world: World, kind: str):
    async def run() -> None:
        raise AssertionError("never called")

    job = world.client.push("default", b"{nonsense", name="run").id
    Worker(world.client, [handler(run, kind=kind)]).run_until_idle()
    view = world.client.get_job(job)
    assert (view.state, view.attempts) == (State.FAILED, 1)
    assert view.error.startswith("$: ")


def test_a_result_that_cannot_be_written_fails_the_job(world: World):
    job = push(world.client, "run", max_attempts=1)
    Worker(world.client, [handler(lambda: object(), name="run")]).run_until_idle()
    assert world.client.get_state(job) is State.FAILED


def test_a_result_that_is_too_large_costs_only_its_own_job(world: World):
    def big(number: int) -> str:
        return "x" * (11 * 1024 * 1024 if number == 1 else 1)

    ids = push_many(world.client, "big", range(3))
    Worker(world.client, [handler(big)], concurrency=1, prefetch=10).run_until_idle()
    states = [world.client.get_state(job) for job in ids]
    assert states == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert "limit" in world.client.get_job(ids[1]).error


def test_two_handlers_of_one_name_are_refused():
    with pytest.raises(BadHandler, match="two handlers have the name 'a'"):
        Worker("memory://", [handler(lambda: 0, name="a"), handler(lambda: 0, name="b", aliases=("a",))])


def test_a_worker_without_handlers_is_refused():
    with pytest.raises(BadHandler, match="no handlers"):
        Worker("memory://", [])


def test_whatever_becomes_ready_while_it_works_is_worked_off_too(world: World):
    def first() -> None:
        push(world.client, "second")

    done = []
    handlers = [handler(first), handler(lambda: done.append(1), name="second")]
    push(world.client, "first")
    assert Worker(world.client, handlers).run_until_idle() == 2
    assert done == [1]


def test_a_worker_may_be_run_again(world: World):
    worker = Worker(world.client, [handler(lambda: 0, name="run")])
    for _ in range(3):
        push(world.client, "run")
        assert worker.run_until_idle() == 1


def test_jobs_of_another_tenant_are_not_touched(world: World):
    push(world.client_for("acme"), "run")
    worker = Worker(world.client, [handler(lambda: 0, name="run")])
    assert worker.run_until_idle() == 0
    assert Worker(world.client, [handler(lambda: 0, name="run")], tenant="acme").run_until_idle() == 1
