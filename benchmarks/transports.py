"""HTTP and gRPC: a single push and a batch of 1,000, beside a uvicorn and a grpc.aio that only echo the same bytes.

Payloads of 100 bytes, level `commit`. `raw` sends bytes that were made once; the client is the one that users have.
Client and server are two processes on this machine. Every part checks that the server has the jobs.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import grpc

import stoker
import stoker.aio
from benchmarks.client import asyncio_run, calling
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.sizes import SECONDS, sized
from stoker.cli.measuring import push, quantiles, rate, times_us
from stoker.proto import stoker_pb2

CALLS = sized(2_000, 20)
CALLERS = 10
BATCH = 1_000
LINES = sized(200_000, 2_000)
PUSH, PUSH_BATCH = "/stoker.v1.Queue/Push", "/stoker.v1.Queue/PushBatch"


def tables() -> list[Row]:
    with place() as path, all_transports(path) as (http, calls), bare_transports() as (bare_http, bare_calls):
        rows = [*http_rows(http, bare_http), *grpc_rows(calls, bare_calls)]
        with stoker.connect(f"http://127.0.0.1:{http}") as client:
            counts = {queue: client.get_counts(queue).waiting for queue in ("q", "grpc")}
        assert min(counts.values()) > BATCH, counts
    return rows


@contextmanager
def ports_of(*command: str) -> Iterator[tuple[int, int]]:
    """A program that prints two addresses, one a line."""
    child = subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        first, second = (int(child.stdout.readline().rstrip().rsplit(":", 1)[-1]) for _ in range(2))
        yield first, second
    finally:
        child.stdin.close()
        child.terminate()
        child.wait(60)
        child.stdout.close()


@contextmanager
def all_transports(path: str) -> Iterator[tuple[int, int]]:
    """The ports of HTTP and gRPC of a server."""
    options = ("--tcp", "off", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    with ports_of("-m", "stoker", "serve", "--data", f"{path}/data", *options) as ports:
        yield ports


@contextmanager
def bare_transports() -> Iterator[tuple[int, int]]:
    with ports_of("-m", "benchmarks.bare_web") as ports:
        yield ports


def client_rows(kind: str, url: str, queue: str, floors: tuple[float, float, float]) -> list[Row]:
    """The client that users have: a single push, ten callers, and batches; beside the floors of the raw rows."""
    p50, callers, batches = floors
    with stoker.connect(url) as client:
        one = quantiles(times_us(lambda: client.push(queue, PAYLOAD), CALLS)).p50
        many = rate(lambda: len(push(client, queue, [PAYLOAD] * BATCH)[0]), SECONDS)
    return [
        Row(f"{kind}, one push, 1 caller, client, p50", one, p50, "us", "floor: a bare echo, raw"),
        Row(f"{kind}, one push, {CALLERS} callers, async client", async_rate(url, queue), callers, "pushes/s"),
        Row(f"{kind}, batches of {BATCH:,}, 1 caller, client", many, batches, note="it encodes each batch anew"),
    ]


def async_rate(url: str, queue: str) -> float:
    """Single pushes a second of ten tasks."""

    async def main() -> float:
        async with await stoker.aio.connect(url) as client:
            return await calling(CALLERS, lambda: client.push(queue, PAYLOAD))

    return asyncio_run(main())


# --- HTTP ------------------------------------------------------------------------------------------------------------


def http_rows(port: int, bare: int) -> list[Row]:
    one = http_request("/queues/q/jobs", b'{"data":"' + PAYLOAD + b'"}', "application/json")
    lines = b"\n".join([json.dumps(PAYLOAD.decode()).encode()] * BATCH)
    many = http_request("/queues/q/jobs/bulk?lines=data", lines, "application/x-ndjson")
    p50, floor = http_p50(port, one), http_p50(bare, one)
    callers, callers_floor = http_rate(port, one), http_rate(bare, one)
    batches, batches_floor = (BATCH * http_rate(which, many, 1) for which in (port, bare))
    return [
        Row("HTTP, one push, 1 connection, raw, p50", p50, floor, "us", "floor: a bare uvicorn that echoes"),
        Row(f"HTTP, one push, {CALLERS} connections, raw", callers, callers_floor, "pushes/s", "asked 8,000"),
        Row(f"HTTP, NDJSON of {BATCH:,} lines, 1 connection, raw", batches, batches_floor),
        Row(f"HTTP, NDJSON of {LINES:,} lines, 1 connection, raw", bulk_rate(port), note="asked 500,000"),
        *client_rows("HTTP", f"http://127.0.0.1:{port}", "q", (floor, callers_floor, batches_floor)),
    ]


def http_request(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def http_p50(port: int, request: bytes) -> float:
    with socket.create_connection(("127.0.0.1", port)) as wire, closing(wire.makefile("rb")) as answers:

        def ask() -> None:
            wire.sendall(request)
            assert answers.readline().startswith(b"HTTP/1.1 20")
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line[15:])
            answers.read(length)

        return quantiles(times_us(ask, CALLS)).p50


def http_rate(port: int, request: bytes, connections: int = CALLERS) -> float:
    """Requests a second over some connections, each with one request at a time."""

    async def main() -> float:
        pairs = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 20) for _ in range(connections)]
        free = list(pairs)

        async def ask() -> None:
            reader, writer = pair = free.pop()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 20"), head
            await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            free.append(pair)

        found = await calling(connections, ask)
        for _, writer in pairs:
            writer.close()
        return found

    return asyncio_run(main())


def bulk_rate(port: int) -> float:
    """Jobs a second in one request with very many lines."""
    from http.client import HTTPConnection

    body = (b'"' + PAYLOAD[:98] + b'"\n') * LINES
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        started = time.perf_counter()
        connection.request("POST", "/queues/q/jobs/bulk?lines=data", body, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        text = answer.read()
        taken = time.perf_counter() - started
    assert answer.status == 200, text[:200]
    return LINES / taken


# --- gRPC ------------------------------------------------------------------------------------------------------------


def grpc_rows(port: int, bare: int) -> list[Row]:
    one = stoker_pb2.PushRequest(queue="grpc", payload=PAYLOAD).SerializeToString()
    many = stoker_pb2.PushBatchRequest(queue="grpc", payloads=[PAYLOAD] * BATCH).SerializeToString()
    p50, floor = grpc_p50(port, one), grpc_p50(bare, one)
    callers, callers_floor = grpc_callers(port, one), grpc_callers(bare, one)
    batches, batches_floor = grpc_batches(port, many), grpc_batches(bare, many)
    return [
        Row("gRPC, one push, 1 caller, raw, p50", p50, floor, "us", "floor: a bare grpc.aio that echoes"),
        Row(f"gRPC, one push, {CALLERS} callers, raw", callers, callers_floor, "pushes/s"),
        Row(f"gRPC, batches of {BATCH:,}, 1 caller, raw", batches, batches_floor, note="asked 300,000"),
        *client_rows("gRPC", f"grpc://127.0.0.1:{port}", "grpc", (floor, callers_floor, batches_floor)),
    ]


def grpc_p50(port: int, request: bytes) -> float:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(PUSH)
        return quantiles(times_us(lambda: call(request), CALLS)).p50


def grpc_batches(port: int, request: bytes) -> float:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(PUSH_BATCH)
        return rate(lambda: BATCH if call(request) else 0, SECONDS)


def grpc_callers(port: int, request: bytes) -> float:
    async def main() -> float:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(PUSH)
            return await calling(CALLERS, lambda: call(request))

    return asyncio_run(main())
