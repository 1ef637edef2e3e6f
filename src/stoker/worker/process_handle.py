"""A child process as the worker sees it: starting it, talking to it, ending it.

It is a fresh interpreter, never a fork, because a fork copies the locks of threads that it does not have. The lane
(`process_lane.py`) decides which jobs it gets; `process_child.py` is the code inside the child.
"""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, Protocol

from stoker.worker.lane import JobChunk
from stoker.worker.process_backlog import ChildPiece, InHand
from stoker.worker.process_frames import (
    Board,
    Buffer,
    FromChild,
    Leave,
    RunJobs,
    Setup,
    TakeBack,
    ToChild,
    decode_from_child,
    framed,
    new_page,
)

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[4]); "
    "from stoker.worker.process_child import main; main(*map(int, sys.argv[1:4]))"
)
LAST_WORDS_S = 0.05
"""Time to read what a process said before it died."""
REAP_S = 0.005
"""Between two checks whether an ending process has ended."""


class ChildOwner(Protocol):
    """Receives the events of a child, on the event loop."""

    def heard(self, child: "Child", message: FromChild) -> None: ...

    def died(self, child: "Child") -> None:
        """The child will say nothing more; its process may still be ending."""
        ...


class Child(asyncio.Protocol):
    """One process and the jobs that it has."""

    def __init__(self, owner: ChildOwner, setup: Setup) -> None:
        self._owner = owner
        self._setup = setup
        self._buffer = Buffer()
        self._transport: Any = None
        self._pidfd: int | None = None
        self._numbers = itertools.count(1)
        self.process: subprocess.Popen[bytes] | None = None
        self.board: Board | None = None
        self.in_hand: dict[int, InHand] = {}
        """By number, in the order in which they run."""
        self.jobs = 0
        """Jobs done so far."""
        self.still = 0
        """Looks in a row without progress."""
        self._seen = 0
        self.giving_back: set[int] = set()
        """Jobs that go back to the queue, unless the child has begun them."""
        self.is_ready = False
        self.is_retiring = False
        self.is_gone = False
        self.problem = ""
        """Why it cannot work, in its own words."""
        self.interrupted = 0
        """The number of the job that was asked to stop."""
        self.killed_for: int | None = None
        """The number of the job that it was killed for, 0 if for none; None if it was not killed."""

    # --- its life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the interpreter. It sends `Ready` when it has imported everything."""
        here, there = socket.socketpair()
        page = new_page()
        try:
            self.board = Board(page)
            arguments = [str(there.fileno()), str(page), str(os.getpid()), json.dumps(sys.path)]
            # Only on the event loop's thread: a child ends with the thread that started it.
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-c", PROGRAM, *arguments],
                pass_fds=(there.fileno(), page),
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
            os.close(page)
        here.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=here)
        self._watch_process()
        self.send(self._setup)

    def _watch_process(self) -> None:
        """Watch the process itself: if a process that it started inherited its socket, the socket outlives it."""
        if self.process is not None and hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.process.pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._process_ended)

    def _process_ended(self) -> None:
        self._forget_pidfd()
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self.connection_lost, None)

    def _forget_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def retire(self) -> None:
        """Let the child end when its jobs are done."""
        self.is_retiring = True
        if not self.in_hand and not self.is_gone:
            self.send(Leave())

    def kill(self, number: int = 0) -> None:
        """Kill the child at once, for the sake of the job `number`, or of none."""
        if self.killed_for is None:
            self.killed_for = number
        self._signal(signal.SIGKILL)

    def make_sure(self) -> None:
        """Kill a child that has closed its socket: it can do no more work."""
        self._signal(signal.SIGKILL)

    def interrupt(self, number: int) -> None:
        """Raise an exception in the running handler, if it still runs this job."""
        if self.board is not None:
            self.board.unwanted = self.interrupted = number
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def reap(self) -> int:
        """Wait for the end. Returns the exit code, or the negative number of the signal."""
        assert self.process is not None
        while (code := self.process.poll()) is None:  # noqa: ASYNC110 - a process has no event to wait for
            await asyncio.sleep(REAP_S)
        return code

    def culprit(self) -> InHand | None:
        """After its end: the job that killed it; None if it was killed because of another job."""
        running = self.running
        return self.in_hand.get(running) if self.killed_for in (None, running) else None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def is_able(self) -> bool:
        """Whether it takes more work."""
        return self.is_ready and not self.is_retiring and not self.is_gone

    @property
    def running(self) -> int:
        """The number of the job that it runs, or died in; 0 means none."""
        return 0 if self.board is None else self.board.running

    @property
    def ended(self) -> int:
        """All jobs up to this number have completed without a result, reported or not."""
        return 0 if self.board is None else self.board.ended

    # --- speaking --------------------------------------------------------------------------------

    def give(self, piece: ChildPiece) -> None:
        """Give it more work, to be done after what it has."""
        first = 0
        for task in piece.tasks:
            for job, payload in zip(task.ids, task.payloads, strict=True):
                number = next(self._numbers)
                first = first or number
                self.in_hand[number] = InHand(task.chunk, job, payload, piece)
        self.send(RunJobs(first, piece.handler.name, [task.part() for task in piece.tasks], piece.together))

    def take_out(self, number: int) -> InHand | None:
        """Remove a job that the child no longer has."""
        held = self.in_hand.pop(number, None)
        if held is not None:
            held.piece.lost()
        return held

    def empty(self) -> dict[int, InHand]:
        """Remove and return all its jobs."""
        held, self.in_hand = self.in_hand, {}
        for one in held.values():
            one.piece.lost()
        return held

    def take(self, numbers: list[int]) -> None:
        """Ask for jobs back. It first sends the results so far, then the jobs that it had not begun."""
        self.send(TakeBack(numbers))

    def look(self) -> int:
        """Looks in a row without progress, counting this one."""
        self.still = self.still + 1 if self.jobs == self._seen else 0
        self._seen = self.jobs
        return self.still

    def waiting_numbers(self) -> list[int]:
        """Jobs that it has not begun, as far as the worker can see."""
        running = self.running
        now = self.in_hand.get(running)
        return [
            number
            for number, held in self.in_hand.items()
            if number > running and not (now is not None and held.is_called_with(now))
        ]

    def first_called_with(self, number: int) -> int:
        """The number under which a job runs: that of the first job in the same call."""
        held = self.in_hand[number]
        return next(other for other, one in self.in_hand.items() if one is held or one.is_called_with(held))

    def is_unwanted(self, number: int) -> bool:
        """Whether this job and all that are called with it are no longer wanted."""
        held = self.in_hand[number]
        return all(
            one.job in one.chunk.flags for one in self.in_hand.values() if one is held or one.is_called_with(held)
        )

    def number_of(self, chunk: JobChunk, job: int) -> int:
        """The number of a job in this child; 0 if it does not have it."""
        for number, held in self.in_hand.items():
            if held.job == job and held.chunk is chunk:
                return number
        return 0

    def send(self, message: ToChild) -> None:
        if self._transport is not None and not self.is_gone:
            self._transport.write(framed(message))

    # --- listening -------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._buffer.feed(data):
            self._owner.heard(self, decode_from_child(frame))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._owner.died(self)

    def close(self) -> None:
        """After its end: free its resources in this process."""
        self.is_gone = True
        self._forget_pidfd()
        if self._transport is not None:
            self._transport.close()
        if self.board is not None:
            self.board.close()
            self.board = None


def how_it_died(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} (out of memory?)" if -code == signal.SIGKILL else name
