"""A dispatcher that reports each command to OpenTelemetry: a span from its arrival to its answer.

Loaded only if `tracing.enabled` is set; the plain dispatcher knows nothing of it. OpenTelemetry decides where spans go,
by the process's tracer provider and its `OTEL_*` variables. Names follow the semantic conventions for messaging.
"""

from typing import Any

from stoker.brokers.contract import Waiter
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import MAKES_JOBS, TAKES, TAKES_LEVEL, WITH_OPTIONS, WITH_PAYLOADS, at_home, of_kind
from stoker.model.errors import InvalidRequest, Refused, StokerError
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.version import __version__
from stoker.server.dispatcher import Dispatcher, Done, Execute
from stoker.server.served_broker import ServedBroker
from stoker.tracing import SYSTEM, remote_context
from stoker.wire.native import NAMES

try:
    from opentelemetry import trace
except ImportError:
    raise InvalidRequest(
        "tracing needs OpenTelemetry: pip install 'stoker[otel]', or set tracing.enabled = false"
    ) from None

LINKS_MAX = 32
"""Of one span. A batch may hold as many traces as jobs."""

TYPES: dict[type, str] = {
    **dict.fromkeys(MAKES_JOBS & TAKES_LEVEL, "send"),
    **dict.fromkeys(at_home("transaction") & TAKES_LEVEL, "send"),
    c.Stage: "create",
    **dict.fromkeys(TAKES, "receive"),
    **dict.fromkeys(of_kind("settles"), "settle"),
}
"""What the conventions call a command; those that are not here are our own and have no such name."""


class TracedDispatcher(Dispatcher):
    """The commands of one event loop, with a span each."""

    def __init__(self, broker: ServedBroker, *, tenants: bool = False) -> None:
        super().__init__(broker)
        self._tracer = trace.get_tracer(SYSTEM, __version__)
        self._tenants = tenants
        """Whether spans tell whose command it was."""

    def submit(self, tenant: str, command: c.Command[Any], done: Done, execute: Execute | None = None) -> Waiter | None:
        if tenant == SYSTEM_TENANT:
            return super().submit(tenant, command, done, execute)  # the server's own housekeeping
        span = self._start(tenant, command)
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return super().submit(tenant, command, Traced(span, done), execute)

    def give_up(self, waiter: Waiter) -> None:
        done = waiter.done
        super().give_up(waiter)
        if isinstance(done, Traced):
            done.abandon()

    def _start(self, tenant: str, command: Any) -> Any:
        name, queue = NAMES[type(command)], queue_of(command)
        attributes: dict[str, Any] = {"messaging.system": SYSTEM, "messaging.operation.name": name}
        operation = TYPES.get(type(command))
        if operation is not None:
            attributes["messaging.operation.type"] = operation
        if queue:
            attributes["messaging.destination.name"] = queue
        attributes.update(size_of(command))
        if self._tenants:
            attributes["stoker.tenant"] = tenant
        contexts = producers([command.options, *(getattr(command, "each", None) or ())]) if is_push(command) else []
        parent = trace.set_span_in_context(trace.NonRecordingSpan(contexts[0])) if len(contexts) == 1 else None
        return self._tracer.start_span(
            f"{name} {queue}" if queue else name,
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            links=[trace.Link(context) for context in contexts] if len(contexts) > 1 else None,
        )


class Traced:
    """Ends the span of a command when its answer goes out, and hands the answer on."""

    __slots__ = ("_done", "_span")

    def __init__(self, span: Any, done: Done) -> None:
        self._span = span
        self._done = done

    def __call__(self, reply: Any) -> None:
        span = self._span
        if span.is_recording():
            tell(span, reply)
            span.end()
        self._done(reply)

    def abandon(self) -> None:
        """The client no longer waits for the answer."""
        if self._span.is_recording():
            self._span.set_attribute("stoker.given_up", True)
            self._span.end()


def tell(span: Any, reply: Any) -> None:
    if isinstance(reply, StokerError):
        span.set_attribute("error.type", reply.code)
        if not isinstance(reply, Refused):  # which is the caller's mistake, and no failure of the server
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(reply)))
    elif isinstance(reply, r.Delivery):
        span.set_attribute("messaging.batch.message_count", len(reply))
        for context in producers([run.options for run in reply.runs]):
            span.add_link(context)
    elif isinstance(reply, r.Pushed):
        span.set_attribute("messaging.message.id", str(reply.id))
    elif getattr(reply, "refused", None):
        span.set_attribute("stoker.refused", len(reply.refused))


def is_push(command: Any) -> bool:
    return type(command) in WITH_OPTIONS


def queue_of(command: Any) -> str:
    """The one queue that a command is about. Names that cannot be one are left to the queue to refuse."""
    queues = getattr(command, "queues", None)
    queue = queues[0] if isinstance(queues, list | tuple) and len(queues) == 1 else getattr(command, "queue", None)
    return queue if isinstance(queue, str) and len(queue) <= 256 else ""


def size_of(command: Any) -> dict[str, Any]:
    """How many jobs, or which one."""
    if type(command) in WITH_PAYLOADS:
        return {"messaging.batch.message_count": len(command.payloads)}
    ids = getattr(command, "ids", None)
    if ids is not None and type(command) in TYPES:
        return {"messaging.message.id": str(ids[0])} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
    return {}


def producers(options: list[Any]) -> list[Any]:
    """The contexts that jobs bring along, each once."""
    texts = dict.fromkeys(each.trace for each in options if isinstance(getattr(each, "trace", None), str))
    found = (remote_context(text) for text, _ in zip(texts, range(LINKS_MAX), strict=False))
    return [context for context in found if context is not None]
