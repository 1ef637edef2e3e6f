"""Schedules that are declared in code, and how they reach the queue."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from stoker import App
from stoker.app.errors import BadSchedule
from stoker.app.schedules import Synced
from stoker.model.errors import InvalidRequest
from stoker.model.schedules import Schedule
from tests.client.serving import TIMEOUT_S, ServerThread, on_port
from tests.ports import kept_port


def rules(app: App) -> dict[str, Schedule]:
    return {view.name: view.schedule for view in app.client.list_schedules().schedules}


def test_a_schedule_is_put_where_its_job_goes(app: App):
    @app.schedule(
        "0 8 * * MON-FRI", zone="Europe/Vienna", overlap="skip", grace="5m", jitter=30, skip_if_no_worker=True
    )
    @app.job(queue="mail", max_attempts=8)
    def report(kind: str = "daily") -> None: ...

    assert app.sync_schedules() == Synced(created=["report"])
    view = app.client.get_schedule("mail", "report")
    rule = view.schedule
    assert (rule.cron, rule.zone, rule.overlap, rule.grace_ms, rule.jitter_ms) == (
        "0 8 * * MON-FRI", "Europe/Vienna", "skip", 300_000, 30_000,
    )  # fmt: skip
    assert rule.skip_if_no_worker
    assert (rule.options.name, rule.options.codec, rule.options.max_attempts) == ("report", "msgpack", 8)
    assert msgspec.msgpack.decode(rule.payload) == {}


def test_a_job_of_a_schedule_runs_with_its_arguments(app: App):
    @app.job
    def brew(what: str, cups: int = 1) -> str:
        return f"{cups} {what}"

    step = brew.options(priority=3).s("tea", cups=2)
    assert app.schedule(every="5m", name="tea")(step) is step
    app.sync_schedules()
    assert rules(app)["tea"].every_ms == 300_000
    pushed = app.client.run_schedule("default", "tea")
    app.worker(registered=False).run_until_idle()
    job = brew.handle(pushed.id)
    assert job.result_sync(5) == "2 tea"
    assert job.view_sync().options.priority == 3


def test_what_is_as_it_should_be_is_left_alone(app: App):
    @app.schedule(every="1h", start=datetime(2030, 1, 1, tzinfo=UTC), runs_max=3)
    @app.job
    def work() -> None: ...

    assert app.sync_schedules() == Synced(created=["work"])
    before = app.client.get_schedule("default", "work")
    assert app.sync_schedules() == Synced(kept=["work"])
    assert app.client.get_schedule("default", "work") == before


def declared(app: App, **jobs: str) -> None:
    for name, cron in jobs.items():
        app.schedule(cron)(app.job(name=name)(lambda: None))


def test_an_app_with_a_name_deletes_what_is_gone_from_its_code():
    url = "memory://stoker-app-schedules"
    with (
        App(url, name="shop") as old,
        App(url, name="shop") as new,
        App(url, name="other") as other,
        App(url) as nameless,
    ):
        declared(old, one="0 1 * * *", two="0 2 * * *")
        declared(new, one="0 3 * * *", three="0 3 * * *")
        declared(other, four="0 4 * * *")
        declared(nameless, five="0 5 * * *")
        for app in (old, other, nameless):
            app.sync_schedules()
        assert new.sync_schedules() == Synced(created=["three"], changed=["one"], deleted=["two"])
        assert sorted(rules(new)) == ["five", "four", "one", "three"]
        assert rules(new)["one"].options.tags == ("app:shop",)
        assert nameless.sync_schedules() == Synced(kept=["five"])


def test_a_worker_tells_the_queue_before_it_starts(app: App):
    declared(app, one="0 1 * * *")
    app.worker(schedules=False).run_until_idle()
    assert not rules(app)
    app.worker().run_until_idle()
    assert list(rules(app)) == ["one"]


def test_a_worker_says_at_once_what_is_wrong_with_a_schedule(app: App):
    @app.schedule("0 1 * * *")
    @app.job
    def work(needed: int) -> None: ...

    with pytest.raises(BadSchedule, match=r"schedule work: .*needed"):
        app.worker()


def test_a_schedule_that_the_queue_refuses_ends_the_worker(app: App):
    declared(app, one="61 1 * * *")
    with pytest.raises(InvalidRequest, match="cron"):
        asyncio.run(app.worker().serve())


def test_a_worker_waits_for_a_server_that_is_not_there_yet():
    """It says so, and tells the queue of the schedules before it takes a job."""

    async def main(port: int) -> list[str]:
        url = f"tcp://127.0.0.1:{port}"
        with App(f"{url}?retry_s=0") as app, told("stoker.worker") as lines:
            declared(app, one="0 1 * * *")
            worker = app.worker(registered=False)
            working = asyncio.create_task(worker.serve())
            async with asyncio.timeout(TIMEOUT_S):
                said = await lines.get()
                assert not worker.report().is_ready
                with ServerThread(on_port(port)), App(url) as other:
                    await app.job_named("one").push()
                    await app.aclient.wait_job((await app.aclient.browse()).jobs[0].id)
                    names = list(rules(other))
                    worker.stop()
                    assert await working
            assert said.startswith("sending the schedules to the queue failed, trying again in 0.1 s: ")
            return names

    with kept_port() as port:
        assert asyncio.run(main(port)) == ["one"]


@contextmanager
def told(logger: str) -> Iterator["asyncio.Queue[str]"]:
    """What is logged meanwhile, line by line."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    handler = logging.Handler()
    handler.emit = lambda record: lines.put_nowait(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger(logger).removeHandler(handler)


def test_a_worker_that_waits_for_a_server_can_be_stopped():
    async def main(port: int) -> bool:
        with App(f"tcp://127.0.0.1:{port}") as app:
            declared(app, one="0 1 * * *")
            worker = app.worker(registered=False)
            working = asyncio.create_task(worker.serve())
            await asyncio.sleep(0)
            worker.stop()
            async with asyncio.timeout(TIMEOUT_S):
                return await working

    with kept_port() as port:
        assert asyncio.run(main(port))


def test_a_template_is_filled_in_by_the_queue(app: App):
    @app.job
    def export(day: datetime) -> str:
        return day.isoformat()

    app.schedule("0 0 * * *", template=True)(export.s("{slot}"))  # type: ignore[arg-type]
    app.sync_schedules()
    pushed = app.client.run_schedule("default", "export")
    app.worker(registered=False).run_until_idle()
    assert datetime.fromisoformat(export.handle(pushed.id).result_sync(5)).tzinfo is not None


@pytest.mark.parametrize(
    ("cron", "rule", "told"),
    [
        (None, {}, "expected a cron expression, every= or at=, and only one of them"),
        ("0 * * * *", {"every": "5m"}, ".* and only one of them"),
        (None, {"every": "often"}, "every: expected text like"),
        (None, {"at": datetime(2030, 1, 1)}, "at: .* has no time zone"),
        ("0 * * * *", {"tz": "UTC"}, "unknown tz; a schedule takes every, at, zone"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_when_it_is_declared(app: App, cron: Any, rule: Any, told: str):
    work = app.job(name="work")(lambda: None)
    with pytest.raises(BadSchedule, match=f"a schedule of work.s\\(\\): {told}"):
        app.schedule(cron, **rule)(work)


def test_a_name_is_given_once(app: App):
    @app.schedule("0 1 * * *")
    @app.job
    def work() -> None: ...

    with pytest.raises(BadSchedule, match=r"there is already a schedule 'work', of work.s\(\): rename one of them"):
        app.schedule("0 2 * * *")(work)
    app.schedule("0 2 * * *", name="again")(work)
    assert sorted(app.sync_schedules().created) == ["again", "work"]


def test_only_jobs_can_be_scheduled(app: App):
    with pytest.raises(BadSchedule, match=r"put @app.schedule above @app.job"):
        app.schedule("0 1 * * *")(lambda: None)  # type: ignore[type-var]


def test_nothing_is_told_if_one_schedule_is_wrong(app: App):
    declared(app, one="0 1 * * *")

    @app.schedule("0 1 * * *")
    @app.job
    def greet(name: str) -> None: ...

    with pytest.raises(BadSchedule, match=r"schedule greet: .*missing a required argument: 'name': schedule a step"):
        app.sync_schedules()
    assert not rules(app)


def test_the_queue_says_what_is_wrong_with_a_cron_expression(app: App):
    declared(app, one="61 * * * *")
    with pytest.raises(InvalidRequest, match="61"):
        app.sync_schedules()
