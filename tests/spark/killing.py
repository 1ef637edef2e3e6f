"""Kills work on a lake with SIGKILL between two of its file operations, in a process of its own and without Spark.

`killed_at` counts what Stoker does: files that it writes, moves and removes, and commits. `traced_to` counts what the
whole process asks of the system, delta-rs included, which writes the log of a table from threads of its own.
"""

import ctypes
import os
import platform
import signal
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, cast

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from stoker.spark.lake import forgetting, upkeep
from stoker.spark.lake.compaction import MERGED
from stoker.spark.lake.convert import convert
from stoker.spark.lake.files import Files
from stoker.spark.lake.layout import Lake, LayerView, Tables
from stoker.spark.lake.table import LiveFile
from stoker.spark.lake.writing import DataFile, FileWriter
from tests.crash.zygote import the_zygote
from tests.spark.lake_rows import NOON, finished

DAYS = 4
"""One batch for each of them."""
KEPT = 2
FORGOTTEN = "acme"


def take_in(lake: str) -> None:
    """One more batch, in all tables."""
    finished(Tables(lake), DAYS, NOON + timedelta(days=DAYS))


def expire(lake: str) -> None:
    upkeep.expire(Tables(lake), timedelta(days=KEPT), now=NOON + timedelta(days=DAYS))


def vacuum(lake: str) -> None:
    upkeep.vacuum(Tables(lake), timedelta(0))


def expire_and_vacuum(lake: str) -> None:
    expire(lake)
    vacuum(lake)


def forget(lake: str) -> None:
    """With `--now`. The rows that stay are written by Arrow and not by Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgetting, "rewritten", rewritten_without)
        forgetting.forget(cast(Lake, Tables(lake)), FORGOTTEN, now=True)


def rewritten_without(tables: Tables, layer: str, view: LayerView, old: list[LiveFile], tenant: str) -> list[DataFile]:
    found = tables.table(layer).open().to_pyarrow_dataset().to_table(filter=pc.field("tenant") != tenant)
    return list(FileWriter(tables.files, layer, MERGED).write(found.to_batches()))


WORK: dict[str, Callable[[str], Any]] = {
    "take_in": take_in,
    "expire_and_vacuum": expire_and_vacuum,
    "forget": forget,
    "convert": convert,
}

# --- steps of ours ----------------------------------------------------------------------------------


class Steps:
    """Counts before and after each operation, and ends this process at one of them."""

    def __init__(self, last: int) -> None:
        self.count, self._last = 0, last
        for place, name in (
            (Files, "move"),
            (Files, "remove"),
            (Files, "write_json"),
            (Files, "open_new"),
            (FileWriter, "_close"),
            (DeltaTable, "create"),
            (DeltaTable, "create_write_transaction"),
        ):
            setattr(place, name, self.counted(getattr(place, name)))

    def counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            self.tick()
            result = method(*given, **named)
            self.tick()
            return result

        return step

    def tick(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def work_by_steps(wire: "Connection[Any, Any]", work: str, lake: str, last: int) -> None:
    steps = Steps(last)
    WORK[work](lake)
    wire.send(steps.count)


def killed_at(step: int, work: str, lake: object) -> int | None:
    """Kill it at this step. If it ends earlier, or with step 0, how many steps it has."""
    return outcome(work_by_steps, work, str(lake), step)


def outcome(role: Callable[..., None], *given: object) -> int | None:
    with the_zygote().fork(role, *given) as child:
        try:
            return int(child.receive())
        except EOFError:
            assert child.join() == -signal.SIGKILL
            return None


# --- requests to the system -------------------------------------------------------------------------

TRACE_ME, CONTINUE_TO_SYSCALL, SET_OPTIONS, SYSCALL_INFO = 0, 24, 0x4200, 0x420E
MARKED, FOLLOW_THREADS, DIE_TOGETHER = 1, 8, 0x100000
ENTERED = 1
ALL_THREADS = 0x40000000
STOPPED_AT_SYSCALL = signal.SIGTRAP | 0x80
CALLS = {
    "x86_64": {
        "write": (1, 18, 20),
        "openat": (257,),
        "names": (76, 77, 82, 83, 84, 86, 87, 258, 263, 264, 265, 316),
    },
    "aarch64": {"write": (64, 66, 68), "openat": (56,), "names": (34, 35, 37, 38, 45, 46, 276)},
}
"""By machine, the numbers of what writes, what opens, and what makes, moves, cuts and removes names."""


class Info(ctypes.Structure):
    """What the system says of a process that has stopped at a request."""

    _fields_ = (
        ("kind", ctypes.c_uint8),
        ("padding", ctypes.c_uint8 * 3),
        ("machine", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("given", ctypes.c_uint64 * 6),
    )


class Tracer:
    """Runs work in a child of this process, and kills it when it asks for its nth change of a file."""

    def __init__(self, lake: str, last: int) -> None:
        self.count, self._lake, self._last = 0, lake, last
        self._calls = CALLS[platform.machine()]
        self._ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self._ptrace.argtypes = [ctypes.c_long] * 3 + [ctypes.c_void_p]

    def run(self, work: str) -> bool:
        """False if it was killed."""
        pid = os.fork()
        if not pid:
            self._ask(TRACE_ME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            WORK[work](self._lake)
            os._exit(0)
        os.waitpid(pid, 0)
        self._ask(SET_OPTIONS, pid, 0, MARKED | FOLLOW_THREADS | DIE_TOGETHER)
        self._ask(CONTINUE_TO_SYSCALL, pid)
        while True:
            thread, status = os.waitpid(-1, ALL_THREADS)
            if os.WIFSTOPPED(status):
                self._stopped(pid, thread, os.WSTOPSIG(status))
            elif thread == pid:
                assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), status
                return os.WIFEXITED(status)

    def _stopped(self, pid: int, thread: int, why: int) -> None:
        passed_on = 0
        if why == STOPPED_AT_SYSCALL and self._is_change(thread):
            self.count += 1
            if self.count == self._last:
                os.kill(pid, signal.SIGKILL)
        elif why not in (STOPPED_AT_SYSCALL, signal.SIGTRAP, signal.SIGSTOP):
            passed_on = why
        try:
            self._ask(CONTINUE_TO_SYSCALL, thread, 0, passed_on)
        except ProcessLookupError:  # it was killed
            pass

    def _is_change(self, thread: int) -> bool:
        info = Info()
        try:
            self._ask(SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.addressof(info))
        except ProcessLookupError:
            return False
        if info.kind != ENTERED:
            return False
        if info.number in self._calls["openat"]:
            return bool(info.given[2] & os.O_CREAT)
        if info.number in self._calls["write"]:
            return self._is_ours(thread, info.given[0])
        return info.number in self._calls["names"]

    def _is_ours(self, thread: int, descriptor: int) -> bool:
        try:
            return os.readlink(f"/proc/{thread}/fd/{descriptor}").startswith(self._lake)
        except OSError:
            return False

    def _ask(self, request: int, thread: int, given: int = 0, data: int = 0) -> None:
        if self._ptrace(request, thread, given, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace: {os.strerror(number)}")


def work_traced(wire: "Connection[Any, Any]", work: str, lake: str, last: int) -> None:
    tracer = Tracer(lake, last)
    wire.send(tracer.count if tracer.run(work) else None)


def traced_to(change: int, work: str, lake: object) -> int | None:
    """Kill it when it asks for this change of a file. If it ends earlier, or with 0, how many changes it makes."""
    with the_zygote().fork(work_traced, work, str(lake), change) as child:
        found: int | None = child.receive()
        return found
