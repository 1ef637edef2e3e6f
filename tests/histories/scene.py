"""Brokers of every kind with clients at work, and what can happen to them meanwhile.

A scene has a broker (a server, a server of two processes, or a directory that its clients share) and client processes.
*Deeds* kill, stop and starve them. In the end everything that is left is worked off, and the checker reads the history.
"""

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import stoker
from stoker.brokers.local import LocalSettings
from stoker.journal.directory import holder_of
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.options import Options, Retention, Settings
from tests.crash.zygote import Child, the_zygote
from tests.faults.test_disk_full import MIB, Place, may_mount, mounted
from tests.histories.checker import CLOCK_MS, Checker
from tests.histories.history import Stopping
from tests.histories.recorder import Recorder, now_ms, recorded, wall_offset_ms
from tests.histories.roles import work
from tests.histories.stories import seen_in, stories_of, told_of
from tests.histories.workload import QUEUES, SHARDS, Manner
from tests.ports import kept_port
from tests.processes.serving import Served
from tests.soaking import SOAKS

MANNER = Manner(leases_ms=(200, 500), waits_ms=(0, 0, 30), fsyncs=0.2, kept=1_000_000)
BEYOND_LEASES_S = 0.7
LAST_LEASE_MS = 60_000
"""Of the client that works off what is left, a thousand jobs at a time: it must not lose them on the way."""
PATIENCE_S = 60.0
PATIENT = "?retry_s=60&timeout_s=20"

DISK_BYTES = (256 if SOAKS else 64) * MIB
WAL_BYTES = 300_000
"""So that files are finished and begun all the time."""
RESERVE_BYTES = 8 * MIB
SETTINGS = LocalSettings(
    engine=Settings(retention=Retention(completed_count=1_000_000)),
    shards=SHARDS,
    journal=JournalSettings(wal_bytes_max=WAL_BYTES, disk_reserve_bytes=RESERVE_BYTES),
)

EXCUSES = {
    "starve of descriptors": frozenset({"unavailable", "busy", "unreachable"}),
    "fill the disk": frozenset({"disk_full"}),
}
"""What pushes and pulls may be refused with where this is done."""


def until(condition: Callable[[], object], what: str) -> None:
    """Look again and again, for something that happens in another process."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"{what} never happened"
        time.sleep(0.005)


def fill(filler: Path, leave: int) -> None:
    """Take the room on a disk that others write to meanwhile."""
    taken = 0
    with filler.open("wb") as file:
        while (room := os.statvfs(filler.parent)).f_bavail * room.f_frsize > leave:
            step = max(room.f_frsize, (room.f_bavail * room.f_frsize - leave) // 2)
            try:
                os.posix_fallocate(file.fileno(), taken, step)
            except OSError:  # the others were quicker
                return
            taken += step


class Server:
    """`stoker serve` with every listener; who dies is started again, by its supervisor or by the test."""

    def __init__(self, folder: Path, data: Path, processes: int, ports: tuple[int, int, int]) -> None:
        self._folder, self._data, self._processes, self._ports = folder, data, processes, ports
        self._errors = (folder / "errors").open("a")
        self.excused = frozenset({"unavailable"} if processes > 1 else ())
        """One process answers for another that is not there at the moment."""
        self._served = self._serve()
        self.kills = 0

    def _serve(self) -> Served:
        tcp, http, grpc = (f"127.0.0.1:{port}" for port in self._ports)
        changed = {
            "shards": SHARDS,
            "journal.wal_bytes_max": WAL_BYTES,
            "journal.disk_reserve_bytes": RESERVE_BYTES,
        }
        options = [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
        return Served(
            self._folder,
            *("--data", str(self._data), "--tcp", tcp, *options),
            processes=self._processes,
            listen=("--http", http, "--grpc", grpc),
            errors=self._errors,
        )

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        return [
            f"{scheme}://127.0.0.1:{port}{PATIENT}"
            for scheme, port in zip(("tcp", "http", "grpc"), self._ports, strict=True)
        ]

    @property
    def settings(self) -> None:
        return None

    def pids(self) -> list[int]:
        """Of the processes that have a journal."""
        return [self._child(number) for number in range(self._processes)] if self._is_many else [self._pid]

    def _child(self, number: int) -> int:
        """The server may be ending over what was done to it before: then it is started again first."""
        found: int | None = None

        def is_there() -> bool:
            nonlocal found
            self.revive()
            found = self._served.find_child(number)
            return found is not None

        until(is_there, f"process {number}")
        assert found is not None
        return found

    @property
    def _is_many(self) -> bool:
        return self._processes > 1

    @property
    def _pid(self) -> int:
        return self._served.process.pid

    def kill(self, scene: "Scene") -> None:
        self.kills += 1
        number = scene.chance.randrange(self._processes)
        victim = self.pids()[number]
        os.kill(victim, signal.SIGKILL)
        if self._is_many:
            until(lambda: self._served.child(number) != victim, "a new process")
        else:
            self._again()

    def kill_supervisor(self) -> None:
        """Its processes end by themselves; then all of it is started again."""
        self.kills += 1
        children = self._served.children
        os.kill(self._pid, signal.SIGKILL)
        self._served.process.wait(PATIENCE_S)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the end of the processes")
        self._again()

    def revive(self) -> None:
        """Start it again if it has ended, as a supervisor would."""
        if self._served.process.poll() is not None:
            self._again()

    def _again(self) -> None:
        self._served.process.communicate(timeout=PATIENCE_S)
        self._served = self._serve()

    def stop(self) -> int:
        """At once, and in good order: with this code."""
        process = self._served.process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._served.process.kill()
            self._served.process.communicate()
            self._errors.close()

    def said(self) -> str:
        return (self._folder / "errors").read_text()


class Shared:
    """A data directory that the clients open themselves: one of them owns it."""

    kills = 0
    excused: frozenset[str] = frozenset()

    def __init__(self, data: Path) -> None:
        self._data = data
        self.url = f"sqlite:///{data}"
        self.urls = [self.url] * 4
        self.settings = SETTINGS

    def pids(self) -> list[int]:
        """The owner, as soon as there is one."""
        until(lambda: self._owner() is not None, "an owner")
        owner = self._owner()
        assert owner is not None
        return [owner]

    def _owner(self) -> int | None:
        pid = holder_of(self._data).pid
        return int(pid) if pid and Path(f"/proc/{pid}").exists() else None

    def kill(self, scene: "Scene") -> None:
        self.kills += 1
        (owner,) = self.pids()
        (client,) = [client for client in scene.clients if client.child.pid == owner]
        scene.replace(client)

    def revive(self) -> None:
        pass

    def close(self) -> None:
        pass

    def said(self) -> str:
        return ""


class Client:
    """A process with two clients."""

    def __init__(self, broker: Server | Shared, url: str, name: str, folder: Path) -> None:
        self.url, self.name, self._folder = url, name, folder
        self.is_stopped = False
        self.owns_at: int | None = None
        self.killed_at: int | None = None
        self.child: Child = the_zygote().fork(work, url, broker.settings, name, str(folder), MANNER)
        assert self.child.receive() == "open"

    def written(self) -> list[int]:
        """How much each of the two has written down."""
        files = [self._folder / f"{self.name}.{kind}.history" for kind in ("thread", "loop")]
        return [file.stat().st_size if file.exists() else 0 for file in files]

    def check(self) -> None:
        """It works, or its own error is raised."""
        while self.child.has_spoken():
            self._hear()

    def _hear(self) -> bool:
        match self.child.receive():
            case "owns", at:
                self.owns_at = at
                return True
            case "closed":
                return False
            case said:
                raise AssertionError(f"{self.name} said {said!r}")

    def kill(self) -> None:
        """What it said before is still heard."""
        self.killed_at = time.monotonic_ns()
        self.child.strike()
        try:
            while self._hear():
                pass
        except EOFError:
            self.child.join()

    def signal(self, number: int) -> None:
        os.kill(self.child.pid, number)
        self.is_stopped = number == signal.SIGSTOP

    def stop(self) -> None:
        if self.is_stopped:
            self.signal(signal.SIGCONT)
        self.child.send("stop")
        while self._hear():
            pass
        self.child.join()


class Scene:
    """A broker, its clients, and what becomes of them."""

    def __init__(self, broker: Server | Shared, disk: Place | None, seed: int, folder: Path) -> None:
        self.broker, self.disk, self.folder = broker, disk, folder
        self.chance = random.Random(seed)
        self.deeds: list[str] = []
        self._seed, self._numbers = seed, 0
        self._offsets = [wall_offset_ms()]
        """If the machine's clock is set meanwhile, clients and owners that began before and after disagree by that."""
        self._wakes: list[tuple[float, Client]] = []
        """Clients that are stopped, and when they may go on."""
        self.clients: list[Client] = []
        self.dead: list[Client] = []

    def start(self) -> None:
        for url in self.broker.urls:
            self.clients.append(self._start(url))

    def _start(self, url: str) -> Client:
        self._numbers += 1
        return Client(self.broker, url, f"{self._seed}.{self._numbers}", self.folder)

    def replace(self, client: Client) -> None:
        """Kill it and start another one."""
        client.kill()
        self.clients.remove(client)
        self.dead.append(client)
        self.clients.append(self._start(client.url))

    def let_work(self, bytes_each: int = 2_500) -> None:
        """Until every client that is not stopped has got on."""
        self._wake()
        before = {client: client.written() for client in self.clients if not client.is_stopped}

        def have_worked() -> bool:
            self._revive()
            for client in before:
                client.check()
            return all(
                now - then >= bytes_each
                for client in before
                for now, then in zip(client.written(), before[client], strict=True)
            )

        self._until(have_worked, f"work of every client, after {self.deeds}")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.broker.said()}") from None

    def _revive(self) -> None:
        """A server may end over what it lacked, and not all of its processes end at once."""
        if not EXCUSES.keys().isdisjoint(self.deeds):
            self.broker.revive()

    def _wake(self, all_of_them: bool = False) -> None:
        for when, client in list(self._wakes):
            if all_of_them:
                time.sleep(max(0.0, when - time.monotonic()))
            if time.monotonic() >= when:
                self._wakes.remove((when, client))
                client.signal(signal.SIGCONT)

    def awake(self) -> list[Client]:
        """Clients that can be killed or stopped without stopping everybody else."""
        owners = self.broker.pids()
        return [one for one in self.clients if not one.is_stopped and one.child.pid not in owners]

    # --- deeds -----------------------------------------------------------------------------------

    def play(self, *names: str) -> None:
        for name in names:
            self.let_work()
            self._offsets.append(wall_offset_ms())
            self.deeds.append(name)
            DEEDS[name](self)
        self.let_work()
        self._wake(all_of_them=True)
        self.let_work()

    def kill_broker(self) -> None:
        self.broker.kill(self)

    def kill_supervisor(self) -> None:
        """Its processes end in order, as after a SIGTERM, and hand back what runs."""
        assert isinstance(self.broker, Server)
        recorder = Recorder(self.folder, "scene")
        recorder.write(Stopping(now_ms()))
        self.broker.kill_supervisor()
        recorder.write(Stopping(now_ms(), over=True))
        recorder.close()

    def kill_client(self) -> None:
        self.replace(self.chance.choice(self.awake()))

    def stop_client(self) -> None:
        """It goes on when its leases have ended, with answers that it has not read yet."""
        client = self.chance.choice(self.awake())
        client.signal(signal.SIGSTOP)
        self._wakes.append((time.monotonic() + BEYOND_LEASES_S, client))

    def stop_broker(self) -> None:
        """Everybody waits, and all leases have ended when it goes on."""
        pid = self.chance.choice(self.broker.pids())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(BEYOND_LEASES_S)
        os.kill(pid, signal.SIGCONT)

    def starve_of_descriptors(self) -> None:
        """No process with a journal can open anything, until it may again."""
        before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in self.broker.pids()}
        for pid, (_, most) in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), most))
        time.sleep(BEYOND_LEASES_S)
        for pid, limits in before.items():
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            except ProcessLookupError:  # it may end over it
                pass

    def fill_disk(self) -> None:
        assert self.disk is not None
        fill(self.disk.filler, leave=RESERVE_BYTES // 8)
        time.sleep(BEYOND_LEASES_S)
        self.disk.filler.unlink()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        for client in self.clients:
            client.child.kill()
        self.broker.close()

    def check(self) -> Checker:
        """Stop all clients, work off what is left, and judge."""
        for client in self.clients:
            client.stop()
        excused = self.broker.excused.union(*(EXCUSES.get(deed, frozenset()) for deed in self.deeds))
        self._offsets.append(wall_offset_ms())
        checker = Checker(CLOCK_MS + max(self._offsets) - min(self._offsets), excused)
        with stoker.connect(self.broker.url, settings=self.broker.settings) as queue:
            recorder = Recorder(self.folder, "last")
            self._finish(queue, recorder)
            recorder.close()
            for entry in recorded(self.folder):
                checker.read(entry)
            seen = seen_in(queue)
            checker.check_drained(seen, queue.get_stats().totals.pushed, all_kept=True)
            for job in checker.missing:
                checker.found["missing"].append(told_of(queue, job))
            checker.check_told(stories_of(queue, [job.id for job in seen]))
        return checker

    def _finish(self, queue: stoker.Client, recorder: Recorder) -> None:
        """New jobs are taken, and nothing is left that could be worked off."""

        def ask(command: c.Command[Any]) -> Any:
            outcome: Any = None

            def is_there() -> bool:
                nonlocal outcome
                self._revive()
                outcome = recorder.ask(queue.broker, command)
                return getattr(outcome, "code", None) not in self.broker.excused

            self._until(is_there, "the return of all processes")
            assert not isinstance(outcome, StokerError), f"{outcome!r} after {self.deeds}"
            return outcome

        for number, name in enumerate(QUEUES):
            ask(c.Push(name, b"last/%d;" % number, Options(keep_completed_count=MANNER.kept)))

        def is_done() -> bool:
            delivery = ask(c.Pull(QUEUES, 1_000, wait_ms=100, worker="last", lease_ms=LAST_LEASE_MS))
            if delivery.runs:
                ask(c.Ack(delivery.ids, delivery.token))
                return False
            counts = queue.get_counts()
            return not counts.waiting + counts.delayed + counts.blocked + counts.active

        self._until(is_done, "the end of all jobs")


DEEDS: dict[str, Callable[[Scene], None]] = {
    "kill the broker": Scene.kill_broker,
    "kill the supervisor": Scene.kill_supervisor,
    "kill a client": Scene.kill_client,
    "stop a client": Scene.stop_client,
    "stop the broker": Scene.stop_broker,
    "starve of descriptors": Scene.starve_of_descriptors,
    "fill the disk": Scene.fill_disk,
}

MAY_MOUNT = may_mount()
"""Where no small file system can be mounted the disk never gets full: tests/faults does it there."""
KINDS = ("server", "two processes", "shared directory")


@contextmanager
def opened(kind: str, seed: int, folder: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(DISK_BYTES)) if MAY_MOUNT else None
        data = folder / "data" if disk is None else disk.path
        broker: Server | Shared
        if kind == "shared directory":
            broker = Shared(data)
        else:
            ports = stack.enter_context(kept_port()), stack.enter_context(kept_port()), stack.enter_context(kept_port())
            broker = Server(folder, data, 2 if kind == "two processes" else 1, ports)
        scene = Scene(broker, disk, seed, folder)
        stack.callback(scene.close)
        scene.start()
        yield scene
