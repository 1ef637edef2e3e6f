"""Traces from the program that pushes to the one that works: OpenTelemetry, where it is installed and in use.

    with stoker.tracing.consume(job):
        work(job)

A push made inside a span carries that span's context along by itself, as W3C writes it; `connect(..., tracing=False)`
switches that off. This module loads nothing of OpenTelemetry before `consume` is called: a program that has not loaded
it has no span either.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from stoker.model import traces
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.replies import DeliveredJob
from stoker.model.version import __version__

SYSTEM = "stoker"
"""What semantic conventions call `messaging.system`."""


def inject(options: Options = DEFAULT_OPTIONS) -> Options:
    """The same options with the context of the active span as `trace`, unless they say another or there is none."""
    if options.trace is not None:
        return options
    trace = current()
    return options if trace is None else msgspec.structs.replace(options, trace=trace)


def current() -> str | None:
    """The context of the active span, as `Options.trace` takes it."""
    active = active_context()
    if active is None:
        return None
    state = active.trace_state.to_header() if active.trace_state else ""
    return traces.written(traces.Trace(active.trace_id, active.span_id, int(active.trace_flags), state))


def active_context() -> Any:
    """OpenTelemetry's context of the active span, or None."""
    api = sys.modules.get("opentelemetry.trace")
    get_span = getattr(api, "get_current_span", None)  # not there yet while another thread imports it
    if get_span is None:
        return None
    context = get_span().get_span_context()
    return context if context.is_valid else None


@contextmanager
def consume(job: DeliveredJob, *, as_child: bool = False) -> Iterator[Any]:
    """Work on a job inside a span of its own; it is ended, and told of an exception, when the work is.

    The span is linked to the one that pushed the job, and part of whatever trace the worker is in: jobs may wait for
    days, and a trace should not. `as_child` makes it part of the producer's trace. Gives the span, or None where
    OpenTelemetry is not installed.
    """
    spans = api()
    if spans is None:
        yield None
        return
    trace, context = spans
    producer = remote_context(job.options.trace)
    is_child = as_child and producer is not None
    with trace.get_tracer(SYSTEM, __version__).start_as_current_span(
        f"process {job.queue}",
        context=trace.set_span_in_context(trace.NonRecordingSpan(producer), context.get_current())
        if is_child
        else None,
        kind=trace.SpanKind.CONSUMER,
        attributes={
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": job.queue,
            "messaging.message.id": str(job.id),
            "messaging.message.body.size": len(job.payload),
            "stoker.job.attempt": job.attempt,
        },
        links=() if producer is None or is_child else (trace.Link(producer),),
    ) as span:
        yield span


def api() -> tuple[Any, Any] | None:
    """The two modules of OpenTelemetry that spans need, if they are installed."""
    try:
        from opentelemetry import context, trace
    except ImportError:
        return None
    return trace, context


def remote_context(text: str | None) -> Any:
    """OpenTelemetry's context for a trace that came with a job, or None."""
    found = traces.read(text)
    if found is None:
        return None
    from opentelemetry import trace

    state = trace.TraceState.from_header([found.state]) if found.state else None
    return trace.SpanContext(found.trace_id, found.span_id, True, trace.TraceFlags(found.flags), state)
