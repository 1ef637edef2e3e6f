"""From a push to the start of its handler, and to its answer, while nothing else is to do: one job every 5 ms.

The floor of every line is a bare round trip in the same run, with the same pauses: a frame to a server that only echoes
it. The handler takes the time; all processes of a machine share the clock. `bare pull` is a client that waits in a
pull, without a worker. In the shared directory the web application pushes and the worker runs the job; one of the two
has the directory open and serves the other.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import CountingSocket, frame, process, stoker_server
from benchmarks.sizes import sized
from benchmarks.workers import ROLE
from stoker.cli.measuring import quantiles, times_us
from stoker.model import commands as c

JOBS = sized(400, 5)
WARM = sized(50, 1)
"""Not counted."""
PAUSE_S = 0.005
QUEUES = {"bare": "idle-bare", "begun": "idle", "begun_plain": "idle-plain"}
WHAT = {"bare": "bare pull", "begun": "async handler", "begun_plain": "plain handler"}


def table() -> list[Row]:
    with place() as path, process("-m", "benchmarks.bare", "echo", path) as echo:
        floor = quantiles(echoes(echo)).p50
        rows = [Row("bare round trip, p50", floor, unit="us", note="the floor of all lines")]
        with place() as data, stoker_server(data) as port:
            for name in QUEUES:
                with connected(f"tcp://127.0.0.1:{port}", name) as (client, child):
                    rows += rows_of(f"over TCP, {WHAT[name]}", *starts(client, child, name), floor, 3)
        for owner in ("worker", "pusher"):
            for name in QUEUES:
                with place() as data, sharing(f"sqlite:///{data}/queue", name, owner) as (client, child):
                    what = f"shared directory, the {owner} has it open, {WHAT[name]}"
                    rows += rows_of(what, *starts(client, child, name), floor, 4)
    return rows


def rows_of(what: str, begun: list[float], answered: list[float], floor: float, asked: int) -> list[Row]:
    found = quantiles(begun)
    note = "" if "bare" in what else f"asked <= {asked} of a bare round trip"
    return [
        Row(f"{what}, p50", found.p50, floor, "us", note),
        Row(f"{what}, p99", found.p99, unit="us"),
        Row(f"{what}, the push answered, p50", quantiles(answered).p50, unit="us"),
    ]


def echoes(port: int) -> list[float]:
    """Bare round trips, with the same pauses."""
    request = frame(c.Push("q", PAYLOAD))
    with closing(CountingSocket(port)) as wire:
        return times_us(lambda: wire.ask(request), WARM + JOBS, PAUSE_S)[WARM:]


@contextmanager
def connected(url: str, name: str) -> Iterator[tuple[stoker.Client, "subprocess.Popen[str]"]]:
    """A worker that is ready, and then a client."""
    with worker(url, name) as child, stoker.connect(url) as client:
        until_ready(client, child, name)
        yield client, child


@contextmanager
def sharing(url: str, name: str, owner: str) -> Iterator[tuple[stoker.Client, "subprocess.Popen[str]"]]:
    """A worker and a client that share a directory; the one that comes first has it open."""
    if owner == "worker":
        with connected(url, name) as both:
            yield both
        return
    with stoker.connect(url) as client:
        client.list_workers()
        with worker(url, name) as child:
            until_ready(client, child, name)
            yield client, child


def until_ready(client: stoker.Client, child: "subprocess.Popen[str]", name: str) -> None:
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    while name != "bare" and not client.list_workers():
        time.sleep(0.01)


def starts(client: stoker.Client, child: "subprocess.Popen[str]", name: str) -> tuple[list[float], list[float]]:
    """Microseconds from each push to the start of its handler, and to the answer."""
    kind = "begun" if name == "bare" else name

    def push() -> None:
        client.push(QUEUES[name], msgspec.msgpack.encode({"at": time.perf_counter()}), name=kind, codec="msgpack")

    answered = times_us(push, WARM + JOBS, PAUSE_S)
    assert child.stdout is not None
    said: list[float] = json.loads(child.stdout.readline())["latencies"]
    assert len(said) == WARM + JOBS
    return [seconds * 1e6 for seconds in said[WARM:]], answered[WARM:]


@contextmanager
def worker(url: str, name: str) -> Iterator["subprocess.Popen[str]"]:
    role = ("bare",) if name == "bare" else ("idle", name)
    child = subprocess.Popen(
        [*ROLE, *role, str(WARM + JOBS)], env={**os.environ, "STOKER_URL": url}, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait(60)
        assert child.stdout is not None
        child.stdout.close()
