"""`manage.py stoker_worker`: run the tasks of a backend until told to stop."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import autodiscover_modules

from stoker.integrations.django.backend import StokerBackend
from stoker.integrations.django.handlers import handlers_of
from stoker.integrations.django.tasks_api import DEFAULT_TASK_BACKEND_ALIAS, task_backends
from stoker.worker.worker import DRAIN, Worker


class Command(BaseCommand):
    help = "Runs tasks that were enqueued with a Stoker backend. On SIGTERM it finishes the tasks that it has begun."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="The alias in TASKS.")
        parser.add_argument("--queue", action="append", help="A queue to run. [default: all queues of the backend]")
        parser.add_argument("--concurrency", type=int, default=10, help="How many tasks run at once.")
        parser.add_argument("--drain", default=DRAIN, help="How long running tasks may take to end after SIGTERM.")
        parser.add_argument("--health", default="", help="Answer /health and /ready at this [HOST:]PORT.")
        parser.add_argument("--burst", action="store_true", help="Exit when nothing is left to do.")
        parser.add_argument(
            "--import", action="append", default=[], dest="modules", help="Another module with tasks, besides `tasks`."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        backend = backend_named(options["backend"])
        autodiscover_modules("tasks", *options["modules"])
        queues = options["queue"] or sorted(backend.queues)
        handlers = handlers_of(backend)
        if not queues or not handlers:
            raise CommandError(
                f"nothing to run for {backend.alias!r}: {len(handlers)} tasks were found in the modules `tasks` of the"
                f" installed applications, and {len(queues)} queues"
            )
        if options["verbosity"]:
            self.stdout.write(f"{len(handlers)} tasks, queues {', '.join(queues)}")
        worker = Worker(
            backend.client,
            handlers,
            queues=queues,
            concurrency=options["concurrency"],
            drain=options["drain"],
            health=address_of(options["health"]),
        )
        if options["burst"]:
            worker.run_until_idle()
        elif code := worker.run():
            sys.exit(code)


def address_of(text: str) -> tuple[str, int] | None:
    """`[HOST:]PORT`, or nothing."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise CommandError(f"--health {text}: expected a port, or HOST:PORT")
    return host or "127.0.0.1", int(port)


def backend_named(alias: str) -> StokerBackend:
    if alias not in task_backends.settings:
        raise CommandError(f"TASKS has no backend {alias!r}; it has {', '.join(task_backends.settings)}")
    backend = task_backends[alias]
    if not isinstance(backend, StokerBackend):
        raise CommandError(f"TASKS[{alias!r}] is a {type(backend).__name__}: expected a StokerBackend")
    return backend
