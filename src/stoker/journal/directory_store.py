"""A data directory in use: its shards, its journal, and the upkeep of both."""

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import apsw
import msgspec

from stoker.engine.shard import Shard
from stoker.journal import snapshots
from stoker.journal.backup import BackupInfo, BackupSchedule, backup
from stoker.journal.backup_targets import open_target
from stoker.journal.contract import JournalFailed, Meeting, Owner
from stoker.journal.directory import Directory, LogEntry, manifest_text
from stoker.journal.directory_opening import open_journal
from stoker.journal.disk import Disk
from stoker.journal.doctor import Progress
from stoker.journal.key_offloading import KeyKeeper, check_file
from stoker.journal.recovery import Recovered
from stoker.journal.resharding import gather
from stoker.journal.retention import finished
from stoker.journal.sqlite import JournalSettings, SqliteJournal
from stoker.journal.transient_errors import is_no_room
from stoker.journal.upkeep import Upkeep
from stoker.model.errors import CannotOpen, DiskFull, InvalidRequest
from stoker.model.limits import Limits
from stoker.model.options import Settings

STORED_FROM = 2
"""At open the payloads of batches stay in the journal until they are due; single jobs bring theirs along."""

BACKUP_LOOK_S = 1.0

PATIENCE_S = 2.0
PATIENCE_OPENS = 4
"""A close waits for a checkpoint for so long, and so many times what the open took: that is half of the work."""

logger = logging.getLogger("stoker.journal")


Opened = tuple[SqliteJournal, Recovered]


class StoreSettings(Protocol):
    """What of a broker's settings concerns its data directory."""

    @property
    def engine(self) -> Settings: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def journal(self) -> JournalSettings | None: ...


class DirectorySnapshot(msgspec.Struct, frozen=True):
    """Files that together are a state which the directory had at one moment."""

    files: list[Path]
    manifest: bytes


class DirectoryStore:
    """What `open_store` has opened: a `Store`, and a `DataDirectory`."""

    def __init__(self, directory: Directory, journal: SqliteJournal, found: Recovered, opening_s: float = 0.0) -> None:
        self.directory = directory
        self.journal = journal
        self.shards: list[Shard] = found.shards
        self.total = directory.manifest.shards
        self.at = found.at
        """Journaled time: what happens next does not happen earlier."""
        self.keys = KeyKeeper(journal, found.shards)
        self.keys.forget(found.obliterated)
        journal.ahead.ghosts = self.keys.filters.ghost
        self.patience_s = PATIENCE_S + PATIENCE_OPENS * opening_s
        """How long a close waits for a checkpoint."""
        self.upkeep: Upkeep | None = None
        self._owner: Owner | None = None
        self.schedule: BackupSchedule | None = None
        """Backups at an interval, if they were asked for."""
        self._ended = threading.Event()
        self._backups: threading.Thread | None = None

    @property
    def data_directory(self) -> "DirectoryStore":
        return self

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def notice(self) -> str:
        return self.directory.notice

    def start(self, owner: Owner) -> None:
        """Begin the upkeep."""
        self._owner = owner
        self.upkeep = Upkeep(self.journal, self.keys, owner)
        self.upkeep.start()
        settings = self.journal.settings.backups
        if settings is not None:
            self.check_whole()
            target = open_target(settings.url)
            self.schedule = BackupSchedule(settings, target, self.directory.manifest.id, self.snapshot)
            self._backups = threading.Thread(target=self._take_backups, name="stoker-backups", daemon=True)
            self._backups.start()

    def _take_backups(self) -> None:
        assert self.schedule is not None and self._owner is not None
        while not self._ended.wait(BACKUP_LOOK_S):
            self.schedule.run_pending(self._owner.now())

    @contextmanager
    def snapshot(self) -> Iterator[DirectorySnapshot]:
        """The state between two turns, as files that stay until the end. Serving goes on meanwhile."""
        path = self.directory.path.absolute()
        with (
            tempfile.TemporaryDirectory(prefix=f".{path.name}-snapshot-", dir=path.parent) as aside,
            self._cut(Path(aside), None) as snapshot,
        ):
            yield snapshot

    def snapshot_into(self, folder: Path, meeting: Meeting | None = None) -> None:
        """Make an empty folder a data directory with that state (`snapshots.py`).

        A `meeting` makes it the same moment in several processes.
        """
        with self._cut(folder, meeting) as snapshot:
            snapshots.fill(folder, snapshot.files, snapshot.manifest)

    @contextmanager
    def _cut(self, aside: Path, meeting: Meeting | None) -> Iterator[DirectorySnapshot]:
        upkeep = self.upkeep
        assert upkeep is not None
        with upkeep.work_lock:
            if meeting is not None:
                self._prepare()
                meeting.ready()
            while not self._go_on(meeting):
                pass
            upkeep.seal_all()
            manifest = self.directory.manifest
            logs = finished(manifest.logs)
            self._check_sealed(logs)
            keys = self._copy_keys(aside)
            upkeep.retention.pinned += 1
        try:
            files = [self.directory.path / log.name for log in logs] + keys
            if manifest.checkpoint is not None:
                files.append(self.directory.path / manifest.checkpoint)
            yield DirectorySnapshot(files, manifest_text(msgspec.structs.replace(manifest, logs=logs, clean=False)))
        finally:
            with upkeep.work_lock:
                upkeep.retention.pinned -= 1

    def _prepare(self) -> None:
        assert self.upkeep is not None
        if self.journal.next_file is None:
            self.upkeep.prepare()

    def _go_on(self, meeting: Meeting | None) -> bool:
        """Let the log go on in the next file; false if that was used up a moment before."""
        assert self._owner is not None
        self._prepare()
        with self._owner.guard:
            if self.journal.next_file is None:
                return False
            if meeting is not None:
                meeting.paused()
            self.journal.commit_deferred()
            self.journal.go_on()
        return True

    def _check_sealed(self, logs: list[LogEntry]) -> None:
        """Nothing that was answered may be missing: every file but the one just begun is finished."""
        names = {log.name for log in logs}
        if missing := [segment.log.name for segment in self.journal.segments[:-1] if segment.log.name not in names]:
            raise DiskFull(f"no room to finish {', '.join(missing)}, without which a snapshot is not whole: make room")

    def _copy_keys(self, aside: Path) -> list[Path]:
        if self.keys.store is None:
            return []
        self.keys.store.copy_to(aside / "keys.db")
        return [aside / "keys.db"]

    def check_whole(self) -> None:
        """Refuse a backup of a part: no moment of one process is a moment of all."""
        if self.directory.manifest.owned is not msgspec.UNSET:
            raise InvalidRequest(
                f"{self.directory.path} is one process's part of a data directory, and takes no backups of its own:"
                " take them of the whole with `stoker backup`"
            )

    def backup(self, url: str, progress: Progress | None = None) -> BackupInfo:
        """Write all of it to a directory or to S3-compatible storage, while serving goes on."""
        self.check_whole()
        target = open_target(url)
        with self.snapshot() as snapshot:
            return backup(snapshot, target, progress=progress)

    def leave_to_parent(self) -> None:
        """In a forked process: the directory, and its lock, stay the parent's."""
        self.directory.forget_lock()

    def close(self) -> None:
        """Flush everything and let go. What cannot be flushed any more is recovered from at the next open."""
        self._ended.set()
        if self.schedule is not None and self._backups is not None:
            self.schedule.stop()
            self._backups.join()
        if self.upkeep is not None:
            self.upkeep.stop(self.patience_s)
        try:
            self.journal.close()
            self.keys.close()
            if self.journal.failure is None:
                ahead = self.journal.next_file  # made ahead of need, and empty
                unused = None if ahead is None else ahead.log.name
                logs = [log for log in self.directory.manifest.logs if log.name != unused]
                self.directory.update(clean=True, logs=logs)
                self.directory.remove_leftovers()
        except (JournalFailed, OSError, apsw.Error) as error:
            logger.warning("%s was not closed in good order, the next open recovers it: %s", self.directory.path, error)
        finally:
            self.directory.close()


def open_store(
    path: str, settings: StoreSettings, now: int, disk: Disk | None = None, notice: str = "", *, part: bool = False
) -> DirectoryStore:
    """Recover a data directory, or make a new one. What was dealt to several processes is gathered first.

    `notice` is what processes read that find it in use; `part` opens one process's part of a directory that is dealt.
    """
    directory: Directory | None = None
    kept = settings.journal or JournalSettings()
    disk, place = disk or Disk(), Path(path)
    try:
        if part:
            directory = _open_part(place, settings.shards, disk)
        else:
            ready = partial(gather, place, settings.shards, disk, kept.vfs)
            directory = Directory(place, settings.shards, disk, notice, ready=ready)
            if directory.manifest.owned is not msgspec.UNSET:
                raise InvalidRequest(
                    f"{path} is one process's part of a data directory: open {place.absolute().parent.parent}"
                )
        snapshots.remove_all(place)
        check_file(directory)
        began = time.monotonic()
        opening = partial(open_journal, directory, kept, settings.engine, settings.limits, now, STORED_FROM)
        journal, found = _with_reserve(directory, opening)
        try:
            return DirectoryStore(directory, journal, found, time.monotonic() - began)
        except BaseException:
            journal.close()
            raise
    except (OSError, apsw.Error, JournalFailed) as error:
        if directory is not None:
            directory.close()
        if is_no_room(error):
            raise DiskFull(f"{path} cannot be opened, because the disk is full: make room") from error
        raise CannotOpen(f"{path} cannot be opened: {error}") from error
    except BaseException:
        if directory is not None:
            directory.close()
        raise


def _with_reserve(directory: Directory, opening: Callable[[], Opened]) -> Opened:
    """Open the journal; on a full disk in the room that is kept for such a time."""
    try:
        return opening()
    except (OSError, apsw.Error) as error:
        reserve = directory.path / "reserve"
        if not is_no_room(error) or not reserve.exists():
            raise
        directory.disk.remove(reserve)
    return opening()


def _open_part(path: Path, shards: int | None, disk: Disk) -> Directory:
    if not (path / "manifest.json").exists():
        raise InvalidRequest(f"{path} is not a part of a data directory: the supervisor makes the parts")
    return Directory(path, shards, disk)
