"""Workers over a connection: settling, long polls, a server that goes away, processes and their signals."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.client.sync import Client
from stoker.model.options import Options, RateLimit
from stoker.model.states import State
from stoker.model.workflows import Edge, Step
from stoker.worker.worker import EXIT_OK, EXIT_RELEASED, Worker
from tests.client.serving import ServerThread, on_port
from tests.ports import kept_port
from tests.worker.running import WAIT_S, Beside, handler, happens, push, push_many


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as server:
        yield server


@pytest.fixture
def queue(server: ServerThread) -> Iterator[Client]:
    with stoker.connect(server.url) as client:
        yield client


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_thousands_of_jobs_each_run_once_over_tcp(server: ServerThread, queue: Client, kind: str):
    seen: list[int] = []

    async def note(number: int) -> int | None:
        seen.append(number)
        return number if number % 2 else None

    def note_plain(number: int) -> int | None:
        seen.append(number)
        return number if number % 2 else None

    ids = push_many(queue, "note", range(3_000))
    with Beside(Worker(server.url, [handler(note if kind == "async" else note_plain, name="note")])) as beside:
        for job in ids:  # the last one to come is not the last one to be done
            queue.wait_job(job)
    assert beside.is_finished
    assert sorted(seen) == list(range(3_000))
    assert queue.get_counts().completed == 3_000
    assert queue.get_job(ids[1_001]).result == b"1001"


def test_a_chain_runs_through_an_idle_worker_without_waiting_for_its_pulls(tmp_path: Path):
    """Over a data directory, whose queues live in different shards."""
    url = f"sqlite:///{tmp_path}/data"
    handlers = [handler(lambda: None, name=name, queue=name) for name in ("first", "second")]
    with stoker.connect(url) as queue, Beside(Worker(url, handlers, poll_ms=600_000)):
        while not queue.list_workers():
            time.sleep(0.005)
        steps = [Step("first", [b"[]"], Options(name="first", codec="json"))]
        steps.append(Step("second", [b"[]"], Options(name="second", codec="json"), after=[Edge(0)]))
        (_, (second, _)) = queue.push_workflow(steps).steps
        assert queue.wait_job(second, 20_000).state is State.COMPLETED


RATE_MS = 300


@pytest.mark.parametrize("waits_s", [0.0, RATE_MS / 1_000])
def test_a_rate_limit_of_one_queue_is_kept_while_the_worker_waits_for_another(
    server: ServerThread, queue: Client, waits_s: float
):
    check_rate(server.url, queue, waits_s)


def check_rate(worker_at: str | Client, queue: Client, waits_s: float, bound_ms: int = 20_000) -> None:
    """The pull that waits for the other queue is broken off when a token is back, and no token is there twice."""
    started: list[float] = []
    limited = handler(lambda: started.append(time.monotonic()), name="run", queue="a", rate=RateLimit(1, RATE_MS))
    idle = handler(lambda: None, name="idle", queue="b")
    with Beside(Worker(worker_at, [limited, idle], poll_ms=600_000)):
        while not queue.list_workers():
            time.sleep(0.005)
        time.sleep(waits_s)  # the bucket is full, and would be again
        pushed = time.monotonic()
        for number, job in enumerate([push(queue, "run", queue="a") for _ in range(4)]):
            assert queue.wait_job(job, bound_ms).finished, f"job {number + 1} waits for a token that is there"
    for number, at in enumerate(sorted(started)):
        assert at - pushed >= number * RATE_MS / 1_000 - 0.002, f"job {number + 1} began too early"


def test_a_job_that_comes_while_the_worker_waits_starts_at_once(server: ServerThread, queue: Client):
    started = threading.Event()
    with Beside(Worker(server.url, [handler(started.set, name="run")], poll_ms=600_000)):
        while not queue.list_workers():
            pass
        push(queue, "run")
        happens(started)


def test_a_worker_goes_on_when_its_connections_are_cut(server: ServerThread, queue: Client):
    """In the middle of a job, with a pull waiting: the job is settled once, and the next one comes."""
    started, go_on, runs = threading.Event(), threading.Event(), []

    def work(number: int) -> int:
        runs.append(number)
        if number == 1:
            started.set()
            happens(go_on)
        return number

    worker_client = stoker.connect(server.url)
    with worker_client, Beside(Worker(worker_client, [handler(work)])):
        first = push(queue, "work", 1)
        happens(started)
        cut(worker_client)
        go_on.set()
        assert queue.wait_job(first).result == b"1"
        second = push(queue, "work", 2)
        assert queue.wait_job(second).result == b"2"
    assert runs == [1, 2]


def cut(client: Client) -> None:
    """As if the network had failed: every connection of the client's broker breaks."""
    broker = client.broker
    for link in [*broker._pool._idle, *broker._pool._busy]:  # type: ignore[attr-defined]
        link._socket.shutdown(2)
    for loop, streams in list(broker._streams.items()):  # type: ignore[attr-defined]
        if streams.link is not None:
            loop.call_soon_threadsafe(streams.link._transport.abort)


def test_a_worker_waits_for_a_server_that_is_replaced():
    done: list[int] = []
    with kept_port() as port:
        url = f"tcp://127.0.0.1:{port}"
        with ServerThread(on_port(port)), stoker.connect(url) as client:
            beside = Beside(Worker(url, [handler(done.append, name="run")]))
            beside.__enter__()
            client.wait_job(push(client, "run", 1))
        with ServerThread(on_port(port)), stoker.connect(url) as client:
            client.wait_job(push(client, "run", 2))
            beside.__exit__(None, None, None)
    assert (done, beside.is_finished) == ([1, 2], True)


PROGRAM = """
import sys, time, asyncio
from stoker.worker.context import current_job
from stoker.worker.worker import Worker
from tests.worker.running import handler

def hold(path):
    open(path, "w").close()
    while not current_job().stopping:
        time.sleep(0.001)
    if path.endswith("for_ever"):
        time.sleep(60)

sys.exit(Worker(sys.argv[1], [handler(hold)], drain="20s").run())
"""


class Process:
    """`Worker.run()` in a process of its own, with a job that has begun."""

    def __init__(self, server: ServerThread, queue: Client, mark: Path) -> None:
        self.job = push(queue, "hold", str(mark), max_attempts=1)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])}
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, server.url], env=environment)
        try:
            asyncio.run(self._until_begun(mark))
        except BaseException:
            self.process.kill()
            raise

    async def _until_begun(self, mark: Path) -> None:
        async with asyncio.timeout(WAIT_S):
            while not os.path.exists(mark):  # noqa: ASYNC240  # there is nothing else on this loop
                assert self.process.poll() is None
                await asyncio.sleep(0.005)

    def ends(self) -> int:
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.process.kill()


def test_sigterm_lets_what_runs_finish(server: ServerThread, queue: Client, tmp_path: Path):
    process = Process(server, queue, tmp_path / "begun")
    process.process.send_signal(signal.SIGTERM)
    assert process.ends() == EXIT_OK
    assert queue.get_state(process.job) is State.COMPLETED


def test_a_second_signal_hands_back_what_runs_and_costs_no_attempt(server: ServerThread, queue: Client, tmp_path: Path):
    process = Process(server, queue, tmp_path / "for_ever")
    process.process.send_signal(signal.SIGTERM)
    process.process.send_signal(signal.SIGINT)
    assert process.ends() == EXIT_RELEASED
    view = queue.get_job(process.job)
    assert (view.state, view.attempts) == (State.WAITING, 0)


def test_probes_hear_that_the_worker_is_in_touch_with_its_queue(server: ServerThread, queue: Client):
    from urllib.request import urlopen

    worker = Worker(server.url, [handler(print)], health=0)
    with Beside(worker):
        while worker.report().status != "ok":
            pass
        with urlopen(f"http://127.0.0.1:{worker.health_port}/ready", timeout=WAIT_S) as answer:
            assert answer.status == 200


def test_a_worker_and_an_application_share_a_file_without_a_server(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/jobs"
    with stoker.connect(url) as client, Beside(Worker(url, [handler(lambda number: number + 1, name="next")])):
        job = push(client, "next", 1)
        assert client.wait_job(job).result == b"2"
