"""Counts the jobs that handlers have run, in a file that all processes share: the cheapest proof that work was done.

A job that carries a time (`at:SECONDS`, by CLOCK_MONOTONIC, which all processes share) also notes how long it took from
its push to its handler.

Each process has its own place, found by its pid, so that no lock is needed; threads of one process use their own.
"""

import mmap
import os
import struct
import threading
import time

PLACES = 1024
WORD = struct.Struct("=Q")
PAYLOAD = "x" * 100
"""What every job carries."""
STAMP = "at:"
DOUBLE = struct.Struct("=d")

_memory = None
_lock = threading.Lock()
_place = 0
_owner = 0
_count = 0


def count(text: str = "") -> None:
    """One job was run; `text` is what it carries."""
    global _count
    if text.startswith(STAMP):
        _note(time.perf_counter() - float(text[len(STAMP) :]))
    if _owner != os.getpid():
        _open()
    with _lock:
        _count += 1
        WORD.pack_into(_memory, _place, _count)


def _note(seconds: float) -> None:
    """One write of eight bytes: processes and threads do not get in each other's way."""
    descriptor = os.open(os.environ["STOKER_LATENCIES"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, DOUBLE.pack(seconds))
    os.close(descriptor)


def _open() -> None:
    """In every process anew: workers fork."""
    global _memory, _place, _owner, _count, _lock
    _lock = threading.Lock()
    descriptor = os.open(os.environ["STOKER_COUNTER"], os.O_RDWR)
    _memory = mmap.mmap(descriptor, PLACES * WORD.size)
    os.close(descriptor)
    _place = os.getpid() % PLACES * WORD.size
    _owner, _count = os.getpid(), WORD.unpack_from(_memory, _place)[0]
