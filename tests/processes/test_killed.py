"""Processes of a server that are killed under load: what was promised is there, once, and the server goes on."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.brokers.connect import open_broker
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.states import State
from tests.ports import kept_port
from tests.processes.serving import QUEUES, Served, serving, until
from tests.soaking import SOAKS

KILLS = 12 if SOAKS else 2
PUSHES_BETWEEN = 60
PATIENT = "?retry_s=60&timeout_s=20"


class Producer(threading.Thread):
    """Pushes to a queue of each process in turn, and remembers what it was promised."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__(daemon=True)
        self._number, self._url = number, url
        self.over = threading.Event()
        self.pushed: dict[bytes, int] = {}
        self.unsure: set[bytes] = set()
        self.surprise: BaseException | None = None
        self.codes: Counter[str] = Counter()

    def run(self) -> None:
        broker = open_broker(self._url + PATIENT)
        try:
            count = 0
            while not self.over.is_set():
                count += 1
                payload = b"%d-%d" % (self._number, count)
                try:
                    self.pushed[payload] = broker.execute("default", c.Push(QUEUES[count % 2], payload)).id
                except StokerError as error:
                    self.codes[error.code] += 1
                    self.unsure.add(payload)
        except BaseException as error:
            self.surprise = error
        finally:
            broker.close()


class Consumer(threading.Thread):
    """Pulls from both queues at once and acks, and remembers what it has done."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.over = threading.Event()
        self.done: Counter[bytes] = Counter()
        self.surprise: BaseException | None = None

    def run(self) -> None:
        broker = open_broker(self._url + PATIENT)
        try:
            while not self.over.is_set():
                self._work(broker)
        except BaseException as error:
            self.surprise = error
        finally:
            broker.close()

    def _work(self, broker: object) -> None:
        try:
            pull = c.Pull(list(QUEUES.values()), 10, wait_ms=200, lease_ms=2_000)
            delivery = broker.execute("default", pull)  # type: ignore[attr-defined]
            if not delivery.runs:
                return
            settled = broker.execute("default", c.Ack(delivery.ids, delivery.token))  # type: ignore[attr-defined]
        except StokerError:
            return  # it comes again when its lease runs out
        for job in delivery:
            if job.id not in settled.refused:
                self.done[bytes(job.payload)] += 1


@contextmanager
def load(url: str) -> Iterator[tuple[list[Producer], list[Consumer]]]:
    producers = [Producer(number, url) for number in range(4)]
    consumers = [Consumer(url) for _ in range(2)]
    threads: list[Producer | Consumer] = [*producers, *consumers]
    for thread in threads:
        thread.start()
    try:
        yield producers, consumers
    finally:
        for thread in threads:
            thread.over.set()
        for thread in threads:
            thread.join(60)


def wait_for_progress(producers: list[Producer], more: int) -> None:
    """Until each has been promised so many more jobs."""
    goals = [len(producer.pushed) + more for producer in producers]

    def is_there() -> bool:
        assert all(producer.is_alive() for producer in producers), [producer.surprise for producer in producers]
        return all(len(one.pushed) >= goal for one, goal in zip(producers, goals, strict=True))

    until(is_there, f"{more} more pushes of each producer")


def kill(server: Served, number: int) -> None:
    """And wait until it is there again."""
    pid = server.child(number)
    os.kill(pid, signal.SIGKILL)
    until(lambda: server.child(number) != pid, "a new process")


def remaining(url: str) -> Counter[bytes]:
    """Payloads of all jobs that nobody has acknowledged."""
    broker = open_broker(url + PATIENT)
    found: Counter[bytes] = Counter()
    try:
        while True:
            delivery = broker.execute("default", c.Pull(list(QUEUES.values()), 1_000, wait_ms=3_000))
            if not delivery.runs:
                return found
            found.update(bytes(job.payload) for job in delivery)
            broker.execute("default", c.Ack(delivery.ids, delivery.token))
    finally:
        broker.close()


def check_nothing_lost_or_doubled(
    url: str, producers: list[Producer], consumers: list[Consumer], left: Counter[bytes]
) -> None:
    """Call it when everything is worked off. An ack whose answer was lost has happened, or its job was done again."""
    assert [one.surprise for one in producers] + [one.surprise for one in consumers] == [None] * 6
    promised = {payload: job for producer in producers for payload, job in producer.pushed.items()}
    unsure = {payload for producer in producers for payload in producer.unsure}
    assert len(set(promised.values())) == len(promised), "one id was given twice"
    done = sum((consumer.done for consumer in consumers), left)
    assert [payload for payload, count in done.items() if count > 1] == [], "doubled"
    assert set(done) <= set(promised) | unsure
    broker = open_broker(url + PATIENT)
    try:
        for payload, job in promised.items():
            view = broker.execute("default", c.GetJob(job))
            assert (view.payload, view.state) == (payload, State.COMPLETED), "lost"
        pushed = broker.execute("default", c.GetStats()).totals.pushed
        assert len(promised) <= pushed <= len(promised) + len(unsure), "doubled"
    finally:
        broker.close()


def test_a_process_killed_under_load_loses_and_doubles_nothing(tmp_path: Path):
    with serving(tmp_path) as server:
        with load(server.url) as (producers, consumers):
            for round in range(KILLS):
                wait_for_progress(producers, PUSHES_BETWEEN)
                kill(server, round % 2)
            wait_for_progress(producers, PUSHES_BETWEEN)
        check_nothing_lost_or_doubled(server.url, producers, consumers, remaining(server.url))
        assert {code for one in producers for code in one.codes} <= {"unavailable", "unknown", "unreachable"}
        server.signal(signal.SIGTERM)
        code, errors = server.ended()
    assert code == 0
    assert errors.count("was killed by SIGKILL: it is started again") == KILLS


def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path):
    with kept_port() as port, serving(tmp_path, "--tcp", f"127.0.0.1:{port}") as server:
        children = server.children
        with load(server.url) as (producers, consumers):
            wait_for_progress(producers, PUSHES_BETWEEN)
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait(60)
            threads: list[Producer | Consumer] = [*producers, *consumers]
            for thread in threads:
                thread.over.set()
            until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the end of the processes")
            where = server.where["tcp"]
            again = Served(tmp_path, "--tcp", where)
            try:
                for thread in threads:
                    thread.join(90)
                check_nothing_lost_or_doubled(again.url, producers, consumers, remaining(again.url))
            finally:
                again.signal(signal.SIGTERM)
                assert again.ended()[0] == 0


def test_a_supervisor_started_at_once_waits_for_the_processes_of_the_killed_one(tmp_path: Path):
    with kept_port() as port, serving(tmp_path, "--tcp", f"127.0.0.1:{port}") as server:
        broker = open_broker(server.url)
        job = broker.execute("default", c.Push(QUEUES[0], b"a")).id
        broker.close()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
        with serving(tmp_path, "--tcp", server.where["tcp"]) as again:
            broker = open_broker(again.url)
            assert broker.execute("default", c.GetJob(job)).payload == b"a"
            broker.close()
