"""Opening the log of a data directory: its files, what they must hold, and the file to go on in.

Nothing is changed before everything was read and found in order, and what is changed then can be interrupted anywhere
and begun again.
"""

from pathlib import Path

import msgspec

from stoker.journal.checkpoint_files import read_checkpoint
from stoker.journal.directory import Directory, LogEntry
from stoker.journal.logfile import LogFile
from stoker.journal.recovery import Recovered, Saved, left_out, recover, reopened
from stoker.journal.sqlite import JournalSettings, Segment, SqliteJournal, path_of
from stoker.model.errors import Damaged
from stoker.model.limits import Limits
from stoker.model.options import Settings

GO_ON_BYTES = 4 << 20
"""A file with a longer write-ahead log is finished at open: SQLite reads all of it each time."""


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
        for segment in lost:  # the power failed before the end of the file before was flushed: no reply promised these
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
        raise segment.damaged(f"has {size} bytes, and {segment.log.bytes} when it was finished")


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
        manifest = directory.manifest
        found = recover(manifest.own, manifest.shards, saved_in(directory), segments, stored_from)
        gap = 0 if manifest.clean else left_out(same_boot=directory.mark.is_of_this_boot(manifest.epoch))
        number = manifest.number
        if manifest.clean and may_go_on(segments, settings):
            current = segments[-1]
            segments = [*seal_left_open(directory, segments[:-1], found, vfs), current]
            current.file.write_on()
        else:
            number += 1
            segments = seal_left_open(directory, segments, found, vfs)
            segments.append(new_file(directory, number, found.last, vfs))
        directory.update(
            epoch=manifest.epoch + 1, clean=False, number=number, logs=[segment.log for segment in segments]
        )
        directory.mark.note_boot(directory.manifest.epoch)
        directory.remove_leftovers()
        journal = SqliteJournal(directory, segments, list(found.last), settings)
        at = max(now, found.at)
        journal.append(reopened(found, at, directory.manifest.epoch, gap, engine, limits))
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
    write-ahead log was being finished when its owner died.
    """
    if not segments or segments[-1].log.state != "open":
        return False
    wal = segments[-1].file.wal_path
    return wal.exists() and 0 < wal.stat().st_size <= min(GO_ON_BYTES, settings.wal_bytes_max)


def new_file(directory: Directory, number: int, last: list[int], vfs: str) -> Segment:
    log = LogEntry(name=log_name(number), state="open")
    for stale in directory.path.glob(log.name + "*"):
        directory.disk.remove(stale)
    file = LogFile.create(directory.path / log.name, directory.disk, vfs)
    file.begin(last)
    return Segment(log, file)


def saved_in(directory: Directory) -> Saved:
    """The checkpoint in force, if there is one."""
    name = directory.manifest.checkpoint
    return read_checkpoint(directory.path / name) if name is not None else ()


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
