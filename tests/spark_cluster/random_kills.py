"""Who dies, and when, by chance: a driver is started again for as long as it has not done its work, and is killed
meanwhile as a schedule says, in whole or in part; so is the server of the queue. One seed makes one schedule.

Only descendants of processes that were started here are killed.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.spark_cluster.cluster import INSTALLED, PATIENCE_S, environment, killed, started, until
from tests.spark_cluster.random_work import SURPRISED, up

DRIVERS = ("driver", "driver", "java", "python")
"""The driver with all its processes, or one of the two that it is made of: the other one ends by itself."""
OTHERS = ("worker", "worker", "server")
"""One of Spark's Python processes, or an executor with its own; the server of the queue."""
STARTS_MORE = 3
"""A driver may end without being killed itself: because it lost its server, or was killed in the part that counts."""


WORK_S = 2 * PATIENCE_S
"""So long the work of a driver that nobody kills may take."""
START_S = 3.0
"""How long a driver takes until it works, as long as nobody has seen it."""


class Kill(NamedTuple):
    who: str
    after: float
    """The one before, or the start of the driver's work; 1 is as long as the driver took to come so far: a machine that
    is slow is slow in everything."""
    is_early: bool
    """Counted from the very start of the driver, should it not work yet."""
    away_ms: int
    """How long the server is away."""


def schedule(seed: int, drivers: int, others: int) -> list[Kill]:
    """So many kills of drivers, so many of others."""
    chance = random.Random(seed)
    who = [chance.choice(DRIVERS) for _ in range(drivers)] + [chance.choice(OTHERS) for _ in range(others)]
    chance.shuffle(who)
    return [
        Kill(one, round(1.5 * chance.random() ** 2, 3), chance.random() < 0.1, chance.randrange(1_500)) for one in who
    ]


class Server:
    """`stoker serve`, which can be killed, and comes back to where it was."""

    def __init__(self, folder: Path, port: int) -> None:
        listen = f"127.0.0.1:{port}"
        self.url, self._folder = f"tcp://{listen}", folder
        data = str(folder / "data")
        self._command = [sys.executable, "-m", "stoker", "serve", "--data", data, "--tcp", listen]
        self._command += ["--http", "off", "--grpc", "off"]
        self.start()

    def start(self) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, cwd=self._folder, env=variables, text=True
        )
        assert self._process.stdout is not None
        assert "tcp" in self._process.stdout.readline()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Driver:
    """One life of it."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self.log, self._folder = folder / f"driver-{number}.log", folder
        command = [sys.executable, "-m", "tests.spark_cluster.random_work", str(folder), str(seed)]
        self._since = time.time()
        self.process = started(command, self.log, environment(PYTHONPATH=INSTALLED))

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_up(self) -> bool:
        return up(self._folder, self.process.pid).exists()

    def start_s(self, or_else: float) -> float:
        """How long it took until it worked."""
        if not self.is_up:
            return or_else
        return up(self._folder, self.process.pid).stat().st_mtime - self._since

    def java(self) -> list[int]:
        return [pid for pid in below(self.process.pid) if "java" in words_of(pid)]

    def workers(self) -> list[int]:
        """Spark's Python processes on this machine, and executors of this driver."""
        found = [pid for java in self.java() for pid in below(java) if "pyspark" in words_of(pid)]
        if self.is_up:
            application = up(self._folder, self.process.pid).read_text()
            found += [pid for pid in all_processes() if is_executor(words_of(pid), application)]
        return found

    def kill(self) -> None:
        """With whatever belongs to it: Spark's Python processes are in groups of their own."""
        strike(below(self.process.pid))
        with contextlib.suppress(ProcessLookupError):
            killed(self.process)


def all_processes() -> dict[int, int]:
    """Each with its parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def below(pid: int) -> list[int]:
    """Its children, their children, and so on."""
    parents = all_processes()
    found = [child for child, parent in parents.items() if parent == pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def words_of(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_executor(words: str, application: str) -> bool:
    return "CoarseGrainedExecutorBackend" in words and application in words.split()


def strike(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Killing:
    """A schedule, carried out on drivers that do what is planned in a folder."""

    def __init__(self, folder: Path, server: Server, seed: int, kills: Sequence[Kill]) -> None:
        self.folder, self.server, self.kills = folder, server, kills
        self._chance = random.Random(seed)
        self._drivers: list[Driver] = []
        self._start_s = START_S
        self.hits: list[str] = []
        """Who was killed, in order; a kill may come too late for anything."""

    def run(self) -> None:
        """Until a driver ends by itself with everything done."""
        try:
            self._start()
            for kill in self.kills:
                if self._ended_well():
                    return
                self._wait(kill)
                if self._ended_well():
                    return
                HOW[kill.who](self, kill)
            while not self._ended_well():
                self.driver.process.wait(WORK_S)
        finally:
            for driver in self._drivers:
                driver.kill()

    @property
    def driver(self) -> Driver:
        return self._drivers[-1]

    def _start(self) -> None:
        self._drivers.append(Driver(self.folder, len(self._drivers), self._chance.randrange(2**32)))

    def _ended_well(self) -> bool:
        """One that ended otherwise is followed by another."""
        if not self.driver.is_over:
            return False
        code = self.driver.process.returncode
        if code == 0:
            return True
        assert code != SURPRISED, f"no kill explains this:\n{self.driver.log.read_text()}"
        most = 1 + len(self.kills) + STARTS_MORE
        assert len(self._drivers) < most, f"{most} drivers have not done it:\n{self.driver.log.read_text()}"
        self._start()
        return False

    def _wait(self, kill: Kill) -> None:
        if not kill.is_early:
            until(lambda: self.driver.is_up or self.driver.is_over, f"{self.driver.log} says that it works")
            self._start_s = self.driver.start_s(or_else=self._start_s)
        moment = time.monotonic() + kill.after * self._start_s
        until(lambda: time.monotonic() >= moment or self.driver.is_over, "the moment of a kill")

    def _kill_driver(self, kill: Kill) -> None:
        self.driver.kill()
        self.hits.append("driver")

    def _kill_java(self, kill: Kill) -> None:
        found = self.driver.java()
        strike(found)
        self.hits += ["java"] * len(found)
        if found:
            until(lambda: self.driver.is_over, f"{self.driver.log} ends, because its JVM is dead")

    def _kill_python(self, kill: Kill) -> None:
        """The next driver begins while the JVM of this one may still be there."""
        self.driver.process.kill()
        self.driver.process.wait()
        self.hits.append("python")

    def _kill_worker(self, kill: Kill) -> None:
        workers = sorted(self.driver.workers())
        if workers:
            one = self._chance.choice(workers)
            self.hits.append("executor" if "CoarseGrained" in words_of(one) else "worker")
            strike([one, *below(one)])

    def _kill_server(self, kill: Kill) -> None:
        self.server.end()
        time.sleep(kill.away_ms / 1000)
        self.server.start()
        self.hits.append("server")


HOW: dict[str, Callable[[Killing, Kill], None]] = {
    "driver": Killing._kill_driver,
    "java": Killing._kill_java,
    "python": Killing._kill_python,
    "worker": Killing._kill_worker,
    "server": Killing._kill_server,
}
