"""Single pushes that come at about the same time, sent as one batch: for programs with many threads or tasks.

A push waits up to `batch_ms` for others of the same tenant, queue and durability; each caller gets the answer to his
own. Batches of threads are sent by a few threads that live while there is something to do, one batch of a kind at a
time; those of an event loop are sent by tasks of its own. Everything else passes straight through.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from stoker.brokers.remote import forking
from stoker.brokers.remote.broker import CLOSED, RemoteBroker
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, Closed, Forbidden, Refused, StokerError, Unauthenticated, Unknown
from stoker.model.options import Options

R = TypeVar("R")
SENDERS_MAX = 4
"""Threads that send at once: batches of different queues do not wait for each other."""
IDLE_S = 5.0
"""After that a thread with nothing to send ends; the next push starts another."""
PAYLOAD_BYTES_MAX = 64 * 1024
"""Larger ones cost their bytes and not their request: they go alone."""
SHEAF_BYTES_MAX = 4 * 1024 * 1024
"""Of payloads in one batch: far below the limit for a frame."""


class Key(NamedTuple):
    """Pushes that have it in common can go together."""

    tenant: str
    queue: str
    durability: r.Level | None


class Place:
    """One push in a batch, and the caller that waits for its answer."""

    __slots__ = ("answer", "push")

    def __init__(self, push: c.Push, answer: Callable[[Any], None]) -> None:
        self.push = push
        self.answer = answer
        """Takes the reply, or a `StokerError`; called once."""


class Sheaf:
    """Pushes that go together."""

    __slots__ = ("due", "is_sent", "key", "places", "size", "timer")

    def __init__(self, key: Key, due: float) -> None:
        self.key = key
        self.due = due
        self.places: list[Place] = []
        self.size = 0
        self.is_sent = False
        self.timer: asyncio.TimerHandle | None = None

    def add(self, place: Place) -> None:
        self.places.append(place)
        self.size += len(place.push.payload)

    def remove(self, place: Place) -> None:
        """Its caller waits no more. What was sent stays sent."""
        if not self.is_sent and place in self.places:
            self.places.remove(place)


class GatheringBroker:
    """A server, seen by a client with many single pushes at once."""

    def __init__(self, inner: RemoteBroker) -> None:
        settings = inner.settings
        self.inner = inner
        self._linger_s = settings.batch_ms / 1000
        self._jobs_max = settings.batch_jobs
        self._flush_s = settings.connect_timeout_s
        self.begin_anew()
        forking.remember(self)

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        if not may_gather(tenant, command):
            return self.inner.execute(tenant, command)
        return self._sheaves.push(tenant, command)  # type: ignore[arg-type, return-value]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if not may_gather(tenant, command):
            return await self.inner.execute_async(tenant, command)
        loop = asyncio.get_running_loop()
        sheaves = self._loops.get(loop)
        if sheaves is None:
            sheaves = self._loops[loop] = LoopSheaves(self.inner, self._linger_s, self._jobs_max)
        return await sheaves.push(tenant, command)  # type: ignore[arg-type, return-value]

    def close(self) -> None:
        """Send what has gathered, for a bounded time, then close as without gathering."""
        for sheaves in list(self._loops.values()):
            self._sheaves.take_over(sheaves.end())
        self._sheaves.end(self._flush_s)
        self.inner.close()

    def begin_anew(self) -> None:
        """At first, and in a forked process: there the parent's threads and callers are not."""
        self._sheaves = ThreadSheaves(self.inner, self._linger_s, self._jobs_max)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopSheaves] = WeakKeyDictionary()


def may_gather(tenant: str, command: Any) -> bool:
    """Whether a command means the same as an item of a batch, and is worth it. What is odd is refused on its own."""
    if type(command) is not c.Push or command.sending is not None:
        return False
    options: Any = command.options
    return (
        type(command.payload) is bytes
        and len(command.payload) <= PAYLOAD_BYTES_MAX
        and type(command.queue) is str
        and type(tenant) is str
        and (command.durability is None or type(command.durability) is str)
        and type(options) is Options
        and not options.depends_on  # an edge may name an item of its own batch, and a push alone has none
    )


# --- for threads ---------------------------------------------------------------------------------


class ThreadSheaves:
    """What threads push, and the threads that send it."""

    def __init__(self, broker: RemoteBroker, linger_s: float, jobs_max: int) -> None:
        self._broker = broker
        self._linger_s, self._jobs_max = linger_s, jobs_max
        self._changed = threading.Condition(threading.Lock())
        self._open: dict[Key, Sheaf] = {}
        """Those with room for more."""
        self._waiting: list[Sheaf] = []
        """Those to be sent, the oldest first."""
        self._in_flight: set[Key] = set()
        self._senders: set[threading.Thread] = set()
        self._idle = 0
        self._is_over = False

    def push(self, tenant: str, push: c.Push) -> r.Pushed:
        arrived = threading.Lock()
        arrived.acquire()
        answers: list[Any] = []

        def answer(reply: Any) -> None:
            answers.append(reply)
            arrived.release()

        place = Place(push, answer)
        sheaf = self._put(Key(tenant, push.queue, push.durability), place)
        try:
            arrived.acquire()
        except BaseException:
            with self._changed:
                sheaf.remove(place)
            raise
        (reply,) = answers
        if isinstance(reply, StokerError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _put(self, key: Key, place: Place) -> Sheaf:
        with self._changed:
            if self._is_over:
                raise Closed(CLOSED)
            sheaf = self._open.get(key)
            if sheaf is None or sheaf.size + len(place.push.payload) > SHEAF_BYTES_MAX:
                sheaf = self._open[key] = Sheaf(key, time.monotonic() + self._linger_s)
                self._waiting.append(sheaf)
                self._call_sender()
            sheaf.add(place)
            if len(sheaf.places) >= self._jobs_max:
                del self._open[key]
                self._changed.notify()
            return sheaf

    def take_over(self, sheaves: Iterable[Sheaf]) -> None:
        """Those of an event loop that cannot send them itself any more."""
        with self._changed:
            for sheaf in sheaves:
                self._waiting.append(sheaf)
                self._call_sender()

    def end(self, timeout_s: float) -> None:
        """Send everything now, and take no more."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            senders = list(self._senders)
        for sender in senders:
            if sender is not threading.current_thread():
                sender.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            late, self._waiting = self._waiting, []
        for sheaf in late:
            answer_all(sheaf.places, Closed(CLOSED))

    # --- sending ---------------------------------------------------------------------------------

    def _call_sender(self) -> None:
        if self._idle:
            self._changed.notify()
        elif len(self._senders) < SENDERS_MAX:
            sender = threading.Thread(target=self._send_all, name="stoker-gathering", daemon=True)
            self._senders.add(sender)
            sender.start()

    def _send_all(self) -> None:
        while True:
            sheaf = self._next()
            if sheaf is None:
                return
            try:
                send(self._broker, sheaf)
            finally:
                with self._changed:
                    self._in_flight.discard(sheaf.key)
                    self._changed.notify()

    def _next(self) -> Sheaf | None:
        """What is to be sent, as soon as it is time; None when there has been nothing for a while."""
        with self._changed:
            while True:
                now = time.monotonic()
                wait_s = IDLE_S
                for sheaf in self._waiting:
                    if sheaf.key in self._in_flight:
                        continue  # it grows meanwhile, and comes after those that came before
                    if self._is_over or sheaf.due <= now or self._open.get(sheaf.key) is not sheaf:
                        return self._taken(sheaf)
                    wait_s = min(wait_s, sheaf.due - now)
                self._idle += 1
                was_called = self._is_over or self._changed.wait(wait_s)
                self._idle -= 1
                if (self._is_over or not was_called) and not self._waiting:
                    self._senders.discard(threading.current_thread())
                    return None

    def _taken(self, sheaf: Sheaf) -> Sheaf:
        self._waiting.remove(sheaf)
        if self._open.get(sheaf.key) is sheaf:
            del self._open[sheaf.key]
        self._in_flight.add(sheaf.key)
        sheaf.is_sent = True
        return sheaf


def send(broker: RemoteBroker, sheaf: Sheaf) -> None:
    """Send a batch and answer all its callers, also when it fails."""
    groups = [sheaf.places] if sheaf.places else []
    while groups:
        places = groups.pop()
        try:
            share(places, broker.execute(sheaf.key.tenant, batch_of(places)))
        except StokerError as error:
            if is_worth_parting(error, places):
                groups += halves(places)
            else:
                answer_all(places, error)
        except BaseException as error:
            answer_all(places, unexpected(error))


# --- for event loops -----------------------------------------------------------------------------


class LoopSheaves:
    """What the tasks of one event loop push."""

    def __init__(self, broker: RemoteBroker, linger_s: float, jobs_max: int) -> None:
        self._broker = broker
        self._linger_s, self._jobs_max = linger_s, jobs_max
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        """For `end`, which any thread may call."""
        self._open: dict[Key, Sheaf] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def push(self, tenant: str, push: c.Push) -> r.Pushed:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(reply: Any) -> None:
            if not future.done():
                future.set_result(reply)

        place = Place(push, answer)
        sheaf = self._put(Key(tenant, push.queue, push.durability), place)
        try:
            reply = await future
        except asyncio.CancelledError:
            with self._lock:
                sheaf.remove(place)
            raise
        if isinstance(reply, StokerError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _put(self, key: Key, place: Place) -> Sheaf:
        with self._lock:
            if self._is_over:
                raise Closed(CLOSED)
            sheaf = self._open.get(key)
            if sheaf is not None and sheaf.size + len(place.push.payload) > SHEAF_BYTES_MAX:
                self._send(sheaf)
                sheaf = None
            if sheaf is None:
                sheaf = self._open[key] = Sheaf(key, 0.0)
                sheaf.timer = self._loop.call_later(self._linger_s, self._send_due, sheaf)
            sheaf.add(place)
            if len(sheaf.places) >= self._jobs_max:
                self._send(sheaf)
            return sheaf

    def end(self) -> list[Sheaf]:
        """Take out what is not sent yet, for another sender."""
        with self._lock:
            self._is_over = True
            left, self._open = list(self._open.values()), {}
            for sheaf in left:
                for place in sheaf.places:
                    place.answer = partial(self._answer_later, place.answer)
            return left

    def _answer_later(self, answer: Callable[[Any], None], reply: Any) -> None:
        """From another thread."""
        try:
            self._loop.call_soon_threadsafe(answer, reply)
        except RuntimeError:
            pass  # the loop is closed, and no task waits on it

    def _send_due(self, sheaf: Sheaf) -> None:
        with self._lock:
            if self._open.get(sheaf.key) is sheaf:
                self._send(sheaf)

    def _send(self, sheaf: Sheaf) -> None:
        del self._open[sheaf.key]
        sheaf.is_sent = True
        if sheaf.timer is not None:
            sheaf.timer.cancel()
        task = self._loop.create_task(self._carry(sheaf))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, sheaf: Sheaf) -> None:
        groups = [sheaf.places] if sheaf.places else []
        while groups:
            places = groups.pop()
            try:
                share(places, await self._broker.execute_async(sheaf.key.tenant, batch_of(places)))
            except StokerError as error:
                if is_worth_parting(error, places):
                    groups += halves(places)
                else:
                    answer_all(places, error)
            except BaseException as error:
                answer_all(places, unexpected(error))
                if isinstance(error, asyncio.CancelledError):
                    raise


# --- from pushes to a batch, and back ------------------------------------------------------------


def batch_of(places: list[Place]) -> c.Command[Any]:
    """One command for all; a push that is alone stays what it is."""
    first = places[0].push
    if len(places) == 1:
        return first
    options = [place.push.options for place in places]
    payloads = [place.push.payload for place in places]
    if all(each is first.options or each == first.options for each in options):
        return c.PushBatch(first.queue, payloads, first.options, durability=first.durability)
    return c.PushBatch(first.queue, payloads, each=options, durability=first.durability)


def share(places: list[Place], reply: Any) -> None:
    """To each his own."""
    if isinstance(reply, r.Pushed):
        places[0].answer(reply)
        return
    for item, place in enumerate(places):
        refusal = reply.refused.get(item)
        if refusal is not None:
            place.answer(BY_CODE.get(refusal.code, StokerError)(refusal.message))
        else:
            by = reply.duplicates.get(item)
            place.answer(r.Pushed(reply.ids[item], by is None, by, reply.level))


def is_worth_parting(error: StokerError, places: list[Place]) -> bool:
    """A batch that is refused as a whole may hold pushes that alone would not be: nothing of it has happened."""
    return len(places) > 1 and isinstance(error, Refused) and not isinstance(error, Unauthenticated | Forbidden)


def halves(places: list[Place]) -> tuple[list[Place], list[Place]]:
    """The first one last, because the last one is taken first."""
    middle = len(places) // 2
    return places[middle:], places[:middle]


def answer_all(places: list[Place], error: StokerError) -> None:
    for place in places:
        place.answer(type(error)(*error.args))  # an exception of his own for each: a traceback belongs to one thread


def unexpected(error: BaseException) -> StokerError:
    return Unknown(f"it is not known whether this push happened: an unexpected {type(error).__name__}: {error}")
