"""How many connections the limit of open files (RLIMIT_NOFILE) leaves room for.

The journal opens files while the server runs. If connections took every descriptor, the journal could not write any
more. So connections get only what is left when the rest of the process has its share.
"""

import os
import sys
from typing import Final

RESERVED: Final = 128
"""For the journal's files, the process of a checkpoint, backups, name resolution: several times what they need at
once. Connections that were accepted and are closed again in the same turn fit in, too."""
SHARE: Final = 3
"""Where the limit is very low, at most a third of it is reserved."""
UNKNOWN_USE: Final = 64
"""Assumed to be open where the system does not tell."""
UNLIMITED: Final = 1 << 30


def limit() -> int:
    """How many descriptors this process may have."""
    if sys.platform == "win32":
        return UNLIMITED
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def in_use() -> int:
    """How many it has."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(directory))
        except OSError:
            pass
    return UNKNOWN_USE


def raise_limit(wanted: int) -> None:
    """Ask for as many as are wanted, as far as the hard limit allows: the soft one is low for old programs' sake."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            pass  # the old limit holds, and connections are bounded by it


def left_for_connections(others: int = 0) -> int:
    """What is left beside what is open now, what is reserved, and `others` that the server will open itself."""
    most = limit()
    return max(1, most - in_use() - min(RESERVED + others, most // SHARE))
