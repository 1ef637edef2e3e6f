"""Has the state of a data directory saved when it is due, and removes the files that are not needed after that.

`needed.py` decides. A file that nothing needs is dropped, one that is mostly dead rewritten.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from stoker.journal.checkpoint_process import Checkpoints
from stoker.journal.checkpointing import CheckpointRequest, Made, make
from stoker.journal.directory import LogEntry
from stoker.journal.logfile import LogFile
from stoker.journal.needed import behind_checkpoint, expired, is_due
from stoker.journal.sqlite import Segment, SqliteJournal
from stoker.journal.transient_errors import is_not_opened


class LogRetention(Checkpoints[CheckpointRequest, Made]):
    """Has checkpoints made, and lets go of what is no longer needed."""

    command = (sys.executable, "-m", "stoker.journal.checkpointing")
    answer = Made

    def __init__(
        self,
        journal: SqliteJournal,
        guard: AbstractContextManager[object],
        update: Callable[..., None],
        numbers: Callable[[int], int],
    ) -> None:
        super().__init__()
        self._journal = journal
        self._guard = guard
        self._update = update
        self._numbers = numbers

    @property
    def _whose(self) -> str:
        return str(self._journal.directory.path)

    def _is_due(self, times: int = 1) -> bool:
        """Where the disk has little room, the next one is due, and urgent, as soon as files may go by it."""
        journal, manifest = self._journal, self._journal.directory.manifest
        logs = finished(manifest.logs)
        if journal.is_tight and self._expired(logs) and behind_checkpoint(logs, manifest.position):
            return True
        return not journal.is_full and is_due(logs, manifest.position, journal.settings, times)

    def _expired(self, logs: list[LogEntry]) -> int:
        return expired(logs, self._journal.written_at, self._journal.settings)

    def _uses_process(self) -> bool:
        return self._journal.settings.checkpoint_process

    def _ask(self) -> CheckpointRequest:
        directory = self._journal.directory
        number = self._numbers(2)
        is_full = self._journal.is_full
        return CheckpointRequest(
            path=str(directory.path.absolute()),
            checkpoint=f"checkpoint-{number:08}",
            rewritten=f"log-{number + 1:08}.db",
            expired=self._expired(finished(directory.manifest.logs)),
            rewrite_below=0.0 if is_full else self._journal.settings.rewrite_below,
            bytes_max=directory.disk.free_bytes(directory.path) // 2 if is_full else None,
            vfs=self._journal.settings.vfs,
            owner=os.getpid(),
        )

    def _make(self, request: CheckpointRequest) -> Made:
        return make(request, self._journal.directory.disk)

    def _discard(self, request: CheckpointRequest) -> None:
        directory = self._journal.directory
        for name in (request.checkpoint, request.rewritten, f"{request.rewritten}-journal"):
            directory.disk.remove(directory.path / name)

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


def finished(logs: list[LogEntry]) -> list[LogEntry]:
    return [log for log in logs if log.state != "open"]
