"""The worker of a harness: the real one, in its own thread and event loop, so that it works in any kind of test."""

import asyncio
import threading
from collections.abc import Callable

from stoker.worker.worker import Worker

STOP_S = 10.0


class Working:
    """Started by the first drain. Between drains it stands still, because its pulls are held."""

    def __init__(self, make: Callable[[], Worker], ended: Callable[[BaseException | None], object]) -> None:
        self._make = make
        self._ended = ended
        """Called when the worker ends, for any reason."""
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Does nothing if it runs already."""
        if self._thread is None:
            worker = self._worker = self._make()
            self._thread = threading.Thread(target=self._run, args=(worker,), name="stoker test worker", daemon=True)
            self._thread.start()

    def is_idle(self) -> bool:
        return self._worker is None or self._worker.is_idle

    def stop(self) -> None:
        """Let it finish the jobs that it has begun. A handler that hangs is abandoned: its thread ends with the
        process.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._worker is not None:
            self._worker.stop()
        thread.join(STOP_S)

    def _run(self, worker: Worker) -> None:
        try:
            asyncio.run(worker.serve())
        except BaseException as error:
            self._ended(error)
        else:
            self._ended(None)
