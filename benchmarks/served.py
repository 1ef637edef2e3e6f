"""The speed of the server over TCP, with client and server in two processes on this machine.

Level `commit`, payloads of 100 bytes. Each figure has a floor from the same run: a bare loop that only decodes and
commits the same frames, or a bare echo of them (`bare.py`). The client encodes once and sends the same frames to both;
encoding has a line of its own. Every part checks afterwards that the server has the jobs.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, check, resident_bytes
from benchmarks.sizes import SECONDS, sized
from stoker.cli.measuring import push, quantiles, rate, settle, times_us
from stoker.model import commands as c
from stoker.wire import native

LENGTH = struct.Struct(">I")
CALLS = sized(5_000, 50)
CYCLED = sized(1_000_000, 2_000)
CROWD = sized(2_000, 20)
WAITING = sized(500, 10)
LINES = sized(200_000, 500)


def frame(command: c.Command[Any], number: int | None = None) -> bytes:
    body = native.request(command, number, None, "msgpack")
    return LENGTH.pack(len(body)) + body


class CountingSocket:
    """A blocking socket that counts frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.answers(1)[0]

    def answers(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        got = self._left
        while True:
            while len(got) >= 4 and len(got) - 4 >= (length := LENGTH.unpack_from(got)[0]):
                found.append(got[4 : 4 + length])
                got = got[4 + length :]
                if len(found) == count:
                    self._left = got
                    return found
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the server has closed the connection")
            got += chunk

    def close(self) -> None:
        self.socket.close()


@contextmanager
def process(*command: str) -> Iterator[int]:
    """A server that prints its address on its first line. Yields its port."""
    with process_and_id(*command) as (port, _):
        yield port


@contextmanager
def process_and_id(*command: str) -> Iterator[tuple[int, int]]:
    """The same with the id of the process."""
    child = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, text=True
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield int(child.stdout.readline().rstrip().rsplit(":", 1)[-1]), child.pid
    finally:
        child.stdin.close()
        child.terminate()
        child.wait(60)
        child.stdout.close()


@contextmanager
def stoker_server(path: str, *more: str) -> Iterator[int]:
    options = ("--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off")
    with process("-m", "stoker", "serve", "--data", f"{path}/data", *options, *more) as port:
        yield port


@contextmanager
def three_servers(*more: str) -> Iterator[tuple[int, int, int]]:
    """Stoker, the bare server that commits, and the bare echo."""
    with (
        place() as path,
        stoker_server(path, *more) as ours,
        process("-m", "benchmarks.bare", "commit", path) as commits,
        process("-m", "benchmarks.bare", "echo", path) as echoes,
    ):
        yield ours, commits, echoes


# --- pushes ----------------------------------------------------------------------------------------------------------


def push_rate(port: int, request: bytes, jobs: int) -> float:
    """Jobs a second with one request after another on one connection."""
    with closing(CountingSocket(port)) as wire:

        def step() -> int:
            wire.ask(request)
            return jobs

        return rate(step, SECONDS)


def client_rate(port: int, size: int) -> float:
    """The same through the client that users have."""
    with stoker.connect(f"tcp://127.0.0.1:{port}") as client:
        payloads = [PAYLOAD] * size
        found = rate(lambda: len(push(client, "encoded", payloads)[0]), SECONDS)
        client.obliterate("encoded")
    return found


def pushes() -> list[Row]:
    asked = ((10_000, 0.6), (1_000, 0.6), (100, 0.5), (10, 0.5))
    return [row for size, wanted in asked for row in pushes_of(size, wanted)]


def pushes_of(size: int, wanted: float) -> list[Row]:
    with three_servers() as (ours, commits, _):
        request = frame(c.PushBatch("q", [PAYLOAD] * size))
        raw, floor = push_rate(ours, request, size), push_rate(commits, request, size)
        assert waiting(ours) > 0
        through = client_rate(ours, size)
        what, of = f"push, batches of {size:,}, 1 connection", "a bare loop that decodes and commits"
        return [
            Row(f"{what}, through the client", through, floor, note="it encodes each batch anew"),
            Row(f"{what}, raw frames", raw, floor, note=f"asked {wanted} of the floor: {of}"),
        ]


def waiting(port: int) -> int:
    with stoker.connect(f"tcp://127.0.0.1:{port}") as client:
        return client.get_counts().waiting


# --- one job at a time -----------------------------------------------------------------------------------------------


def latencies_us(port: int, request: bytes, count: int = CALLS) -> list[float]:
    with closing(CountingSocket(port)) as wire:
        return times_us(lambda: wire.ask(request), count)


def in_flight_rate(port: int, make: Callable[[int], bytes], most: int) -> float:
    """Requests a second on one connection with `most` of them under way."""
    burst = b"".join(make(number) for number in range(most))
    with closing(CountingSocket(port)) as wire:

        def step() -> int:
            wire.socket.sendall(burst)
            return len(wire.answers(most))

        return rate(step, SECONDS)


def many_connections(port: int, request: bytes, connections: int) -> float:
    """Requests a second over many connections, each with one request at a time, driven by one event loop."""
    import asyncio

    import uvloop

    class Peer(asyncio.Protocol):
        count = 0
        until = time.perf_counter() + SECONDS

        def connection_made(self, transport: Any) -> None:
            self.transport, self.got = transport, b""
            transport.write(request)

        def data_received(self, data: bytes) -> None:
            self.got += data
            while len(self.got) >= 4 and len(self.got) - 4 >= (length := LENGTH.unpack_from(self.got)[0]):
                self.got = self.got[4 + length :]
                Peer.count += 1
                if time.perf_counter() < Peer.until:
                    self.transport.write(request)
                else:
                    self.transport.close()
                    ended.set()

    ended = asyncio.Event()

    async def main() -> float:
        started = time.perf_counter()
        Peer.until = started + SECONDS
        for _ in range(connections):
            await asyncio.get_running_loop().create_connection(Peer, "127.0.0.1", port)
        await ended.wait()
        return Peer.count / (time.perf_counter() - started)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def singles() -> list[Row]:
    with three_servers() as (ours, commits, echoes):
        request = frame(c.Push("q", PAYLOAD))
        us, floor = quantiles(latencies_us(ours, request)), quantiles(latencies_us(commits, request))
        rows = [
            Row(
                "one push, 1 connection, raw frames, p50",
                us.p50,
                floor.p50,
                "us",
                "asked <= 1.5 of a bare echo + commit",
            ),
            Row("one push, 1 connection, raw frames, p99", us.p99, floor.p99, "us", "asked <= 2"),
        ]

        def numbered(number: int) -> bytes:
            return frame(c.Push("q", PAYLOAD), number)

        pushed, echoed = (many_connections(port, request, 10) for port in (ours, echoes))
        rows.append(Row("one push, 10 connections, raw frames", pushed, echoed, note="asked 0.5 of a bare echo"))
        pushed, echoed = (in_flight_rate(port, numbered, 100) for port in (ours, echoes))
        rows.append(
            Row("one push, 1 connection, raw frames, 100 in flight", pushed, echoed, note="asked 0.5 of a bare echo")
        )
        pull = frame(c.Pull(["q"]))
        us, floor = quantiles(latencies_us(ours, pull)), quantiles(latencies_us(commits, pull))
        rows.append(
            Row(
                "one pull, 1 connection, raw frames, p50",
                us.p50,
                floor.p50,
                "us",
                "asked <= 1.5 of a bare echo + commit",
            )
        )
    return rows


def cycles() -> list[Row]:
    """Pull 1,000 and acknowledge them."""
    with place() as path, stoker_server(path) as port, stoker.connect(f"tcp://127.0.0.1:{port}") as client:
        client.push_many("q", [PAYLOAD] * CYCLED, batch_jobs=10_000)
        settled = rate(lambda: settle(client, "q", 1_000))
        check(client, CYCLED)
    return [Row("pull 1,000 + ack 1,000, 1 connection", settled, note="asked 500,000; the client decodes every job")]


# --- many ------------------------------------------------------------------------------------------------------------


def crowds() -> list[Row]:
    """Idle connections, and pulls that wait."""
    storm = ("--set", "server.connections_per_second_max=100000")  # they all connect at once
    with place() as path, stoker_server(path, *storm) as port:
        pid = server_pid(port)
        wires = [CountingSocket(port) for _ in range(10)]
        for wire in wires:
            wire.ask(frame(c.ListQueues()))
        before = resident_bytes(pid)
        count = CROWD
        wires += [CountingSocket(port) for _ in range(count)]
        for wire in wires[10:]:
            wire.ask(frame(c.ListQueues()))
        each = (resident_bytes(pid) - before) / count / 1024
        rows = [Row(f"memory of an idle connection, {CROWD:,} of them", each, unit="KB", note="asked <= 30")]
        plain = frame(c.Push("plain", PAYLOAD))
        alone = quantiles(latencies_us(port, plain)).p50
        for wire in wires[:WAITING]:
            wire.socket.sendall(frame(c.Pull(["crowded"], wait_ms=600_000)))
        crowded = quantiles(latencies_us(port, plain)).p50
        rows.append(Row(f"one push while {WAITING} pulls wait on another queue, p50", crowded, alone, "us"))
        note = "each push wakes one of the pulls; the floor is a push that wakes none"
        to_crowded = frame(c.Push("crowded", PAYLOAD))
        woken = quantiles(latencies_us(port, to_crowded, WAITING * 4 // 5)).p50
        rows.append(Row("one push to the queue on which they wait, p50", woken, alone, "us", note))
        for wire in wires:
            wire.close()
    return rows


def server_pid(port: int) -> int:
    """The process that listens on a port of this machine, found by its socket."""
    wanted = f"0100007F:{port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        inode = next(line.split()[9] for line in table if line.split()[1] == wanted and line.split()[3] == "0A")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if f"socket:[{inode}]" in links:
            return int(pid)
    raise RuntimeError(f"no process listens on {port}")
