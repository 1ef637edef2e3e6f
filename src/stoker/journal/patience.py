"""Which threads may wait for a journal that has to read.

A turn runs on an event loop and under the broker's lock, so a journal behind a network reads nothing there: it raises
`NotAtHand` for what it does not have in memory. The same call within `patiently`, on a thread of its own, reads it.

A journal on disk reads in a turn what a delivery needs: it was mostly read ahead. A search may need much more, so a
server searches `hastily`: then a journal on disk raises `NotAtHand`, too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Patience(threading.local):
    may_wait = False
    is_hasty = False


_patience = _Patience()


def may_wait() -> bool:
    """Whether this thread may wait for a read."""
    return _patience.may_wait


@contextmanager
def patiently() -> Iterator[None]:
    """Within it, this thread may wait: it holds no lock, and no event loop runs on it."""
    before, _patience.may_wait = _patience.may_wait, True
    try:
        yield
    finally:
        _patience.may_wait = before


def is_hasty() -> bool:
    """Whether this thread must not wait for a disk either."""
    return _patience.is_hasty


@contextmanager
def hastily() -> Iterator[None]:
    """Within it, this thread waits for no disk: it searches, and an event loop waits for it."""
    before, _patience.is_hasty = _patience.is_hasty, True
    try:
        yield
    finally:
        _patience.is_hasty = before
