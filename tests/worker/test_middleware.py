"""Middleware happens around handlers, whatever kind both are of."""

from typing import Any

import pytest

from stoker.model.states import State
from stoker.testing import World
from stoker.worker.handler import Handler, Middleware
from stoker.worker.worker import Worker
from tests.worker.running import handler, push

kinds = pytest.mark.parametrize("kind", ["thread", "async"])


def work(kind: str, function, *middleware: Middleware) -> Handler:
    async def run(*args):
        return function(*args)

    return handler(run if kind == "async" else function, name="run", middleware=middleware)


class Plain(Middleware):
    def __init__(self, name: str, steps: list[Any]) -> None:
        self.name, self.steps = name, steps

    def before(self, ctx):
        self.steps.append(f"{self.name} before {ctx.name}")

    def after(self, ctx, result):
        self.steps.append(f"{self.name} after {result}")

    def failed(self, ctx, error):
        self.steps.append(f"{self.name} failed {error}")


class Async(Middleware):
    def __init__(self, name: str, steps: list[Any]) -> None:
        self.name, self.steps = name, steps

    async def before(self, ctx):
        self.steps.append(f"{self.name} before {ctx.name}")

    async def after(self, ctx, result):
        self.steps.append(f"{self.name} after {result}")

    async def failed(self, ctx, error):
        self.steps.append(f"{self.name} failed {error}")


@kinds
def test_the_first_one_is_the_outermost(world: World, kind: str):
    steps: list[str] = []
    push(world.client, "run")
    Worker(world.client, [work(kind, lambda: 5, Plain("a", steps), Async("b", steps))]).run_until_idle()
    assert steps == ["a before run", "b before run", "b after 5", "a after 5"]


@kinds
def test_all_of_them_learn_of_a_failure(world: World, kind: str):
    steps: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    job = push(world.client, "run", max_attempts=1)
    Worker(world.client, [work(kind, fail, Plain("a", steps), Async("b", steps))]).run_until_idle()
    assert steps == ["a before run", "b before run", "b failed no", "a failed no"]
    assert world.client.get_state(job) is State.FAILED


class Around(Middleware):
    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def around(self, ctx):
        self.steps.append("in")
        try:
            result = yield
            self.steps.append(result)
        except ValueError as error:
            self.steps.append(str(error))
        self.steps.append("out")


class AsyncAround(Around):
    async def around(self, ctx):
        self.steps.append("in")
        try:
            result = yield
            self.steps.append(result)
        except ValueError as error:
            self.steps.append(str(error))
        self.steps.append("out")


arounds = pytest.mark.parametrize("around", [Around, AsyncAround])


@kinds
@arounds
def test_around_sees_the_result(world: World, kind: str, around: type[Around]):
    steps: list[object] = []
    job = push(world.client, "run")
    Worker(world.client, [work(kind, lambda: 5, around(steps))]).run_until_idle()
    assert steps == ["in", 5, "out"]
    assert world.client.get_job(job).result == b"5"


@kinds
@arounds
def test_what_around_catches_has_not_happened(world: World, kind: str, around: type[Around]):
    steps: list[object] = []

    def fail() -> None:
        raise ValueError("no")

    job = push(world.client, "run")
    Worker(world.client, [work(kind, fail, around(steps))]).run_until_idle()
    assert steps == ["in", "no", "out"]
    assert world.client.get_state(job) is State.COMPLETED


@kinds
def test_what_before_raises_ends_the_delivery(world: World, kind: str):
    class Refusing(Middleware):
        def before(self, ctx):
            raise PermissionError("not today")

    job = push(world.client, "run", max_attempts=1)
    Worker(world.client, [work(kind, lambda: 5, Refusing())]).run_until_idle()
    assert world.client.get_job(job).error == "not today"
