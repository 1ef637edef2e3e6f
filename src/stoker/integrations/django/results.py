"""Converts a job into Django's task result."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from stoker.integrations.django.payloads import decode_arguments
from stoker.integrations.django.tasks_api import Task, TaskError, TaskResult, TaskResultStatus
from stoker.model.event_table import FAILS_DELIVERY
from stoker.model.events import Event
from stoker.model.replies import JobView
from stoker.model.states import State

STATUS = {
    State.WAITING: TaskResultStatus.READY,
    State.DELAYED: TaskResultStatus.READY,
    State.BLOCKED: TaskResultStatus.READY,
    State.ACTIVE: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
    State.EXPIRED: TaskResultStatus.FAILED,
}


def time_of(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def result_of(task: Task, job: JobView, alias: str, events: Iterable[Event] = ()) -> TaskResult:
    """`events` are the job's, for the classes of its errors."""
    args, kwargs = decode_arguments(job.payload, job.options.codec)
    starts = [attempt.started_at for attempt in job.history if attempt.started_at]
    workers = [attempt.worker for attempt in job.history]
    if job.attempts > len(workers):  # the attempt that runs, or that succeeded
        starts.append(job.started_at)
        workers.append(job.worker)
    result = TaskResult(
        task=task,
        id=str(job.id),
        status=STATUS[job.state],
        enqueued_at=time_of(job.pushed_at),
        started_at=time_of(min(starts, default=0)),
        last_attempted_at=time_of(max(starts, default=0)),
        finished_at=time_of(job.finished_at),
        args=list(args),
        kwargs=dict(kwargs),
        backend=alias,
        errors=errors_of(job, events),
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", value_of(job))
    return result


def value_of(job: JobView) -> Any:
    if job.result is None:
        return None
    return msgspec.json.decode(job.result) if job.result_codec == "json" else msgspec.msgpack.decode(job.result)


def errors_of(job: JobView, events: Iterable[Event]) -> list[TaskError]:
    """One for each failed delivery; the last one has its traceback."""
    told = [event for event in events if event.kind in FAILS_DELIVERY]
    found = [
        TaskError(exception_class_path=path_of(one.error_class), traceback=one.error or one.reason) for one in told
    ]
    if found and job.stack:
        found[-1] = TaskError(exception_class_path=found[-1].exception_class_path, traceback=job.stack)
    return found


def path_of(error_class: str) -> str:
    """The import path of the class. A failure without an exception (a lost worker, a timeout) becomes a
    RuntimeError.
    """
    if not error_class:
        return "builtins.RuntimeError"
    return error_class if "." in error_class else f"builtins.{error_class}"
