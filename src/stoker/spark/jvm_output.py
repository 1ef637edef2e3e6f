"""Filters the routine messages of a JVM and Spark out of standard error.

Only lines that are known to mean nothing are left out, and each is listed here; everything else passes through
unchanged, at once. It knows nothing of sessions.
"""

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NOISE = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile:",
    b"Setting default log level to ",
    b"To adjust logging level use sc.setLogLevel(",
    b"Setting Spark log level to ",
    b"Warning: Java versions > Java 11 can only operate in restricted mode where no off-heap operations are allowed!",
)
"""The beginnings of these lines: three kinds of greeting, and a library that lacks something we never use."""

STDERR = 2
CHUNK_BYTES = 65_536


@contextmanager
def kept_out() -> Iterator[None]:
    """Processes that are started in here write their standard error through this filter, for as long as they live."""
    try:
        real = os.dup(STDERR)
    except OSError:  # there is no standard error
        yield
        return
    out, into = os.pipe()
    os.dup2(into, STDERR)
    os.close(into)
    threading.Thread(target=carry, args=(out, real), name="stoker-spark-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(real, STDERR)


def carry(out: int, real: int) -> None:
    """Pass on everything, until the last writer has ended."""
    held = b""
    while chunk := os.read(out, CHUNK_BYTES):
        told, held = sifted(held + chunk)
        write(real, told)
    write(real, held)
    os.close(out)
    os.close(real)


def sifted(text: bytes) -> tuple[bytes, bytes]:
    """What to pass on, and the rest that could still become noise."""
    *lines, last = text.split(b"\n")
    told = b"".join(line + b"\n" for line in lines if not line.startswith(NOISE))
    if last and any(noise.startswith(last) or last.startswith(noise) for noise in NOISE):
        return told, last
    return told + last, b""


def write(real: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(real, text) :]
        except BlockingIOError:  # the pipe is full, and another process made it non-blocking
            select.select([], [real], [])
        except OSError:  # the reader is gone, which must not stop the writers
            return
