"""A child process that ends with its parent, however that ends: the kernel's promise where there is one (Linux).

Elsewhere a child notices by the pipe that its parent closes. It knows nothing of workers.
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
    """In the child: be sent this signal when the parent ends. To be exact, when the thread ends that started it.

    With the pid of the `parent` one that has died before this call counts, too.
    """
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, int(by))
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), by)
