"""What a journal needs besides appends, on two threads of its own: flushing, and everything that takes longer.

The flusher does nothing but flush: at once when a call waits for it, else every `fsync_interval_ms`. The upkeep
makes the next file ahead of need, seals full ones, watches the room on the disk, has checkpoints made, and lets go of
what is past retention. It takes the owner's lock only to swap one object for another.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from stoker.journal.contract import Owner
from stoker.journal.directory import LogEntry
from stoker.journal.directory_opening import log_name
from stoker.journal.key_offloading import KeyKeeper
from stoker.journal.logfile import LogFile
from stoker.journal.retention import LogRetention
from stoker.journal.sqlite import Segment, SqliteJournal
from stoker.journal.transient_errors import is_no_room, is_not_opened, is_passing

IDLE_S = 0.25
KEYS_EVERY_MS = 5_000
DEFERRED_S = 0.02
"""How long, at most about, a turn that no call waits for stays unwritten."""
TELL_EVERY_S = 60.0
"""While the same thing cannot be done, the log says so this often."""

logger = logging.getLogger("stoker.journal")


class Upkeep:
    """The two threads of a journal."""

    def __init__(
        self,
        journal: SqliteJournal,
        keys: KeyKeeper,
        owner: Owner,
    ) -> None:
        guard, stop = owner.guard, owner.stop
        self._owner = owner
        self._keys = keys
        self._keys_at = 0
        self.work_lock = threading.Lock()
        """Held during a round of upkeep, and by threads that must keep it from running."""
        self._journal = journal
        self._tried = 0
        """The number of the last file that was begun, even if it is gone."""
        self._tell_at = 0.0
        self._guard = guard
        """The owner's lock."""
        self._stop_owner = stop
        self._ended = threading.Event()
        self.retention = LogRetention(journal, guard, self._update, self._numbers)
        self.update_lock = threading.Lock()
        """Of the manifest."""
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=f"stoker-{work.__name__.strip('_')}", daemon=True)
            for work in (self._flush, self._keep)
        ]

    def start(self) -> None:
        try:
            self.watch_room()  # before the first append asks for any
        except OSError:
            self._journal.is_full = True  # the first round will say more
        for thread in self._threads:
            thread.start()

    def stop(self, patience_s: float) -> None:
        """End the threads after what they are doing. A checkpoint is finished, too, unless it takes too long."""
        self._ended.set()
        self._journal.flush_asked.set()
        self._journal.upkeep_asked.set()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()
        if self._journal.failure is None:
            try:
                self.retention.end(patience_s)
            except Exception as error:
                if not is_passing(error):
                    self._journal.fail(error)  # the next open recovers
        self.retention.stop()

    def _run(self, work: Callable[[], None]) -> None:
        while not self._ended.is_set():
            try:
                work()
            except Exception as error:
                if is_passing(error) and self._journal.failure is None:
                    self._put_off(error)
                    continue
                self._ended.set()
                self._journal.fail(error)
                self._stop_owner(error)
                return

    def _put_off(self, error: Exception) -> None:
        """Nothing was written: try again in a moment. Appends and flushes go on meanwhile."""
        if is_no_room(error):
            self._journal.is_full = True
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_EVERY_S
            logger.warning("the upkeep of %s has to wait, and is tried again: %s", self._journal.directory.path, error)
        self._ended.wait(IDLE_S)

    # --- flushing --------------------------------------------------------------------------------

    def _flush(self) -> None:
        journal = self._journal
        journal.flush_asked.wait(journal.settings.fsync_interval_ms / 1000)
        journal.flush_asked.clear()
        with self._guard:  # also when nothing seems deferred: another thread may be about to write it
            journal.commit_deferred()
        journal.flush()

    # --- the rest --------------------------------------------------------------------------------

    def _keep(self) -> None:
        journal = self._journal
        journal.upkeep_asked.wait(DEFERRED_S if journal.has_deferred else IDLE_S)
        journal.upkeep_asked.clear()
        if journal.has_deferred:
            with self._guard:
                journal.commit_deferred()
        if self._ended.is_set():
            return  # nothing is made ahead of need any more
        with self.work_lock:
            try:
                self.work()
            except Exception as error:
                if not is_not_opened(error) or journal.failure is not None:
                    raise
                with journal.spares.lent():
                    self.work()
            journal.spares.take()

    def work(self) -> None:
        """One round of everything that may be due."""
        journal, now = self._journal, self._owner.now()
        self.watch_room()
        if journal.next_file is None and not journal.is_full:
            self.prepare()
        self.seal_all()
        if now >= self._keys_at and not journal.is_full:
            self._keys_at = now + KEYS_EVERY_MS
            self._keys.keep(self._guard, self._owner.commit, self._update, now)
        self.retention.look()

    def seal_all(self) -> None:
        for segment in self._journal.segments[:-1]:
            if segment.log.state == "open":
                self._keys.settle(self._owner.now())
                self.seal(segment)

    def watch_room(self) -> None:
        """Keep room for acks, and take pushes again when there is room for both."""
        journal, disk, path = self._journal, self._journal.directory.disk, self._journal.directory.path
        reserve = journal.reserve_bytes
        file = path / "reserve"
        free = disk.free_bytes(path)
        if not file.exists() and reserve and free > 2 * reserve:
            disk.create_empty(file, reserve)
            free -= reserve
        elif file.exists() and file.stat().st_size > reserve:
            disk.shorten(file, reserve)  # an earlier release, or another setting, kept more
        journal.has_reserve = file.exists()
        journal.note_room(free)
        if (reserve and not journal.has_reserve) or free < reserve:
            journal.is_full = True
        elif journal.is_full and free > 2 * reserve:
            journal.is_full = False

    def prepare(self) -> None:
        """Make the file to go on with; the manifest knows it before anything is written to it."""
        journal = self._journal
        directory = journal.directory
        with self.update_lock:
            number = self._tried = self._last_number() + 1
            log = LogEntry(name=log_name(number), state="open")
            file = self._create(log)
            try:
                directory.update(number=number, logs=[*directory.manifest.logs, log])
            except BaseException as error:
                file.close()
                if is_not_opened(error):  # else the manifest may name it
                    self._remove(log)
                raise
        with self._guard:
            journal.next_file = Segment(log, file)

    def _create(self, log: LogEntry) -> LogFile:
        journal = self._journal
        try:
            return LogFile.create(journal.directory.path / log.name, journal.directory.disk, journal.settings.vfs)
        except BaseException:
            self._remove(log)
            raise

    def _remove(self, log: LogEntry) -> None:
        """What was made of a file that the manifest does not name. Looking for it would need a descriptor."""
        for name in (log.name, f"{log.name}-wal", f"{log.name}-shm"):
            with suppress(OSError):
                self._journal.directory.disk.remove(self._journal.directory.path / name)

    def seal(self, segment: Segment) -> None:
        """Finish a file that is no longer written to: flushed, and from now on immutable."""
        journal, writer = self._journal, segment.file
        if journal.is_full and journal.room < writer.wal_bytes:
            return  # it would take the room that is kept for acks
        writer.share()
        helper = LogFile.reopen(writer.path, journal.settings.vfs)
        try:
            helper.seal()
        finally:
            helper.close()
        sealed = LogFile.sealed(writer.path, journal.settings.vfs)
        log = msgspec.structs.replace(segment.log, state="sealed", bytes=writer.path.stat().st_size)
        self._update(lambda logs: [log if other.name == log.name else other for other in logs])
        with journal.flush_lock, self._guard:  # in this order: no call is served while the guard waits for a flush
            segment.log, segment.file = log, sealed
        writer.close(finished=True)

    def _numbers(self, files: int) -> int:
        """Reserve this many numbers for new files, and return the first."""
        directory = self._journal.directory
        with self.update_lock:
            first = self._last_number() + 1
            directory.update(number=first + files - 1)
        return first

    def _last_number(self) -> int:
        """Of a file that was made, or begun: a name is never used twice."""
        return max(self._journal.directory.manifest.number, self._tried)

    def _update(self, change: Callable[[list[LogEntry]], list[LogEntry]], **changes: object) -> None:
        """Change the list of files in the manifest."""
        directory = self._journal.directory
        with self.update_lock:
            directory.update(logs=change(list(directory.manifest.logs)), **changes)
