"""Handlers in child processes: what they bring back, what their deaths cost, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stoker.client.sync import Client
from stoker.model.options import Backoff
from stoker.model.states import State
from stoker.worker.errors import BadHandler
from stoker.worker.process_lane import ProcessLane
from stoker.worker.recycling import Recycling
from stoker.worker.worker import Worker
from tests.lanes import jobs
from tests.worker.running import LEASE_MS, WAIT_S, Beside, handler, push, push_many

AT_ONCE = Backoff("fixed", 0, jitter="none")


def until(condition: Callable[[], object], what: str) -> None:
    """For what happens in another process, which can set no event of ours."""
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up, f"{what} never happened"
        time.sleep(0.002)


def worker(queue: Client, *names: str, processes: int = 1, **settings: object) -> Worker:
    return Worker(queue, jobs.named(*names), processes=processes, registered=False, **settings)  # type: ignore[arg-type]


def result(queue: Client, job: int) -> object:
    view = queue.get_job(job)
    assert view.state is State.COMPLETED, (view.state, view.error)
    return None if view.result is None else msgspec.json.decode(view.result)


def is_alive(pid: int) -> bool:
    """One that has ended and waits to be buried is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- what comes back ---------------------------------------------------------------------------------


def test_jobs_run_in_other_processes_and_their_results_come_back(queue: Client):
    ids = push_many(queue, "work", [1.0] * 100)
    assert worker(queue, "work", processes=2).run_until_idle() == 100
    pids = {result(queue, job) for job in ids}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert not any(is_alive(pid) for pid in pids if isinstance(pid, int))


def test_an_error_comes_back_as_text_with_the_verdict_of_its_policy(queue: Client):
    odd = push(queue, "odd_error", max_attempts=1)
    failed, snoozed, dead, by_policy, left = (
        push(queue, "fail", how) for how in ("raise", "snooze", "dead", "policy", "exit")
    )
    worker(queue, "fail", "odd_error").run_until_idle()
    assert queue.get_job(odd).error == "a file named \\udcff"
    views = {job: queue.get_job(job) for job in (failed, snoozed, dead, by_policy, left)}
    assert (views[failed].state, views[failed].error) == (State.DELAYED, "no good")
    assert (views[snoozed].state, views[snoozed].attempts) == (State.DELAYED, 0)
    assert (views[dead].state, views[dead].error) == (State.FAILED, "no use")
    assert "in fail" in views[by_policy].stack
    assert views[by_policy].state is State.FAILED
    assert "sys.exit('enough')" in views[left].error


def test_a_handler_in_a_process_tells_of_its_job_and_keeps_a_checkpoint(queue: Client):
    job = push(queue, "told", 5, backoff=AT_ONCE)
    worker(queue, "told").run_until_idle()
    assert result(queue, job) == 5
    assert queue.get_progress(job).message == "half"
    assert [line.message for line in queue.get_logs(job)] == ["number 5", "number 5"]
    assert [chunk.data for chunk in queue.get_partials(job)] == [b"piece", b"piece"]
    assert not queue.kv_keys("*").keys


def test_asynchronous_functions_and_dependencies_work_in_processes(queue: Client):
    job = push(queue, "coroutine", 1)
    worker(queue, "coroutine").run_until_idle()
    assert result(queue, job) == 8


def test_a_soft_timeout_is_raised_in_the_handler(queue: Client):
    job = push(queue, "soft", max_attempts=1)
    worker(queue, "soft").run_until_idle()
    assert "50 ms" in queue.get_job(job).error


def test_a_long_job_does_not_keep_those_behind_it_from_an_idle_process(queue: Client, tmp_path: Path):
    """Short jobs wait in a child beside a long one only until another child has nothing to do."""
    warm = push_many(queue, "work", [0.1] * 50, queue="warm")
    mixed = [push(queue, "slow_once", str(tmp_path / "first"), str(tmp_path / "go")) for _ in range(30)]
    with Beside(worker(queue, "work", "slow_once", processes=2, queues=["warm", "default"], prefetch=30)):
        until(lambda: sum(queue.get_state(job) is State.COMPLETED for job in mixed) == 29, "29 of 30 done")
        (tmp_path / "go").touch()
        until(lambda: all(queue.get_state(job) is State.COMPLETED for job in warm + mixed), "the rest")


def test_what_was_fetched_ahead_and_stands_still_goes_back_and_what_was_done_is_told(queue: Client, tmp_path: Path):
    """Another worker could do it; and results do not wait for the end of the long job behind them."""
    go = tmp_path / "go"
    payloads = [msgspec.json.encode([number, str(go)]) for number in range(40)]
    ids = list(queue.push_many("default", payloads, name="short_then_long", codec="json").ids)
    with Beside(worker(queue, "short_then_long")):
        until(lambda: queue.get_counts().active == 1 and queue.get_counts().completed == 20, "the standstill")
        views = [queue.get_job(job) for job in ids]
        assert [view.state for view in views[:20]] == [State.COMPLETED] * 20
        assert views[20].state is State.ACTIVE
        assert all((view.state, view.attempts) == (State.WAITING, 0) for view in views[21:])
        go.touch()
        until(lambda: queue.get_counts().completed == 40, "the rest")


# --- deaths ------------------------------------------------------------------------------------------


def test_a_crash_costs_one_job_an_attempt_and_nobody_else_anything(queue: Client):
    others = push_many(queue, "work", [0.1] * 10)
    poisons = []
    for how in ("exit", "segfault", "killed"):
        poisons.append(push(queue, "crash", how, max_attempts=1))
        others += push_many(queue, "work", [0.1] * 10)
    worker(queue, "work", "crash", prefetch=50).run_until_idle()
    views = [queue.get_job(job) for job in poisons]
    assert [view.state for view in views] == [State.FAILED] * 3
    assert [view.error.rpartition(": ")[2] for view in views] == ["exit code 3", "SIGSEGV", "SIGKILL (out of memory?)"]
    assert [event.error_class for event in queue.story(poisons[0]).events if event.error_class] == ["WorkerCrashed"]
    assert all(queue.get_job(job).attempts == 1 for job in others)
    assert all(queue.get_state(job) is State.COMPLETED for job in others)


def test_jobs_that_had_ended_before_a_crash_do_not_run_again(queue: Client, tmp_path: Path):
    """What they came to may not have been sent: that they had no result is written where the worker finds it."""
    notes = tmp_path / "notes"
    payloads = [msgspec.json.encode([number, str(notes)]) for number in range(40)]
    queue.push_many("default", payloads, name="crash_last", codec="json", backoff=AT_ONCE)
    worker(queue, "crash_last", prefetch=40).run_until_idle()
    ran = [int(line) for line in notes.read_text().split()]
    assert sorted(ran) == sorted([*range(40), 30])


def test_a_job_that_always_kills_its_process_becomes_a_dead_letter(queue: Client):
    poison = push(queue, "crash", "exit", max_attempts=3, backoff=AT_ONCE)
    worker(queue, "crash").run_until_idle()
    view = queue.get_job(poison)
    assert (view.state, view.attempts) == (State.FAILED, 3)


def test_a_death_is_noticed_although_a_grandchild_holds_the_socket(queue: Client, tmp_path: Path):
    job = push(queue, "fork_and_die", str(tmp_path / "pid"), max_attempts=1)
    worker(queue, "fork_and_die").run_until_idle()
    grandchild = int((tmp_path / "pid").read_text())
    assert is_alive(grandchild)
    os.kill(grandchild, signal.SIGKILL)
    assert "exit code 1" in queue.get_job(job).error


def test_children_end_with_a_worker_that_is_killed(tmp_path: Path):
    script = f"""
import stoker
from stoker.worker.worker import Worker
from tests.lanes import jobs
from tests.worker.running import push
with stoker.connect("memory://") as queue:
    push(queue, "hold", {str(tmp_path / "started")!r}, {str(tmp_path / "go")!r})
    Worker(queue, jobs.named("hold"), processes=2).run()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as parent:
        until((tmp_path / "started").exists, "the start of the job")
        children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
        assert len(children) == 2
        parent.kill()
    until(lambda: not any(map(is_alive, children)), "the end of the children")


# --- stopping ----------------------------------------------------------------------------------------


def test_a_cancelled_job_is_stopped_in_its_process(queue: Client, tmp_path: Path):
    job = push(queue, "spin", str(tmp_path / "began"), str(tmp_path / "ended"), lease_ms=LEASE_MS)
    with Beside(worker(queue, "spin", "pid")):
        until((tmp_path / "began").exists, "the start of the job")
        queue.cancel(job)
        until(lambda: queue.get_state(job) is State.CANCELLED, "its end")
        assert (tmp_path / "ended").exists(), "the handler could not clean up"
        after = push(queue, "pid")
        until(lambda: queue.get_state(after) is State.COMPLETED, "the next job")


def test_a_job_that_times_out_and_does_not_listen_is_killed(queue: Client, tmp_path: Path):
    lane = worker(queue, "stubborn", "pid")
    job = push(queue, "stubborn", str(tmp_path / "began"), timeout_ms=2_000, max_attempts=1)
    with Beside(lane):
        until((tmp_path / "began").exists, "the start of the job")
        after = push(queue, "pid")
        until(lambda: queue.get_state(after) is State.COMPLETED, "the next job")
    assert queue.get_job(job).reason == "timeout"


def test_a_handler_sees_that_its_worker_stops(queue: Client, tmp_path: Path):
    job = push(queue, "until_stopping", str(tmp_path / "began"))
    with Beside(worker(queue, "until_stopping")) as beside:
        until((tmp_path / "began").exists, "the start of the job")
        beside.worker.stop()
        beside.join()
    assert result(queue, job) == "saw it"


def test_what_a_process_has_not_begun_is_handed_back_at_no_cost(queue: Client, tmp_path: Path):
    ids = [push(queue, "hold", str(tmp_path / "began"), str(tmp_path / "go")) for _ in range(5)]
    with Beside(worker(queue, "hold", prefetch=10)) as beside:
        until((tmp_path / "began").exists, "the start of the job")
        beside.worker.stop()
        until(lambda: queue.get_state(ids[-1]) is State.WAITING, "the return of the last one")
        (tmp_path / "go").touch()
        beside.join()
    views = [queue.get_job(job) for job in ids]
    assert views[0].state is State.COMPLETED
    assert all((view.state, view.attempts) in ((State.WAITING, 0), (State.COMPLETED, 1)) for view in views)
    assert views[-1].state is State.WAITING


def test_stopping_at_once_hands_back_what_runs_at_no_cost(queue: Client, tmp_path: Path):
    job = push(queue, "hold", str(tmp_path / "began"), str(tmp_path / "go"), max_attempts=1)
    with Beside(worker(queue, "hold")) as beside:
        until((tmp_path / "began").exists, "the start of the job")
        beside.worker.stop()
        beside.worker.stop_now()
        beside.join()
    view = queue.get_job(job)
    assert (view.state, view.attempts) == (State.WAITING, 0)


# --- replacing ---------------------------------------------------------------------------------------


def test_a_process_is_replaced_after_so_many_jobs(queue: Client):
    ids = push_many(queue, "work", [0.1] * 50)
    worker(queue, "work", recycling=Recycling(jobs=20), prefetch=5).run_until_idle()
    pids = [result(queue, job) for job in ids]
    assert len(set(pids)) >= 2
    assert all(queue.get_job(job).attempts == 1 for job in ids)


def test_a_process_that_has_grown_is_replaced(queue: Client):
    ids = [push(queue, "leak") for _ in range(4)]
    worker(queue, "leak", recycling=Recycling(memory_bytes=150 * 1024 * 1024)).run_until_idle()
    assert len({result(queue, job) for job in ids}) >= 2


# --- declaring ---------------------------------------------------------------------------------------


def test_a_function_that_no_other_process_can_find_is_refused():
    def inside() -> None: ...

    hidden = handler(inside, kind="process", origin=f"{__name__}:{inside.__qualname__}")
    with pytest.raises(BadHandler, match="top of a module"):
        ProcessLane(1, [hidden])


def test_a_worker_whose_processes_cannot_import_their_handlers_does_not_start(queue: Client):
    lost = handler(jobs.wait_for, kind="process", origin="tests.lanes.jobs:nowhere")
    with pytest.raises(BadHandler, match="nowhere"):
        Worker(queue, [lost], processes=1).run_until_idle()


def test_a_script_may_have_its_handlers_in_itself(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import logging
import stoker
from stoker.worker.handler import Handler
from stoker.worker.worker import Worker

def double(payload):
    logging.getLogger("mine").info("doubling")
    return payload * 2

twice = Handler(name="twice", function=double, kind="process", origin="__main__:twice", result_codec="bytes")

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="<%(name)s> %(message)s")
    with stoker.connect("memory://") as queue:
        job = queue.push("default", b"ab", name="twice").id
        Worker(queue, [twice], processes=1).run_until_idle()
        print(queue.get_result(job))
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "b'abab'", done.stderr
    assert "<mine> doubling" in done.stderr, "children log as the worker does"
