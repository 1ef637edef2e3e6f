"""Makes handlers of tasks: what a worker calls for a job that Django pushed.

The task's function is wrapped in Django's signals and its handling of database connections, as for a request.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from stoker.integrations.django import payloads
from stoker.integrations.django.backend import StokerBackend
from stoker.integrations.django.results import path_of, time_of
from stoker.integrations.django.tasks_api import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)
from stoker.worker.context import Context, current_job
from stoker.worker.handler import Handler
from stoker.worker.outcomes import Outcome, class_of, stack_of


def handlers_of(backend: StokerBackend) -> list[Handler]:
    """One handler for each declared task."""
    return [handler_of(backend, task) for task in backend.tasks.get(backend.alias, {}).values()]


def handler_of(backend: StokerBackend, task: Task) -> Handler:
    is_async = iscoroutinefunction(task.func)
    return Handler(
        name=task.module_path,
        function=asynchronous(backend, task) if is_async else plain(backend, task),
        kind="async" if is_async else "thread",
        queue=task.queue_name,
        decode=payloads.decode_arguments,
        encode=payloads.encode_result,
        options=backend.options_for(task),
        origin=f"{task.func.__module__}:{task.func.__qualname__}",
    )


def plain(backend: StokerBackend, task: Task) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        result = started(backend, task, args, kwargs)
        try:
            first = (TaskContext(task_result=result),) if task.takes_context else ()
            value = task.func(*first, *args, **kwargs)
            finished(backend, result, value, None)
            return value
        except Exception as error:
            finished(backend, result, None, error)
            raise
        finally:
            close_old_connections()

    return run


def asynchronous(backend: StokerBackend, task: Task) -> Callable[..., Awaitable[Any]]:
    """Signals are sent from a thread, where Django's synchronous code may run."""
    start, finish, close = map(sync_to_async, (started, finished, close_old_connections))

    async def run(*args: Any, **kwargs: Any) -> Any:
        await close()
        result = await start(backend, task, args, kwargs)
        try:
            first = (TaskContext(task_result=result),) if task.takes_context else ()
            value = await task.func(*first, *args, **kwargs)
            await finish(backend, result, value, None)
            return value
        except Exception as error:
            await finish(backend, result, None, error)
            raise
        finally:
            await close()

    return run


def started(backend: StokerBackend, task: Task, args: Any, kwargs: Any) -> TaskResult:
    """The result of a task that begins to run, for its context and signals."""
    job = current_job()
    now = datetime.now(UTC)
    result = TaskResult(
        task=task,
        id=str(job.id) if job else "",
        status=TaskResultStatus.RUNNING,
        enqueued_at=time_of(job.pushed_at) if job else None,
        started_at=now,
        last_attempted_at=now,
        finished_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend.alias,
        errors=[],
        worker_ids=["stoker"] * attempt_of(job),
    )
    task_started.send(type(backend), task_result=result)
    return result


def attempt_of(job: Context | None) -> int:
    """Django counts attempts by the workers that made them."""
    return job.attempt if job else 1


def finished(backend: StokerBackend, result: TaskResult, value: Any, error: Exception | None) -> None:
    """Send the signal that the task has ended. A task that will be retried or was snoozed has not."""
    job = current_job()
    if isinstance(error, Outcome) or (error is not None and job is not None and not job.is_last_attempt):
        return
    object.__setattr__(result, "finished_at", datetime.now(UTC))
    if error is None:
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", value)
    else:
        object.__setattr__(result, "status", TaskResultStatus.FAILED)
        result.errors.append(TaskError(exception_class_path=path_of(class_of(error)), traceback=stack_of(error)))
    task_finished.send(type(backend), task_result=result)
