"""Dependencies are made for a job or for the worker, and cleaned up."""

from typing import Annotated

import pytest

from stoker.model.states import State
from stoker.testing import World
from stoker.worker.context import Context
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Depends
from stoker.worker.injection import plan_of
from stoker.worker.worker import Worker
from tests.worker.running import handler, push

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


def plain_value():
    return "plain"


async def async_value():
    return "async"


def test_every_kind_of_provider_serves_every_kind_of_handler(world: World):
    steps: list[object] = []

    def generated():
        steps.append("generator opened")
        yield "generator"
        steps.append("generator closed")

    async def async_generated():
        steps.append("async generator opened")
        yield "async generator"
        steps.append("async generator closed")

    providers = {"a": plain_value, "b": async_value, "c": generated, "d": async_generated}
    dependencies = {name: Depends(provider) for name, provider in providers.items()}

    def run(*, a, b, c, d):
        steps.append((a, b, c, d))

    async def run_async(*, a, b, c, d):
        steps.append((a, b, c, d))

    for function in (run, run_async):
        steps.clear()
        push(world.client, "run")
        Worker(world.client, [handler(function, name="run", dependencies=dependencies)]).run_until_idle()
        assert steps == [
            "generator opened",
            "async generator opened",
            ("plain", "async", "generator", "async generator"),
            "async generator closed",
            "generator closed",
        ]
    assert world.client.get_counts().completed == 2


@kinds
def test_a_dependency_sees_the_failure_and_cannot_hide_it(world: World, kind: str):
    seen = []

    def session():
        try:
            yield 1
        except ValueError as error:
            seen.append(str(error))  # and swallows it

    def run(*, db):
        raise ValueError("broken")

    async def run_async(*, db):
        raise ValueError("broken")

    job = push(world.client, "run", max_attempts=1)
    function = run if kind == "thread" else run_async
    Worker(world.client, [handler(function, name="run", dependencies={"db": Depends(session)})]).run_until_idle()
    assert seen == ["broken"]
    assert world.client.get_job(job).error == "broken"


@kinds
def test_a_clean_up_that_fails_fails_the_job(world: World, kind: str):
    def session():
        yield 1
        raise OSError("commit failed")

    async def run_async(*, db):
        pass

    def run(*, db):
        pass

    job = push(world.client, "run", max_attempts=1)
    function = run if kind == "thread" else run_async
    Worker(world.client, [handler(function, name="run", dependencies={"db": Depends(session)})]).run_until_idle()
    assert (world.client.get_state(job), world.client.get_job(job).error) == (State.FAILED, "commit failed")


@kinds
def test_dependencies_have_dependencies_and_each_is_made_once_for_a_job(world: World, kind: str):
    made = []

    def settings():
        made.append("settings")
        return {"url": "x"}

    def database(settings: Annotated[dict[str, str], Depends(settings)], ctx: Context):
        return f"{settings['url']}/{ctx.id}"

    def run(*, db, settings):
        made.append(db)

    async def run_async(*, db, settings):
        made.append(db)

    dependencies = {"db": Depends(database), "settings": Depends(settings)}
    job = push(world.client, "run")
    function = run if kind == "thread" else run_async
    Worker(world.client, [handler(function, name="run", dependencies=dependencies)]).run_until_idle()
    assert made == ["settings", f"x/{job}"]


@kinds
def test_what_lives_as_long_as_the_worker_is_made_once_and_closed_at_its_end(world: World, kind: str):
    steps = []

    async def pool():
        steps.append("open")
        yield "pool"
        steps.append("close")

    def client(pool=Depends(pool, scope="worker")):  # noqa: B008  # that is how it is written
        steps.append("client")
        yield pool
        steps.append("client closed")

    def run(*, db):
        steps.append(db)

    async def run_async(*, db):
        steps.append(db)

    for _ in range(2):
        push(world.client, "run")
    function = run if kind == "thread" else run_async
    dependencies = {"db": Depends(client, scope="worker")}
    Worker(world.client, [handler(function, name="run", dependencies=dependencies)], concurrency=1).run_until_idle()
    assert steps == ["open", "client", "pool", "pool", "client closed", "close"]


def test_dependencies_in_a_circle_are_refused():
    def a(b=None):
        pass

    def b(a=Depends(a)):  # noqa: B008
        pass

    a.__defaults__ = (Depends(b),)
    with pytest.raises(BadHandler, match="in a circle"):
        plan_of(Depends(a))


def test_what_outlives_a_job_cannot_depend_on_one():
    def of_job():
        return 1

    def of_worker(value=Depends(of_job)):  # noqa: B008
        return value

    with pytest.raises(BadHandler, match="has the scope 'worker'"):
        plan_of(Depends(of_worker, scope="worker"))


def test_a_parameter_that_nobody_can_give_is_refused():
    def needs(what):
        return what

    with pytest.raises(BadHandler, match="'what'"):
        plan_of(Depends(needs))
