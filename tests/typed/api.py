"""What type checkers must know about the public API.

Every line with an `ignore` comment is a mistake that a checker must find: one that it does not find makes the comment
needless, and a needless comment is an error, too. `test_types.py` runs the checkers over this file; nobody runs it.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, assert_type

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

import stoker
from stoker import (
    App,
    Context,
    Depends,
    InboxJob,
    Inputs,
    Job,
    JobBatch,
    JobType,
    Snooze,
    Step,
    WorkflowRun,
    group,
    workflow,
)

app = App("memory://", defaults={"timeout": "1m"}, queues={"mail": {"max_attempts": 3}})


class Database:
    pass


async def open_database() -> AsyncIterator[Database]:
    yield Database()


@app.job(queue="mail", max_attempts=8, timeout="2m", unique_key="user:{user_id}")
async def welcome(user_id: int, loud: bool = False) -> str:
    return f"{user_id} {loud}"


@app.schedule("0 8 * * *", zone="Europe/Vienna", overlap="skip")
@app.job
def double(n: int) -> int:
    return 2 * n


@app.job()
async def with_context(ctx: Context, user_id: int) -> float:
    ctx.progress(50)
    return user_id / 2


@app.job
def summed(numbers: list[int] = Inputs()) -> int:
    return sum(numbers)


@app.job(kind="process", delay=timedelta(minutes=5))
def with_database(name: str, *, db: Database = Depends(open_database, scope="worker")) -> list[str]:
    raise Snooze("30s")


@app.job
def untyped(anything, *more):
    return anything, more


@app.job(batch=64, max_wait="20ms")
def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0] for _ in texts]


@app.job(batch=64)
async def partly(ids: list[int]) -> list[str | Exception]:
    return [ValueError(each) for each in ids]


async def pushing_in(
    connection: psycopg.Connection,
    async_connection: psycopg.AsyncConnection,
    session: Session,
    core: sqlalchemy.Connection,
    async_session: AsyncSession,
    async_core: AsyncConnection,
) -> None:
    job = await welcome.push_in(async_connection, 7, loud=True)
    assert_type(job, InboxJob[str])
    assert_type(await job.result(timeout=10), str)
    assert_type(await job.job(), Job[str])
    for one in (connection, session, core):
        assert_type(welcome.push_in_sync(one, user_id=7).result_sync("1s"), str)
    assert_type(await double.options(delay="5m").push_in(async_session, 1), InboxJob[int])
    assert_type(await with_context.push_in(async_core, user_id=7), InboxJob[float])
    await welcome.push_in(async_connection, "7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await welcome.push_in(async_connection, 7, louder=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await welcome.push_in(connection, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    welcome.push_in_sync(async_session, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    welcome.push_in_sync(7)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]


async def pushing() -> None:
    job = await welcome.push(7, loud=True)
    assert_type(job, Job[str])
    assert_type(await job.result(timeout=10), str)
    assert_type(welcome.push_sync(7), Job[str])
    assert_type(welcome.push_sync(user_id=7).result_sync("1s"), str)
    assert_type(await (await double.push(1)).result(), int)
    assert_type(await (await with_context.push(7)).result(), float)
    assert_type((await with_database.push("x")).result_sync(), list[str])
    assert_type(await welcome.push_batch([(1,), (2, True)]), JobBatch[str])
    assert_type(await (await welcome.push_batch([welcome.s(1)])).results(), list[str])
    assert_type(welcome.options(delay="5m", unique_key="user:7").push_sync(7), Job[str])
    assert_type(welcome.handle(64), Job[str])
    assert_type(app.handle(64), Job[Any])
    assert_type(double.s(7), Step[int])
    assert_type(embed.push_sync("text"), Job[list[float]])
    assert_type(partly.push_sync(7), Job[str])
    untyped.push_sync(1, "x", None)


async def flowing() -> None:
    flow = double.s(1) >> group(welcome.s(1), [welcome.s(2)]) >> summed.s()
    run = await workflow(flow, double.s(3).on_failure("continue"), name="all").push()
    assert_type(run, WorkflowRun)
    assert_type(double.s(3).named("x"), Step[int])
    _ = double.s(1) >> double  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    double.s(1).on_failure("maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def calling() -> None:
    assert_type(double(7), int)
    assert_type(await welcome(7), str)
    assert_type(await welcome.options(priority=3)(7), str)
    assert_type(double.options(priority=3)(7), int)


async def wrong_arguments() -> None:
    await welcome.push("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await welcome.push()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await welcome.push(7, quiet=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await welcome.push(7, True, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    welcome.push_sync(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    welcome.options(delay=1).push_sync("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    double.s("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    double("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with_context.push_sync("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    embed.push_sync(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    embed.push_sync(["a"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong_results() -> None:
    number: int = welcome.push_sync(7).result_sync()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    texts: list[str] = double.push_batch_sync([1]).results_sync()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(number, texts)  # noqa: T201


def wrong_schedules() -> None:
    app.schedule(every="5m", name="tea")(double.s(7))
    app.schedule(cron="0 8 * * *")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    app.schedule("0 8 * * *", overlap="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.schedule("0 8 * * *")(print)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


def wrong_options() -> None:
    welcome.options(dely="5m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    welcome.options(on_conflict="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    app.job(queue=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    app.job(kind="gpu")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    App(defaults={"timout": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def taking(job_type: JobType[[int], int], jobs: Sequence[Job[object]]) -> None:
    """A job type and a job can be handed on as what they are."""


taking(double, [double.push_sync(1), welcome.push_sync(1)])
taking(welcome, [])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(stoker.App, type[App])


async def modules_for_users(queue: stoker.Client) -> None:
    """`import stoker` brings them along, with their types."""
    assert_type(await stoker.aio.connect("memory://"), stoker.aio.AsyncClient)
    assert_type(stoker.maintenance.check("jobs.db"), list[stoker.maintenance.Finding])
    assert_type(stoker.webhooks.verify("secret", None, b""), bool)
    stoker.maintenance.backup(queue, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await stoker.aoi.connect()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def settings() -> None:
    backups = stoker.BackupSettings(url="backups", interval_s=3600, keep=24)
    kept = stoker.LocalSettings(durability="fsync", journal=stoker.JournalSettings(backups=backups))
    assert_type(stoker.connect("sqlite:///jobs.db", settings=kept), stoker.Client)
    stoker.connect("tcp://127.0.0.1", settings=stoker.RemoteSettings(timeout_s=5))
    stoker.LocalSettings(journal=backups)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
