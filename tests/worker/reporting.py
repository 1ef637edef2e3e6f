"""An app whose jobs fail in every kind of handler, and whose Sentry and OpenTelemetry write into files.

A worker process and its children import it: they share nothing but the files.
"""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import stoker
from stoker.integrations.sentry import Sentry

HOME = Path(os.environ.get("REPORTING_HOME", "."))
log = logging.getLogger("shop")


def note(file: str, value: Any) -> None:
    with (HOME / file).open("a") as lines:
        lines.write(json.dumps(value, default=str) + "\n")


class ToFile(Transport):
    """Nothing leaves this machine."""

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            note("sentry", event)


class SpansToFile(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        for span in spans:
            assert isinstance(span, ReadableSpan)
            errors = [dict(event.attributes or {}) for event in span.events if event.name == "exception"]
            note("spans", {"attributes": dict(span.attributes or {}), "errors": errors})
        return SpanExportResult.SUCCESS


if "REPORTING_HOME" in os.environ:
    sentry_sdk.init(dsn="http://nobody@127.0.0.1:1/1", transport=ToFile, default_integrations=False)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SpansToFile()))
    trace.set_tracer_provider(provider)

app = stoker.App(middleware=[Sentry(), stoker.Spans()], defaults={"max_attempts": 1})


def fail(what: str) -> None:
    log.info("about to fail in %s", what, extra={"queue": "my own"})
    raise LookupError(f"no {what}")


@app.job(queue="mail")
async def coroutine(number: int) -> None:
    fail("coroutine")


@app.job(queue="mail")
def thread(number: int) -> None:
    fail("thread")


@app.job(queue="mail", kind="process")
def process(number: int) -> None:
    fail("process")


@app.job(queue="mail", batch=2, max_wait="30s")
def together(numbers: list[int]) -> list[Exception | None]:
    log.info("about to fail in together")
    return [LookupError("no together") if number == 1 else None for number in numbers]


@app.job(queue="mail")
def snooze(number: int) -> None:
    raise stoker.Snooze("10m", "not now")


@app.job(queue="mail", timeout="1s")
async def slow(number: int) -> None:
    await asyncio.Event().wait()


@app.job(queue="mail")
def large(number: int) -> str:
    return "x" * 11_000_000


@app.job(queue="mail")
def fine(number: int) -> int:
    return number
