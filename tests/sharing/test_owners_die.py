"""Four processes work on one directory, and its owner is killed again and again: nothing lost, nothing doubled, one
owner at a time, and no error for those who live on.

Whoever is killed is replaced. What the processes were told is held against what is there in the end.
"""

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import stoker
from stoker.journal.directory import holder_of
from stoker.model.states import State
from tests.crash.restarted import fresh_directory
from tests.crash.zygote import Child, ChildFailed, the_zygote
from tests.sharing.roles import LEASE_MS, QUEUE, SETTINGS, work_together

PROCESSES = 4
KILLS = int(os.environ.get("STOKER_SOAK", 8))
ACKS_BETWEEN = 100
"""So many jobs are done between two deaths, and each process has done something: all have found the new owner."""
PATIENCE_S = 60


class Process:
    """One of those who work, and everything that it has said."""

    def __init__(self, path: Path, name: str) -> None:
        self.child: Child = the_zygote().fork(work_together, str(path), name)
        self.pushed: dict[bytes, int] = {}
        self.acked: list[int] = []
        self.owns_at: int | None = None
        self.ended_at: int | None = None
        self.failure: str | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while True:
                match self.child.receive():
                    case "owns", at:
                        self.owns_at = at
                    case "pushed", key, job:
                        self.pushed[key] = job
                    case "pushed_batch", keys, jobs:
                        self.pushed |= zip(keys, jobs, strict=True)
                    case "acked", jobs:
                        self.acked += jobs
        except EOFError:
            pass
        except (ChildFailed, TimeoutError) as error:
            self.failure = str(error)

    def kill(self) -> None:
        """What it said before is still heard."""
        self.ended_at = time.monotonic_ns()
        self.child.strike()
        self._listener.join(PATIENCE_S)
        self.child.join()

    def stop(self) -> None:
        self.child.send("stop")
        self._listener.join(PATIENCE_S)
        assert not self._listener.is_alive()
        self.child.join()


class Round:
    """One directory, through the deaths of many owners."""

    def __init__(self) -> None:
        self.path = fresh_directory()
        self.alive: list[Process] = []
        self.dead: list[Process] = []
        self._number = 0
        try:
            for _ in range(PROCESSES):
                self._start()
            for _ in range(KILLS):
                self._let_work()
                self._kill_owner()
            self._let_work()
        finally:
            for process in self.alive:
                process.stop()
        self.completed, self.left = self._work_off()
        shutil.rmtree(self.path)

    @property
    def all(self) -> list[Process]:
        return self.alive + self.dead

    def _start(self) -> None:
        self._number += 1
        self.alive.append(Process(self.path, str(self._number)))

    def _let_work(self) -> None:
        before = {process: len(process.acked) for process in self.alive}
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            done = [len(process.acked) - before[process] for process in self.alive]
            if min(done) and sum(done) >= ACKS_BETWEEN and any(process.owns_at for process in self.alive):
                return
            failed = [process.failure for process in self.alive if process.failure]
            assert not failed, failed[0]
            time.sleep(0.005)
        raise AssertionError("nobody gets on")

    def _kill_owner(self) -> None:
        pid = holder_of(self.path).pid
        (owner,) = [process for process in self.alive if str(process.child.pid) == pid]
        owner.kill()
        self.alive.remove(owner)
        self.dead.append(owner)
        self._start()

    def _work_off(self) -> tuple[Counter[bytes], int]:
        """How often each key is there, completed; and how much cannot be completed."""
        with stoker.connect(f"sqlite:///{self.path}", settings=SETTINGS) as queue:
            while delivery := queue.pull(QUEUE, 1_000, wait_ms=2 * LEASE_MS):
                queue.ack_batch(delivery.ids, delivery.token)
            counts = queue.get_counts()
            left = counts.waiting + counts.delayed + counts.active + counts.failed
            return Counter(all_completed(queue)), left


def all_completed(queue: stoker.Client) -> Iterator[bytes]:
    after = None
    while page := queue.browse(queue=QUEUE, state=State.COMPLETED, after=after, limit=1_000, ascending=True).jobs:
        yield from (job.payload for job in page)
        after = page[-1].id


@cache
def play() -> Round:
    return Round()


@pytest.fixture
def played() -> Round:
    return play()


def test_nobody_who_lives_on_is_told_of_an_error(played: Round):
    assert [process.failure for process in played.all if process.failure] == []
    assert len(played.dead) == KILLS


def test_no_push_that_was_answered_is_lost(played: Round):
    answered = [key for process in played.all for key in process.pushed]
    assert len(answered) > KILLS * ACKS_BETWEEN
    assert [key for key in answered if key not in played.completed] == []
    assert played.left == 0


def test_no_push_has_made_two_jobs(played: Round):
    """Sent again or not: also of those whose answer never came."""
    assert [key for key, times in played.completed.items() if times > 1] == []


def test_no_job_is_done_twice(played: Round):
    done = Counter(job for process in played.all for job in process.acked)
    assert [job for job, times in done.items() if times > 1] == []


def test_there_was_one_owner_at_a_time(played: Round):
    owners = sorted((process for process in played.all if process.owns_at), key=lambda process: process.owns_at or 0)
    assert len(owners) > KILLS, "each of those killed was an owner, and the last one was not killed"
    for owner, next_owner in pairwise(owners):
        if owner.ended_at is not None:
            assert next_owner.owns_at is not None
            assert next_owner.owns_at > owner.ended_at
