"""Django's tasks over a queue: what Django's documentation says of a backend holds, and a worker runs them."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test.utils import override_settings

from stoker.inbox import schema
from stoker.inbox.reader import Reader
from stoker.inbox.table import InboxTable
from stoker.integrations.django import StokerBackend
from stoker.integrations.django.backend import client_for, close_clients, options_of
from stoker.integrations.django.handlers import handlers_of
from stoker.integrations.django.tasks_api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from stoker.model.errors import InvalidRequest
from stoker.worker.worker import Worker
from tests.integrations import django_project
from tests.integrations import django_shop_tasks as shop
from tests.integrations.django_shop_tasks import add, collect, fail, seen, strange, thank


@pytest.fixture(autouse=True)
def queue() -> Iterator[Any]:
    """A new queue in memory for each test."""
    seen.clear()
    yield client_for(django_project.URL, "default")
    close_clients()


def run() -> int:
    """Let a worker do what is due."""
    backend = task_backends["default"]
    return Worker(backend.client, handlers_of(backend), queues=["default", "mail"]).run_until_idle()


def test_a_task_is_a_job_and_its_result_comes_back(queue: Any):
    result = add.enqueue(1, second=2)
    assert (result.status, result.is_finished, result.args, result.kwargs) == ("READY", False, [1], {"second": 2})
    job = queue.get_job(int(result.id))
    assert (job.queue, job.options.name) == ("default", f"{shop.__name__}.add")
    assert (job.options.max_attempts, job.options.timeout_ms) == (2, 120_000)

    assert run() == 1
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert add.get_result(result.id).return_value == 3


def test_coroutines_contexts_queues_and_priorities(queue: Any):
    result = thank.enqueue(customer="Ada")
    job = queue.get_job(int(result.id))
    assert (job.queue, job.options.priority) == ("mail", 10)
    run()
    assert thank.get_result(result.id).return_value == "thank you, Ada, in attempt 1"


def test_more_urgent_tasks_run_first():
    add.using(priority=-5).enqueue(1)
    add.using(priority=5).enqueue(2)
    backend = task_backends["default"]
    Worker(backend.client, handlers_of(backend), queues=["default"], threads=1, prefetch=0).run_until_idle()
    assert seen == [(2, 1), (1, 1)]


def test_a_task_may_wait_for_its_time(queue: Any):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    result = add.using(run_after=tomorrow).enqueue(1)
    assert run() == 0
    job = queue.get_job(int(result.id))
    assert (job.state, job.due) == ("delayed", round(tomorrow.timestamp() * 1000))


def test_a_failed_task_is_tried_again_and_tells_each_error(queue: Any):
    result = fail.enqueue()
    run()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
    queue.promote(int(result.id))
    run()
    result.refresh()
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.FAILED, 2, True)
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert "LookupError: nobody is there" in result.errors[-1].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_everything_is_there_for_coroutines_too():
    async def test() -> Any:
        result = await add.aenqueue(20, 22)
        await asyncio.to_thread(run)
        await result.arefresh()
        return result.return_value, (await add.aget_result(result.id)).return_value

    assert asyncio.run(test()) == (42, 42)


def test_signals_tell_of_each_step():
    told: list[tuple[str, Any]] = []

    def enqueued(task_result: Any, **_: Any) -> None:
        told.append(("enqueued", task_result.id))

    def started(task_result: Any, **_: Any) -> None:
        told.append(("started", task_result.id))

    def finished(task_result: Any, **_: Any) -> None:
        told.append((task_result.status, task_result.id))

    signals = ((task_enqueued, enqueued), (task_started, started), (task_finished, finished))
    for signal, receiver in signals:
        signal.connect(receiver)
    try:
        one, two = add.enqueue(1), thank.enqueue("Ada")
        run()
    finally:
        for signal, receiver in signals:
            signal.disconnect(receiver)
    for result in (one, two):
        assert [what for what, of in told if of == result.id] == ["enqueued", "started", "SUCCESSFUL"]


def test_a_task_that_will_be_tried_again_has_not_finished():
    told: list[Any] = []

    def finished(task_result: Any, **_: Any) -> None:
        told.append(task_result.status)

    task_finished.connect(finished)
    try:
        result = fail.enqueue()
        run()
        assert told == []
        client_for(django_project.URL, "default").promote(int(result.id))
        run()
        assert told == ["FAILED"]
    finally:
        task_finished.disconnect(finished)


def test_arguments_of_any_kind_arrive():
    one, two = collect.enqueue(1, 2, 3), collect.enqueue(a=4, b=5)
    run()
    assert (one.refresh(), one.return_value) == (None, [1, 2, 3])
    assert (two.refresh(), two.return_value) == (None, [4, 5])
    assert collect.get_result(two.id).kwargs == {"a": 4, "b": 5}


def test_a_call_that_no_payload_can_tell_is_refused(queue: Any):
    with pytest.raises(InvalidTask, match="one kind of arguments"):
        collect.enqueue(1, a=2)
    with pytest.raises(InvalidTask, match="twice"):
        add.enqueue(1, first=2)
    with pytest.raises(TypeError):
        add.enqueue(object())
    assert queue.get_counts().waiting == 0


def test_what_a_queue_cannot_do_is_refused():
    with pytest.raises(InvalidTask, match="nowhere"):
        add.using(queue_name="nowhere")
    with pytest.raises(InvalidTask):
        add.using(priority=101)


def test_other_languages_may_push_tasks_by_json(queue: Any):
    pushed = queue.push("default", b'{"first": 40, "second": 2}', name=f"{shop.__name__}.add", codec="json")
    run()
    assert add.get_result(str(pushed.id)).return_value == 42


@pytest.mark.parametrize("name", ["64", "", "not a number", "-1", str(2**70)])
def test_a_result_that_is_not_there_is_told(name: str):
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(name)


def test_a_job_that_is_no_task_has_no_result(queue: Any):
    for job in (queue.push("mail", b"{}"), queue.push("mail", b"{}", name="os.getcwd")):
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(str(job.id))


def test_a_result_that_cannot_be_kept_is_an_error_and_no_second_try(queue: Any):
    result = strange.enqueue()
    run()
    result.refresh()
    assert result.status == "FAILED"
    assert "cannot be stored" in result.errors[-1].traceback


def test_options_that_there_are_not_are_refused():
    with pytest.raises(InvalidRequest, match="max_attempt,"):
        options_of({"max_attempt": 3, "tiemout": 3})
    with pytest.raises(InvalidRequest, match="priority"):
        options_of({"priority": 3})
    assert options_of({"lease": "5m"}).lease_ms == 300_000


def test_settings_are_checked():
    checked = StokerBackend("default", {"QUEUES": ["good", "bad name"], "OPTIONS": {}}).check()
    assert [message.id for message in checked] == ["stoker.E001"]
    assert [message.id for message in task_backends["any"].check()] == ["stoker.W001"]
    assert list(task_backends["default"].check()) == []


def test_the_worker_command_says_what_is_wrong():
    with pytest.raises(CommandError, match="TASKS has no backend 'other'; it has default, any"):
        call_command("stoker_worker", backend="other")
    with pytest.raises(CommandError, match="nothing to run for 'any'"):
        call_command("stoker_worker", backend="any")
    dummy = {
        "default": {"BACKEND": f"{'.'.join(type(task_backends).__module__.split('.')[:2])}.backends.dummy.DummyBackend"}
    }
    with override_settings(TASKS=dummy), pytest.raises(CommandError, match="DummyBackend"):
        call_command("stoker_worker", stdout=StringIO())


def test_the_worker_command_works_off_what_there_is():
    result = add.enqueue(40, 2)
    said = StringIO()
    call_command("stoker_worker", "--burst", "--import", shop.__name__.rpartition(".")[2], stdout=said)
    assert add.get_result(result.id).return_value == 42
    assert "5 tasks, queues default, mail" in said.getvalue()


@pytest.mark.parametrize("address", ["here", "host:", "host:70000"])
def test_a_strange_address_for_probes_is_refused(address: str):
    with pytest.raises(CommandError, match="--health"):
        call_command("stoker_worker", "--burst", "--health", address, stdout=StringIO())


# --- in the transactions of a PostgreSQL -------------------------------------------------------------


@pytest.fixture
def shop_database(database: str) -> Iterator[str]:
    """A database `shop` of Django, with an inbox."""
    schema.init(database)
    parts = urlsplit(database)
    settings = {
        **connections["default"].settings_dict,
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    connections.databases["shop"] = settings
    yield database
    connections["shop"].close()
    del connections["shop"], connections.databases["shop"]


def read_inbox(url: str) -> int:
    """Let a reader push what is there."""

    async def go() -> int:
        async with await schema.connect(url) as connection:
            push = client_for(django_project.URL, "default").broker.execute_async
            return await Reader(url, push).read_once(InboxTable(connection))

    return asyncio.run(go())


def inbox_backend(inbox: Any = "shop") -> StokerBackend:
    return StokerBackend("default", {"QUEUES": ["default"], "OPTIONS": {"url": django_project.URL, "inbox": inbox}})


def test_inside_atomic_a_task_is_enqueued_with_the_commit_and_its_result_is_found_later(shop_database: str):
    backend = inbox_backend()
    with transaction.atomic("shop"):
        result = backend.enqueue(add, [1], {"second": 2})
        with pytest.raises(TaskResultDoesNotExist):
            backend.get_result(result.id)
    assert result.id.startswith("inbox-")
    assert read_inbox(shop_database) == 1
    assert run() == 1
    found = backend.get_result(result.id)
    assert (found.id, found.status, found.return_value) == (result.id, TaskResultStatus.SUCCESSFUL, 3)
    assert asyncio.run(backend.aget_result(result.id)).return_value == 3


def test_a_transaction_that_is_rolled_back_enqueues_nothing(shop_database: str):
    with contextlib.suppress(ZeroDivisionError), transaction.atomic("shop"):
        inbox_backend().enqueue(add, [1], {"second": 2})
        raise ZeroDivisionError
    assert read_inbox(shop_database) == 0


def test_outside_of_atomic_a_task_is_pushed_at_once(shop_database: str, queue: Any):
    result = inbox_backend().enqueue(add, [1], {"second": 2})
    assert queue.get_job(int(result.id)).state == "waiting"
    later = asyncio.run(inbox_backend().aenqueue(add, [1], {"second": 2}))
    assert queue.get_job(int(later.id)).state == "waiting"
    connections["shop"].close()


def test_an_inbox_that_is_no_postgresql_is_found_by_the_checks():
    for inbox in (True, "nowhere"):
        assert [found.id for found in inbox_backend(inbox).check()] == ["stoker.E002"]
    assert list(inbox_backend(None).check()) == []
