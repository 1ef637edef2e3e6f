"""From a data directory to shards that can go on: the last checkpoint and the log behind it, through `apply`.

Nothing is changed before everything was read and found in order, and what is changed then can be interrupted anywhere
and begun again.
"""

import gc
from pathlib import Path

import msgspec

from stoker.engine.audit import audit_counts
from stoker.engine.saving import load
from stoker.engine.shard import Shard, apply_again
from stoker.journal.checkpoints import read_checkpoint
from stoker.journal.directory import Directory, Log
from stoker.journal.logfile import LogFile
from stoker.journal.sqlite import JournalSettings, Segment, SqliteJournal, path_of
from stoker.model.errors import Damaged
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.records import records as rec
from stoker.records.codec import UnreadableRecord, left_in_journal
from stoker.records.stored import SMALL_BYTES

GAP = 1 << 24
"""Ids and tokens left out after a crash: more than can be given out between two flushes, and lost with the power."""

SAME_BOOT_GAP = 1 << 16
"""The same after a crash of the process alone: what was answered is there, so this is only a margin."""

GO_ON_BYTES = 4 << 20
"""A file with a longer write-ahead log is finished at open: SQLite reads all of it each time."""


class Recovered(msgspec.Struct):
    """What was found in a data directory."""

    shards: list[Shard]
    last: list[int]
    """The last sequence number of each shard; 0 for those of other processes."""
    at: int
    """When the last record happened."""
    obliterated: set[tuple[str, str]]
    """Queues that were obliterated since the checkpoint, after the last of their keys was stored."""


def recover(directory: Directory, segments: list[Segment], stored_from: int) -> Recovered:
    """The shards that live here, as they were.

    Payloads of records with at least `stored_from` of them stay in the journal.
    """
    enabled = gc.isenabled()
    gc.disable()  # millions of new objects, none of them garbage
    try:
        manifest = directory.manifest
        loaded = load_checkpoint(directory) if manifest.checkpoint else {}
        shards, last, latest = [], [0] * manifest.shards, 0
        obliterated: set[tuple[str, str]] = set()
        for number in manifest.own:
            shard, position = loaded.get(number) or (Shard(number), 0)
            end, at = replay_tail(shard, position, segments, stored_from, obliterated)
            audit_counts(shard)
            shards.append(shard)
            last[number] = end
            latest = max(latest, at, shard.now)
        return Recovered(shards, last, latest, obliterated)
    finally:
        if enabled:
            gc.enable()


def load_checkpoint(directory: Directory) -> dict[int, tuple[Shard, int]]:
    assert directory.manifest.checkpoint is not None
    file = directory.path / directory.manifest.checkpoint
    return {number: load(chunks) for number, chunks in read_checkpoint(file)}


def replay_tail(
    shard: Shard,
    position: int,
    segments: list[Segment],
    stored_from: int,
    obliterated: set[tuple[str, str]] | None = None,
) -> tuple[int, int]:
    """Apply what happened after a position; answers with the position and the time reached."""
    at = shard.now
    for segment in segments:
        if segment.log.last and segment.log.last[shard.number] <= position:
            continue
        for row in segment.file.rows(shard.number, position):
            if row.first != position + 1:
                raise _lacking(segment, shard, position + 1, row.first - 1)
            try:
                found = row.records(stored_from)
                records = [left_in_journal(record, row.first + n, SMALL_BYTES) for n, record in enumerate(found)]
            except UnreadableRecord as error:
                raise Damaged(
                    f"{segment.file.path} is damaged at shard {shard.number} sequence {row.first} ({error}): restore"
                    " the directory from a backup"
                ) from error
            apply_again(shard, records)
            if obliterated is not None:
                _note_obliterated(records, obliterated)
            position += len(records)
            at = records[-1].at  # type: ignore[attr-defined]  # every record has its time
        if segment.log.last and position < segment.log.last[shard.number]:
            raise _lacking(segment, shard, position + 1, segment.log.last[shard.number])
    shard.now = at
    return position, at


def _lacking(segment: Segment, shard: Shard, first: int, last: int) -> Damaged:
    return Damaged(
        f"{segment.file.path} lacks the records {first} to {last} of shard {shard.number}: restore the directory from a"
        " backup"
    )


def _note_obliterated(records: list[rec.Record], obliterated: set[tuple[str, str]]) -> None:
    for record in records:
        if type(record) is rec.QueueObliterated:
            obliterated.add((record.tenant, record.queue))
        elif type(record) is rec.KeysStored:
            obliterated.discard((record.tenant, record.queue))


def open_files(directory: Directory, vfs: str) -> list[Segment]:
    """Every file of the log, and what it must hold: less than was flushed, or than was sealed, is damage."""
    segments: list[Segment] = []
    shards = range(directory.manifest.shards)
    try:
        for log in directory.manifest.logs:
            path = path_of(directory, log)
            if log.state == "open":
                segments.append(Segment(log, LogFile.reopen(path, vfs)))
            else:
                segments.append(Segment(log, LogFile.sealed(path, vfs)))
        reached = [0] * len(shards)
        lost: list[Segment] = []
        for segment in segments:
            if segment.log.state != "open":
                reached = segment.log.last
                _check_size(segment)
                continue
            begin = segment.file.began_at()
            if begin is not None and any(end < start for end, start in zip(reached, begin, strict=True)):
                lost = segments[segments.index(segment) :]
                break
            reached = [max(reached[shard], segment.file.last(shard)) for shard in shards]
        for shard, flushed in enumerate(directory.mark.reached):
            if reached[shard] < flushed:
                path = segments[-1].file.path if segments else directory.path
                raise _short(path, shard, reached[shard], flushed)
        for (
            segment
        ) in lost:  # the power failed before the end of the file before was flushed: nobody was promised these
            segment.file.close()
            segments.remove(segment)
    except BaseException:
        for segment in segments:
            segment.file.close()
        raise
    return segments


def _check_size(segment: Segment) -> None:
    """A finished file never changes: another size is the sign of damage that costs nothing to look for."""
    size = segment.file.path.stat().st_size
    if size != segment.log.bytes:
        raise Damaged(
            f"{segment.file.path} has {size} bytes, and {segment.log.bytes} when it was finished: restore the directory"
            " from a backup"
        )


def _short(path: Path, shard: int, reached: int, expected: int) -> Damaged:
    return Damaged(
        f"{path} ends at record {reached} of shard {shard}, but {expected} had been flushed to disk: its end is damaged"
        " or was cut off; restore the directory from a backup"
    )


def open_journal(
    directory: Directory, settings: JournalSettings, engine: Settings, limits: Limits, now: int, stored_from: int
) -> tuple[SqliteJournal, Recovered]:
    """Recover, finish what the last owner left open, and go on in its last file or in a new one."""
    vfs = settings.vfs
    segments = open_files(directory, vfs)
    try:
        found = recover(directory, segments, stored_from)
        clean, gap = directory.manifest.clean, gap_after(directory)
        number = directory.manifest.number
        if clean and may_go_on(segments, settings):
            current = segments[-1]
            segments = [*seal_left_open(directory, segments[:-1], found, vfs), current]
            current.file.write_on()
        else:
            number += 1
            segments = seal_left_open(directory, segments, found, vfs)
            segments.append(new_file(directory, number, found.last, vfs))
        directory.update(
            epoch=directory.manifest.epoch + 1, clean=False, number=number, logs=[segment.log for segment in segments]
        )
        directory.mark.note_boot(directory.manifest.epoch)
        directory.remove_leftovers()
        journal = SqliteJournal(directory, segments, list(found.last), settings)
        at = max(now, found.at)
        journal.append([(shard.number, [_opened(shard, at, directory, engine, limits, gap)]) for shard in found.shards])
        journal.written_at = at
        journal.flush()
    except BaseException:
        for segment in segments:
            segment.file.close()
        raise
    for shard in found.shards:
        found.last[shard.number] += 1
    return journal, msgspec.structs.replace(found, at=at)


def may_go_on(segments: list[Segment], settings: JournalSettings) -> bool:
    """Whether to write on in the last file, as one does after a close in good order, when all of it was flushed.

    Processes that do little must not make a file each: the next one would have to read them all. A file that has no
    write-ahead log was being finished when somebody died.
    """
    if not segments or segments[-1].log.state != "open":
        return False
    wal = segments[-1].file.wal_path
    return wal.exists() and 0 < wal.stat().st_size <= min(GO_ON_BYTES, settings.wal_bytes_max)


def new_file(directory: Directory, number: int, last: list[int], vfs: str) -> Segment:
    log = Log(name=log_name(number), state="open")
    for stale in directory.path.glob(log.name + "*"):
        directory.disk.remove(stale)
    file = LogFile.create(directory.path / log.name, directory.disk, vfs)
    file.begin(last)
    return Segment(log, file)


def gap_after(directory: Directory) -> int:
    """How many ids and tokens to leave out: as many as may have been given out and lost since the last one found."""
    if directory.manifest.clean:
        return 0
    return min(SAME_BOOT_GAP, GAP) if directory.mark.is_of_this_boot(directory.manifest.epoch) else GAP


def _opened(shard: Shard, at: int, directory: Directory, engine: Settings, limits: Limits, gap: int) -> rec.Record:
    epoch = directory.manifest.epoch
    record = rec.Opened(at, "", epoch, shard.sequence + gap, shard.token + gap, engine, limits)
    apply_again(shard, [record])
    return record


def seal_left_open(directory: Directory, segments: list[Segment], found: Recovered, vfs: str) -> list[Segment]:
    """Files that a process left behind get their end: all that is in them was read a moment ago. Empty ones go."""
    kept: list[Segment] = []
    ends = [0] * directory.manifest.shards
    for segment in segments:
        if segment.log.state == "open":
            last = [max(segment.file.last(shard), end) for shard, end in enumerate(ends)]
            if last == ends:
                segment.file.close()
                continue
            segment.file.seal()
            segment.file.close()
            path = segment.file.path
            size = path.stat().st_size
            log = msgspec.structs.replace(segment.log, state="sealed", last=last, ended_at=found.at, bytes=size)
            segment = Segment(log, LogFile.sealed(path, vfs))
        ends = segment.log.last
        kept.append(segment)
    return kept


def log_name(number: int) -> str:
    return f"log-{number:08}.db"
