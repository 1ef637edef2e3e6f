"""Whether the machine was quiet: the share of its CPU that other programs used during a run.

All processes of a benchmark carry a mark in their environment, so that a server which has left the family of this
process counts as ours, too. Spark's JVM outlives the program that started it: after `adopt_orphans`, its time is known
also after its end. The kernel says how busy the machine was (`/proc/stat`) and how much each process used.
"""

import ctypes
import os
import secrets
from pathlib import Path

LOUD = 0.06
"""The share of the machine from which a run does not count: an eighth of a core where there are two."""
MARK = "STOKER_BENCH_MARK"
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
"""For the system call prctl."""


def adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one, which never waits for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


class Watch:
    """Compares the machine's time with that of our own processes, from its making on."""

    def __init__(self) -> None:
        self._mark = os.environ.setdefault(MARK, secrets.token_hex(8)).encode()
        self._own = os.getpid()
        self._busy, self._whole = machine()
        self._ours = self._used()

    def others(self) -> float:
        """The share of the machine's time that other programs used."""
        busy, whole = machine()
        passed = whole - self._whole
        return max(0, busy - self._busy - (self._used() - self._ours)) / passed if passed else 0.0

    def _used(self) -> int:
        """Ticks of all our processes, with those of their children that have ended."""
        return sum(used(pid) for pid in filter(str.isdecimal, os.listdir("/proc")) if self._is_ours(pid))

    def _is_ours(self, pid: str) -> bool:
        if int(pid) == self._own:  # the mark came after it had started
            return True
        try:
            if (fields := stat_of(pid))[0] == "Z":  # its environment is gone; its time is still its own
                return int(fields[1]) == self._own
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False  # it has ended, or is another user's


def machine() -> tuple[int, int]:
    """Ticks of all cores since the start: busy, and in total."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, idle, waiting, interrupts, soft, stolen = map(int, stat.readline().split()[1:9])
    busy = user + nice + system + interrupts + soft + stolen
    return busy, busy + idle + waiting


def used(pid: str) -> int:
    """Ticks of a process and of its children that have ended."""
    try:
        return sum(map(int, stat_of(pid)[11:15]))
    except OSError:
        return 0


def stat_of(pid: str) -> list[str]:
    """What the kernel says of a process, from its state on."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()
