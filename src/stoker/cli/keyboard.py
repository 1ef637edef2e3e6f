"""Reads single keys from a terminal, without waiting for a line. Without a terminal no key is ever pressed."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Pressed = Callable[[float], str]
"""Waits up to this many seconds for a key; empty if none came."""


@contextmanager
def keys() -> Iterator[Pressed]:
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield _none
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)  # Ctrl-C keeps its meaning
        yield _from_terminal
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _none(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _from_terminal(seconds: float) -> str:
    import os
    import select

    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") if ready else ""
