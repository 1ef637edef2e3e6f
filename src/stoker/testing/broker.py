"""The broker of a harness: the engine in memory, with injected faults, and without waiting for real time.

A worker waits for jobs with a waiting pull, and callers wait for results. Under a clock that tests move, waiting would
take forever, so such calls are held here. They look while the gate is open, and again after every change. When all
delivered jobs are settled and no pull finds more, the workers are idle, and the drain ends. While the gate is shut,
pulls stand still, and other waiting calls raise an error, because nothing will come.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stoker.brokers.local import LocalBroker
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import READS, SETTLES, at_home, of_kind
from stoker.testing.faults import Fault, Faults
from stoker.testing.outcomes import StillBusy

R = TypeVar("R")

HELD_MS = 100
"""A pull with a shorter wait only looks and is answered at once: it may name only some of the worker's queues."""
LOOK_S = 0.05
"""How often `wait_idle` looks at the workers, besides being notified."""

CHANGES_NO_STATE = READS | of_kind("marks") | at_home("entries")
"""Commands after which no job can have become ready or ended."""


class HeldBroker:
    """A broker for an application and the worker that runs its handlers in a test."""

    name = LocalBroker.name
    lacks = LocalBroker.lacks

    def __init__(self, inner: LocalBroker, worker: str) -> None:
        """`worker` is the name of the worker whose pulls are held; pulls of others never wait."""
        self.inner = inner
        self._worker = worker
        self.faults = Faults()
        self._lock = threading.Lock()
        self._is_open = False
        self._is_closed = False
        self._left = 0
        """How many more jobs may be delivered."""
        self._changes = 0
        self._held: set[int] = set()
        """Jobs delivered by a waiting pull and not settled yet."""
        self._waiting: dict[int, Callable[[], object]] = {}
        """How to wake each call that found nothing."""
        self._pulls: set[int] = set()
        """The waiting calls that are pulls."""
        self._idle = threading.Event()

    # --- the contract ----------------------------------------------------------------------------

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        fault = self._struck(command)
        if not getattr(command, "wait_ms", 0):
            return self._finish(command, self.inner.execute(tenant, command), fault)
        signal = threading.Event()
        try:
            while (reply := self._look(tenant, command, id(signal), signal.set)) is None:
                signal.wait()
                signal.clear()
        finally:
            self._leave(id(signal))
        return self._finish(command, reply, fault)  # type: ignore[no-any-return]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        fault = self._struck(command)
        if not getattr(command, "wait_ms", 0):
            return self._finish(command, await self.inner.execute_async(tenant, command), fault)
        signal, loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            while (reply := self._look(tenant, command, id(signal), lambda: wake(loop, signal))) is None:
                await signal.wait()
                signal.clear()
        finally:
            self._leave(id(signal))
        return self._finish(command, reply, fault)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Wake all waiting calls. The harness closes the engine."""
        with self._lock:
            self._is_closed = True
            self._wake_all()

    # --- draining --------------------------------------------------------------------------------

    def open_gate(self, deliveries_max: int) -> None:
        """Let calls wait for changes, and held pulls find jobs, up to `deliveries_max` in all."""
        with self._lock:
            self._is_open = True
            self._left = deliveries_max
            self._idle.clear()
            self._wake_all()

    def shut_gate(self) -> None:
        with self._lock:
            self._is_open = False
            self._wake_all()

    def wait_idle(self, is_idle: Callable[[], bool], seconds: float) -> bool:
        """Wait until no worker has a job and no pull finds more. Returns false if that took too long.

        `is_idle` asks the worker itself: no call tells of a job that it dropped because its time was over.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._idle.wait(LOOK_S)
            with self._lock:
                if self._pulls and is_idle():
                    self._held.clear()
                if self._idle.is_set() and not self._held:
                    return True
                self._idle.clear()  # another pull was faster than this thread
                self._wake_all()
        return False

    def give_up(self) -> None:
        """No worker will pull any more: wake the waiting drain."""
        with self._lock:
            self._held.clear()
            self._idle.set()

    def changed(self) -> None:
        """Something happened that may have made jobs ready."""
        with self._lock:
            self._changes += 1
            self._wake_all()

    @property
    def is_overrun(self) -> bool:
        """Whether this drain has delivered as many jobs as it may."""
        with self._lock:
            return self._left <= 0

    @property
    def held(self) -> frozenset[int]:
        """The jobs that workers have in hand."""
        with self._lock:
            return frozenset(self._held)

    # --- calls -----------------------------------------------------------------------------------

    def _struck(self, command: c.Command[Any]) -> Fault | None:
        fault = self.faults.strike(command)
        if fault is not None and not fault.happens:
            raise fault.error
        return fault

    def _finish(self, command: c.Command[Any], reply: R, fault: Fault | None) -> R:
        if type(command) in SETTLES:
            with self._lock:
                self._held.difference_update(command.ids)  # type: ignore[attr-defined]
        elif isinstance(reply, r.Extended) and reply.refused:
            with self._lock:
                self._held.difference_update(reply.refused)  # a worker that lost its lease has nothing to settle
        if type(command) not in CHANGES_NO_STATE:
            self.changed()
        if fault is not None:
            raise fault.error
        return reply

    def _look(self, tenant: str, command: c.Command[Any], place: int, wake_up: Callable[[], object]) -> Any:
        """The reply if there is one now; else None, and `wake_up` is registered."""
        with self._lock:
            self._forget(place)
            seen, is_open, left = self._changes, self._is_open, self._left
        is_pull = isinstance(command, c.Pull) and command.worker == self._worker
        if is_pull and not (is_open and left > 0):
            reply: Any = r.Delivery()
        else:
            reply = self.inner.execute(tenant, msgspec.structs.replace(command, wait_ms=0))
        only_looks = isinstance(command, c.Pull) and (not is_pull or command.wait_ms < HELD_MS)
        if is_answer(reply) or self._is_closed or only_looks:
            if is_pull:
                self._gave_out(reply)
            return reply
        if not is_pull and not is_open:
            raise StillBusy(f"{command_text(command)}, and no worker runs: call world.drain() or world.run_for() first")
        with self._lock:
            self._waiting[place] = wake_up
            if is_pull:
                self._pulls.add(place)
            if seen != self._changes or is_open != self._is_open or self._is_closed:
                wake_up()
            elif is_pull and is_open and not self._held:
                self._idle.set()
        return None

    def _gave_out(self, delivery: r.Delivery) -> None:
        with self._lock:
            self._held.update(delivery.ids)
            self._left -= len(delivery)

    def _leave(self, place: int) -> None:
        with self._lock:
            self._forget(place)

    def _forget(self, place: int) -> None:
        self._waiting.pop(place, None)
        self._pulls.discard(place)

    def _wake_all(self) -> None:
        for wake_up in list(self._waiting.values()):
            wake_up()


def is_answer(reply: Any) -> bool:
    """Whether this reply ends the wait."""
    if isinstance(reply, r.Delivery):
        return bool(reply.runs)
    if isinstance(reply, r.Ended):
        return reply.finished
    return bool(reply.events) if isinstance(reply, r.Events) else True


def command_text(command: c.Command[Any]) -> str:
    return f"job {command.id} has not ended" if isinstance(command, c.WaitJob) else "there is nothing new"


def wake(loop: asyncio.AbstractEventLoop, signal: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(signal.set)
    except RuntimeError:
        pass  # the loop was closed: no call waits there any more
