"""What OpenTelemetry gets to hear: its own SDK, with an exporter that keeps everything in memory."""

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Heard:
    """One for the whole process: a tracer provider can be set only once."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(self.provider)
        self.tracer = trace.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.named(name).attributes or {})


_heard: list[Heard] = []


def listener() -> Heard:
    """The one of this process, for the fixtures of all test packages that want it."""
    if not _heard:
        _heard.append(Heard())
    return _heard[0]
