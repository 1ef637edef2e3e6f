"""A server and some workers, each a process, and what they wrote down."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import stoker
from stoker.client.sync import Client
from stoker.model.events import Event
from stoker.model.states import State
from tests.histories.checker import CLOCK_MS, Checker
from tests.histories.history import Began, Ended
from tests.histories.stories import stories_of

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0


class Note(msgspec.Struct, frozen=True):
    """One line of a handler."""

    what: str
    job: int
    token: int
    attempt: int
    at: int
    pid: int


class Server:
    def __init__(self, folder: Path) -> None:
        listen = ("--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off")
        command = [sys.executable, "-m", "stoker", "serve", "--data", str(folder / "data"), *listen]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
        assert self.process.stdout is not None
        self.url = f"tcp://{self.process.stdout.readline().split()[1]}"

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Scene:
    """One test's queue, its workers and its notes."""

    def __init__(self, server: Server, folder: Path, queue: str) -> None:
        self.url, self.folder, self.queue = server.url, folder, queue
        self.client: Client = stoker.connect(server.url)
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Scene":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait(WAIT_S)
        self.client.close()

    # --- workers -----------------------------------------------------------------------------------

    def start_worker(self) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        environment |= {
            "STOKER_URL": self.url,
            "STOKER_NOTES": str(self.folder / "notes"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        command = [sys.executable, "-m", "tests.worker_kill.roles", self.queue]
        worker = subprocess.Popen(command, env=environment, cwd=self.folder, stderr=subprocess.DEVNULL)
        self.workers.append(worker)
        return worker

    def until_working(self, worker: "subprocess.Popen[bytes]") -> None:
        """It has told the list of workers of itself, which it does when it begins to pull."""
        name = f"w{worker.pid}"
        self.until(lambda: any(view.id == name for view in self.client.list_workers()), f"the start of {name}")

    # --- jobs --------------------------------------------------------------------------------------

    def push(self, name: str, *args: object, **options: Any) -> int:
        payload = msgspec.msgpack.encode(list(args))
        return self.client.push(self.queue, payload, name=name, codec="msgpack", **options).id

    def push_many(self, name: str, count: int, *args: object, **options: Any) -> list[int]:
        payload = msgspec.msgpack.encode(list(args))
        return list(self.client.push_many(self.queue, [payload] * count, name=name, codec="msgpack", **options).ids)

    def state(self, job: int) -> State:
        return self.client.get_state(job)

    def lease_until(self, job: int) -> int:
        return self.client.get_job(job).lease_until

    def result(self, job: int) -> str:
        view = self.client.get_job(job)
        assert view.state is State.COMPLETED, (view.state, view.error)
        assert view.result is not None
        decoded: str = msgspec.msgpack.decode(view.result)
        return decoded

    def until_done(self, jobs: int) -> None:
        self.until(lambda: self.client.get_stats(self.queue).totals.completed >= jobs, f"{jobs} completed jobs")

    # --- what happened -----------------------------------------------------------------------------

    def until(self, condition: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < give_up, f"{what} never happened"
            time.sleep(0.01)

    def stories(self, ids: list[int]) -> dict[int, list[Event]]:
        """What the queue tells of each of these jobs, in order."""
        return stories_of(self.client, ids, self.queue)

    def wrongs(self, ids: list[int]) -> dict[str, list[str]]:
        """What the checker of histories finds in what handlers wrote down, and the queue tells, of these jobs."""
        checker = Checker(CLOCK_MS)
        for note in self.notes():
            if note.what in ("begin", "end"):
                kind = Began if note.what == "begin" else Ended
                checker.read(kind(note.at, note.job, note.token, note.attempt))
        checker.check_told(self.stories(ids))
        return dict(checker.found)

    def notes(self) -> list[Note]:
        """The whole lines so far, in the order in which they were written."""
        path = self.folder / "notes"
        if not path.exists():
            return []
        lines = [line.split() for line in path.read_text().splitlines()]
        return [Note(line[0], *map(int, line[1:])) for line in lines]

    def has_noted(self, what: str, job: int, count: int = 1) -> bool:
        return sum(note.what == what and note.job == job for note in self.notes()) >= count
