"""Jobs run inside spans of OpenTelemetry, where the middleware for it is used."""

from collections.abc import Iterator

import pytest

from stoker.testing import World
from stoker.worker.spans import Spans
from stoker.worker.worker import Worker
from tests.client.spans import Heard, listener
from tests.worker.running import handler, push


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = listener()
    yield heard
    heard.exporter.clear()


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_job_is_a_span_that_is_linked_to_the_push(world: World, heard: Heard, kind: str):
    from opentelemetry import trace

    inside = []

    def work() -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    async def work_async() -> None:
        work()

    with heard.tracer.start_as_current_span("request") as request:
        job = push(world.client, "work")
    function = work if kind == "thread" else work_async
    Worker(world.client, [handler(function, name="work", middleware=(Spans(),))]).run_until_idle()
    span = heard.named("process default")
    assert span.context is not None
    assert inside == [span.context.span_id]
    assert [link.context.span_id for link in span.links] == [request.get_span_context().span_id]
    assert heard.attributes("process default")["messaging.message.id"] == str(job)


def test_the_failure_of_a_job_is_told_to_its_span(world: World, heard: Heard):
    def fail() -> None:
        raise ValueError("no such user")

    push(world.client, "fail", max_attempts=1)
    Worker(world.client, [handler(fail, middleware=(Spans(),))]).run_until_idle()
    span = heard.named("process default")
    assert not span.status.is_ok
    assert world.client.get_counts().failed == 1
