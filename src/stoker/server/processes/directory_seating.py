"""The processes of `stoker serve --processes N`: one for each part of a data directory. Their seats never move."""

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stoker.brokers.shared_directory import SERVER, notice
from stoker.journal.directory import take_lock
from stoker.journal.disk import Disk
from stoker.journal.resharding import Root, open_root
from stoker.journal.sqlite import reserve_of
from stoker.model import errors
from stoker.server.config import ServerConfig
from stoker.server.processes.control_channel import DirectoryPart, Orders
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.ports import Ports
from stoker.server.processes.supervisor import Life, Supervisor
from stoker.server.run import check_files

PATIENCE_S: Final = 15.0
"""How long to wait for the processes of a killed supervisor: they notice at once, and close what they have open."""
LOOK_S: Final = 0.05
TRIES: Final = 10
"""How often in a row a process may end before it is ready."""
SECRET_BYTES: Final = 32
RESERVE_BYTES_MIN: Final = 4096

T = TypeVar("T")


async def supervise(
    config: ServerConfig, again: Callable[[], ServerConfig] | None = None, notes: Sequence[str] = ()
) -> int:
    """Serve until told to stop. Returns the exit code."""
    check_files(config)
    ports = Ports(config)  # before the directory is opened: a server that cannot listen creates none
    try:
        root = opened_root(config)
        try:
            return await Supervisor(DirectorySeating(root, config.processes), ports, again, notes).run()
        finally:
            root.close()
    finally:
        ports.close()


def opened_root(config: ServerConfig) -> Root:
    """Take the directory, divided among the processes, once those of an earlier supervisor have released it."""
    assert config.data is not None
    path = Path(config.data)
    # fails at once if another program has it: what follows waits for processes that are ending
    os.close(take_lock(path))
    until = time.monotonic() + PATIENCE_S
    take = partial(open_root, path, config.processes, config.shards, vfs=config.journal.vfs)
    root = when_free(partial(take, notice=notice(SERVER, config.local)), until)
    try:
        for part in root.parts:
            os.close(when_free(lambda part=part: take_lock(part), until))  # type: ignore[misc]
    except BaseException:
        root.close()
        raise
    return root


def when_free(take: Callable[[], T], until: float) -> T:
    while True:
        try:
            return take()
        except errors.InUse:
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_S)


class DirectorySeating:
    """The parts of a data directory."""

    descriptors: Sequence[int] = ()

    def __init__(self, root: Root, processes: int) -> None:
        self._root = root
        self._processes = processes
        self._secret = secrets.token_bytes(SECRET_BYTES)
        """Of this start: a process of an earlier one does not know it."""
        self._epochs: Counter[int] = Counter()
        self._supervisor: Supervisor | None = None

    async def run(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        await asyncio.gather(*(supervisor.look_after(number) for number in range(self._processes)))

    def orders(self, number: int, config: ServerConfig, unix: int | None) -> Orders:
        self._epochs[number] += 1
        seat = ProcessSeat(
            number=number,
            seats=self._processes,
            secret=self._secret,
            epoch=self._epochs[number],
            directory=str(self._root.path.resolve()),
        )
        return Orders(seat, self.share_of(config), DirectoryPart(str(self._root.parts[number])), unix)

    def share_of(self, config: ServerConfig) -> ServerConfig:
        assert config.data is not None
        reserve = max(RESERVE_BYTES_MIN, reserve_of(config.journal, Path(config.data), Disk()) // config.processes)
        return msgspec.structs.replace(
            config,
            memory_bytes_max=config.memory_bytes_max // config.processes,
            events_bytes_max=config.events_bytes_max // config.processes,
            journal=msgspec.structs.replace(config.journal, disk_reserve_bytes=reserve),
        )

    def is_complete(self, ready: Collection[int]) -> bool:
        return len(ready) == self._processes

    def wants_again(self, number: int, life: Life, failures: int) -> bool:
        assert self._supervisor is not None
        is_first = not self._supervisor.was_ready(number)
        never = not life.was_ready and (is_first or life.is_hopeless or failures > TRIES)
        if never or life.has_lost_its_log:
            raise life.error(number)
        return True

    def look_again(self) -> None:
        """Its processes stay where they are."""
