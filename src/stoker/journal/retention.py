"""Has the state of a data directory saved when it is due, and removes the files that are not needed after that.

`needed.py` decides. A file that nothing needs is dropped, one that is mostly dead rewritten.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import msgspec

from stoker.journal.checkpointing import CheckpointRequest, Made, make
from stoker.journal.directory import LogEntry
from stoker.journal.logfile import LogFile
from stoker.journal.needed import expired, is_due
from stoker.journal.sqlite import Segment, SqliteJournal
from stoker.journal.transient_errors import is_not_opened

logger = logging.getLogger("stoker.journal")

RETRY_S = 10.0
"""After a checkpoint that failed."""

COMMAND = (sys.executable, "-m", "stoker.journal.checkpointing")


class LogRetention:
    """Has checkpoints made, and lets go of what is no longer needed."""

    def __init__(
        self,
        journal: SqliteJournal,
        guard: AbstractContextManager[object],
        update: Callable[..., None],
        numbers: Callable[[int], int],
    ) -> None:
        self._journal = journal
        self._guard = guard
        self._update = update
        self._numbers = numbers
        self._process: subprocess.Popen[bytes] | None = None
        self._request: CheckpointRequest | None = None
        self._again_at = 0.0
        self.made = 0
        """How many checkpoints were made."""
        self.failed = ""
        """What the last one that failed had to say."""
        self.pinned = 0
        """How many need the files that are there to stay."""

    def look(self) -> None:
        """Begin a checkpoint if it is time, or put one that is finished in force."""
        if self.pinned:
            return
        if self._process is not None:
            if self._process.poll() is not None:
                self._finish()
        elif self._may_begin():
            self.begin()

    def _may_begin(self) -> bool:
        return not self._journal.is_full and time.monotonic() >= self._again_at and self._is_due()

    def _is_due(self) -> bool:
        manifest = self._journal.directory.manifest
        return is_due(finished(manifest.logs), manifest.position, self._journal.settings)

    def begin(self) -> None:
        """In a process of its own, unless the settings want it here."""
        if self._journal.settings.checkpoint_process:
            request = self._ask()
            try:
                self._start(request)
            except OSError as error:  # no descriptors, no memory, too many processes: the log knows nothing of it
                self.stop()
                self._give_up(request, str(error))
        else:
            self._make_here()

    def _ask(self) -> CheckpointRequest:
        directory = self._journal.directory
        number = self._numbers(2)
        past = expired(finished(directory.manifest.logs), self._journal.written_at, self._journal.settings)
        return CheckpointRequest(
            path=str(directory.path.absolute()),
            checkpoint=f"checkpoint-{number:08}",
            rewritten=f"log-{number + 1:08}.db",
            expired=past,
            rewrite_below=self._journal.settings.rewrite_below,
            vfs=self._journal.settings.vfs,
            owner=os.getpid(),
        )

    def _make_here(self) -> None:
        request = self._ask()
        try:
            made = make(request, self._journal.directory.disk)
        except Exception as error:
            self._give_up(request, str(error))
            raise
        self._enforce(request, made)

    def _start(self, request: CheckpointRequest) -> None:
        """In a group of its own: Ctrl-C is for us, and we wait for it or end it. It notices if we die."""
        self._request = request
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", process_group=0)
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
        self._enforce(request, msgspec.json.decode(out, type=Made))

    def _give_up(self, request: CheckpointRequest, why: str) -> None:
        """Remove what was begun, and try again later."""
        directory = self._journal.directory
        for name in (request.checkpoint, request.rewritten, f"{request.rewritten}-journal"):
            directory.disk.remove(directory.path / name)
        self.failed = why
        self._again_at = time.monotonic() + RETRY_S
        logger.warning("a checkpoint of %s failed, the log is kept: %s", directory.path, why)

    def _enforce(self, request: CheckpointRequest, made: Made) -> None:
        """The manifest first; then no read begins in the old files any more, and they go."""
        journal, directory = self._journal, self._journal.directory
        earlier = directory.manifest.checkpoint
        new = made.rewritten
        instead = set(new.instead_of) if new is not None else set()
        gone = instead | set(made.dropped)
        lowest = list(directory.manifest.lowest)
        logs = finished(directory.manifest.logs)
        if request.expired:
            reached = logs[request.expired - 1].last
            lowest = [max(pair) for pair in zip(lowest, (end + 1 for end in reached), strict=True)]

        def replaced(logs: list[LogEntry]) -> list[LogEntry]:
            kept: list[LogEntry] = []
            for log in logs:
                if new is not None and log.name == new.instead_of[0]:
                    kept.append(new.log)
                if log.name not in gone:
                    kept.append(log)
            return kept

        try:
            directory.disk.sync_directory(directory.path)
            self._update(replaced, checkpoint=request.checkpoint, position=made.position, lowest=lowest)
        except OSError as error:
            if not is_not_opened(error):
                raise
            self._give_up(request, str(error))
            return
        file = None if new is None else LogFile.sealed(directory.path / new.log.name, journal.settings.vfs)
        with self._guard:
            old = [segment for segment in journal.segments if segment.log.name in gone]
            segments: list[Segment] = []
            for segment in journal.segments:
                if new is not None and file is not None and segment.log.name == new.instead_of[0]:
                    segments.append(Segment(new.log, file))
                if segment.log.name not in gone:
                    segments.append(segment)
            journal.segments = segments
        for segment in old:  # not closed here: a thread may be reading it, and the last reference that goes closes it
            directory.disk.remove(segment.file.path)
        if earlier is not None:
            directory.disk.remove(directory.path / earlier)
        self.made += 1

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


def finished(logs: list[LogEntry]) -> list[LogEntry]:
    return [log for log in logs if log.state != "open"]
