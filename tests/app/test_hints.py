"""Errors that say what to write: names of other libraries, options in the wrong place, items of batches, no worker."""

import asyncio
import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import App, ResultTimeout
from stoker.app import handles
from stoker.app.errors import AppError
from stoker.model.errors import InvalidRequest
from stoker.worker.errors import BadArguments
from tests.client.serving import ServerThread

BAD = 501


@pytest.fixture(params=["sqlite", "tcp"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    if request.param == "sqlite":
        with App(f"sqlite:///{tmp_path / 'data'}") as made:
            yield made
        return
    with ServerThread() as server, App(server.url) as made:
        yield made


@pytest.fixture
def brew(app: App) -> Any:
    @app.job(queue="kitchen")
    def brew(what: str, sugar: int = 0) -> str:
        return what

    return brew


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "enqueue", "apply"])
def test_a_job_type_says_how_it_is_pushed(brew: Any, name: str):
    with pytest.raises(AttributeError, match=r"no attribute '" + name + r"': brew\..*push_sync\(\.\.\.\) pushes a job"):
        getattr(brew, name)
    assert not hasattr(brew, name)
    with pytest.raises(AttributeError, match=r"^'PlainJobType' object has no attribute 'pusj'$"):
        _ = brew.pusj


def test_options_are_not_arguments(brew: Any):
    told = (
        r"unexpected keyword argument 'delay'; delay is an option of the job: brew\.options\(delay=30, priority=1\)\."
    )
    with pytest.raises(TypeError, match=told + r"push_sync\(\.\.\.\)$"):
        brew.push_sync("tea", delay=30, priority=1)
    with pytest.raises(TypeError, match=told + r"push_sync\(\.\.\.\)$"):
        asyncio.run(brew.push("tea", delay=30, priority=1))
    with pytest.raises(TypeError, match=told + r"s\(\.\.\.\)$"):
        brew.s("tea", delay=30, priority=1)
    with pytest.raises(TypeError, match=r"^brew: got an unexpected keyword argument 'milk'$"):
        brew.push_sync("tea", milk=1)


@pytest.mark.parametrize("name", ["push", "push_sync", "delay", "apply_async"])
def test_a_chain_or_a_group_says_that_it_is_pushed_as_a_workflow(brew: Any, name: str):
    for graph in (brew.s("tea") >> brew.s("milk"), stoker.group(brew.s("tea")), brew.map()):
        with pytest.raises(AttributeError, match=r"stoker\.workflow\(.*brew.*\)\.push_sync\(\) pushes it"):
            getattr(graph, name)
    run = stoker.workflow(brew.s("tea") >> brew.s("milk")).push_sync()
    assert run.status_sync() == "running"


def test_steps_and_jobs_say_it_too(brew: Any):
    with pytest.raises(AttributeError, match=r"brew\.s\('tea'\)\.push_sync\(\) pushes it"):
        _ = brew.s("tea").delay
    job = brew.push_sync("tea")
    with pytest.raises(AttributeError, match=r"job\.result_sync\(timeout=\"30s\"\) waits for the result"):
        job.get(timeout=3)
    assert copy.copy(brew.s("tea")).push_sync().name == "brew"


@pytest.mark.parametrize("wrong", [(7,), (object(),), ("tea", 1, 2), {"sugar": 1}])
def test_an_item_of_a_batch_is_named_by_its_place(brew: Any, wrong: Any):
    items = [("tea",)] * BAD + [wrong] + [("tea",)] * 600
    for push in (lambda: brew.push_batch_sync(items), lambda: asyncio.run(brew.push_batch(items))):
        with pytest.raises((BadArguments, TypeError), match=f"^item {BAD}: brew: "):
            push()
    with pytest.raises(InvalidRequest, match=f"^item {BAD}: .* has its own options"):
        brew.push_batch_sync([brew.s("tea")] * BAD + [brew.options(delay=3).s("tea")])
    assert brew.app.client.get_counts("kitchen").waiting == 0, "nothing was pushed"


def test_an_item_of_a_group_is_named_by_its_place(brew: Any):
    calls = [brew.s("tea" if place != BAD else 7) for place in range(600)]
    with pytest.raises(BadArguments, match=f"^item {BAD} of a group: brew: what: expected `str`, got `int`"):
        stoker.workflow(stoker.group(calls))


def test_an_item_beyond_the_first_request_is_named_by_its_place(app: App):
    payloads: list[Any] = [b""] * 1_000 + [b""] * BAD + ["text"]
    with pytest.raises(InvalidRequest, match=f"^item {1_000 + BAD}: invalid payload: expected bytes, got str"):
        app.client.push_many("kitchen", payloads)


# --- no worker ---------------------------------------------------------------------------------------


def test_a_result_that_does_not_come_because_there_is_no_worker_says_so(app: App, brew: Any):
    job = brew.push_sync("tea")
    told = f"job {job.id} is still waiting after '10ms'; no worker has pulled from 'kitchen' so far: start one, stoker"
    with pytest.raises(ResultTimeout, match=told):
        job.result_sync("10ms")
    with pytest.raises(ResultTimeout, match="no worker has pulled from 'kitchen'"):
        asyncio.run(job.result("10ms"))
    run = stoker.workflow(brew.s("tea") >> brew.s("milk")).push_sync()
    with pytest.raises(ResultTimeout, match=f"workflow {run.id} is still running .* no worker has pulled from 'kitch"):
        run.result_sync("10ms")
    app.client.pause("kitchen")
    with pytest.raises(ResultTimeout, match="the queue 'kitchen' is paused: stoker queue resume kitchen"):
        job.result_sync("10ms")


def test_a_worker_that_is_only_busy_is_not_said_to_be_missing(app: App):
    begun, end = asyncio.Event(), asyncio.Event()

    @app.job(queue="kitchen")
    async def hold() -> None:
        begun.set()
        await end.wait()

    async def main() -> None:
        await app.aclient.set_concurrency("kitchen", 1)
        worker = app.worker(id="w-1")
        running = asyncio.create_task(worker.serve())
        await hold.push()
        await begun.wait()
        while not await app.aclient.list_workers():  # noqa: ASYNC110 - it is written by the worker when it has time
            await asyncio.sleep(0.01)
        job = await hold.push()
        with pytest.raises(ResultTimeout, match=r"is still waiting after '10ms'; ask again$"):
            await job.result("10ms")
        end.set()
        await job.result("60s")
        worker.stop()
        await running

    asyncio.run(main())


def test_who_waits_without_an_end_finds_a_line_in_the_log(
    app: App, brew: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(handles, "FIRST_WAIT_MS", 10)
    caplog.set_level(logging.WARNING, "stoker.app")
    job = brew.push_sync("tea")

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            app.client.cancel(job.id)  # so that the wait has an end

    log = logging.getLogger("stoker.app")
    told = Told()
    log.addHandler(told)
    try:
        with pytest.raises(AppError):
            job.result_sync()
    finally:
        log.removeHandler(told)
    (record,) = caplog.records
    assert f"job {job.id} is still waiting" in record.message
    assert "no worker has pulled from 'kitchen'" in record.message
