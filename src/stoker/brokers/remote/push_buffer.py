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
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.pool import CLOSED
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
BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Of payloads in one batch: far below the limit for a frame."""


class PushKind(NamedTuple):
    """Pushes that have it in common can go together."""

    tenant: str
    queue: str
    durability: r.Level | None


class BufferedPush:
    """One push in a batch, and the caller that waits for its answer."""

    __slots__ = ("answer", "push")

    def __init__(self, push: c.Push, answer: Callable[[Any], None]) -> None:
        self.push = push
        self.answer = answer
        """Takes the reply, or a `StokerError`; called once."""


class PushBuffer:
    """Pushes that go together."""

    __slots__ = ("due", "is_sent", "key", "places", "size", "timer")

    def __init__(self, key: PushKind, due: float) -> None:
        self.key = key
        self.due = due
        self.places: list[BufferedPush] = []
        self.size = 0
        self.is_sent = False
        self.timer: asyncio.TimerHandle | None = None

    def add(self, place: BufferedPush) -> None:
        self.places.append(place)
        self.size += len(place.push.payload)

    def remove(self, place: BufferedPush) -> None:
        """Its caller waits no more. What was sent stays sent."""
        if not self.is_sent and place in self.places:
            self.places.remove(place)


class BufferingBroker:
    """A server, seen by a client with many single pushes at once."""

    name = RemoteBroker.name
    lacks = RemoteBroker.lacks

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
        return self._buffers.push(tenant, command)  # type: ignore[arg-type, return-value]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if not may_gather(tenant, command):
            return await self.inner.execute_async(tenant, command)
        loop = asyncio.get_running_loop()
        buffers = self._loops.get(loop)
        if buffers is None:
            buffers = self._loops[loop] = LoopBuffers(self.inner, self._linger_s, self._jobs_max)
        return await buffers.push(tenant, command)  # type: ignore[arg-type, return-value]

    def close(self) -> None:
        """Send what has gathered, for a bounded time, then close as without gathering."""
        for buffers in list(self._loops.values()):
            self._buffers.take_over(buffers.end())
        self._buffers.end(self._flush_s)
        self.inner.close()

    def begin_anew(self) -> None:
        """At first, and in a forked process: there the parent's threads and callers are not."""
        self._buffers = ThreadBuffers(self.inner, self._linger_s, self._jobs_max)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBuffers] = WeakKeyDictionary()


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


class ThreadBuffers:
    """What threads push, and the threads that send it."""

    def __init__(self, broker: RemoteBroker, linger_s: float, jobs_max: int) -> None:
        self._broker = broker
        self._linger_s, self._jobs_max = linger_s, jobs_max
        self._changed = threading.Condition(threading.Lock())
        self._open: dict[PushKind, PushBuffer] = {}
        """Those with room for more."""
        self._waiting: list[PushBuffer] = []
        """Those to be sent, the oldest first."""
        self._in_flight: set[PushKind] = set()
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

        place = BufferedPush(push, answer)
        buffer = self._put(PushKind(tenant, push.queue, push.durability), place)
        try:
            arrived.acquire()
        except BaseException:
            with self._changed:
                buffer.remove(place)
            raise
        (reply,) = answers
        if isinstance(reply, StokerError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _put(self, key: PushKind, place: BufferedPush) -> PushBuffer:
        with self._changed:
            if self._is_over:
                raise Closed(CLOSED)
            buffer = self._open.get(key)
            if buffer is None or buffer.size + len(place.push.payload) > BUFFER_BYTES_MAX:
                buffer = self._open[key] = PushBuffer(key, time.monotonic() + self._linger_s)
                self._waiting.append(buffer)
                self._call_sender()
            buffer.add(place)
            if len(buffer.places) >= self._jobs_max:
                del self._open[key]
                self._changed.notify()
            return buffer

    def take_over(self, buffers: Iterable[PushBuffer]) -> None:
        """Those of an event loop that cannot send them itself any more."""
        with self._changed:
            for buffer in buffers:
                self._waiting.append(buffer)
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
        for buffer in late:
            answer_all(buffer.places, Closed(CLOSED))

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
            buffer = self._next()
            if buffer is None:
                return
            try:
                send(self._broker, buffer)
            finally:
                with self._changed:
                    self._in_flight.discard(buffer.key)
                    self._changed.notify()

    def _next(self) -> PushBuffer | None:
        """What is to be sent, as soon as it is time; None when there has been nothing for a while."""
        with self._changed:
            while True:
                now = time.monotonic()
                wait_s = IDLE_S
                for buffer in self._waiting:
                    if buffer.key in self._in_flight:
                        continue  # it grows meanwhile, and comes after those that came before
                    if self._is_over or buffer.due <= now or self._open.get(buffer.key) is not buffer:
                        return self._taken(buffer)
                    wait_s = min(wait_s, buffer.due - now)
                self._idle += 1
                was_called = self._is_over or self._changed.wait(wait_s)
                self._idle -= 1
                if (self._is_over or not was_called) and not self._waiting:
                    self._senders.discard(threading.current_thread())
                    return None

    def _taken(self, buffer: PushBuffer) -> PushBuffer:
        self._waiting.remove(buffer)
        if self._open.get(buffer.key) is buffer:
            del self._open[buffer.key]
        self._in_flight.add(buffer.key)
        buffer.is_sent = True
        return buffer


def send(broker: RemoteBroker, buffer: PushBuffer) -> None:
    """Send a batch and answer all its callers, also when it fails."""
    groups = [buffer.places] if buffer.places else []
    while groups:
        places = groups.pop()
        try:
            share(places, broker.execute(buffer.key.tenant, batch_of(places)))
        except StokerError as error:
            if is_worth_parting(error, places):
                groups += halves(places)
            else:
                answer_all(places, error)
        except BaseException as error:
            answer_all(places, unexpected(error))


# --- for event loops -----------------------------------------------------------------------------


class LoopBuffers:
    """What the tasks of one event loop push."""

    def __init__(self, broker: RemoteBroker, linger_s: float, jobs_max: int) -> None:
        self._broker = broker
        self._linger_s, self._jobs_max = linger_s, jobs_max
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        """For `end`, which any thread may call."""
        self._open: dict[PushKind, PushBuffer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def push(self, tenant: str, push: c.Push) -> r.Pushed:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(reply: Any) -> None:
            if not future.done():
                future.set_result(reply)

        place = BufferedPush(push, answer)
        buffer = self._put(PushKind(tenant, push.queue, push.durability), place)
        try:
            reply = await future
        except asyncio.CancelledError:
            with self._lock:
                buffer.remove(place)
            raise
        if isinstance(reply, StokerError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def _put(self, key: PushKind, place: BufferedPush) -> PushBuffer:
        with self._lock:
            if self._is_over:
                raise Closed(CLOSED)
            buffer = self._open.get(key)
            if buffer is not None and buffer.size + len(place.push.payload) > BUFFER_BYTES_MAX:
                self._send(buffer)
                buffer = None
            if buffer is None:
                buffer = self._open[key] = PushBuffer(key, 0.0)
                buffer.timer = self._loop.call_later(self._linger_s, self._send_due, buffer)
            buffer.add(place)
            if len(buffer.places) >= self._jobs_max:
                self._send(buffer)
            return buffer

    def end(self) -> list[PushBuffer]:
        """Take out what is not sent yet, for another sender."""
        with self._lock:
            self._is_over = True
            left, self._open = list(self._open.values()), {}
            for buffer in left:
                for place in buffer.places:
                    place.answer = partial(self._answer_later, place.answer)
            return left

    def _answer_later(self, answer: Callable[[Any], None], reply: Any) -> None:
        """From another thread."""
        try:
            self._loop.call_soon_threadsafe(answer, reply)
        except RuntimeError:
            pass  # the loop is closed, and no task waits on it

    def _send_due(self, buffer: PushBuffer) -> None:
        with self._lock:
            if self._open.get(buffer.key) is buffer:
                self._send(buffer)

    def _send(self, buffer: PushBuffer) -> None:
        del self._open[buffer.key]
        buffer.is_sent = True
        if buffer.timer is not None:
            buffer.timer.cancel()
        task = self._loop.create_task(self._carry(buffer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, buffer: PushBuffer) -> None:
        groups = [buffer.places] if buffer.places else []
        while groups:
            places = groups.pop()
            try:
                share(places, await self._broker.execute_async(buffer.key.tenant, batch_of(places)))
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


def batch_of(places: list[BufferedPush]) -> c.Command[Any]:
    """One command for all; a push that is alone stays what it is."""
    first = places[0].push
    if len(places) == 1:
        return first
    options = [place.push.options for place in places]
    payloads = [place.push.payload for place in places]
    if all(each is first.options or each == first.options for each in options):
        return c.PushBatch(first.queue, payloads, first.options, durability=first.durability)
    return c.PushBatch(first.queue, payloads, each=options, durability=first.durability)


def share(places: list[BufferedPush], reply: Any) -> None:
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


def is_worth_parting(error: StokerError, places: list[BufferedPush]) -> bool:
    """A batch that is refused as a whole may hold pushes that alone would not be: nothing of it has happened."""
    return len(places) > 1 and isinstance(error, Refused) and not isinstance(error, Unauthenticated | Forbidden)


def halves(places: list[BufferedPush]) -> tuple[list[BufferedPush], list[BufferedPush]]:
    """The first one last, because the last one is taken first."""
    middle = len(places) // 2
    return places[middle:], places[:middle]


def answer_all(places: list[BufferedPush], error: StokerError) -> None:
    for place in places:
        place.answer(type(error)(*error.args))  # an exception of his own for each: a traceback belongs to one thread


def unexpected(error: BaseException) -> StokerError:
    return Unknown(f"it is not known whether this push happened: an unexpected {type(error).__name__}: {error}")
