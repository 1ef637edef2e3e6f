"""Stoker: a job queue that keeps workers fed.

import stoker

app = stoker.App()


@app.job(queue="mail")
async def welcome(user_id: int) -> str: ...

Without an app, `stoker.connect` gives the queue itself:

queue = stoker.connect("sqlite:///jobs.db")
queue.push("mail", b"hello")
for job in queue.pull("mail"):
    queue.ack(job.id, job.token)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker import aio as aio
    from stoker import logs as logs
    from stoker import maintenance as maintenance
    from stoker import settings as settings
    from stoker import spark as spark
    from stoker import testing as testing
    from stoker import tracing as tracing
    from stoker import webhooks as webhooks
    from stoker.app.app import App
    from stoker.app.depends import Depends
    from stoker.app.errors import JobFailed, ResultTimeout
    from stoker.app.handles import Job, JobBatch
    from stoker.app.inbox_jobs import InboxJob
    from stoker.app.inputs import Input, Inputs
    from stoker.app.jobtype import JobType, Step
    from stoker.app.nodes import chain, group
    from stoker.app.workflow import Workflow, WorkflowRun, workflow
    from stoker.brokers.connect import BrokerSettings
    from stoker.client.sync import Client
    from stoker.model.errors import StokerError
    from stoker.model.options import Backoff, DeadLetterPolicy, Dependency, Options, RateLimit, Retention, Settings
    from stoker.model.states import State
    from stoker.model.version import __version__
    from stoker.settings import BackupSettings, JournalSettings, Limits, LocalSettings, RedisSettings, RemoteSettings
    from stoker.worker.context import Context, JobLogHandler, current_job
    from stoker.worker.errors import (
        BadArguments,
        BadHandler,
        BadResult,
        Interrupted,
        JobCancelled,
        LeaseLost,
        SoftTimeout,
    )
    from stoker.worker.handler import Batch, Middleware
    from stoker.worker.log_fields import JobFields
    from stoker.worker.outcomes import Cancel, Dead, Retry, RetryPolicy, Snooze
    from stoker.worker.queues import QueueSettings
    from stoker.worker.spans import Spans
    from stoker.worker.worker import Worker

__all__ = [
    "App",
    "Backoff",
    "BackupSettings",
    "BadArguments",
    "BadHandler",
    "BadResult",
    "Batch",
    "Cancel",
    "Client",
    "Context",
    "Dead",
    "DeadLetterPolicy",
    "Dependency",
    "Depends",
    "InboxJob",
    "Input",
    "Inputs",
    "Interrupted",
    "Job",
    "JobBatch",
    "JobCancelled",
    "JobFailed",
    "JobFields",
    "JobLogHandler",
    "JobType",
    "JournalSettings",
    "LeaseLost",
    "Limits",
    "LocalSettings",
    "Middleware",
    "Options",
    "QueueSettings",
    "RateLimit",
    "RedisSettings",
    "RemoteSettings",
    "ResultTimeout",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Settings",
    "Snooze",
    "SoftTimeout",
    "Spans",
    "State",
    "Step",
    "StokerError",
    "Worker",
    "Workflow",
    "WorkflowRun",
    "__version__",
    "chain",
    "connect",
    "current_job",
    "group",
    "workflow",
]

# Each name is loaded when first used: a program that only pushes bytes does not wait for workers, and importing this
# package costs almost nothing.
_HOMES = {
    "stoker.app.app": "App",
    "stoker.app.depends": "Depends",
    "stoker.app.errors": "JobFailed ResultTimeout",
    "stoker.app.handles": "Job JobBatch",
    "stoker.app.inbox_jobs": "InboxJob",
    "stoker.app.inputs": "Input Inputs",
    "stoker.app.nodes": "chain group",
    "stoker.app.workflow": "Workflow WorkflowRun workflow",
    "stoker.app.jobtype": "JobType Step",
    "stoker.client.sync": "Client",
    "stoker.model.errors": "StokerError",
    "stoker.model.options": "Backoff DeadLetterPolicy Dependency Options RateLimit Retention Settings",
    "stoker.model.states": "State",
    "stoker.model.version": "__version__",
    "stoker.settings": "BackupSettings JournalSettings Limits LocalSettings RedisSettings RemoteSettings",
    "stoker.worker.context": "Context JobLogHandler current_job",
    "stoker.worker.log_fields": "JobFields",
    "stoker.worker.errors": "BadArguments BadHandler BadResult Interrupted JobCancelled LeaseLost SoftTimeout",
    "stoker.worker.handler": "Batch Middleware",
    "stoker.worker.outcomes": "Cancel Dead Retry RetryPolicy Snooze",
    "stoker.worker.queues": "QueueSettings",
    "stoker.worker.spans": "Spans",
    "stoker.worker.worker": "Worker",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_DOORS = ("aio", "logs", "maintenance", "settings", "spark", "testing", "tracing", "webhooks")
"""Modules for users. `stoker.aio` loads the module on first use: `import stoker` is enough."""


def _load(name: str) -> Any:
    if name in _DOORS:
        return import_module(f"stoker.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


if not TYPE_CHECKING:  # a type checker would accept any misspelt name
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_DOORS})


def connect(
    url: str | None = None,
    *,
    tenant: str = "default",
    settings: "BrokerSettings | None" = None,
    tracing: bool = True,
) -> "Client":
    """A synchronous client for the broker behind `url`, or behind STOKER_URL, or else `sqlite:///stoker.db`.

    `settings` is a `LocalSettings` for `memory://` and `sqlite:///`, a `RemoteSettings` for a server, a
    `RedisSettings` for a Redis. Pushes inside a span of OpenTelemetry carry its context along, unless `tracing` is
    false. `stoker.aio.connect` gives the asynchronous client.
    """
    from stoker.brokers.connect import open_broker
    from stoker.client.sync import Client

    return Client(open_broker(url, settings), tenant, tracing=tracing)
