"""A broker that forgets whatever it has not written: its process is ended before every command.

Two times it is closed in order, one time it is killed, in turn, and each test begins elsewhere in that turn. Then the
same directory is opened at the time that it was before: after a kill by a new process; after a close by the same one,
which is cheaper by far, and in the soak by a new one, too. What was answered at the level `memory` is not promised to
survive a kill, so a close comes next. Only where nothing but looks and refusals have come since the last restart, and
no record was written and no time has passed, the process stays: it has just been recovered, and ending it again would
show the same, or hide what a refusal has changed in memory.

A process that a test leaves behind serves the next one, which has another directory.
"""

import atexit
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, TypeVar

from stoker.brokers.local import LocalSettings
from stoker.journal.recovery import GAP
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.testing import FakeClock
from tests.crash.roles import serve_brokers
from tests.crash.zygote import Child, the_zygote

R = TypeVar("R")

LOOKS = (
    c.GetJob,
    c.FindJob,
    c.GetLogs,
    c.GetPartials,
    c.Browse,
    c.Why,
    c.ListQueues,
    c.GetQueue,
    c.GetQueues,
    c.GetStats,
    c.GetPriorities,
    c.GetTimings,
    c.GetBulk,
    c.ListBulks,
    c.GetDeadGroups,
    c.CountJobs,
    c.ReadEvents,
    c.ReadRecords,
    c.ListDead,
    c.GetDeadStats,
    c.KvGet,
    c.KvGetMany,
    c.KvExists,
    c.KvTtl,
    c.KvKeys,
)

SOAKS = os.environ.get("STOKER_SOAK") == "1"
KILLED_EVERY = 2 if SOAKS else 3
RESTARTS_MAX = 6 if SOAKS else 5
RARELY = 20
MANY = 200
"""A test that does a thing a thousand times sees a restart before each of the first, and then now and then."""

SHARED_MEMORY = Path("/dev/shm")


def fresh_directory() -> Path:
    """In memory where that is possible: it is the death of processes that is tested, not the disk."""
    path = tempfile.mkdtemp(prefix="stoker-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)  # whatever becomes of the test
    return Path(path)


_idle: list[Child] = []
"""Processes that wait for a directory."""


class RestartedBroker:
    """Seen from the process of the test. One call at a time: whoever waits moves the clock and is back at once."""

    def __init__(self, settings: LocalSettings, gap: int = GAP, turn: int = 0) -> None:
        self.now = FakeClock().now_ms()
        self._gap = gap
        self._turn = turn
        self.restarts = 0
        self._calls = 0
        self._settings = settings
        self._directory = fresh_directory()
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_recovered = True
        """Has nothing happened since it was opened?"""
        self._may_be_killed = True
        self._child = self._start(_idle.pop() if _idle else None)

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        return self._call("execute", tenant, command, looks=isinstance(command, LOOKS))  # type: ignore[no-any-return]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        return self._call("execute_async", tenant, command, looks=isinstance(command, LOOKS))  # type: ignore[no-any-return]

    def close(self) -> None:
        if not self._is_closed:
            self._call("close_broker", looks=False)
            self._is_closed = True

    def advance(self, ms: int) -> None:
        """Time passes: for a process that lives, or while there is none, in turn."""
        if self.restarts % 4 < 2 or self._is_closed:
            self._call("advance", ms, looks=False)
            return
        with self._lock:
            self._restart(ms)
        self._call("advance", 0, looks=False)

    def picture(self, tenant: str) -> Any:
        return self._call("picture", tenant, looks=True)

    def dispose(self) -> None:
        if SOAKS or self._is_closed:
            self._child.kill()
        else:
            self._close()
            _idle.append(self._child)
        shutil.rmtree(self._directory)

    def _call(self, verb: str, *arguments: Any, looks: bool) -> Any:
        with self._lock:
            self._calls += 1
            rarely = RARELY if self._calls < MANY else RARELY * RARELY
            is_spared = self.restarts > RESTARTS_MAX and self._calls % rarely != 0
            if not self._is_recovered and not self._is_closed and not is_spared:
                self._restart()
            before = self.now
            self._child.send((verb, *arguments))
            answer, self.now, has_written = self._child.receive()
            changed_nothing = looks or isinstance(answer, StokerError)
            self._is_recovered = changed_nothing and not has_written and self.now == before
            if has_written and getattr(answer, "level", "") == "memory":
                self._may_be_killed = False
        if isinstance(answer, StokerError):
            raise answer
        return answer

    def _start(self, child: Child | None = None) -> Child:
        """A process that has the directory open: this one, or a new one."""
        child = child or the_zygote().fork(serve_brokers)
        child.send((str(self._directory), self._settings, self.now, self._gap))
        assert child.receive() == "open"
        self._is_recovered = self._may_be_killed = True
        return child

    def _restart(self, ms: int = 0) -> None:
        """End it, and begin anew after some time."""
        self.restarts += 1
        self.now += ms
        if (self.restarts + self._turn) % KILLED_EVERY == 0 and self._may_be_killed:
            self._child.kill()
            self._child = self._start()
        else:
            self._close()
            if SOAKS:
                self._child.kill()
            self._child = self._start(None if SOAKS else self._child)

    def _close(self) -> None:
        self._child.send(("close",))
        assert self._child.receive() == "closed"


class Restarted:
    """The backing of a world in which nothing lives on but what was written."""

    def __init__(self, settings: LocalSettings, gap: int = GAP, turn: int = 0) -> None:
        self.broker = RestartedBroker(settings, gap, turn)

    @property
    def now(self) -> int:
        return self.broker.now

    def advance(self, ms: int) -> None:
        self.broker.advance(ms)

    def picture(self, tenant: str) -> Any:
        return self.broker.picture(tenant)

    def close(self) -> None:
        self.broker.dispose()
