"""OpenTelemetry traces from the program that pushes a job to the worker that runs it.

    with stoker.tracing.consume(job):
        work(job)

A push inside a span carries the span's W3C context; `connect(..., tracing=False)` switches that off. Nothing of
OpenTelemetry is loaded before `consume` is called: a program that has not loaded it has no span either.
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

OPENTELEMETRY = "opentelemetry.trace"

SYSTEM = "stoker"
"""The value of `messaging.system` in OpenTelemetry's conventions."""


def inject(options: Options = DEFAULT_OPTIONS) -> Options:
    """The options with the active span's context as `trace`, unless they have one already."""
    if options.trace is not None or OPENTELEMETRY not in sys.modules:
        return options
    trace = current()
    return options if trace is None else msgspec.structs.replace(options, trace=trace)


def current() -> str | None:
    """The context of the active span, for `Options.trace`."""
    active = active_context()
    if active is None:
        return None
    state = active.trace_state.to_header() if active.trace_state else ""
    return traces.written(traces.Trace(active.trace_id, active.span_id, int(active.trace_flags), state))


def active_context() -> Any:
    """OpenTelemetry's context of the active span, or None."""
    api = sys.modules.get(OPENTELEMETRY)
    get_span = getattr(api, "get_current_span", None)  # missing while another thread still imports it
    if get_span is None:
        return None
    context = get_span().get_span_context()
    return context if context.is_valid else None


@contextmanager
def consume(job: DeliveredJob, *, as_child: bool = False) -> Iterator[Any]:
    """Work on a job inside its own span, which ends with the work and records its exception.

    The span is linked to the one that pushed the job, and part of the worker's own trace: jobs may wait for days, and a
    trace should not. `as_child` makes it part of the producer's trace. Yields the span, or None where OpenTelemetry is
    not installed.
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
    """OpenTelemetry's context for the trace of a job, or None."""
    found = traces.read(text)
    if found is None:
        return None
    from opentelemetry import trace

    state = trace.TraceState.from_header([found.state]) if found.state else None
    return trace.SpanContext(found.trace_id, found.span_id, True, trace.TraceFlags(found.flags), state)
