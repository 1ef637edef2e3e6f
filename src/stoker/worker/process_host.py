"""The worker as a handler in a child process sees it: the same interface as in the worker, over the socket."""

import asyncio
import itertools
import logging
import queue
import socket
import threading
from typing import TypeVar

from stoker.model.commands import Command
from stoker.model.errors import StokerError
from stoker.wire import native
from stoker.worker.lane import JobChunk, Settlement
from stoker.worker.process_frames import Board, Frame, HostAnswer, Said, framed

log = logging.getLogger("stoker.worker")

R = TypeVar("R")


class WorkerSocket:
    """The socket to the worker. Any thread may send."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()

    def send(self, message: Frame) -> None:
        frame = framed(message)
        with self._lock:
            self._socket.sendall(frame)

    def receive(self) -> bytes:
        return self._socket.recv(1 << 16)


class ChildHost:
    """Passes what contexts ask of a worker through the line."""

    def __init__(self, line: WorkerSocket, board: Board) -> None:
        self._line, self._board = line, board
        self.worker = ""
        """Set by the first message."""
        self._questions = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[bytes]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()

    @property
    def stopping(self) -> bool:
        return self._board.is_stopping

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop for asynchronous parts, started when first needed."""
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="stoker-loop", daemon=True).start()
            return self._loop

    def settle(self, settlement: Settlement) -> None:
        raise NotImplementedError("a child process reports its outcomes itself")

    def measured(self, queue: str, jobs: int, seconds: float) -> None:
        raise NotImplementedError("the worker measures its child processes")

    def roomier(self) -> None:
        raise NotImplementedError("a child process has no room of its own")

    def report(self, chunk: JobChunk, job: int, command: Command[object]) -> None:
        """Best effort: a report that cannot be encoded must not fail the job."""
        try:
            request = native.request(command, None, None, "msgpack")
        except StokerError as error:
            log.info("%s of job %s was not saved: %s", type(command).__name__, job, error)
            return
        self._line.send(Said(job, request))

    def renew(self, chunk: JobChunk) -> None:
        self._line.send(Said(chunk.ids[0]))

    def execute(self, command: Command[R]) -> R:
        question = next(self._questions)
        box: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._answers[question] = box
        request = native.request(command, None, None, "msgpack")
        self._line.send(Said(0, request, question))
        try:
            frame = box.get()
        finally:
            self._answers.pop(question, None)
        reply: R = native.reply(native.open_head(frame, "msgpack"), type(command), "msgpack")
        return reply

    async def execute_async(self, command: Command[R]) -> R:
        return await asyncio.to_thread(self.execute, command)

    def answered(self, answer: HostAnswer) -> None:
        box = self._answers.get(answer.question)
        if box is not None:
            box.put(answer.reply)
