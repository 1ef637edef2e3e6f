"""A backend of Django's tasks that stores them in a Stoker queue.

A task is a job: the path of its function is the job's name, its queue the job's queue, and the id of its result the
job's id. Attempts, timeouts and leases, which Django does not have, come from the backend's OPTIONS.
"""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from asgiref.sync import sync_to_async
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone
from django.utils.module_loading import import_string

from stoker.brokers.connect import open_broker
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.inbox import NewRow, insert_sync
from stoker.inbox.rows import CUSTOM_ID
from stoker.integrations.django import payloads
from stoker.integrations.django.results import result_of
from stoker.integrations.django.tasks_api import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from stoker.model.commands import FindJob, GetJob
from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.events import Event
from stoker.model.limits import INT_MAX, NAME_PATTERN
from stoker.model.options import Options
from stoker.model.replies import JobView
from stoker.model.units import duration_ms

DURATIONS = {"timeout": "timeout_ms", "lease": "lease_ms", "ttl": "ttl_ms"}
PLACES = ("url", "tenant", "inbox")
OWN = ("delay_ms", "run_at", "priority", "name", "codec", "unique_key", "custom_id", "depends_on", "trace")
"""Job options that the task, the push or this backend sets."""

_clients: dict[tuple[str | None, str], Client] = {}
_clients_lock = threading.Lock()


def _forget_clients() -> None:
    """After a fork: open clients and the lock belong to the parent."""
    global _clients_lock
    _clients_lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_clients)


def client_for(url: str | None, tenant: str) -> Client:
    """One client for all threads of this process: Django makes a backend for each thread."""
    place = (url, tenant)
    with _clients_lock:
        if place not in _clients:
            _clients[place] = Client(open_broker(url), tenant)
        return _clients[place]


def close_clients() -> None:
    """Close all connections; the next call opens new ones."""
    with _clients_lock:
        for client in _clients.values():
            client.close()
        _clients.clear()


class StokerBackend(BaseTaskBackend):
    """Settings in OPTIONS: `url`, `tenant`, `inbox`, and job options (`max_attempts`, `timeout="2m"`, ...).

    `inbox` names a database of DATABASES, or is True for the default one. Inside `atomic` a task is then a row of the
    inbox there: it will run if, and only if, the transaction commits.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    tasks: ClassVar[dict[str, dict[str, Task]]] = {}
    """By alias and path: every task declared for a backend of this class."""

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.url: str | None = self.options.get("url")
        self.tenant: str = self.options.get("tenant", "default")
        inbox = self.options.get("inbox")
        self.inbox: str | None = DEFAULT_DB_ALIAS if inbox is True else inbox or None
        self.job_options = options_of({name: value for name, value in self.options.items() if name not in PLACES})

    @property
    def client(self) -> Client:
        return client_for(self.url, self.tenant)

    @property
    def aclient(self) -> AsyncClient:
        return AsyncClient(self.client.broker, self.tenant, owner=False)

    def validate_task(self, task: Task) -> None:
        super().validate_task(task)
        self.tasks.setdefault(self.alias, {}).setdefault(task.module_path, task)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Push a job. It may run at once: inside a transaction, set `inbox`, or call this from
        `transaction.on_commit`.
        """
        result, payload = self._new(task, args, kwargs)
        if self.inbox is not None and connections[self.inbox].in_atomic_block:
            row = NewRow.of(task.queue_name, payload, self.options_for(task), self.tenant)
            insert_sync(connections[self.inbox], row)
            self._pushed(result, row.custom_id)
        else:
            self._pushed(result, self.client.push(task.queue_name, payload, self.options_for(task)).id)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        if self.inbox is not None:
            return await sync_to_async(self.enqueue)(task, args, kwargs)  # where Django's transactions are
        result, payload = self._new(task, args, kwargs)
        pushed = await self.aclient.push(task.queue_name, payload, self.options_for(task))
        self._pushed(result, pushed.id)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def _new(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[TaskResult, bytes]:
        """The result as it will be after the push, and the payload. Nothing is pushed yet."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        return result, payloads.encode_arguments(task, result.args, result.kwargs)

    def _pushed(self, result: TaskResult, id: int | str) -> None:
        object.__setattr__(result, "id", str(id))
        object.__setattr__(result, "enqueued_at", timezone.now())

    def options_for(self, task: Task) -> Options:
        run_at = None if task.run_after is None else wall_ms(task.run_after)
        return msgspec.structs.replace(
            self.job_options, name=task.module_path, codec="msgpack", priority=task.priority, run_at=run_at
        )

    def get_result(self, result_id: str) -> TaskResult:
        question = question_about(result_id)
        try:
            job = self.client.execute(question)
            events = self.client.story(job.id).events if has_failed(job) else ()
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        return self._result_of(result_id, job, events)

    async def aget_result(self, result_id: str) -> TaskResult:
        question = question_about(result_id)
        try:
            job = await self.aclient.execute(question)
            events = (await self.aclient.story(job.id)).events if has_failed(job) else ()
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        return self._result_of(result_id, job, events)

    def _result_of(self, result_id: str, job: JobView, events: Iterable[Event]) -> TaskResult:
        task = self.task_named(job.options.name or "")
        if task is None:
            raise TaskResultDoesNotExist(f"{job.id} is a job of another kind: {job.options.name}")
        found = task.using(queue_name=job.queue, priority=job.options.priority)
        result = result_of(found, job, self.alias, events)
        object.__setattr__(result, "id", result_id)  # as the caller knows it
        return result

    def task_named(self, path: str) -> Task | None:
        """The task with this function path, imported if needed."""
        known = self.tasks.get(self.alias, {})
        if path not in known:
            try:
                import_string(path)
            except (ImportError, ValueError):
                return None
        return known.get(path)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        for queue in sorted(self.queues):
            if not NAME_PATTERN.fullmatch(queue):
                yield checks.Error(
                    f"TASKS[{self.alias!r}]: {queue!r} is not a valid queue name",
                    hint="Use letters, digits and _ . : - , at most 256 of them.",
                    id="stoker.E001",
                )
        if self.inbox is not None and (self.inbox not in connections or connections[self.inbox].vendor != "postgresql"):
            yield checks.Error(
                f"TASKS[{self.alias!r}]: inbox = {self.inbox!r} is not a PostgreSQL in DATABASES",
                hint="Name the alias of one, or take inbox out and enqueue in transaction.on_commit.",
                id="stoker.E002",
            )
        if not self.queues:
            yield checks.Warning(
                f"TASKS[{self.alias!r}]: QUEUES is empty, so a worker does not know which queues to run",
                hint="Name the queues in QUEUES, or start it with --queue.",
                id="stoker.W001",
            )


def options_of(given: Mapping[str, Any]) -> Options:
    """Job options by their names, or by short names with a duration: `timeout="2m"`."""
    changes = {DURATIONS.get(name, name): value for name, value in given.items()}
    for short, name in DURATIONS.items():
        if short in given:
            changes[name] = duration_ms(given[short])
    known = set(Options.__struct_fields__).difference(OWN)
    if unknown := sorted(changes.keys() - known):
        raise InvalidRequest(
            f"unknown OPTIONS {', '.join(unknown)} of a Stoker backend; the options are"
            f" {', '.join(sorted((*PLACES, *DURATIONS, *known)))}"
        )
    return msgspec.convert(changes, Options)


def question_about(result_id: str) -> GetJob | FindJob:
    """The id of a result is the job's id, or its custom id if it was pushed through the inbox."""
    if result_id.startswith(CUSTOM_ID):
        return FindJob(result_id)
    if not result_id.isdecimal() or int(result_id) > INT_MAX:
        raise TaskResultDoesNotExist(result_id)
    return GetJob(int(result_id))


def has_failed(job: JobView) -> bool:
    """Whether the job has errors, now or before."""
    return bool(job.history or job.error)


def wall_ms(time: datetime) -> int:
    """A time without a zone is in Django's time zone."""
    aware = time if timezone.is_aware(time) else timezone.make_aware(time)
    return round(aware.timestamp() * 1000)
