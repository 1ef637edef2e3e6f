"""Supervises the processes of one server, or of one node of a cluster.

The supervisor holds the ports, starts the processes, restarts those that die, and passes signals on. It serves no
requests itself. A `Seating` says which processes there are: one for each part of a data directory
(`directory_seating.py`), or one for each seat of a cluster that the node holds (`cluster_seating.py`). When the
supervisor dies, the processes notice and end.
"""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec

from stoker.model import errors
from stoker.server.broker_stopped import LogFailed
from stoker.server.config import ServerConfig
from stoker.server.processes.control_channel import (
    Channel,
    LookAgain,
    Orders,
    Prepare,
    ProcessFailed,
    ProcessReady,
    Reload,
    SeatTaken,
    Stop,
    Word,
)
from stoker.server.processes.ports import Ports
from stoker.server.run import first_words

AGAIN_S: Final = 0.1
AGAIN_S_MAX: Final = 5.0
"""The longest pause before a process is restarted; it doubles while the process does not live long."""
LONG_S: Final = 30.0
HOPELESS: Final = frozenset(("damaged", "newer_format", "bad_config", "invalid"))
"""Codes of errors that another attempt does not cure."""

log = logging.getLogger("stoker.processes")


class Life:
    """One process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.process = process
        self.channel = channel
        self.failure: ProcessFailed | None = None
        self.was_ready = False
        self.is_released = False
        """Whether it was told to end, and no other one is to be started in its place."""
        self.epoch = 0
        """With which it has taken its seat."""
        self.began_at = time.monotonic()

    @property
    def how_it_ended(self) -> str:
        code = self.process.returncode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    @property
    def is_hopeless(self) -> bool:
        return self.failure is not None and self.failure.code in HOPELESS

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


class Seating(Protocol):
    """Says which processes a supervisor runs, and what becomes of those that end."""

    @property
    def descriptors(self) -> Sequence[int]:
        """Sockets that every process inherits."""
        ...

    async def run(self, supervisor: "Supervisor") -> None:
        """Have processes looked after until the supervisor stops, and wait for their end."""
        ...

    def orders(self, number: int, config: ServerConfig, unix: int | None) -> Orders:
        """What a process is told that starts with this number; `unix` is the socket that all accept from."""
        ...

    def share_of(self, config: ServerConfig) -> ServerConfig:
        """One process's share of the limits."""
        ...

    def is_complete(self, ready: Collection[int]) -> bool:
        """Whether the server serves, now that these have been ready."""
        ...

    def wants_again(self, number: int, life: Life, failures: int) -> bool:
        """Whether a process is to be started in place of one that has ended. Raises what ends the server."""
        ...

    def look_again(self) -> None:
        """A process has taken a seat, or has lost its link to one."""
        ...


class Supervisor:
    def __init__(
        self,
        seating: Seating,
        ports: Ports,
        again: Callable[[], ServerConfig] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._seating = seating
        self._ports = ports
        self._again = again
        self._notes = notes
        self._config = ports.config
        self.lives: dict[int, Life] = {}
        """The processes that run, and the last one of each number."""
        self._lines: dict[int, list[str]] = {}
        """What the processes printed when they were first ready."""
        self._is_said = False
        self._spares: list[Life] = []
        """Processes that have no number yet, the oldest first."""
        self._codes: list[int] = []
        self._stopping = asyncio.Event()
        self._error: errors.StokerError | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            await self._seating.run(self)
        finally:
            await self._drop_spares()
            for life in self.lives.values():
                if life.process.returncode is None:
                    life.process.kill()
        if self._error is not None:
            raise self._error
        return 1 if any(self._codes) else 0

    # --- one process -----------------------------------------------------------------------------

    async def look_after(self, number: int) -> None:
        """Run a process, and another one whenever it dies, as long as the seating wants it."""
        failures = 0
        self.lives.pop(number, None)
        while not self._stopping.is_set():
            life = await self._live(number)
            if self._stopping.is_set():
                self._note_end(life)
                return
            if life.is_released:  # the server goes on: how this one ended is not how the server ends
                if life.process.returncode:
                    log.warning("process %d %s after it was told to end", number, life.how_it_ended)
                return
            failures = 0 if life.was_ready and time.monotonic() - life.began_at > LONG_S else failures + 1
            try:
                if not self._seating.wants_again(number, life, failures):
                    return
            except errors.StokerError as error:
                self._give_up(error)
                return
            log.warning("process %d %s: it is being restarted", number, life.how_it_ended)
            await self.pause(0.0 if failures < 2 else min(AGAIN_S_MAX, AGAIN_S * 2 ** (failures - 2)))

    def was_ready(self, number: int) -> bool:
        """Whether a process with this number was ever ready."""
        return number in self._lines

    async def _live(self, number: int) -> Life:
        unix = self._ports.unix
        orders = self._seating.orders(number, self._config, unix.fileno() if unix is not None else None)
        self._spares = [spare for spare in self._spares if spare.process.returncode is None]
        life = self.lives[number] = self._spares.pop(0) if self._spares else await self._spawn()
        life.began_at = time.monotonic()
        process = life.process
        life.channel.say(orders)
        if self._stopping.is_set():  # it came while the process was being started
            self._tell_to_stop(life, at_once=True)
        while (word := await life.channel.hear()) is not None:
            if isinstance(word, ProcessReady):
                life.was_ready = True
                self._ready(number, word.lines)
            elif isinstance(word, ProcessFailed):
                life.failure = word
            elif isinstance(word, SeatTaken):
                life.epoch = word.epoch
                self._seating.look_again()
            elif isinstance(word, LookAgain):
                self._seating.look_again()
        await process.wait()
        await life.channel.close()
        return life

    async def _spawn(self) -> Life:
        """A process that has loaded its modules, and waits for its orders."""
        ours, theirs = socket.socketpair()
        unix = [self._ports.unix.fileno()] if self._ports.unix is not None else []
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "stoker.server.processes.child",
                str(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *unix, *self._seating.descriptors],
                start_new_session=True,  # a terminal's signals come to the supervisor, which passes them on
            )
        return Life(process, await Channel.over(ours))

    async def keep_spares(self, count: int) -> None:
        """Have processes ready for the next numbers: a new one takes a second to load its modules."""
        while len(self._spares) < count and not self._stopping.is_set():
            spare = await self._spawn()
            spare.channel.say(Prepare(self._config))
            self._spares.append(spare)

    async def spares_prepared(self) -> None:
        """Wait until the first spare processes have loaded their modules."""
        await asyncio.gather(*(spare.channel.hear() for spare in self._spares))

    async def _drop_spares(self) -> None:
        for spare in self._spares:
            await spare.channel.close()  # it ends when it hears nothing
        for spare in self._spares:
            await spare.process.wait()

    def _ready(self, number: int, lines: list[str]) -> None:
        is_first = number not in self._lines
        self._lines.setdefault(number, lines)
        if is_first and not self._is_said and self._seating.is_complete(self._lines):
            self._is_said = True
            for line in first_words(self._config, [*self._lines[min(self._lines)], *self._notes]):
                print(line, flush=True)  # noqa: T201  this is what `stoker serve` says to people and scripts

    def _note_end(self, life: Life) -> None:
        """How a process ended while the server stops. One that never served had nothing to finish, and what one had
        that lost its seat, another node finishes.
        """
        code, failure = life.process.returncode or 0, life.failure
        if not life.was_ready:
            return
        if failure is not None and failure.lost_seat:
            log.warning("a process %s while the server stopped: %s", life.how_it_ended, failure.message)
            return
        self._codes.append(code)
        if code:
            why = f": {failure.message}" if failure is not None else ""
            log.error("a process %s while the server stopped%s", life.how_it_ended, why)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Wait until the server is to stop."""
        await self._stopping.wait()

    async def pause(self, seconds: float) -> None:
        """Wait; not any longer when the server is to stop."""
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

    def release(self, number: int) -> None:
        """Let one process end in good order."""
        life = self.lives[number]
        if life.process.returncode is None and not life.is_released:
            life.is_released = True
            self._tell_to_stop(life, at_once=True)

    def say(self, word: Word) -> None:
        """Tell all processes something."""
        for life in self.lives.values():
            if life.process.returncode is None:
                life.channel.say(word)

    def _give_up(self, error: errors.StokerError) -> None:
        if self._error is None:
            self._error = error
            self._stopping.set()
            self._tell_all_to_stop(at_once=True)

    def _tell_all_to_stop(self, at_once: bool) -> None:
        for life in self.lives.values():
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
        self.say(Reload(self._seating.share_of(self._config)))
