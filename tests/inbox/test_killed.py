"""Readers in processes of their own, ended by SIGKILL: every committed row is one job, and there is no other."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

import stoker
from tests.crash.zygote import the_zygote
from tests.inbox.roles import read_and_die
from tests.inbox.stories import once, payloads
from tests.inbox.world import InboxWorld
from tests.soaking import SOAKS

WRITERS = 8
TRANSACTIONS = 100_000 if SOAKS else 10_000
PATIENCE_S = 600 if SOAKS else 400


def payloads_in(url: str) -> Counter[bytes]:
    """All jobs of a queue, by payload."""
    found = Counter[bytes]()
    with stoker.connect(url) as client:
        for queue in client.list_queues():
            while delivered := client.pull(queue, 1_000):
                found.update(job.payload for job in delivered)
                client.ack_batch(list(delivered.ids), delivered.token)
    return found


def test_a_process_that_is_killed_after_any_statement_loses_and_doubles_nothing(world: InboxWorld, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/whole"
    world.commit(*payloads(3))
    world.commit(*payloads(3, 3), queue="bills")
    with the_zygote().fork(read_and_die, world.url, url, 0) as reader:
        points = reader.receive()
    assert points >= 9
    for point in range(1, points + 1):
        url = f"sqlite:///{tmp_path}/{point}"
        world.commit(*payloads(3))
        world.commit(*payloads(3, 3), queue="bills")
        with the_zygote().fork(read_and_die, world.url, url, point) as reader:
            assert reader.join() == -signal.SIGKILL
        client = stoker.connect(url)
        world.read_all(world.reader(client.broker.execute_async))
        client.close()
        assert payloads_in(url) == once(*payloads(6)), f"killed at point {point} of {points}"


class Writer(threading.Thread):
    """Commits and rolls back transactions with one row each, as its own client of the database."""

    def __init__(self, url: str, number: int, transactions: int) -> None:
        super().__init__()
        self._url, self._transactions, self._random = url, transactions, random.Random(number)
        self._first = number * transactions
        self.committed: list[bytes] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url) as connection:
                for number in range(self._first, self._first + self._transactions):
                    payload = b"%d" % number
                    queue = f"queue-{number % 3}"
                    connection.execute("INSERT INTO stoker_inbox (queue, payload) VALUES (%s, %s)", (queue, payload))
                    if self._random.random() < 0.1:
                        connection.rollback()
                    else:
                        connection.commit()
                        self.committed.append(payload)
        except BaseException as error:
            self.error = error


def start_reader(source: str, target: str) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "stoker", "inbox", "run", "--from", source, "--to", target, "--log-level", "error"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


def catches_sigterm(pid: int) -> bool:
    """Whether a reader has come so far that a signal stops it in order."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_what_eight_writers_commit_is_pushed_once_while_readers_are_killed(world: InboxWorld, tmp_path: Path):
    """Three readers share the inbox and the directory of the queue, and one after another dies."""
    target = f"sqlite:///{tmp_path}/queue"
    readers = [start_reader(world.url, target) for _ in range(3)]
    writers = [Writer(world.url, number, TRANSACTIONS // WRITERS) for number in range(WRITERS)]
    until = time.monotonic() + PATIENCE_S
    try:
        for writer in writers:
            writer.start()
        kills = 0
        while any(writer.is_alive() for writer in writers) or kills < 3:
            rows = world.sql("SELECT count(*) FROM stoker_inbox WHERE batch IS NOT NULL")[0][0]
            if rows or not any(writer.is_alive() for writer in writers):  # in the middle of something
                victim = readers.pop(0)
                os.kill(victim.pid, signal.SIGKILL)
                victim.wait(60)
                kills += 1
                readers.append(start_reader(world.url, target))
                time.sleep(0.5)
            assert time.monotonic() < until
        for writer in writers:
            writer.join()
            assert writer.error is None
        while world.rows():
            world.age()
            time.sleep(0.5)
            assert time.monotonic() < until, world.sql("SELECT id, batch, error FROM stoker_inbox LIMIT 5")
        while not all(catches_sigterm(reader.pid) for reader in readers):
            time.sleep(0.05)
            assert time.monotonic() < until, "a reader does not start"
    finally:
        for reader in readers:
            reader.send_signal(signal.SIGTERM)
        codes = [reader.wait(60) for reader in readers]
    assert codes == [0, 0, 0]
    committed = Counter(payload for writer in writers for payload in writer.committed)
    assert payloads_in(target) == committed
    assert 0 < len(committed) < TRANSACTIONS


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("STOKER_") and name != "STOKER_SOAK"]:
        monkeypatch.delenv(name)
