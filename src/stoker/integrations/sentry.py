"""Sentry: reports the exceptions of jobs, with the job's fields as tags.

    sentry_sdk.init(dsn=...)
    app = stoker.App(middleware=[Sentry()])

Each job runs in its own isolation scope, in every kind of handler: breadcrumbs of one job never appear in the event of
another. A handler that runs in a process needs `sentry_sdk.init` there, too: call it at the top of the handler's
module.
"""

from collections.abc import Generator
from typing import Any

import sentry_sdk

from stoker.worker.batches import errors_in
from stoker.worker.context import Context
from stoker.worker.errors import JobCancelled, LeaseLost
from stoker.worker.handler import Middleware
from stoker.worker.log_fields import job_fields
from stoker.worker.outcomes import Outcome

EXPECTED = (Outcome, JobCancelled, LeaseLost)
"""Exceptions that a handler raises to steer its job are not errors."""


class Sentry(Middleware):
    """Sends the exceptions of handlers, and those that a batch returns for single jobs."""

    def around(self, ctx: Context) -> Generator[None, Any, None]:
        fields = job_fields()
        with sentry_sdk.isolation_scope() as scope:
            scope.set_transaction_name(ctx.name, source="task")
            scope.set_tags({name: value for name, value in fields.items() if not isinstance(value, list)})
            scope.set_context("job", fields)
            try:
                result = yield
            except Exception as error:
                send(error)
                raise
            for job, returned in errors_in(ctx, result):
                send(returned, job_id=job.id, attempt=job.attempt)


def send(error: Exception, **tags: int) -> None:
    if isinstance(error, EXPECTED):
        return
    with sentry_sdk.new_scope() as scope:
        scope.set_tags(tags)
        sentry_sdk.capture_exception(error)
