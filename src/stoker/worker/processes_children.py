"""A child process of a worker, seen from the worker: started, spoken to, and ended.

It is a fresh interpreter and never a fork: a fork copies the locks of threads that it does not have. Which jobs it gets
is the lane's business (`processes.py`); what it does with them stands in `processes_child.py`.
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

from stoker.worker.lane import Chunk
from stoker.worker.processes_frames import (
    Board,
    Buffer,
    FromChild,
    Leave,
    Setup,
    Take,
    ToChild,
    Work,
    decode_from_child,
    framed,
    new_page,
)
from stoker.worker.processes_work import InHand, Piece

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[4]); "
    "from stoker.worker.processes_child import main; main(*map(int, sys.argv[1:4]))"
)
LAST_WORDS_S = 0.05
"""What a process had said before it died is read before its death is believed."""
REAP_S = 0.005
"""Between two looks at whether a process that is ending has ended."""


class Owner(Protocol):
    """Who hears what happens to a child. Called on the event loop."""

    def heard(self, child: "Child", message: FromChild) -> None: ...

    def died(self, child: "Child") -> None:
        """It will say nothing more; its process may still be about to end."""
        ...


class Child(asyncio.Protocol):
    """One process, and the jobs that it has."""

    def __init__(self, owner: Owner, setup: Setup) -> None:
        self._owner = owner
        self._setup = setup
        self._buffer = Buffer()
        self._transport: Any = None
        self._pidfd: int | None = None
        self._numbers = itertools.count(1)
        self.process: subprocess.Popen[bytes] | None = None
        self.board: Board | None = None
        self.in_hand: dict[int, InHand] = {}
        """By number, in the order in which they are run."""
        self.jobs = 0
        """How many it has done."""
        self.still = 0
        """For how many looks it has done nothing."""
        self._seen = 0
        self.giving_back: set[int] = set()
        """Jobs that go back to the queue, if it has not begun them."""
        self.is_ready = False
        self.is_retiring = False
        self.is_gone = False
        self.problem = ""
        """Why it cannot work, as it says itself."""
        self.interrupted = 0
        """The number of the job that was asked to stop."""
        self.killed_for: int | None = None
        """The number of the job that it was killed for, 0 if for none; None while nobody has killed it."""

    # --- its life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the interpreter. It says `Ready` when it has imported everything."""
        here, there = socket.socketpair()
        page = new_page()
        try:
            self.board = Board(page)
            arguments = [str(there.fileno()), str(page), str(os.getpid()), json.dumps(sys.path)]
            # On the thread of the event loop, and nowhere else: a child ends with the thread that started it.
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
        """Its socket stays open after its death where a process that it started has inherited it."""
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
        """Let it end when it has done what it has."""
        self.is_retiring = True
        if not self.in_hand and not self.is_gone:
            self.send(Leave())

    def kill(self, number: int = 0) -> None:
        """At once; for the sake of one of its jobs, or of none."""
        if self.killed_for is None:
            self.killed_for = number
        self._signal(signal.SIGKILL)

    def make_sure(self) -> None:
        """It has closed its socket: whatever it is, it is no worker any more."""
        self._signal(signal.SIGKILL)

    def interrupt(self, number: int) -> None:
        """Raise an exception in the handler that runs, if it is still this job's."""
        if self.board is not None:
            self.board.unwanted = self.interrupted = number
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    async def reap(self) -> int:
        """Wait for its end: the exit code, or the number of the signal below zero."""
        assert self.process is not None
        while (code := self.process.poll()) is None:  # noqa: ASYNC110 - a process has no event to wait for
            await asyncio.sleep(REAP_S)
        return code

    def culprit(self) -> InHand | None:
        """After its end: the job that it died of. If somebody killed it for the sake of another one: none."""
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
        """The number of the job that it is in, or died in; 0 = none."""
        return 0 if self.board is None else self.board.running

    @property
    def ended(self) -> int:
        """The number up to which its jobs have completed without a result, whether it has said so or not."""
        return 0 if self.board is None else self.board.ended

    # --- speaking --------------------------------------------------------------------------------

    def give(self, piece: Piece) -> None:
        """More work, which it does after what it has."""
        first = 0
        for task in piece.tasks:
            for job, payload in zip(task.ids, task.payloads, strict=True):
                number = next(self._numbers)
                first = first or number
                self.in_hand[number] = InHand(task.chunk, job, payload, piece)
        self.send(Work(first, piece.handler.name, [task.part() for task in piece.tasks], piece.together))

    def take_out(self, number: int) -> InHand | None:
        """It does not have that job any more."""
        held = self.in_hand.pop(number, None)
        if held is not None:
            held.piece.lost()
        return held

    def empty(self) -> dict[int, InHand]:
        """It has nothing any more; what it had."""
        held, self.in_hand = self.in_hand, {}
        for one in held.values():
            one.piece.lost()
        return held

    def take(self, numbers: list[int]) -> None:
        """Ask for jobs back; it answers which of them it had not begun, and before that what it has done."""
        self.send(Take(numbers))

    def look(self) -> int:
        """For how many looks it has not moved."""
        self.still = self.still + 1 if self.jobs == self._seen else 0
        self._seen = self.jobs
        return self.still

    def waiting_numbers(self) -> list[int]:
        """Those that it has not begun, as far as can be seen from here."""
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
        """Whether nobody wants this job any more, nor any that is called with it."""
        held = self.in_hand[number]
        return all(
            one.job in one.chunk.flags for one in self.in_hand.values() if one is held or one.is_called_with(held)
        )

    def number_of(self, chunk: Chunk, job: int) -> int:
        """Under which it has a job; 0 if it has not."""
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
        """After its end: let go of what it held in this process."""
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
