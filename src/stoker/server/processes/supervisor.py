"""Supervises the processes of one server: `stoker serve --processes N`.

The supervisor holds the data directory and the ports, starts the processes, restarts those that die, and passes signals
on. It serves no requests itself. When it dies, the processes notice and end; the next start then finds everything as if
all of them had died.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
from stoker.server.broker_stopped import LogFailed
from stoker.server.config import ServerConfig
from stoker.server.processes.control_channel import Channel, Orders, ProcessFailed, ProcessReady, Reload, Stop
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.ports import Ports
from stoker.server.run import check_files

PATIENCE_S: Final = 15.0
"""How long to wait for the processes of a killed supervisor: they notice at once, and close what they have open."""
LOOK_S: Final = 0.05
AGAIN_S: Final = 0.1
AGAIN_S_MAX: Final = 5.0
"""The longest pause before a process is restarted; it doubles while the process does not live long."""
LONG_S: Final = 30.0
TRIES: Final = 10
"""How often in a row a process may end before it is ready."""
HOPELESS: Final = frozenset(("damaged", "newer_format", "bad_config", "invalid"))
"""Codes of errors that another attempt does not cure."""
SECRET_BYTES: Final = 32
RESERVE_BYTES_MIN: Final = 4096

T = TypeVar("T")

log = logging.getLogger("stoker.processes")


async def supervise(
    config: ServerConfig, again: Callable[[], ServerConfig] | None = None, notes: Sequence[str] = ()
) -> int:
    """Serve until told to stop. Returns the exit code."""
    check_files(config)
    ports = Ports(config)  # before the directory is opened: a server that cannot listen creates none
    try:
        root = opened_root(config)
        try:
            return await Supervisor(root, ports, again, notes).run()
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


def share_of(config: ServerConfig) -> ServerConfig:
    """One process's share of the limits."""
    assert config.data is not None
    reserve = max(RESERVE_BYTES_MIN, reserve_of(config.journal, Path(config.data), Disk()) // config.processes)
    return msgspec.structs.replace(
        config,
        memory_bytes_max=config.memory_bytes_max // config.processes,
        events_bytes_max=config.events_bytes_max // config.processes,
        journal=msgspec.structs.replace(config.journal, disk_reserve_bytes=reserve),
    )


class Life:
    """One process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.process = process
        self.channel = channel
        self.failure: ProcessFailed | None = None
        self.was_ready = False
        self.began_at = time.monotonic()

    @property
    def how_it_ended(self) -> str:
        code = self.process.returncode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    @property
    def has_lost_its_log(self) -> bool:
        """Whether its broker stopped by itself: the server then exits with a special code."""
        return self.failure is not None and self.failure.code == LogFailed.code

    def error(self, number: int) -> errors.StokerError:
        if self.failure is not None:
            if self.has_lost_its_log:
                return LogFailed(f"process {number}: {self.failure.message}")
            return errors.BY_CODE.get(self.failure.code, errors.StokerError)(self.failure.message)
        return errors.CannotOpen(f"process {number} {self.how_it_ended} before it was ready: see its output above")


class Supervisor:
    def __init__(
        self, root: Root, ports: Ports, again: Callable[[], ServerConfig] | None, notes: Sequence[str] = ()
    ) -> None:
        self._root = root
        self._ports = ports
        self._again = again
        self._notes = notes
        self._config = ports.config
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._lives: dict[int, Life] = {}
        self._lines: dict[int, list[str]] = {}
        """What the processes printed when they were first ready."""
        self._codes: list[int] = []
        self._stopping = asyncio.Event()
        self._error: errors.StokerError | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            await asyncio.gather(*(self._look_after(number) for number in range(self._config.processes)))
        finally:
            for life in self._lives.values():
                if life.process.returncode is None:
                    life.process.kill()
        if self._error is not None:
            raise self._error
        return 1 if any(self._codes) else 0

    # --- one process -----------------------------------------------------------------------------

    async def _look_after(self, number: int) -> None:
        failures = 0
        while not self._stopping.is_set():
            life = await self._live(number)
            if self._stopping.is_set():
                self._note_end(life)
                return
            failures = 0 if life.was_ready and time.monotonic() - life.began_at > LONG_S else failures + 1
            hopeless = life.failure is not None and life.failure.code in HOPELESS
            never = not life.was_ready and (number not in self._lines or hopeless or failures > TRIES)
            if never or life.has_lost_its_log:
                self._give_up(life.error(number))
                return
            log.warning("process %d %s: it is being restarted", number, life.how_it_ended)
            await self._pause(0.0 if failures < 2 else min(AGAIN_S_MAX, AGAIN_S * 2 ** (failures - 2)))

    async def _live(self, number: int) -> Life:
        ours, theirs = socket.socketpair()
        unix = self._ports.unix
        passed = [theirs.fileno()] + ([unix.fileno()] if unix is not None else [])
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "stoker.server.processes.child",
                str(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,  # a terminal's signals come to the supervisor, which passes them on
            )
        life = self._lives[number] = Life(process, await Channel.over(ours))
        seat = ProcessSeat(
            number=number,
            processes=self._config.processes,
            directory=str(self._root.path.resolve()),
            secret=self._secret,
        )
        part = str(self._root.parts[number])
        life.channel.say(Orders(seat, share_of(self._config), part, unix.fileno() if unix is not None else None))
        if self._stopping.is_set():  # it came while the process was being started
            self._tell_to_stop(life, at_once=True)
        while (word := await life.channel.hear()) is not None:
            if isinstance(word, ProcessReady):
                life.was_ready = True
                self._ready(number, word.lines)
            elif isinstance(word, ProcessFailed):
                life.failure = word
        await process.wait()
        await life.channel.close()
        return life

    def _ready(self, number: int, lines: list[str]) -> None:
        is_first = number not in self._lines
        self._lines.setdefault(number, lines)
        if is_first and len(self._lines) == self._config.processes:
            for line in (*self._lines[0], *self._notes):
                print(line, flush=True)  # noqa: T201  this is what `stoker serve` says to people and scripts

    def _note_end(self, life: Life) -> None:
        code = life.process.returncode or 0
        if code == -signal.SIGTERM and not life.was_ready:
            code = 0  # it had not even begun
        self._codes.append(code)
        if code:
            log.error("a process %s while the server stopped", life.how_it_ended)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # --- all of them -----------------------------------------------------------------------------

    def _stop(self) -> None:
        """The first time running jobs may end, the second time not."""
        at_once = self._stopping.is_set()
        self._stopping.set()
        self._ports.stop_accepting()
        self._tell_all_to_stop(at_once)

    def _give_up(self, error: errors.StokerError) -> None:
        if self._error is None:
            self._error = error
            self._stopping.set()
            self._tell_all_to_stop(at_once=True)

    def _tell_all_to_stop(self, at_once: bool) -> None:
        for life in self._lives.values():
            if life.process.returncode is None:
                self._tell_to_stop(life, at_once)

    def _tell_to_stop(self, life: Life, at_once: bool) -> None:
        life.channel.say(Stop(at_once))
        if not life.was_ready:  # it may work on its files for a while before it listens
            life.process.terminate()

    def _reload(self) -> None:
        try:
            found = self._again() if self._again is not None else self._config
        except errors.StokerError as error:
            log.error("nothing was reloaded: %s", error)
            return
        self._config = msgspec.structs.replace(self._config, auth=found.auth, server=found.server, limits=found.limits)
        for life in self._lives.values():
            if life.process.returncode is None:
                life.channel.say(Reload(share_of(self._config)))
