"""Decides when a process is replaced: after a number of jobs, or above an amount of memory.

Handlers leak, or call libraries that do, and a fresh process is the cure that always works. The owner of the process
replaces it between two jobs.
"""

import os
import resource
import sys

import msgspec


class Recycling(msgspec.Struct, frozen=True):
    """Limits for one process; 0 means none."""

    jobs: int = 0
    memory_bytes: int = 0

    def reason(self, jobs: int, pid: int | None = None) -> str:
        """Why the process should be replaced after `jobs` jobs; empty while it need not be."""
        if self.jobs and jobs >= self.jobs:
            return f"{jobs} jobs"
        if self.memory_bytes:
            resident = resident_bytes(pid)
            if resident >= self.memory_bytes:
                return f"{resident >> 20} MiB of memory"
        return ""


def resident_bytes(pid: int | None = None) -> int:
    """Memory that a process holds in RAM. Where the system does not tell: the peak of this process, or 0."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        if pid is not None and pid != os.getpid():
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
