"""How long a call to a server that does not answer is tried again, and how it waits in between: growing pauses with
jitter. Closing the broker ends a pause. Tests bring a patience of their own, with a clock that they move.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stoker.model.errors import StokerError

log = logging.getLogger("stoker.client")

PAUSE_S, PAUSE_S_MAX = 0.05, 2.0

RETRY_S = 5.0
"""Where the settings do not say: a web request that pushes a job can wait so long."""
WORKER_RETRY_S = 30.0
"""The same in a worker, whose jobs can wait, and whose server may just be restarted."""
SILENT_S = 1.0
"""After this time without an answer a line in the log says so."""

_in_worker: ContextVar[bool] = ContextVar("stoker.in_worker", default=False)


def be_patient() -> None:
    """Call this at the start of a thread or a process that belongs to a worker."""
    _in_worker.set(True)


@contextmanager
def patient() -> Iterator[None]:
    """The same for a block, and for the tasks and threads that asyncio starts in it."""
    token = _in_worker.set(True)
    try:
        yield
    finally:
        _in_worker.reset(token)


def default_retry_s() -> float:
    return WORKER_RETRY_S if _in_worker.get() else RETRY_S


class Outage:
    """Tells in the log when a server does not answer, once for each time that it is away, and when it is back."""

    def __init__(self) -> None:
        self.is_told = False

    def lasts(self, error: Exception, spent_s: float, left_s: float) -> None:
        if spent_s >= SILENT_S and not self.is_told:
            self.is_told = True
            log.warning("%s; this call is tried again for up to %.1f s", what_of(error), left_s)

    def over(self, address: object) -> None:
        self.is_told = False
        log.info("%s answers again", address)


def what_of(error: Exception) -> str:
    return error.message if isinstance(error, StokerError) else str(error)


class Patience:
    """The pauses of one broker."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._napping: set[asyncio.Future[None]] = set()

    def now(self) -> float:
        return time.monotonic()

    def jitter(self) -> float:
        """How much of a pause is really waited: clients that lost the same server must not all come back at once."""
        return random.uniform(0.5, 1.0)

    def pauses(self, total_s: float, began: float) -> Iterator[float | None]:
        """How long to wait after each try that fails; None where the try is the last. The first try has `began` then.

        There is a last try only while there is time: one that took all of it is not repeated.
        """
        deadline = began + total_s
        pause, now, is_first = PAUSE_S, began, True
        while now + pause < deadline:
            yield pause * self.jitter()
            pause, now, is_first = min(2 * pause, PAUSE_S_MAX), self.now(), False
        if is_first or now < deadline:
            yield None

    def nap(self, pause_s: float) -> None:
        self._ended.wait(pause_s)

    async def nap_async(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(pause_s, wake, future)
        self._napping.add(future)
        try:
            if not self._ended.is_set():
                await future
        finally:
            timer.cancel()
            self._napping.discard(future)

    def end(self) -> None:
        """From any thread: let all waiting calls go on at once."""
        self._ended.set()
        for future in list(self._napping):
            try:
                future.get_loop().call_soon_threadsafe(wake, future)
            except RuntimeError:
                pass  # its loop is closed, and no task waits on it

    def begin_anew(self) -> None:
        """In a forked process: the waiting calls belong to the parent."""
        was_ended, self._ended, self._napping = self._ended.is_set(), threading.Event(), set()
        if was_ended:
            self._ended.set()


def wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
