"""Samples the counters of the queues at the end of every minute, and stores them off the event loop."""

import asyncio
import time

from stoker.model.history import MINUTE_MS
from stoker.server.served_broker import Counters


class HistorySampler:
    """The task of one process that samples its queues."""

    def __init__(self, counters: Counters | None) -> None:
        """A broker that counts elsewhere is not sampled."""
        self._counters = counters
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._counters is not None:
            self._counters.sample_history()  # from here on
            self._task = asyncio.get_running_loop().create_task(self._run(self._counters))

    async def _run(self, counters: Counters) -> None:
        while True:
            await asyncio.sleep(MINUTE_MS / 1000 - time.time() % (MINUTE_MS / 1000) + MARGIN_S)
            await asyncio.to_thread(counters.sample_history())

    async def close(self) -> None:
        """Store the minute that has begun."""
        if self._task is not None and self._counters is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            await asyncio.to_thread(self._counters.sample_history())


MARGIN_S = 0.05
"""A sample is taken a little after its minute has ended, whatever the clock's resolution."""
