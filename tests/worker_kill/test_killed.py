"""Workers that are killed, stopped, starved and deployed: what becomes of their jobs."""

import os
import random
import signal
import subprocess
from operator import gt

import pytest

from stoker.model.options import Backoff
from stoker.model.states import State
from tests.worker_kill.scene import Scene

AT_ONCE = Backoff("fixed", 0, jitter="none")
KINDS = ("plain", "coroutine", "process")
SEED = 20261116
LEASE_MS = 1_500
"""Tests wait for its end. A busy machine has a second to renew it, and more to begin a job within it."""
SOAK = bool(os.environ.get("STOKER_SOAK"))
JOBS, KILLS, DEPLOYS = (2_000, 60, 30) if SOAK else (60, 3, 2)


def test_workers_killed_at_random_lose_nothing_and_run_nothing_beside_a_valid_lease(scene: Scene):
    chance = random.Random(SEED)
    endless = {"max_attempts": 0, "max_crashes": 0, "backoff": AT_ONCE, "lease_ms": LEASE_MS}
    ids = [job for kind in KINDS for job in scene.push_many(kind, JOBS, 8.0, **endless)]
    workers = [scene.start_worker() for _ in range(2)]
    scene.until(lambda: len(scene.notes()) > 10, "work")
    for _ in range(KILLS):
        wanted = len(scene.notes()) + chance.randrange(1, 40)
        scene.until(lambda: len(scene.notes()) >= wanted, "work")  # noqa: B023
        victim = workers.pop(chance.randrange(len(workers)))
        victim.kill()
        victim.wait()
        workers.append(scene.start_worker())
        ids += scene.push_many(chance.choice(KINDS), 30, 8.0, **endless)
    go = scene.folder / "go"
    ids.append(scene.push("deaf", str(go), **endless))
    scene.until(lambda: scene.has_noted("begin", ids[-1]), "the start of the last job")
    (holder,) = {note.pid for note in scene.notes() if note.job == ids[-1]}
    next(worker for worker in workers if worker.pid == holder).kill()  # certainly with a job in hand
    go.touch()
    scene.start_worker()
    scene.until_done(len(ids))
    assert scene.client.get_stats(scene.queue).totals.stalled > 0, "nobody was killed with a job in hand"
    assert scene.wrongs(ids) == {}


def test_a_worker_that_slept_past_its_lease_cannot_settle_what_another_has_done(scene: Scene):
    """The late ack is refused, and the sleeper goes on with other jobs."""
    go = scene.folder / "go"
    sleeper = scene.start_worker()
    job = scene.push("deaf", str(go), lease_ms=LEASE_MS, backoff=AT_ONCE, max_attempts=0, max_crashes=0)
    scene.until(lambda: scene.has_noted("begin", job), "the start of the job")
    sleeper.send_signal(signal.SIGSTOP)
    scene.until(lambda: scene.client.get_stats(scene.queue).totals.stalled >= 1, "the end of the lease")
    other = scene.start_worker()
    scene.until(lambda: scene.has_noted("begin", job, 2), "the second start of the job")
    go.touch()
    scene.until(lambda: scene.state(job) is State.COMPLETED, "its end")
    sleeper.send_signal(signal.SIGCONT)
    scene.until(lambda: scene.has_noted("end", job, 2), "the late end in the sleeper")
    assert scene.result(job) == f"w{other.pid}"
    other.terminate()
    assert other.wait(60) == 0
    later = scene.push("plain", 0.0)
    scene.until(lambda: scene.state(later) is State.COMPLETED, "a job of the sleeper")
    assert scene.result(later) == f"w{sleeper.pid}"
    assert scene.result(job) == f"w{other.pid}"
    assert scene.client.get_stats(scene.queue).totals.completed == 2


@pytest.mark.parametrize("kind", ["polite", "polite_coroutine", "polite_process"])
def test_a_handler_that_slept_past_its_lease_is_told(scene: Scene, kind: str):
    go = scene.folder / "go"
    sleeper = scene.start_worker()
    job = scene.push(kind, str(go), lease_ms=LEASE_MS, max_attempts=1)
    scene.until(lambda: scene.has_noted("begin", job), "the start of the job")
    sleeper.send_signal(signal.SIGSTOP)
    scene.until(lambda: scene.state(job) is State.FAILED, "the end of the lease")
    sleeper.send_signal(signal.SIGCONT)
    scene.until(lambda: scene.has_noted("told", job), "the news")
    assert scene.client.get_job(job).reason == "stalled"


@pytest.mark.parametrize("kinds", [("busy_plain", "busy_plain", "busy_coroutine"), ("busy_process",)])
def test_handlers_that_keep_a_core_busy_keep_their_leases(scene: Scene, kinds: tuple[str, ...]):
    """In threads that fight for the interpreter while a coroutine keeps the event loop; in a process."""
    go = scene.folder / "go"
    scene.start_worker()
    ids: list[int] = []
    for kind in kinds:
        ids.append(scene.push(kind, str(go), lease_ms=4_500, max_attempts=1))
        scene.until(lambda: scene.has_noted("begin", ids[-1]), f"the start of {kind}")
    first = [scene.lease_until(job) for job in ids]
    scene.until(lambda: all(map(gt, map(scene.lease_until, ids), first)), "a renewal of all leases")
    go.touch()
    scene.until_done(len(ids))
    assert [scene.client.get_job(job).attempts for job in ids] == [1] * len(ids)
    assert scene.client.get_stats(scene.queue).totals.stalled == 0
    assert scene.wrongs(ids) == {}


def test_a_job_that_kills_every_worker_ends_among_the_dead_letters(scene: Scene):
    job = scene.push("poison", lease_ms=LEASE_MS, max_attempts=0, max_crashes=2, backoff=AT_ONCE)
    workers: list[subprocess.Popen[bytes]] = []

    def is_dead() -> bool:
        if not workers or workers[-1].poll() is not None:
            if scene.state(job) is State.FAILED:
                return True
            if scene.state(job) is not State.ACTIVE:
                workers.append(scene.start_worker())
        return scene.state(job) is State.FAILED

    scene.until(is_dead, "the end of the job")
    view = scene.client.get_job(job)
    assert (view.reason, view.crashes) == ("worker_lost", 2)
    assert [worker.wait(60) for worker in workers[:2]] == [9, 9]


def test_a_job_that_kills_its_process_ends_among_the_dead_letters_and_the_worker_lives(scene: Scene):
    worker = scene.start_worker()
    job = scene.push("poison_process", max_attempts=2, backoff=AT_ONCE)
    others = scene.push_many("process", 20, 1.0)
    scene.until(lambda: scene.state(job) is State.FAILED, "the end of the job")
    scene.until_done(len(others))
    view = scene.client.get_job(job)
    assert (view.reason, view.attempts) == ("max_attempts_exceeded", 2)
    assert worker.poll() is None
    assert all(scene.client.get_job(other).attempts == 1 for other in others)


def test_deploys_under_load_cost_no_attempt(scene: Scene):
    """Every worker is replaced while jobs come and run: none is lost, and none runs twice."""
    ids: list[int] = []
    workers = [scene.start_worker() for _ in range(2)]
    for worker in workers:
        scene.until_working(worker)
    for _ in range(DEPLOYS):
        ids += [job for kind in KINDS for job in scene.push_many(kind, 80, 8.0)]
        wanted = len(scene.notes()) + 20
        scene.until(lambda: len(scene.notes()) >= wanted, "work")  # noqa: B023
        workers.append(scene.start_worker())
        old = workers.pop(0)
        old.terminate()
        assert old.wait(60) == 0
    scene.until_done(len(ids))
    assert scene.wrongs(ids) == {}
    attempts = {event.attempt for story in scene.stories(ids).values() for event in story if event.kind == "completed"}
    assert attempts == {1}
    begun = [note.job for note in scene.notes() if note.what == "begin"]
    assert len(begun) == len(set(begun)) == len(ids)
