"""The journal in a data directory: rows in SQLite files that take turns.

`append` is called by the owner of the runtime, one turn after another; `flush` and everything in `upkeep.py` run on
threads of their own. What they share is small: the list of files (changed under the owner's lock, read under it), and
numbers that only grow.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from stoker.journal.backup import BackupSettings
from stoker.journal.bloom_filters import FilterSettings
from stoker.journal.contract import JournalFailed, NotWritten, Turn
from stoker.journal.directory import Directory, LogEntry
from stoker.journal.disk import Disk
from stoker.journal.logfile import SEQUENCE_BITS, LogFile
from stoker.journal.patience import is_hasty
from stoker.journal.read_ahead import ReadAhead
from stoker.journal.room_watch import ROOM_WATCHED, RoomWatch
from stoker.journal.tickets import Tickets
from stoker.journal.transient_errors import Spares
from stoker.model.errors import Busy, Damaged
from stoker.model.replies import Level
from stoker.records.codec import LogRow, encode_row
from stoker.records.records import Record
from stoker.records.stored import NotAtHand

MIB = 1024 * 1024
DAY_MS = 86_400_000

NEAR_BYTES = 128 * MIB
"""With less room than this, it is looked at after each turn."""
RESERVE_BYTES_MIN, RESERVE_BYTES_MAX = 4 * MIB, 64 * MIB
"""Of what is kept if the settings do not say: tens of thousands of acks, and no more than anyone would miss."""
LAST_BYTES = MIB
"""Of what is kept, for deadlines that are reached and jobs that expire: nothing can refuse those."""
READ_BYTES = 32 * MIB
"""Of the log that is read at once for readers of events."""


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a data directory is kept."""

    fsync_interval_ms: int = 1_000
    """How often the log is flushed, at least: a power cut can lose this much at the level `commit`."""
    wal_bytes_max: int = 64 * MIB
    """A file of the log is finished when its write-ahead log has grown to this."""
    checkpoint_bytes: int = 512 * MIB
    """How much the log grows before the state is saved again. It limits what a restart has to read."""
    checkpoint_records: int = 200_000
    """The same in records: a second or two of a restart."""
    checkpoint_files: int = 16
    """The same in files: many restarts make many small ones."""
    events_age_ms_max: int = 7 * DAY_MS
    """How long the history is kept for readers of events, also after the jobs are forgotten."""
    events_bytes_max: int = 1024 * MIB
    """How much history is kept at most."""
    rewrite_below: float = 0.3
    """A file of which less than this share is still needed is rewritten."""
    disk_reserve_share: float = 0.0001
    """Room kept for acks and cancels when the disk is full, as a share of the disk: at least 4 and at most 64 MiB."""
    disk_reserve_bytes: int | None = None
    """The same in bytes, for a disk of any size; 0 keeps none."""
    keys_in_memory: int = 10_000
    """Keys of a shard beyond which those of ended jobs move to the file of old keys."""
    filters: FilterSettings | None = None
    """The Bloom filters that spare look-ups; None = codeQ's capacities, rates and rotations."""
    backups: BackupSettings | None = None
    """Backups at an interval, or none."""
    checkpoint_process: bool = True
    """False makes them on the upkeep thread: for tests that must see every write, and where no process can start."""
    vfs: str = ""
    """The SQLite VFS to use; tests put a faulty one here."""


def reserve_of(settings: JournalSettings, path: Path, disk: Disk) -> int:
    """How much room a data directory keeps for a full disk."""
    if settings.disk_reserve_bytes is not None:
        return settings.disk_reserve_bytes
    share = int(disk.size_bytes(path) * settings.disk_reserve_share)
    return max(RESERVE_BYTES_MIN, min(RESERVE_BYTES_MAX, share))


class Segment:
    """A file of the log, and how far each shard had come at its end: a part of the log for `recovery.py`."""

    __slots__ = ("file", "log")

    def __init__(self, log: LogEntry, file: LogFile) -> None:
        self.log = log
        self.file = file

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def bytes(self) -> int:
        return self.log.bytes

    @property
    def is_rewritten(self) -> bool:
        return self.log.state == "sparse"

    def ends_at(self, shard: int) -> int | None:
        return self.log.last[shard] if self.log.last else None

    def rows(self, shard: int, after: int) -> Iterator[LogRow]:
        return self.file.rows(shard, after)

    def place_of(self, shard: int, sequence: int) -> tuple[int, int]:
        return self.file.place_of(shard, sequence)

    def damaged(self, what: str) -> Damaged:
        return Damaged(f"{self.file.path} {what}: restore the directory from a backup")


class SqliteJournal(RoomWatch):
    """The logs of all shards in a data directory."""

    levels: tuple[Level, ...] = ("memory", "commit", "fsync")
    at_once: tuple[Level, ...] = ("memory", "commit")
    reads_wait = False

    def __init__(
        self, directory: Directory, segments: list[Segment], last: list[int], settings: JournalSettings
    ) -> None:
        super().__init__()
        self.directory = directory
        self.settings = settings
        self.room = 1 << 62
        """How much may be written before the next look at the disk, with the reserve left alone."""
        self.reserve_bytes = reserve_of(settings, directory.path, directory.disk)
        """How much room is kept."""
        self.has_reserve = False
        """Whether it is."""
        self._left = 1 << 62
        """How much may be written at all."""
        self.segments = segments
        """All files in order; the last one is written to."""
        self._file = segments[-1].file
        self.next_file: Segment | None = None
        """The file to go on with, made ahead of need."""
        self._last = last
        """The last sequence number of each shard."""
        self.written = list(last)
        """The same without what is deferred."""
        self.written_at = 0
        """When the last record written happened."""
        self._deferred: list[tuple[int, bytes]] = []
        self._deferred_bytes = 0
        self._is_loose = False
        """Whether replies may have left that the death of the process makes untrue."""
        self._turns = 0
        self._tickets = Tickets()
        """Turns that are flushed."""
        self._failure: Exception | None = None
        self.flush_lock = threading.Lock()
        """Held while descriptors of write-ahead logs are in use."""
        self.flush_asked = threading.Event()
        self.upkeep_asked = threading.Event()
        self.ahead = ReadAhead(self.find, self.is_settled)
        self.spares = Spares()

    # --- appending -------------------------------------------------------------------------------

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        if self._failure is not None:  # what comes next must not stand behind a gap
            raise NotWritten(f"the journal has failed before: {self._failure}")
        if not waits and not self._is_loose:
            self._loosen()
        last = self._last
        rows = []
        records: Sequence[Record] = ()
        for shard, records in turn:
            position = shard << SEQUENCE_BITS | last[shard] + 1
            rows.append((position, encode_row(records, position)))
            last[shard] += len(records)
        self.written_at = records[-1].at  # type: ignore[attr-defined]  # every record has its time
        if defer:
            self._deferred += rows
            self._deferred_bytes += sum(len(data) for _, data in rows)
            if self._deferred_bytes > MIB:
                self.commit_deferred()
            return
        if self._deferred:
            rows = self._deferred + rows
            self._deferred, self._deferred_bytes = [], 0
        self._write(rows)
        self.written[:] = last  # what was deferred is there now, too
        self._turns += 1
        if self._file.wal_bytes > self.settings.wal_bytes_max:
            self.go_on()

    def commit_deferred(self) -> None:
        """Write the turns that no call waits for."""
        if self._deferred:
            rows, self._deferred, self._deferred_bytes = self._deferred, [], 0
            self._write(rows)
            self.written[:] = self._last
            self._turns += 1

    def _loosen(self) -> None:
        """The first reply that does not wait is about to leave: a crash of the process alone may cost what it tells."""
        try:
            self.directory.mark.forget_boot()
        except OSError as error:
            self.fail(error)
            raise JournalFailed(f"the mark could not be written: {error}") from error
        self._is_loose = True

    @property
    def has_deferred(self) -> bool:
        return bool(self._deferred)

    def _write(self, rows: list[tuple[int, bytes]]) -> None:
        before = self._file.wal_bytes
        try:
            self._file.append(rows)
        except apsw.FullError:
            self._write_with_reserve(rows)
        except apsw.Error as error:
            self.fail(error)
            raise JournalFailed(f"{self._file.path} could not be written: {error}") from error
        written = self._file.wal_bytes - before
        self.room -= written
        self._left -= written
        if self.room < ROOM_WATCHED:
            self._near_the_end()

    def _near_the_end(self) -> None:
        self.look_if_tight()
        if self.room < NEAR_BYTES:
            self._look_at_room()
        if self.room < 0 and not self.is_full:
            self.is_full = True
            self.upkeep_asked.set()

    def _look_at_room(self) -> None:
        """Near the end of the disk an estimate will not do: a page that is split takes more than its row."""
        try:
            self.note_room(self.directory.disk.free_bytes(self.directory.path))
        except OSError:
            self.upkeep_asked.set()  # which will say more

    def note_room(self, free: int) -> None:
        """Note how much of the disk is free."""
        self.room = free - self.reserve_bytes
        self.look_if_tight()
        self._left = free + self.reserve_bytes if self.has_reserve else free

    @property
    def is_out(self) -> bool:
        """Whether the room that is kept is used up, but for what happens by itself."""
        return self.is_full and self._left < min(LAST_BYTES, self.reserve_bytes // 4)

    def _write_with_reserve(self, rows: list[tuple[int, bytes]]) -> None:
        """The disk is full. What was decided has happened: the room that was kept is for this."""
        self.is_full = True
        self.upkeep_asked.set()
        try:
            self.directory.disk.remove(self.directory.path / "reserve")
            self.has_reserve = False
            self._file.append(rows)
        except (apsw.Error, OSError) as error:
            self.fail(error)
            raise JournalFailed(f"{self._file.path} could not be written: {error}") from error

    def go_on(self) -> None:
        """Go on in the next file, if it is ready; the one before is finished by the upkeep."""
        segment = self.next_file
        if segment is not None:
            full = self.segments[-1]
            full.log = msgspec.structs.replace(full.log, last=list(self.written), ended_at=self.written_at)
            self.segments = [*self.segments, segment]
            self._file, self.next_file = segment.file, None
            self._file.begin(self.written)
        self.upkeep_asked.set()

    # --- flushing --------------------------------------------------------------------------------

    def ticket(self) -> int:
        return self._turns + 1 if self._deferred else self._turns

    def flush(self) -> int:
        with self.flush_lock:
            turns, reached = self._turns, list(self.written)
            if turns == self._tickets.reached or self._failure is not None:
                return self._tickets.reached
            unsealed = [segment.file for segment in self.segments if segment.log.state == "open"]
            try:
                for file in unsealed:
                    self.directory.disk.fsync(file.wal, file.wal_path)
                self.directory.mark.set(reached)
            except OSError as error:
                self.fail(error)
                raise JournalFailed(f"the log could not be flushed to disk: {error}") from error
            self._tickets.reach(turns)
        return turns

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        waits = self._tickets.when(ticket, tell)
        if waits:
            self.flush_asked.set()
        return waits

    def reached(self, ticket: int) -> bool:
        """Whether this many turns are safely on disk."""
        return self._tickets.reached >= ticket

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be promised any more."""
        return self._failure

    def fail(self, error: Exception) -> None:
        """From now on nothing is promised; calls that wait for a flush fail."""
        if self._failure is None:
            self._failure = error
            with suppress(OSError):  # what was written may be gone although the system runs on
                self.directory.mark.forget_boot()
        self._tickets.end()

    # --- reading ---------------------------------------------------------------------------------

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        self.commit_deferred()
        after = max(after, self.lowest(shard) - 1)  # below that only what is still needed is left
        found: list[tuple[int, Record]] = []
        room = READ_BYTES
        for segment in self.segments:
            if segment.log.last and segment.log.last[shard] <= after:
                continue
            coming = found[-1][0] + 1 if found else after + 1
            for row in self._opened(segment).rows(shard, after, limit - len(found)):
                if row.first > coming:
                    raise lacking(segment, shard, coming)
                for sequence in range(max(row.first, after + 1), row.first + len(row)):
                    found.append((sequence, row.record(sequence - row.first)))
                    if len(found) >= limit:
                        return found
                coming = row.first + len(row)
                room -= row.size
                if room <= 0:
                    return found
            if segment.log.last and coming <= segment.log.last[shard]:
                raise lacking(segment, shard, coming)
        return found

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        self.commit_deferred()
        after = max(after, self.lowest(shard) - 1)
        found: list[LogRow] = []
        for segment in self.segments:
            if segment.log.last and segment.log.last[shard] <= after:
                continue
            coming = after + 1
            for row in self._opened(segment).rows(shard, after):
                if row.first > coming:
                    raise lacking(segment, shard, coming)
                found.append(row)
                coming = row.first + len(row)
                bytes_max -= row.size
                if bytes_max <= 0:
                    return found
            if segment.log.last and coming <= segment.log.last[shard]:
                raise lacking(segment, shard, coming)
            after = coming - 1
        return found

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        if is_hasty() and self.is_settled(shard, sequence) and not self.ahead.has(shard, sequence):
            raise NotAtHand  # what is still being written is read on the spot: no other thread may read it
        return self.ahead.payloads(shard, sequence)

    def read_together(self, places: Iterable[tuple[int, int]]) -> None:
        pass

    def body(self, shard: int, sequence: int) -> bytes | None:
        if sequence >= self.lowest(shard):
            row: LogRow | None = self.find(shard, sequence)
        else:  # where only what is still needed is left
            row = self._opened(self._file_of(shard, sequence)).row(shard, sequence)
        return row.parts(sequence - row.first)[1] if row is not None else None

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        self.ahead.expect(shard, coming, gone, now)

    def is_settled(self, shard: int, sequence: int) -> bool:
        """Whether a record lies in a file that is written no more."""
        segments = self.segments
        return len(segments) > 1 and segments[-2].log.state != "open" and sequence <= segments[-2].log.last[shard]

    def find(self, shard: int, sequence: int) -> LogRow:
        """The row that holds a record. Other threads may ask for records that are settled."""
        if not self.is_settled(shard, sequence):
            self.commit_deferred()
        segment = self._file_of(shard, sequence)
        row = self._opened(segment).row(shard, sequence)
        if row is None:
            raise lacking(segment, shard, sequence)
        return row

    def _opened(self, segment: Segment) -> LogFile:
        """The file, open: if there is no descriptor left, one of those that are kept for this is used."""
        file = segment.file
        if not file.is_open:
            try:
                file.open()
            except Busy:
                with self.spares.lent():
                    file.open()
        return file

    def _file_of(self, shard: int, sequence: int) -> Segment:
        segments = self.segments
        return segments[bisect_right(segments, sequence - 1, key=lambda segment: end_of(segment, shard))]

    def lowest(self, shard: int) -> int:
        return self.directory.manifest.lowest[shard]

    def last(self, shard: int) -> int:
        return self._last[shard]

    safe = last

    def close(self) -> None:
        """Write and flush everything. The caller that opened the directory closes it."""
        if self._failure is None:
            self.commit_deferred()
            self.flush()
        self.ahead.close()
        self.spares.close()
        with self.flush_lock:
            for segment in self.segments:
                segment.file.close()
            if self.next_file is not None:
                self.next_file.file.close()


def lacking(segment: Segment, shard: int, sequence: int) -> Damaged:
    return segment.damaged(f"lacks record {sequence} of shard {shard}")


def end_of(segment: Segment, shard: int) -> int:
    """The last sequence number of a shard in a file; the file that is written to has no end."""
    return segment.log.last[shard] if segment.log.last else 1 << 62


def path_of(directory: Directory, log: LogEntry) -> Path:
    return directory.path / log.name
