"""Snapshots for other processes on this machine: the owner of a data directory makes them, the process that asks reads.

    snapshot   {}   {name: "snapshot-0123456789abcdef"}    a folder in the data directory (`journal/snapshots.py`)

Only the socket in the directory takes the command: a process that reaches it may read the files anyway. The request
names no path, so it cannot make the owner write anywhere else. The folder is removed by its reader, or when the
connection that asked for it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stoker.brokers.local import LocalBroker
from stoker.journal import snapshots
from stoker.model.errors import InvalidRequest, StokerError, Unavailable
from stoker.server.dispatcher import Done

Make = Callable[[Path], Awaitable[None]]
"""Makes an empty folder a data directory with the state of one moment."""

log = logging.getLogger("stoker.snapshots")


class Snapshots:
    """What the owner of one data directory makes, on its event loop."""

    def __init__(self, directory: Path, make: Make) -> None:
        self._directory = directory
        self._make = make
        self._one = asyncio.Lock()
        """One at a time: each of them stops the turns for a moment."""
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, done: Done) -> None:
        """Make one; `done` gets `{name}`, or a `StokerError`."""
        self._begin(self._submit(done))

    async def _submit(self, done: Done) -> None:
        try:
            async with self._one:
                reply: Any = {"name": await self._take()}
        except StokerError as error:
            reply = error
        except Exception as error:
            log.exception("a snapshot of %s could not be made", self._directory)
            reply = Unavailable(f"the snapshot could not be made: {error}")
        done(reply)

    async def _take(self) -> str:
        folder = await asyncio.to_thread(snapshots.new_folder, self._directory)
        try:
            await self._make(folder)
        except BaseException:
            await asyncio.to_thread(snapshots.remove, folder)
            raise
        return folder.name

    def drop(self, name: str) -> None:
        """The process that asked for it is gone, or has read it."""
        self._begin(asyncio.to_thread(snapshots.remove, self._directory / name))

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is being made or removed: it needs the journal."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def of_broker(broker: LocalBroker) -> Make:
    """Snapshots of a directory that this process has alone."""

    async def make(folder: Path) -> None:
        directory = broker.data_directory
        if directory is None:
            raise InvalidRequest("only a data directory has snapshots, and this queue has none")
        await asyncio.to_thread(directory.snapshot_into, folder)

    return make
