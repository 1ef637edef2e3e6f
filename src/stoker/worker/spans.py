"""OpenTelemetry traces: a middleware that runs each job inside its own span.

    app = stoker.App(middleware=[Spans()])

The span is linked to the one that pushed the job. Without OpenTelemetry installed it does nothing; nothing of it is
loaded before the first job runs.
"""

from collections.abc import Generator
from typing import Any

from stoker.model.replies import DeliveredJob
from stoker.tracing import consume
from stoker.worker.batches import errors_in
from stoker.worker.context import Context
from stoker.worker.handler import Middleware


class Spans(Middleware):
    """`as_child` makes the span part of the trace that pushed the job, which suits jobs that start at once."""

    def __init__(self, *, as_child: bool = False) -> None:
        self._as_child = as_child

    def around(self, ctx: Context) -> Generator[None, Any, None]:
        with consume(delivered(ctx), as_child=self._as_child) as span:
            if span is not None:
                span.set_attributes({"stoker.job.name": ctx.name, "stoker.worker.id": ctx.worker})
            result = yield
            for job, error in errors_in(ctx, result) if span is not None else ():
                span.record_exception(error, {"messaging.message.id": str(job.id)})


def delivered(ctx: Context) -> DeliveredJob:
    """The job as a client would have received it."""
    return DeliveredJob(ctx.id, 0, ctx.queue, ctx.payload, ctx.options, ctx.attempt, ctx.pushed_at, 0)
