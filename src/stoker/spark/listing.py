"""Tables of the current state: jobs, dead letters, results, schedules and workers, page by page through the client.

Each page shows its own moment, so a table is not a snapshot of all queues; but no job comes twice, because ids only
ascend from page to page. This module knows the client and Arrow, but not Spark.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa

from stoker.client.sync import Client
from stoker.model.replies import JobView
from stoker.model.schedules import ScheduleView
from stoker.model.states import State
from stoker.model.workers import WorkerView
from stoker.records.codec import queue_check
from stoker.spark.options import ReadOptions
from stoker.spark.payloads import needed
from stoker.spark.tables import JOB, MOMENT, Column, arrow_schema

PAGE_JOBS = 1_000
TASK_JOBS = 20_000
"""Queues with fewer jobs share a task."""

Whole = ("schedules", "workers")
"""Tables that one task reads: they are small, and not split by queue."""


def shares(client: Client, options: ReadOptions) -> list[tuple[str, ...]]:
    """The queues that each task reads."""
    if options.table in Whole:
        return [options.queues or ()]
    there = client.list_queues()
    chosen = queue_check(options.queues, options.prefixes)
    pattern = None if options.pattern is None else re.compile(options.pattern)
    wanted = sorted(
        queue
        for queue in there
        if (chosen is None or chosen(queue)) and (pattern is None or pattern.fullmatch(queue) is not None)
    )
    return shared({queue: size_of(client, queue, options) for queue in wanted})


def shared(sizes: dict[str, int], most: int = TASK_JOBS) -> list[tuple[str, ...]]:
    """Group queues until they are worth a task; empty queues are left out."""
    found: list[tuple[str, ...]] = []
    together: list[str] = []
    jobs = 0
    for queue, size in sizes.items():
        if not size:
            continue
        together.append(queue)
        jobs += size
        if jobs >= most:
            found.append(tuple(together))
            together, jobs = [], 0
    return [*found, tuple(together)] if together else found


def size_of(client: Client, queue: str, options: ReadOptions) -> int:
    if options.table == "dead_letters":
        return client.get_dead_stats(queue).total
    counts = client.get_counts(queue)
    states: tuple[State, ...] = tuple(State) if options.states is None else options.states
    if options.table == "results":
        states = (State.COMPLETED,)
    return sum(getattr(counts, state) for state in states)


def listed(
    client: Client, options: ReadOptions, queues: tuple[str, ...], tenant: str | None = "default"
) -> Iterator[pa.RecordBatch]:
    """The rows of a table, in batches."""
    columns = options.columns if options.payload_schema is None else needed(options.columns, JOB)
    views = _VIEWS[options.table](client, options, queues)
    while views_now := list(islice(views, options.batch_rows)):
        yield batch_of(views_now, columns, tenant, _CELLS[options.table])


def batch_of(
    views: list[Any], columns: tuple[Column, ...], tenant: str | None, cells: "dict[str, Cell]"
) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        if column.name == "tenant":
            values: list[Any] = [tenant] * len(views)
        else:
            cell = cells[column.name]
            values = [cell(view) for view in views]
        if column.type == MOMENT:
            values = [value * 1000 if value else None for value in values]
        elif column.type == pa.string():
            values = [value or None for value in values]
        arrays.append(pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


# --- pages ------------------------------------------------------------------------------------------


def jobs(client: Client, options: ReadOptions, queues: tuple[str, ...]) -> Iterator[JobView]:
    """One walk per queue: with one walk per state, a job that moves meanwhile could come twice. So the server filters
    only a single state.
    """
    states = options.states
    only = states[0] if states is not None and len(states) == 1 else None
    for queue in queues:
        for job in browsed(client, queue, only):
            if states is None or job.state in states:
                yield job


def results(client: Client, options: ReadOptions, queues: tuple[str, ...]) -> Iterator[JobView]:
    for queue in queues:
        for job in browsed(client, queue, State.COMPLETED):
            if job.result is not None:
                yield job


def browsed(client: Client, queue: str, state: State | None) -> Iterator[JobView]:
    after: int | None = None
    while True:
        page = client.browse(queue, state, after=after, limit=PAGE_JOBS, ascending=True)
        yield from page.jobs
        after = page.next_after
        if after is None:
            return


def dead_letters(client: Client, options: ReadOptions, queues: tuple[str, ...]) -> Iterator[JobView]:
    reasons = options.reasons
    only = reasons[0] if reasons is not None and len(reasons) == 1 else None
    for queue in queues:
        for job in letters(client, queue, only):
            if reasons is None or job.reason in reasons:
                yield job


def letters(client: Client, queue: str, reason: str | None = None) -> Iterator[JobView]:
    """Dead letters of a queue. One that dies again during the read would come twice, and is left out the second
    time.
    """
    seen: set[int] = set()
    after: int | None = None
    while True:
        page = client.list_dead(queue, reason=reason, after=after, limit=PAGE_JOBS)
        for job in page.jobs:
            if job.id not in seen:
                seen.add(job.id)
                yield job
        after = page.next_after
        if after is None:
            return


def schedules(client: Client, options: ReadOptions, queues: tuple[str, ...]) -> Iterator[ScheduleView]:
    for queue in queues or (None,):
        after: str | None = None
        while True:
            page = client.list_schedules(queue, after=after, limit=PAGE_JOBS)
            yield from page.schedules
            after = page.next_after
            if after is None:
                break


def workers(client: Client, options: ReadOptions, queues: tuple[str, ...]) -> Iterator[WorkerView]:
    yield from client.list_workers()


# --- cells ------------------------------------------------------------------------------------------

Cell = Callable[[Any], Any]


def _same(*names: str, of: str = "") -> dict[str, Cell]:
    """Columns with the name of a field of the view, or of something in it."""
    return {name: attrgetter(of + name) for name in names}


_OF_JOB: dict[str, Cell] = {
    "job": lambda view: view.id,
    "tags": lambda view: list(view.options.tags),
    "payload_bytes": lambda view: len(view.payload),
    **_same(
        "queue", "name", "state", "payload", "attempts", "crashes", "pushed_at", "due", "started_at", "lease_until"
    ),
    **_same("finished_at", "worker", "reason", "error"),
    **_same("priority", "max_attempts", "codec", "group_id", "unique_key", "custom_id", of="options."),
    **_same("trace", "parent_id", "workflow", "schedule", of="options."),
    "percent": lambda view: view.progress.percent,
    "message": lambda view: view.progress.message,
}

_CELLS: dict[str, dict[str, Cell]] = {
    "jobs": _OF_JOB,
    "dead_letters": _OF_JOB
    | {
        "entered_at": lambda view: view.dead.entered_at if view.dead else 0,
        "expires_at": lambda view: view.dead.expires_at if view.dead else 0,
        "retry_count": lambda view: view.dead.retry_count if view.dead else 0,
    },
    "results": _OF_JOB
    | {
        "result": lambda view: view.result,
        "result_bytes": lambda view: len(view.result),
        "codec": lambda view: view.result_codec,
    },
    "schedules": {
        "schedule": lambda view: view.name,
        "next_run": lambda view: view.next_runs[0] if view.next_runs else 0,
        "name": lambda view: view.schedule.options.name,
        **_same("queue", "state", "runs", "created_at", "changed_at"),
        **_same("cron", "at", "zone", "overlap", "misfire", of="schedule."),
        "every_ms": lambda view: view.schedule.every_ms or None,
    },
    "workers": {
        "worker": lambda view: view.id,
        "queues": lambda view: list(view.queues),
        **_same("host", "pid", "slots", "running", "done", "failed", "started_at", "polled_at", "seen_at"),
        **_same("stopping", "version"),
    },
}

_VIEWS: dict[str, Callable[[Client, ReadOptions, tuple[str, ...]], Iterator[Any]]] = {
    "jobs": jobs,
    "dead_letters": dead_letters,
    "results": results,
    "schedules": schedules,
    "workers": workers,
}
