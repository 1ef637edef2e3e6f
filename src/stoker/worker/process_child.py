"""The child process of a worker: imports the handlers, runs the jobs that it is given, and reports their outcomes.

The main thread runs handlers, one job at a time. A second thread listens to the worker, so that a job can be taken back
before it has begun, and so that the process ends when the worker does. The child has no connection to the queue:
everything that a handler says about its job goes through the worker. `process_handle.py` is the other end.
"""

import asyncio
import inspect
import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from stoker.brokers.remote.retrying import be_patient
from stoker.worker.batches import BatchContext, call_together
from stoker.worker.context import Context, Current, current
from stoker.worker.errors import SoftTimeout
from stoker.worker.handler import Handler
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import JobChunk
from stoker.worker.middleware import Call, plain_call
from stoker.worker.outcomes import Failure
from stoker.worker.parent_death import die_with_parent
from stoker.worker.process_frames import (
    Board,
    Buffer,
    ChildReady,
    Ending,
    HostAnswer,
    JobsDone,
    Leave,
    Part,
    RunJobs,
    Setup,
    TakeBack,
    TakenBack,
    decode_to_child,
)
from stoker.worker.process_host import ChildHost, WorkerSocket
from stoker.worker.process_imports import handler_at, import_main, log_like_parent

FLUSH_S = 0.05
"""Results that come faster than this are sent together. A crash loses unsent results, and their jobs run again; jobs
without a result are noted in shared memory, where the worker sees them.
"""


class Terminated(BaseException):
    """Raised in a handler whose job must stop. Not an `Exception`: handlers should catch it only to clean up."""


class Runner:
    """Runs the jobs of a child."""

    def __init__(self, line: WorkerSocket, board: Board) -> None:
        self._line, self._board = line, board
        self.host = ChildHost(line, board)
        self._scope = WorkerScope()
        self._handlers: dict[str, Handler] = {}
        self._calls: dict[str, Call] = {}
        self._begun = 0
        self._taken: set[int] = set()
        self._lock = threading.Lock()
        """Held while a job is taken back or begun."""
        self._telling = threading.RLock()
        self._outcomes: list[bytes | Ending | None] = []
        self._outcomes_first = 0
        self._has_only_nothing = True
        """Whether all unsent outcomes have no result."""
        self._spent: list[float] = []
        self._flushed_at = 0.0

    def set_up(self, setup: Setup) -> None:
        broken: dict[str, str] = {}
        self.host.worker = setup.worker
        import_main(setup)
        for name, origin in setup.handlers.items():
            try:
                handler = self._handlers[name] = handler_at(origin, name)
                self._calls[name] = plain_call(handler, self._scope, lambda: self.host.loop)
            except Exception as error:
                failure = Failure.of(error, with_stack=False)
                broken[name] = f"{failure.error_class}: {failure.error}"
        log_like_parent(setup)
        self._line.send(ChildReady(broken))

    def take_back(self, numbers: list[int]) -> None:
        """On the listening thread: keep these jobs from beginning, if they have not."""
        with self._lock:
            free = [number for number in numbers if number > self._begun]
            self._taken.update(free)
        self.flush()  # the worker also wants to know how far the child is
        self._line.send(TakenBack(free))

    def begin(self, number: int, last: int | None = None) -> bool:
        """Begin a job, unless it was taken back. Returns whether it still belongs to this child."""
        with self._lock:
            if number in self._taken:
                self._taken.discard(number)
                return False
            self._begun = max(self._begun, last or number)
            self._board.running = number
            return True

    def interrupt(self) -> None:
        """SIGTERM in the main thread: stops only the job that it was meant for."""
        if self._board.running and self._board.unwanted == self._board.running:
            self._board.unwanted = 0
            raise Terminated

    # --- jobs ------------------------------------------------------------------------------------

    def run(self, work: RunJobs) -> None:
        handler = self._handlers[work.handler]
        if work.together:
            self._run_together(handler, work)
        else:
            number = work.first
            for part in work.parts:
                number = self._run_part(handler, part, number)
        self.flush()

    def _run_part(self, handler: Handler, part: Part, number: int) -> int:
        chunk = chunk_of(handler, part)
        held = Current(chunk, 0, self.host)
        token = current.set(held)
        try:
            for job, payload in zip(part.ids, part.payloads, strict=True):
                if self.begin(number):
                    began = time.monotonic()
                    held.job, held.started_at = job, began
                    outcome = self._run_job(handler, held, payload)
                    self._board.running = 0
                    now = time.monotonic()
                    self._tell(number, outcome, now - began)
                    if now - self._flushed_at >= FLUSH_S:
                        self.flush()
                number += 1
        finally:
            current.reset(token)
        return number

    def _run_job(self, handler: Handler, held: Current, payload: bytes) -> bytes | Ending | None:
        chunk = held.chunk
        try:
            args, kwargs = handler.decode(payload, chunk.options.codec)
            with SoftLimit(handler.soft_timeout_ms):
                if handler.is_bare:
                    result = handler.function(*args, **kwargs)
                else:
                    result = self._calls[handler.name](held.get(), args, kwargs)
                result = self._finished(result)
            encoded = None if result is None else handler.encode(result)
        except Exception as error:
            return ending_of(handler, error, chunk.attempt)
        except SystemExit as error:
            return ending_of(handler, RuntimeError(f"the handler called sys.exit({error.code!r})"), chunk.attempt)
        if held.context is not None and held.context.id == held.job:
            held.context.forget_checkpoint()
        return encoded

    def _run_together(self, handler: Handler, work: RunJobs) -> None:
        numbers = itertools.count(work.first)
        mine = [
            (next(numbers), chunk, job, payload)
            for part in work.parts
            for chunk in (chunk_of(handler, part),)
            for job, payload in zip(part.ids, part.payloads, strict=True)
        ]
        with self._lock:
            self._begun = max(self._begun, mine[-1][0])
            taken = {number for number, *_ in mine} & self._taken
            self._taken -= taken
        mine = [item for item in mine if item[0] not in taken]
        if not mine:
            return
        self._board.running = mine[0][0]
        began = time.monotonic()
        context = BatchContext([Context(chunk, job, self.host, began) for _, chunk, job, _ in mine], self.host, began)

        def call(args: list[list[Any]], kwargs: dict[str, list[Any]]) -> Any:
            with SoftLimit(handler.soft_timeout_ms):
                return self._finished(self._calls[handler.name](context, args, kwargs))

        held = Current(mine[0][1], context.id, self.host)
        held.context = context
        held.together = [job for _, _, job, _ in mine]
        token = current.set(held)
        try:
            endings = call_together(handler, [((payload,), chunk.options.codec) for _, chunk, _, payload in mine], call)
        finally:
            current.reset(token)
        self._board.running = 0
        spent = time.monotonic() - began
        for (number, chunk, _, _), ending, job in zip(mine, endings, context.jobs, strict=True):
            if isinstance(ending, Exception):
                self._tell(number, ending_of(handler, ending, chunk.attempt), spent)
            else:
                job.forget_checkpoint()
                self._tell(number, ending, spent)

    def _finished(self, result: Any) -> Any:
        """Await the result of an asynchronous function on this process's loop."""
        if inspect.iscoroutine(result):
            return asyncio.run_coroutine_threadsafe(result, self.host.loop).result()
        return result

    # --- telling ---------------------------------------------------------------------------------

    def _tell(self, number: int, outcome: bytes | Ending | None, spent_s: float) -> None:
        with self._telling:
            if self._outcomes and number != self._outcomes_first + len(self._outcomes):
                self.flush()
            if not self._outcomes:
                self._outcomes_first = number
            self._outcomes.append(outcome)
            self._spent.append(spent_s)
            if outcome is None and self._has_only_nothing:
                self._board.ended = number
            else:
                self._has_only_nothing = False

    def flush(self) -> None:
        """Send the results so far, without waiting for a long job behind them. From any thread."""
        with self._telling:
            self._flushed_at = time.monotonic()
            if self._outcomes:
                ended = JobsDone(self._outcomes_first, self._outcomes, self._spent)
                self._outcomes, self._spent = [], []
                self._line.send(ended)
                self._has_only_nothing = True

    def close(self) -> None:
        """Clean up the values with the scope `worker`."""
        asyncio.run_coroutine_threadsafe(self._scope.close(), self.host.loop).result(5)


class SoftLimit:
    """Raises `SoftTimeout` in the main thread when a handler takes longer."""

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms

    def __enter__(self) -> None:
        if self._after_ms:
            signal.signal(signal.SIGALRM, self._strike)
            signal.setitimer(signal.ITIMER_REAL, self._after_ms / 1_000)

    def __exit__(self, *raised: object) -> None:
        if self._after_ms:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        raise SoftTimeout(f"the handler has run for more than {self._after_ms} ms")


def ending_of(handler: Handler, error: BaseException, attempt: int) -> Ending:
    verdict, failure = handler.retry.decide(error, attempt), Failure.of(error)
    return Ending(verdict.kind, verdict.after_ms, verdict.reason, failure.error, failure.error_class, failure.stack)


def chunk_of(handler: Handler, part: Part) -> JobChunk:
    return JobChunk(
        handler,
        part.token,
        part.queue,
        part.ids,
        part.payloads,
        part.options,
        part.attempt,
        part.pushed_at,
        part.received_at,
    )


# --- the process -------------------------------------------------------------------------------------


def listen(line: WorkerSocket, runner: Runner, inbox: "queue.SimpleQueue[Any]") -> None:
    """Listen until the worker is gone; then end this process, whatever its handler is doing."""
    buffer = Buffer()
    try:
        while data := line.receive():
            for frame in buffer.feed(data):
                message = decode_to_child(frame)
                if isinstance(message, TakeBack):
                    runner.take_back(message.numbers)
                elif isinstance(message, HostAnswer):
                    runner.host.answered(message)
                else:
                    inbox.put(message)
    finally:
        os._exit(0)


def main(descriptor: int, page: int, parent: int) -> None:
    die_with_parent(parent=parent)
    be_patient()
    for inherited in (descriptor, page):
        os.set_inheritable(inherited, False)
    del sys.argv[1:]
    # Ctrl-C reaches all processes of a terminal, but the worker decides. The signal is caught, not ignored, because
    # programs that handlers start would inherit an ignored one.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    line, board = WorkerSocket(descriptor), Board(page)
    runner = Runner(line, board)
    signal.signal(signal.SIGTERM, lambda number, frame: runner.interrupt())
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(line, runner, inbox), name="stoker-listen", daemon=True).start()
    code = 1
    try:
        work(runner, inbox.get)
        code = 0
    except Terminated:
        runner.flush()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if code:
            sys.excepthook(*sys.exc_info())
        os._exit(code)  # threads that a handler left behind must not keep this process alive


def work(runner: Runner, next_message: Callable[[], Any]) -> None:
    while not isinstance(message := next_message(), Leave):
        if isinstance(message, Setup):
            runner.set_up(message)
        else:
            runner.run(message)
    runner.close()
