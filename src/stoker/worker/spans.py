"""Traces of OpenTelemetry: a middleware that lets each job run inside a span of its own.

    app = stoker.App(middleware=[Spans()])

The span is linked to the one that pushed the job. Where OpenTelemetry is not installed nothing happens; nothing of it
is loaded before the first job runs.
"""

from collections.abc import Iterator

from stoker.model.replies import DeliveredJob
from stoker.tracing import consume
from stoker.worker.context import Context
from stoker.worker.handler import Middleware


class Spans(Middleware):
    """`as_child` makes the span part of the trace that pushed the job: good for jobs that start at once."""

    def __init__(self, *, as_child: bool = False) -> None:
        self._as_child = as_child

    def around(self, ctx: Context) -> Iterator[None]:
        with consume(delivered(ctx), as_child=self._as_child):
            yield


def delivered(ctx: Context) -> DeliveredJob:
    """The job as a client would have got it."""
    return DeliveredJob(ctx.id, 0, ctx.queue, ctx.payload, ctx.options, ctx.attempt, ctx.pushed_at, 0)
