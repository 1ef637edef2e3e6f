"""Finds everything that can be wrong with an app before its first job runs: `stoker worker --check`.

It really makes the worker and starts it on an empty queue in memory, and pushes a job of every kind and every schedule
to a second queue. The app's own queue is never opened, and no handler runs.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from stoker.app.app import App
from stoker.app.schedules import Declared
from stoker.brokers.connect import open_broker
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.worker.handler import Handler
from stoker.worker.worker import Worker

NOWHERE = "memory://"


class AppProblem(NamedTuple):
    text: str
    code: str


class AppCheck:
    """Tries one thing after another and notes each problem, so that one mistake does not hide the next."""

    def __init__(self) -> None:
        self.problems: list[AppProblem] = []

    def tried(self, what: str, do: Callable[[], Any]) -> Any:
        """The result, or None if it failed."""
        try:
            return do()
        except StokerError as error:
            self._note(what, error.message, error.code)
        except (TypeError, ValueError) as error:
            self._note(what, f"{type(error).__name__}: {error}", "bad_handler")
        return None

    def _note(self, what: str, text: str, code: str) -> None:
        self.problems.append(AppProblem(text if what in text else f"{what}: {text}", code))


def problems(
    app: App, jobs: Iterable[str] | None = None, *, schedules: bool = True, **settings: Any
) -> list[AppProblem]:
    """What would keep a worker with these settings from starting, or its jobs and schedules from being pushed."""
    app.load()
    check = AppCheck()
    types = list(app.jobs.values()) if jobs is None else [app.job_named(name) for name in jobs]
    made = [check.tried(f"job {job_type.name}", job_type.handler) for job_type in types]
    handlers = [handler for handler in made if handler is not None]
    with Client(open_broker(NOWHERE), app.tenant) as client:
        for handler in handlers:
            check.tried(f"job {handler.name}", partial(push, client, handler))
        for declared in app.schedules.values() if schedules else ():
            check.tried(f"schedule {declared.name}", partial(put, client, declared))
    if not check.problems:
        check.tried("the worker", partial(start, app, handlers, settings))
    return check.problems


def push(client: Client, handler: Handler) -> None:
    """Push with the handler's queue, name and options, without arguments."""
    client.execute(c.Push(handler.queue, b"", msgspec.structs.replace(handler.options, depends_on=())))


def put(client: Client, declared: Declared) -> None:
    client.execute(c.PutSchedule(declared.step.queue, declared.name, declared.wanted(None)))


def start(app: App, handlers: list[Handler], settings: dict[str, Any]) -> None:
    """Start a worker on an empty queue, so that no handler runs."""
    with Client(open_broker(NOWHERE), app.tenant) as client:
        own = app.own_handlers(handlers[0].queue) if handlers else []
        Worker(client, [*handlers, *own], **{**settings, "registered": False}).run_until_idle()
