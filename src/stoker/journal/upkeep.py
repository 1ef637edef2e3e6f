"""What a journal needs besides appends, on two threads of its own: flushing, and everything that takes longer.

The flusher does nothing but flush: at once when somebody waits for it, otherwise every `fsync_interval_ms`. The upkeep makes
the next file ahead of need, seals full ones, watches the room on the disk, has checkpoints made, and lets go of what is past
retention. It takes the owner's lock only to swap one object for another.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import apsw
import msgspec

from stoker.journal.contract import JournalFailed
from stoker.journal.directory import Log
from stoker.journal.logfile import LogFile
from stoker.journal.recovery import log_name
from stoker.journal.retention import Retention
from stoker.journal.sqlite import Segment, SqliteJournal

IDLE_S = 0.25
DEFERRED_S = 0.02
"""How long a turn that nobody waits for stays unwritten, at most about."""


class Upkeep:
    """The two threads of a journal."""

    def __init__(
        self,
        journal: SqliteJournal,
        guard: AbstractContextManager[object],
        stop: Callable[[Exception], None],
    ) -> None:
        self._journal = journal
        self._guard = guard
        """The owner's lock."""
        self._stop_owner = stop
        self._ended = threading.Event()
        self.retention = Retention(journal, guard, self._update, self._numbers)
        self.update_lock = threading.Lock()
        """Of the manifest."""
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"stoker-{work.__name__.strip('_')}", daemon=True)
            for work in (self._flush, self._keep)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; whatever they are at is finished first."""
        self._ended.set()
        self._journal.flush_asked.set()
        self._journal.upkeep_asked.set()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()
        self.retention.stop()

    def _run(self, work: Callable[[], None]) -> None:
        while not self._ended.is_set():
            try:
                work()
            except (JournalFailed, OSError, apsw.Error) as error:
                if isinstance(error, apsw.FullError) or getattr(error, "errno", 0) in NO_ROOM:
                    self._journal.is_full = True
                    self._ended.wait(IDLE_S)
                    continue
                self._stop_owner(error)
                return

    # --- flushing --------------------------------------------------------------------------------

    def _flush(self) -> None:
        journal = self._journal
        journal.flush_asked.wait(journal.settings.fsync_interval_ms / 1000)
        journal.flush_asked.clear()
        journal.flush()

    # --- the rest --------------------------------------------------------------------------------

    def _keep(self) -> None:
        journal = self._journal
        journal.upkeep_asked.wait(DEFERRED_S if journal.has_deferred else IDLE_S)
        journal.upkeep_asked.clear()
        if journal.has_deferred:
            with self._guard:
                journal.commit_deferred()
        self.watch_room()
        if journal.next_file is None and not journal.is_full:
            self.prepare()
        for segment in journal.segments[:-1]:
            if segment.log.state == "open":
                self.seal(segment)
        self.retention.look()

    def watch_room(self) -> None:
        """Keep room for acks, and take pushes again when there is room for both."""
        journal, disk, path = self._journal, self._journal.directory.disk, self._journal.directory.path
        reserve = journal.settings.disk_reserve_bytes
        file = path / "reserve"
        free = disk.free_bytes(path)
        if not file.exists():
            if free > 2 * reserve:
                disk.create_empty(file, reserve)
                journal.is_full = False
            else:
                journal.is_full = True
        elif free < reserve:
            journal.is_full = True
        elif journal.is_full and free > 2 * reserve:
            journal.is_full = False

    def prepare(self) -> None:
        """Make the file to go on with; the manifest knows it before anything is written to it."""
        journal = self._journal
        directory = journal.directory
        with self.update_lock:
            number = directory.manifest.number + 1
            log = Log(name=log_name(number), state="open")
            file = LogFile.create(directory.path / log.name, directory.disk, journal.settings.vfs)
            directory.update(number=number, logs=[*directory.manifest.logs, log])
        with self._guard:
            journal.next_file = Segment(log, file)

    def seal(self, segment: Segment) -> None:
        """Finish a file that is no longer written to: flushed, and from now on immutable."""
        journal, writer = self._journal, segment.file
        helper = LogFile.reopen(writer.path, journal.settings.vfs)
        helper.seal()
        helper.close()
        sealed = LogFile.sealed(writer.path, journal.settings.vfs)
        log = msgspec.structs.replace(segment.log, state="sealed", bytes=writer.path.stat().st_size)
        self._update(lambda logs: [log if other.name == log.name else other for other in logs])
        with self._guard, journal.flush_lock:
            segment.log, segment.file = log, sealed
        writer.close()

    def _numbers(self, files: int) -> int:
        """The first of so many numbers for new files, which nobody else will use."""
        directory = self._journal.directory
        with self.update_lock:
            first = directory.manifest.number + 1
            directory.update(number=directory.manifest.number + files)
        return first

    def _update(self, change: Callable[[list[Log]], list[Log]], **changes: object) -> None:
        """Change the list of files in the manifest."""
        directory = self._journal.directory
        with self.update_lock:
            directory.update(logs=change(list(directory.manifest.logs)), **changes)


NO_ROOM = (28, 122)
"""ENOSPC and EDQUOT."""
