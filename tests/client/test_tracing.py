"""A trace goes from the request that pushes, over the job, to the worker that runs it."""

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace

import stoker
from stoker import tracing
from stoker.brokers.remote.opening import open_remote
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.logs import JsonLines, PlainLines
from stoker.model import commands as c
from stoker.model import traces
from stoker.model.errors import InvalidRequest
from stoker.model.options import Options
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, MetricsSettings, TcpListener, TracingSettings
from stoker.server.dispatcher import Dispatcher
from tests.client.serving import ServerThread
from tests.client.spans import Heard
from tests.served.on_loop import serving

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ON = TracingSettings(enabled=True)


# --- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        PARENT.upper(),
        PARENT[:-1],
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_no_trace(text: str | None):
    assert traces.read(text) is None
    assert traces.from_headers(text, "a=b") is None


def test_a_trace_is_taken_apart_and_put_together_again():
    found = traces.read(f"{PARENT}\nvendor=1")
    assert found is not None
    assert found.state == "vendor=1"
    assert traces.written(found) == f"{PARENT}\nvendor=1"


@pytest.mark.parametrize("state", ["", "a=\n", "ä=1", "x" * 513])
def test_a_bad_tracestate_is_left_out_and_the_trace_stays(state: str):
    assert traces.from_headers(PARENT, state) == PARENT


# --- pushing -------------------------------------------------------------------------------------


def test_a_push_inside_a_span_carries_its_context(heard: Heard):
    client = stoker.connect("memory://")
    with heard.tracer.start_as_current_span("request") as span:
        job = client.push("mail", b"").id
        batch = client.push_batch("mail", [b"", b""]).ids
        each = client.push_batch("mail", [b"", b""], each=[Options(trace=PARENT), Options(priority=3)]).ids
    sent = span.get_span_context()
    expected = f"00-{sent.trace_id:032x}-{sent.span_id:016x}-{sent.trace_flags:02x}"
    assert [client.get_job(i).options.trace for i in (job, *batch, *each)] == [expected] * 3 + [PARENT, expected]
    assert client.get_job(each[1]).options.priority == 3
    client.close()


def test_a_push_outside_of_any_span_carries_none(heard: Heard):
    client = stoker.connect("memory://")
    assert client.get_job(client.push("mail", b"").id).options.trace is None
    client.close()


def test_tracing_can_be_switched_off(heard: Heard):
    client = stoker.connect("memory://", tracing=False).as_tenant("t")
    with heard.tracer.start_as_current_span("request"):
        job = client.push("mail", b"").id
    assert client.get_job(job).options.trace is None
    client.broker.close()


def test_the_asynchronous_client_does_the_same(heard: Heard):
    async def main() -> None:
        client = await stoker.aio.connect("memory://")
        with heard.tracer.start_as_current_span("request"):
            job = (await client.push("mail", b"")).id
        found = traces.read((await client.get_job(job)).options.trace)
        assert found is not None
        assert found.trace_id == heard.named("request").get_span_context().trace_id  # type: ignore[union-attr]
        await client.close()

    import stoker.aio

    asyncio.run(main())


def test_a_tracestate_goes_along(heard: Heard):
    state = trace.TraceState([("vendor", "1")])
    context = trace.SpanContext(1, 2, True, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert tracing.inject().trace == f"00-{1:032x}-{2:016x}-01\nvendor=1"


def test_a_program_without_opentelemetry_does_not_load_it():
    script = (
        "import sys, stoker\nq = stoker.connect('memory://')\nq.push('a', b'')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


# --- working -------------------------------------------------------------------------------------


def test_consuming_makes_a_span_that_is_linked_to_the_producer(heard: Heard):
    client = stoker.connect("memory://")
    with heard.tracer.start_as_current_span("request") as request:
        job_id = client.push("mail", b"1234").id
    (job,) = client.pull("mail")
    with tracing.consume(job) as span:
        assert trace.get_current_span() is span
    worked = heard.named("process mail")
    assert worked.kind is trace.SpanKind.CONSUMER
    assert worked.parent is None
    (link,) = worked.links
    assert link.context.trace_id == request.get_span_context().trace_id
    assert link.context.span_id == request.get_span_context().span_id
    assert dict(worked.attributes or {}) == {
        "messaging.system": "stoker",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job_id),
        "messaging.message.body.size": 4,
        "stoker.job.attempt": 1,
    }
    client.close()


def test_a_consuming_span_may_be_the_producers_child(heard: Heard):
    client = stoker.connect("memory://")
    client.push("mail", b"", trace=f"{PARENT}\nvendor=1")
    (job,) = client.pull("mail")
    with tracing.consume(job, as_child=True):
        pass
    worked = heard.named("process mail")
    assert worked.parent is not None
    assert traces.written(traces.Trace(worked.parent.trace_id, worked.parent.span_id, 1)) == PARENT
    assert worked.parent.trace_state.get("vendor") == "1"
    assert not worked.links
    client.close()


@pytest.mark.parametrize("text", [None, "no trace at all"])
def test_a_job_without_a_trace_is_consumed_in_a_span_of_its_own(heard: Heard, text: str | None):
    client = stoker.connect("memory://")
    client.push("mail", b"", trace=text)
    (job,) = client.pull("mail")
    with tracing.consume(job):
        pass
    assert not heard.named("process mail").links
    client.close()


def test_an_exception_ends_the_span_as_failed_and_goes_on(heard: Heard):
    client = stoker.connect("memory://")
    client.push("mail", b"")
    (job,) = client.pull("mail")
    with pytest.raises(ValueError, match="no address"), tracing.consume(job):
        raise ValueError("no address")
    worked = heard.named("process mail")
    assert worked.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in worked.events] == ["exception"]
    client.close()


def test_without_opentelemetry_the_work_is_done_all_the_same():
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import stoker; from stoker import tracing\n"
        "q = stoker.connect('memory://'); q.push('a', b'x')\n"
        "(job,) = q.pull('a')\n"
        "with tracing.consume(job) as span: assert span is None\n"
        "try:\n    import stoker.server.spans\n"
        "except stoker.StokerError as error: assert 'stoker[otel]' in str(error)\n"
        "else: raise AssertionError"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


# --- the server ----------------------------------------------------------------------------------


def ask(config: dict[str, Any], *commands: c.Command[object]) -> None:
    """Let a server carry these out, one after another."""

    async def main() -> None:
        async with serving(**config) as place:
            client = AsyncClient(open_broker_at(place.port), tracing=False)
            for command in commands:
                try:
                    await client.execute(command)
                except stoker.StokerError:
                    pass
            await client.close()

    asyncio.run(main())


def open_broker_at(port: int):
    from urllib.parse import urlsplit

    return open_remote(urlsplit(f"tcp://127.0.0.1:{port}"), None)


def test_a_span_for_each_command_and_the_push_in_the_producers_trace(heard: Heard):
    ask(
        {"tracing": ON},
        c.Push("mail", b"x", Options(trace=PARENT)),
        c.PushBatch("mail", [b"x", b"y"]),
        c.Pull(["mail"], 3),
        c.ListQueues(),
    )
    push = heard.named("push mail")
    assert push.kind is trace.SpanKind.SERVER
    assert push.parent is not None
    assert f"{push.parent.trace_id:032x}" in PARENT
    assert heard.attributes("push mail") == {
        "messaging.system": "stoker",
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": "64",
    }
    assert heard.named("push_batch mail").parent is None
    assert heard.attributes("push_batch mail")["messaging.batch.message_count"] == 2
    pull = heard.named("pull mail")
    assert heard.attributes("pull mail")["messaging.operation.type"] == "receive"
    assert heard.attributes("pull mail")["messaging.batch.message_count"] == 3
    assert [f"{link.context.trace_id:032x}" in PARENT for link in pull.links] == [True]
    assert "messaging.destination.name" not in heard.attributes("list_queues")


def test_a_batch_of_several_traces_is_linked_to_each(heard: Heard):
    other = PARENT.replace("0af7", "1bf8")
    ask({"tracing": ON}, c.PushBatch("mail", [b"", b"", b""], each=[Options(trace=t) for t in (PARENT, other, PARENT)]))
    assert len(heard.named("push_batch mail").links) == 2


def test_refusals_have_a_code_and_are_no_failures_of_the_server(heard: Heard):
    ask({"tracing": ON}, c.Push("no name!", b""))
    span = heard.named("push no name!")
    assert heard.attributes("push no name!")["error.type"] == "invalid"
    assert span.status.status_code is trace.StatusCode.UNSET


def test_a_pull_that_waits_ends_its_span_when_it_is_answered_or_given_up(heard: Heard):
    async def main() -> None:
        async with serving(tracing=ON) as place:
            client = AsyncClient(open_broker_at(place.port))
            waiting = asyncio.create_task(client.pull("a", wait_ms=60_000))
            await until_held(place)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await client.list_queues()
            served = asyncio.create_task(client.pull("b", wait_ms=60_000))
            await until_held(place)
            await client.push("b", b"")
            assert len(await served) == 1
            await client.close()

    asyncio.run(main())
    assert heard.attributes("pull a")["stoker.given_up"] is True
    assert heard.attributes("pull b")["messaging.batch.message_count"] == 1


async def until_held(place) -> None:
    from tests.served.on_loop import until

    await until(lambda: place.server.dispatcher.is_waiting)


@pytest.mark.parametrize(("labels", "expected"), [(False, None), (True, "default")])
def test_the_tenant_is_told_only_on_request(heard: Heard, labels: bool, expected: str | None):
    ask({"tracing": ON, "metrics": MetricsSettings(tenant_labels=labels)}, c.ListQueues())
    assert heard.attributes("list_queues").get("stoker.tenant") == expected


def test_without_the_setting_there_are_no_spans(heard: Heard):
    """Nor anything else: the dispatcher is the plain one."""

    async def main() -> None:
        async with serving() as place:
            assert type(place.server.dispatcher) is Dispatcher
            client = AsyncClient(open_broker_at(place.port))
            await client.push("mail", b"")
            await client.close()

    asyncio.run(main())
    assert not heard.spans


def test_the_setting_has_a_short_name_in_the_environment():
    from stoker.server.config import load

    loaded = load(environ={"STOKER_TRACING": "true"})
    assert loaded.config.tracing.enabled


@pytest.mark.parametrize("lines", [JsonLines(), PlainLines()])
def test_what_is_logged_inside_a_span_names_it(heard: Heard, lines: logging.Formatter):
    record = logging.makeLogRecord({"msg": "text", "name": "stoker.server"})
    assert "trace_id" not in lines.format(record)
    with heard.tracer.start_as_current_span("request") as span:
        text = lines.format(record)
    assert f"{span.get_span_context().trace_id:032x}" in text
    assert f"{span.get_span_context().span_id:016x}" in text


# --- headers and metadata ------------------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False])
def test_grpc_metadata_becomes_the_trace_of_what_is_pushed(native: bool):
    import grpc

    from stoker.proto import stoker_pb2 as pb
    from stoker.wire import native as wire

    with (
        ServerThread(ServerConfig(tcp=TcpListener(listen="off"), http=HttpListener(listen="off"), grpc=FREE)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        metadata = (("traceparent", PARENT), ("tracestate", "vendor=1"))
        if native:
            body = wire.request(
                c.PushBatch("a", [b"", b""], each=[Options(), Options(trace="own")]), 1, None, "msgpack"
            )
            call = channel.unary_unary("/stoker.v1.Queue/Call", pb.Frame.SerializeToString, pb.Frame.FromString)
            call(pb.Frame(body=body), metadata=metadata, timeout=60)
        else:
            call = channel.unary_unary(
                "/stoker.v1.Queue/Push", pb.PushRequest.SerializeToString, pb.PushReply.FromString
            )
            call(pb.PushRequest(queue="a"), metadata=metadata, timeout=60)
            call(pb.PushRequest(queue="a", options=pb.Options(trace="own")), metadata=metadata, timeout=60)
        jobs = list(Client(server.broker).pull("a", 2))
        assert [job.options.trace for job in jobs] == [f"{PARENT}\nvendor=1", "own"]


FREE = GrpcListener(listen="127.0.0.1:0")


def test_grpc_metadata_that_is_no_trace_is_ignored():
    import grpc

    from stoker.proto import stoker_pb2 as pb

    with (
        ServerThread(ServerConfig(tcp=TcpListener(listen="off"), http=HttpListener(listen="off"), grpc=FREE)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.unary_unary("/stoker.v1.Queue/Push", pb.PushRequest.SerializeToString, pb.PushReply.FromString)
        call(pb.PushRequest(queue="a"), metadata=(("traceparent", "garbage"),), timeout=60)
        (job,) = Client(server.broker).pull("a")
        assert job.options.trace is None


def test_http_headers_become_the_trace_of_what_is_pushed():
    import http.client

    with ServerThread(
        ServerConfig(
            tcp=TcpListener(listen="off"), grpc=GrpcListener(listen="off"), http=HttpListener(listen="127.0.0.1:0")
        )
    ) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"traceparent": PARENT, "tracestate": "vendor=1", "content-type": "application/json"}
        connection.request("POST", "/queues/a/jobs", b'{"data": 1}', headers)
        assert connection.getresponse().status in (200, 201)
        connection.close()
        (job,) = Client(server.broker).pull("a")
        assert job.options.trace == f"{PARENT}\nvendor=1"


def test_an_invalid_trace_of_a_push_is_refused_as_ever(heard: Heard):
    async def main() -> None:
        async with serving(tracing=ON) as place:
            client = AsyncClient(open_broker_at(place.port))
            with pytest.raises(InvalidRequest):
                await client.push("a", b"", trace=7)
            assert (await client.push_batch("a", [b""], each=[Options(trace=7)])).refused  # type: ignore[arg-type]
            await client.close()

    asyncio.run(main())
