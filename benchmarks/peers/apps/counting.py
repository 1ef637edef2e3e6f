"""Counts the jobs that handlers have run, in a file that all processes share: the cheapest proof that work was done.

Each process has its own place, found by its pid, so that no lock is needed; threads of one process use their own.
"""

import mmap
import os
import struct
import threading

PLACES = 1024
WORD = struct.Struct("=Q")
PAYLOAD = "x" * 100
"""What every job carries."""

_memory = None
_lock = threading.Lock()
_place = 0
_owner = 0
_count = 0


def count() -> None:
    """One job was run."""
    global _count
    if _owner != os.getpid():
        _open()
    with _lock:
        _count += 1
        WORD.pack_into(_memory, _place, _count)


def _open() -> None:
    """In every process anew: workers fork."""
    global _memory, _place, _owner, _count, _lock
    _lock = threading.Lock()
    descriptor = os.open(os.environ["STOKER_COUNTER"], os.O_RDWR)
    _memory = mmap.mmap(descriptor, PLACES * WORD.size)
    os.close(descriptor)
    _place = os.getpid() % PLACES * WORD.size
    _owner, _count = os.getpid(), WORD.unpack_from(_memory, _place)[0]
