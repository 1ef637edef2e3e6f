"""The context of a job: what its handler can read about it and report about it.

A handler gets it through a parameter annotated with `Context`; code below it calls `current_job()`. It is made when
first asked for. Progress, log lines and partial results are sent in the background, in order, before the job is
settled. Checkpoints wait for the queue's answer in plain handlers and are awaited in `async` ones.
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
from stoker.worker.lane import JobChunk, LaneHost

CHECKPOINT_KEY = "stoker:checkpoint:{}"
CHECKPOINT_TTL_MS = 14 * DAY_MS
"""Longer than a dead letter is kept by default, so that a retried dead letter still finds its checkpoint."""


class Context:
    """One delivery of one job, as its handler sees it."""

    __slots__ = ("_chunk", "_has_checkpoint", "_host", "_soft_at", "id")

    def __init__(self, chunk: JobChunk, job: int, host: LaneHost, started_at: float | None = None) -> None:
        self.id = job
        self._chunk, self._host = chunk, host
        soft_ms = chunk.handler.soft_timeout_ms
        self._soft_at = (time.monotonic() if started_at is None else started_at) + soft_ms / 1_000 if soft_ms else 0.0
        self._has_checkpoint = False

    def __repr__(self) -> str:
        return f"Context(job {self.id}, {self.name} in {self.queue}, attempt {self.attempt})"

    # --- the job ---------------------------------------------------------------------------------

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
        """The id of the worker that runs the job."""
        return self._host.worker

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return self._chunk.attempt

    @property
    def max_attempts(self) -> int:
        """0 means no limit."""
        return self._chunk.options.max_attempts

    @property
    def is_last_attempt(self) -> bool:
        return 0 < self.max_attempts <= self.attempt

    @property
    def options(self) -> Options:
        return self._chunk.options

    @property
    def payload(self) -> bytes:
        """The bytes that were pushed; `options.codec` names their encoding."""
        chunk = self._chunk
        return chunk.payloads[chunk.ids.index(self.id)]

    @property
    def pushed_at(self) -> int:
        """Milliseconds since the epoch."""
        return self._chunk.pushed_at

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt. Pass it to services that must not do the same thing twice."""
        return f"stoker-{self.id}"

    @property
    def deadline(self) -> float | None:
        """When the queue times this delivery out, in seconds since the epoch; None if it never does."""
        left_s = self.remaining_s
        return None if left_s is None else time.time() + left_s

    @property
    def remaining_s(self) -> float | None:
        """Seconds until `deadline`; None if there is none."""
        timeout_ms = self._chunk.options.timeout_ms
        if not timeout_ms:
            return None
        return max(0.0, self._chunk.received_at + timeout_ms / 1_000 - time.monotonic())

    # --- whether to go on ------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """The job was cancelled: stop. The queue ignores the outcome, unless the handler returns a result."""
        return self._chunk.flags.get(self.id) == "cancelled"

    @property
    def lost(self) -> bool:
        """The lease is lost, or the queue timed this delivery out: another worker may have the job."""
        return self._chunk.flags.get(self.id) in ("lost", "timeout")

    @property
    def stopping(self) -> bool:
        """The worker is draining: finish soon, or save a checkpoint and raise `Snooze(0)`."""
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
        """The reason why the handler should stop, or None."""
        if self._chunk.flags:
            flag = self._chunk.flags.get(self.id)
            if flag == "cancelled":
                return JobCancelled(f"job {self.id} was cancelled")
            if flag is not None:
                return LeaseLost(f"job {self.id} no longer belongs to this worker ({flag})")
        if self.soft_timed_out:
            return SoftTimeout(f"job {self.id} has run for more than {self._chunk.handler.soft_timeout_ms} ms")
        return None

    def heartbeat(self) -> None:
        """Renew the lease soon and learn early of a cancellation. Leases are renewed without this call, too."""
        self.check()
        self._host.renew(self._chunk)

    # --- reporting -------------------------------------------------------------------------------

    def progress(self, percent: float, message: str = "") -> None:
        """Report how far the job is, from 0 to 100."""
        shown, text = min(100, max(0, int(percent))), message[: DEFAULT_LIMITS.message_chars_max]
        self._host.report(self._chunk, self.id, c.SetProgress(self.id, shown, text, self._chunk.token))

    def log(self, message: str, *values: object, level: str = "info") -> None:
        """Add a line to the job's log; `values` are formatted into the message as with `logging`."""
        try:
            text = message % values if values else message
        except (TypeError, ValueError):  # a mistake in a log call must not fail the job
            text = f"{message} {values!r}"
        self._host.report(self._chunk, self.id, c.AppendLog(self.id, text, level, self._chunk.token))

    def emit(self, value: Any) -> None:
        """Stream a partial result: bytes as they are, anything else as MessagePack."""
        codec: Codec = "bytes" if isinstance(value, bytes) else "msgpack"
        data = value if codec == "bytes" else msgspec.msgpack.encode(value)
        self._host.report(self._chunk, self.id, c.AppendPartial(self.id, data, None, self._chunk.token, codec))

    # --- what survives a retry -------------------------------------------------------------------

    def checkpoint(self, value: Any) -> Awaitable[None]:
        """Keep a value (anything that MessagePack can write) for the next attempt of this job.

        It is deleted when the job completes. `await` the call in an `async` handler; in a plain one it is kept on
        return.
        """
        self._has_checkpoint = True
        body = msgspec.msgpack.encode(value)
        command = c.KvSet(self._checkpoint_key, body, CHECKPOINT_TTL_MS, "msgpack")
        if self._chunk.handler.kind == "async":
            return asyncio.ensure_future(self._ask(command, lambda reply: None))
        self._host.execute(command)
        return KEPT

    def restore(self, default: Any = None) -> Any:
        """The value of this job's last checkpoint, or `default`. `await` the call in an `async` handler."""
        self._has_checkpoint = True

        def read(reply: Any) -> Any:
            return msgspec.msgpack.decode(reply.value) if reply.exists else default

        command = c.KvGet(self._checkpoint_key)
        if self._chunk.handler.kind == "async":
            return asyncio.ensure_future(self._ask(command, read))
        return read(self._host.execute(command))

    def forget_checkpoint(self) -> None:
        """Delete the checkpoint. Lanes call this when the job has completed."""
        if self._has_checkpoint:
            self._host.report(self._chunk, self.id, c.KvDelete((self._checkpoint_key,)))

    @property
    def _checkpoint_key(self) -> str:
        return CHECKPOINT_KEY.format(self.id)

    async def _ask(self, command: Any, read: Callable[[Any], Any]) -> Any:
        return read(await self._host.execute_async(command))


class DoneAwaitable:
    """An awaitable that is done already: plain handlers can ignore it, and can become `async` later without other
    changes.
    """

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


KEPT = DoneAwaitable()


# --- the current job ---------------------------------------------------------------------------------


class Current:
    """The job that a thread or a task works on. A thread that works through many jobs moves one of these along."""

    __slots__ = ("chunk", "context", "host", "job", "started_at", "together")

    def __init__(self, chunk: JobChunk, job: int, host: LaneHost) -> None:
        self.chunk, self.job, self.host = chunk, job, host
        self.started_at: float | None = None
        self.context: Context | None = None
        self.together: Sequence[int] | None = None
        """All jobs of a batch call; None for a single job."""

    def get(self) -> Context:
        if self.context is None or self.context.id != self.job:
            self.context = Context(self.chunk, self.job, self.host, self.started_at)
        return self.context


current: ContextVar[Current | None] = ContextVar("stoker_current_job", default=None)


def is_still(clean: contextvars.Context) -> bool:
    """Whether the context variables are unchanged. A value whose comparison raises counts as changed."""
    try:
        return contextvars.copy_context() == clean
    except Exception:
        return False


def current_job() -> Context | None:
    """The context of the job that runs here, or None outside of a job."""
    found = current.get()
    return None if found is None else found.get()


class JobLogHandler(logging.Handler):
    """Copies log records that are written while a job runs to that job's log.

    logging.getLogger("myapp").addHandler(JobLogHandler())
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = current_job()
        if context is None or record.name.startswith("stoker."):  # log lines about sending must not be sent themselves
            return
        try:
            context.log(self.format(record), level=record.levelname.lower())
        except Exception:
            self.handleError(record)
