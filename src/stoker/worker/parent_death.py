"""Ends a child process when its parent ends, however the parent ends. Linux guarantees it.

Elsewhere a child notices when the pipe to its parent closes. This module knows nothing of workers.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1

_prctl = None
if sys.platform == "linux":
    import ctypes

    _prctl = ctypes.CDLL(None, use_errno=True).prctl


def die_with_parent(by: signal.Signals = signal.SIGKILL, parent: int | None = None) -> None:
    """Called in the child: ask the kernel for this signal when the parent ends (precisely: the thread that started it).

    With the parent's pid, a parent that died before this call is noticed, too.
    """
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, int(by))
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), by)
