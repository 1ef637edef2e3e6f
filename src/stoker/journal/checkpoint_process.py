"""The short-lived process of low priority that makes a checkpoint, from both sides: its own, and that of its owner.

What a checkpoint is made of, and where it is put, say `retention.py` for a data directory and `postgres/retention.py`.
"""

import logging
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from stoker.journal.checkpoint_files import Chunk

RETRY_S = 10.0
"""After a checkpoint that failed."""
LOW, USUAL = 19, 0
"""What is added to the niceness of the process. Where other processes want all of the machine, it gets next to nothing
of it at 19.
"""
LATE = 4
"""A log that has grown to so many times what makes a checkpoint due grows faster than checkpoints are made."""
HASTE_S = 600.0
"""How long checkpoints have the usual priority after that."""

logger = logging.getLogger("stoker.journal")

Q = TypeVar("Q", bound=msgspec.Struct)
"""What is asked for, on standard input."""
A = TypeVar("A", bound=msgspec.Struct)
"""What was made, on standard output."""


# --- in the process ----------------------------------------------------------------------------------

PARENT: list[int] = []
"""The process that asked, when this is one of its own."""


def unless_orphaned(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same chunks. This process ends when the one that asked is gone: no process would use what it makes."""
    for chunk in chunks:
        if PARENT and os.getppid() != PARENT[0]:
            sys.exit(1)
        yield chunk


def run(kind: type[Q], make: Callable[[Q], msgspec.Struct]) -> None:
    """The life of the process."""
    os.nice(int(sys.argv[1]))
    request: Any = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    PARENT.append(request.owner or os.getppid())
    sys.stdout.buffer.write(msgspec.json.encode(make(request)))


# --- in the owner's ----------------------------------------------------------------------------------


class Checkpoints(ABC, Generic[Q, A]):
    """Has checkpoints made when they are due, one at a time."""

    command: tuple[str, ...]
    """Starts the process."""
    answer: type[A]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._request: Q | None = None
        self._is_hasty = False
        """Whether the process has the usual priority."""
        self._hasty_until = 0.0
        self._again_at = 0.0
        self.made = 0
        """How many checkpoints were made."""
        self.failed = ""
        """What the last one that failed had to say."""
        self.pinned = 0
        """How many need the log that is there to stay."""

    # --- what is particular to one kind of journal ---------------------------------------------------

    @property
    @abstractmethod
    def _whose(self) -> str:
        """For the log: a directory, or a seat."""

    @abstractmethod
    def _is_due(self, times: int = 1) -> bool:
        """Whether the log has grown enough for the next one; or to so many times that: then it is urgent."""

    @abstractmethod
    def _ask(self) -> Q: ...

    @abstractmethod
    def _uses_process(self) -> bool: ...

    @abstractmethod
    def _make(self, request: Q) -> A:
        """The same in this process."""

    @abstractmethod
    def _enforce(self, request: Q, made: A) -> None:
        """Put it in force, and let go of what is no longer needed; or give it up."""

    @abstractmethod
    def _discard(self, request: Q) -> None:
        """Remove what was begun."""

    # --- what is the same ----------------------------------------------------------------------------

    def look(self) -> None:
        """Begin a checkpoint if it is time, put one that is finished in force, or hurry one that is too slow."""
        if self.pinned:
            return
        if self._process is not None:
            if self._process.poll() is not None:
                self._finish()
            elif not self._is_hasty and self._is_due(LATE):
                self._hurry()
        elif self._may_begin():
            self.begin()

    def _hurry(self) -> None:
        """On a machine that is busy all the time, a process of low priority may never end, and the log would grow until
        the disk is full. A process cannot raise its own priority, so another one begins anew.
        """
        request = self._request
        assert request is not None
        logger.warning("a checkpoint of %s takes too long: it gets more of the machine from now on", self._whose)
        self.stop()
        self._discard(request)
        self.begin()

    def _may_begin(self) -> bool:
        return time.monotonic() >= self._again_at and self._is_due()

    def begin(self) -> None:
        """In a process of its own, unless the settings want it here."""
        if self._uses_process():
            request = self._ask()
            try:
                self._start(request)
            except OSError as error:  # no descriptors, no memory, too many processes: the log knows nothing of it
                self.stop()
                self._give_up(request, str(error))
        else:
            self._make_here()

    def _make_here(self) -> None:
        request = self._ask()
        try:
            made = self._make(request)
        except Exception as error:
            self._give_up(request, str(error))
            raise
        self._enforce(request, made)

    def _start(self, request: Q) -> None:
        """In a group of its own: Ctrl-C is for us, and we wait for it or end it. It notices if we die."""
        self._request = request
        if self._is_due(LATE):
            self._hasty_until = time.monotonic() + HASTE_S
        self._is_hasty = time.monotonic() < self._hasty_until
        command, pipe = (*self.command, str(USUAL if self._is_hasty else LOW)), subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", process_group=0)
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(request))
        self._process.stdin.close()
        self._process.stdin = None

    def wait(self) -> None:
        """Until a checkpoint that was begun is in force."""
        if self._process is not None:
            self._process.wait()
            self._finish()

    def _finish(self) -> None:
        process, request = self._process, self._request
        assert process is not None and request is not None
        self._process = None
        out, err = process.communicate()
        if process.returncode:
            self._give_up(request, err.decode("utf-8", "replace").strip())
            return
        self._enforce(request, msgspec.json.decode(out, type=self.answer))

    def _give_up(self, request: Q, why: str) -> None:
        """Remove what was begun, and try again later."""
        logger.warning("a checkpoint of %s failed, the log is kept: %s", self._whose, why)
        self._discard(request)
        self.failed = why
        self._again_at = time.monotonic() + RETRY_S

    def end(self, patience_s: float) -> None:
        """At a close: make what is due, and wait for what is being made, but not for ever.

        Processes that live too shortly for the upkeep to come to it would leave more to read to each that follows.
        """
        if self.pinned:
            return
        if self._process is None and self._may_begin():
            self.begin()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                self._finish()

    def stop(self) -> None:
        """A checkpoint in the making is given up; what it has written is removed at the next open."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
