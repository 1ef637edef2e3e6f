"""What a handler may know and say about the job that it works on.

A handler gets one by annotating a parameter with `Context`, or anywhere below it with `current_job()`. It is made when
somebody asks for it. Progress, log lines and partial results are sent in the background, in order, and before the job
is settled; in plain handlers checkpoints wait for their answer, in asynchronous ones they are awaited.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.options import DAY_MS, Codec, Options
from stoker.worker.errors import Interrupted, JobCancelled, LeaseLost, SoftTimeout
from stoker.worker.handler import Handler
from stoker.worker.lane import Chunk, Host

CHECKPOINT_KEY = "stoker:checkpoint:{}"
CHECKPOINT_TTL_MS = 14 * DAY_MS
"""Longer than a dead letter is kept by default, so that one that is sent back to work goes on where it was."""


class Context:
    """One delivery of one job, as its handler sees it."""

    __slots__ = ("_chunk", "_has_checkpoint", "_host", "_soft_at", "id")

    def __init__(self, chunk: Chunk, job: int, host: Host, started_at: float | None = None) -> None:
        self.id = job
        self._chunk, self._host = chunk, host
        soft_ms = chunk.handler.soft_timeout_ms
        self._soft_at = (time.monotonic() if started_at is None else started_at) + soft_ms / 1_000 if soft_ms else 0.0
        self._has_checkpoint = False

    def __repr__(self) -> str:
        return f"Context(job {self.id}, {self.name} in {self.queue}, attempt {self.attempt})"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def handler(self) -> Handler:
        return self._chunk.handler

    @property
    def queue(self) -> str:
        return self._chunk.queue

    @property
    def name(self) -> str:
        return self._chunk.name

    @property
    def worker(self) -> str:
        """The id of the worker that runs it."""
        return self._host.worker

    @property
    def attempt(self) -> int:
        """From 1 on."""
        return self._chunk.attempt

    @property
    def max_attempts(self) -> int:
        """0 = no limit."""
        return self._chunk.options.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        return 0 < self.max_attempts <= self.attempt

    @property
    def options(self) -> Options:
        return self._chunk.options

    @property
    def payload(self) -> bytes:
        """As it was pushed; `options.codec` says how it is written."""
        chunk = self._chunk
        return chunk.payloads[chunk.ids.index(self.id)]

    @property
    def pushed_at(self) -> int:
        """Milliseconds since the epoch."""
        return self._chunk.pushed_at

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt: hand it to whoever must not do the same thing twice."""
        return f"stoker-{self.id}"

    @property
    def deadline(self) -> float | None:
        """When the queue times this delivery out, in seconds since the epoch; None if it never does."""
        left_s = self.remaining_s
        return None if left_s is None else time.time() + left_s

    @property
    def remaining_s(self) -> float | None:
        """How many seconds are left until then."""
        timeout_ms = self._chunk.options.timeout_ms
        if not timeout_ms:
            return None
        return max(0.0, self._chunk.received_at + timeout_ms / 1_000 - time.monotonic())

    # --- whether to go on ------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Somebody cancelled the job: stop, and whatever you return but a result no longer matters."""
        return self._chunk.flags.get(self.id) == "cancelled"

    @property
    def lost(self) -> bool:
        """The lease is lost, or the queue has timed the delivery out: another worker may have the job."""
        return self._chunk.flags.get(self.id) in ("lost", "timeout")

    @property
    def stopping(self) -> bool:
        """The worker drains: finish soon, or save a checkpoint and raise `Snooze(0)`."""
        return self._host.stopping

    @property
    def soft_timed_out(self) -> bool:
        return bool(self._soft_at) and time.monotonic() >= self._soft_at

    def check(self) -> None:
        """Raise `JobCancelled`, `LeaseLost` or `SoftTimeout` if there is a reason to stop."""
        error = self.interruption()
        if error is not None:
            raise error

    def interruption(self) -> Interrupted | None:
        """Why the handler should stop, if it should."""
        if self._chunk.flags:
            flag = self._chunk.flags.get(self.id)
            if flag == "cancelled":
                return JobCancelled(f"job {self.id} was cancelled")
            if flag is not None:
                return LeaseLost(f"job {self.id} belongs to somebody else by now ({flag})")
        if self.soft_timed_out:
            return SoftTimeout(f"job {self.id} runs for more than {self._chunk.handler.soft_timeout_ms} ms")
        return None

    def heartbeat(self) -> None:
        """Renew the lease soon, and learn of a cancellation early; leases are renewed without this, too."""
        self.check()
        self._host.renew(self._chunk)

    # --- what to tell ----------------------------------------------------------------------------

    def progress(self, percent: float, message: str = "") -> None:
        """How far the job is, from 0 to 100."""
        shown, text = min(100, max(0, int(percent))), message[: DEFAULT_LIMITS.message_chars_max]
        self._host.report(self._chunk, self.id, c.SetProgress(self.id, shown, text, self._chunk.token))

    def log(self, message: str, *values: object, level: str = "info") -> None:
        """A line in the log of the job; `values` go into the message as with `logging`."""
        try:
            text = message % values if values else message
        except (TypeError, ValueError):  # a slip in a log line must not fail a job
            text = f"{message} {values!r}"
        self._host.report(self._chunk, self.id, c.AppendLog(self.id, text, level, self._chunk.token))

    def emit(self, value: Any) -> None:
        """Stream a piece of the result: bytes as they are, anything else as MessagePack."""
        codec: Codec = "bytes" if isinstance(value, bytes) else "msgpack"
        data = value if codec == "bytes" else msgspec.msgpack.encode(value)
        self._host.report(self._chunk, self.id, c.AppendPartial(self.id, data, None, self._chunk.token, codec))

    # --- what survives a retry -------------------------------------------------------------------

    def checkpoint(self, value: Any) -> Awaitable[None]:
        """Keep a value (anything that MessagePack can write) for the next attempt of this job.

        It is deleted when the job completes. `await` it in an `async` handler; elsewhere it is kept on return.
        """
        self._has_checkpoint = True
        body = msgspec.msgpack.encode(value)
        command = c.KvSet(self._checkpoint_key, body, CHECKPOINT_TTL_MS, "msgpack")
        if self._chunk.handler.kind == "async":
            return asyncio.ensure_future(self._ask(command, lambda reply: None))
        self._host.execute(command)
        return KEPT

    def restore(self, default: Any = None) -> Any:
        """What the last checkpoint of this job was. `await` it in an `async` handler."""
        self._has_checkpoint = True

        def read(reply: Any) -> Any:
            return msgspec.msgpack.decode(reply.value) if reply.exists else default

        command = c.KvGet(self._checkpoint_key)
        if self._chunk.handler.kind == "async":
            return asyncio.ensure_future(self._ask(command, read))
        return read(self._host.execute(command))

    def forget_checkpoint(self) -> None:
        """Called by lanes when the job has completed."""
        if self._has_checkpoint:
            self._host.report(self._chunk, self.id, c.KvDelete((self._checkpoint_key,)))

    @property
    def _checkpoint_key(self) -> str:
        return CHECKPOINT_KEY.format(self.id)

    async def _ask(self, command: Any, read: Callable[[Any], Any]) -> Any:
        return read(await self._host.execute_async(command))


class Kept:
    """An awaitable for what is done already: plain handlers need not wait, and may be made asynchronous any day."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


KEPT = Kept()


# --- whatever runs below a handler -------------------------------------------------------------------


class Current:
    """The job that a thread or a task works on. A thread that works off many has one of these, and moves it on."""

    __slots__ = ("chunk", "context", "host", "job", "started_at", "together")

    def __init__(self, chunk: Chunk, job: int, host: Host) -> None:
        self.chunk, self.job, self.host = chunk, job, host
        self.started_at: float | None = None
        self.context: Context | None = None
        self.together: Sequence[int] | None = None
        """All jobs of the call, where it is one for a batch."""

    def get(self) -> Context:
        if self.context is None or self.context.id != self.job:
            self.context = Context(self.chunk, self.job, self.host, self.started_at)
        return self.context


current: ContextVar[Current | None] = ContextVar("stoker_current_job", default=None)


def is_still(clean: contextvars.Context) -> bool:
    """Whether the context variables here are what they were. Values whose own comparison fails count as changed."""
    try:
        return contextvars.copy_context() == clean
    except Exception:
        return False


def current_job() -> Context | None:
    """The context of the job that is being worked on here, or None outside of any."""
    found = current.get()
    return None if found is None else found.get()


class JobLogHandler(logging.Handler):
    """Attaches log records that are written while a job runs to the log of that job.

    logging.getLogger("myapp").addHandler(JobLogHandler())
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = current_job()
        if context is None or record.name.startswith("stoker."):  # what we log about sending must not be sent
            return
        try:
            context.log(self.format(record), level=record.levelname.lower())
        except Exception:
            self.handleError(record)
