"""Deal the shards of a data directory to several processes, and gather them again.

When the number of processes changes, everything is dealt again before any process serves. The saved state, rows and
keys of each shard are copied as they are: nothing is decoded and nothing is lost, not even history that only event
readers want. A new deal is written beside the old one and flushed. Then `processes.json` (`shard_layout.py`) is
replaced, or removed if one process takes all, and only then the old deal is removed. If a process dies in between,
there is one complete deal and left-over files.
"""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec

from stoker.journal import snapshots
from stoker.journal.checkpoint_files import read_checkpoint, write_checkpoint
from stoker.journal.directory import (
    DEFAULT_SHARDS,
    Directory,
    LogEntry,
    Manifest,
    check_asked,
    check_new,
    check_shards,
    is_ours,
    manifest_text,
    take_lock,
)
from stoker.journal.directory_opening import log_name, open_files
from stoker.journal.disk import Disk
from stoker.journal.key_offloading import check_file
from stoker.journal.key_store import PUT, open_file
from stoker.journal.logfile import INSERT, PAGE_BYTES
from stoker.journal.shard_layout import FACT, LAYOUT, ShardLayout, layout_of, parts_of, text_of
from stoker.journal.sqlite import Segment
from stoker.journal.transient_errors import is_no_room
from stoker.model.errors import CannotOpen, Damaged, DiskFull, InvalidRequest
from stoker.model.ids import process_of, shard_for

PART = re.compile(r"process-[0-9]{1,2}")
KEYS_AT_ONCE = 10_000


class Root:
    """A data directory that is dealt to several processes, held by their supervisor.

    The processes open their `parts` themselves, with `open_store`, and may die and open them again. No other process
    can change the deal meanwhile.
    """

    def __init__(self, path: Path, layout: ShardLayout, lock: int) -> None:
        self.path = path
        self.layout = layout
        self._lock = lock

    @property
    def parts(self) -> list[Path]:
        return parts_of(self.path, self.layout)

    def close(self) -> None:
        os.close(self._lock)


def open_root(
    path: Path, processes: int, shards: int | None = None, disk: Disk | None = None, vfs: str = "", notice: str = ""
) -> Root:
    """Open or create a data directory, and deal it to this many processes, at least two.

    `notice` is what other processes read when they find it in use.
    """
    check_asked(shards)
    lock = take_lock(path, notice)
    try:
        snapshots.remove_all(path)
        layout = reshard(path, processes, shards, disk or Disk(), vfs, lock)
        if layout is None:
            raise InvalidRequest("one process needs no dealing: open the directory with sqlite:///path")
        return Root(path, layout, lock)
    except (OSError, apsw.Error) as error:
        os.close(lock)
        if is_no_room(error):
            raise DiskFull(f"{path} cannot be dealt to other processes, because the disk is full: make room") from error
        raise CannotOpen(f"{path} cannot be opened: {error}") from error
    except BaseException:
        os.close(lock)
        raise


def gather(path: Path, shards: int | None, disk: Disk, vfs: str) -> None:
    """Deal everything to one process. The caller holds the lock of the directory."""
    reshard(path, 1, shards, disk, vfs, None)


def reshard(
    path: Path, processes: int, shards: int | None, disk: Disk, vfs: str, lock: int | None
) -> ShardLayout | None:
    """Deal a directory to this many processes, unless that is done already. One process needs no dealing.

    `lock` is the held lock of the root, which is needed if the root itself may be dealt out.
    """
    layout = layout_of(path)
    _remove_leftovers(path, layout, disk)
    if processes == (layout.processes if layout is not None else 1):
        if layout is not None:
            check_shards(path, layout.shards, shards)
        return layout
    try:
        with _sources(path, layout, shards, disk, vfs, lock) as sources:
            new = _write_layout(path, layout, processes, shards, sources, disk, vfs)
    except BaseException:
        with suppress(OSError):  # there may have been no room; the left-overs are not needed
            _remove_leftovers(path, layout, disk)
        raise
    if new is not None:
        disk.write_atomically(path / FACT, text_of(new))
    else:
        disk.remove(path / FACT)
        disk.sync_directory(path)
    _remove_leftovers(path, new, disk)
    return new


def _write_layout(
    path: Path,
    layout: ShardLayout | None,
    processes: int,
    shards: int | None,
    sources: list["_Source"],
    disk: Disk,
    vfs: str,
) -> ShardLayout | None:
    """Write all parts of a new deal and flush them. It is not in force yet."""
    facts = _facts(path, layout, sources, shards)
    if not 1 <= processes <= facts.shards:
        raise InvalidRequest(
            f"{processes} processes for {facts.shards} shards: expected 1 to {facts.shards}, since a shard lives in"
            " one process"
        )
    new = None
    if processes > 1:
        number = layout.number + 1 if layout is not None else 1
        new = msgspec.structs.replace(facts, processes=processes, number=number)
        disk.make_directory(path / f"deal-{number:08}")
    parts = parts_of(path, new)
    for place, part in enumerate(parts):
        owned = [shard for shard in range(facts.shards) if process_of(shard, processes) == place]
        _write_part(part, facts, owned, sources, disk, vfs)
    if new is not None:
        disk.sync_directory(parts[0].parent)
        disk.sync_directory(path)
    return new


# --- the old deal ------------------------------------------------------------------------------------


class _Source(msgspec.Struct):
    """A journal directory whose shards are dealt again."""

    directory: Directory
    segments: list[Segment]
    ends: list[list[int]]
    """For each file: the last sequence number of each shard at its end."""
    ended_at: list[int]


@contextmanager
def _sources(
    path: Path, layout: ShardLayout | None, shards: int | None, disk: Disk, vfs: str, lock: int | None
) -> Iterator[list[_Source]]:
    """All existing journal directories, locked and checked; none if the data directory is new."""
    with ExitStack() as opened:
        if layout is None and not (path / "manifest.json").exists():
            check_new(path)
            yield []
            return
        sources = []
        for part in parts_of(path, layout):
            held = os.dup(lock) if part == path and lock is not None else None
            directory = Directory(part, shards, disk, lock=held)
            opened.callback(directory.close)
            check_file(directory)
            segments = open_files(directory, vfs)
            for segment in segments:
                opened.callback(segment.file.close)
            sources.append(_Source(directory, segments, *_ends(directory, segments)))
        if layout is not None and sorted(s for source in sources for s in source.directory.manifest.own) != list(
            range(layout.shards)
        ):
            raise Damaged(f"{path} does not have each shard exactly once: restore the directory from a backup")
        yield sources


def _ends(directory: Directory, segments: list[Segment]) -> tuple[list[list[int]], list[int]]:
    ends, times = [], []
    reached, at = [0] * directory.manifest.shards, 0
    for segment in segments:
        if segment.log.state == "open":
            lasts = [segment.file.last_row(shard) for shard in range(directory.manifest.shards)]
            for shard, row in enumerate(lasts):
                if row is not None:
                    reached = [*reached[:shard], row.first + len(row) - 1, *reached[shard + 1 :]]
                    at = max(at, row.record(len(row) - 1).at)  # type: ignore[attr-defined]  # every record has one
        else:
            reached, at = segment.log.last, max(at, segment.log.ended_at)
        ends.append(reached)
        times.append(at)
    return ends, times


def _facts(path: Path, layout: ShardLayout | None, sources: list[_Source], shards: int | None) -> ShardLayout:
    """The facts that do not depend on how the shards are dealt."""
    if layout is not None:
        return layout
    if sources:
        manifest = sources[0].directory.manifest
        return ShardLayout(id=manifest.id, shards=manifest.shards, processes=1, number=0)
    check_shards(path, DEFAULT_SHARDS if shards is None else shards, shards)
    return ShardLayout(id=uuid.uuid4().hex, shards=DEFAULT_SHARDS if shards is None else shards, processes=1, number=0)


# --- the new deal ------------------------------------------------------------------------------------


def _write_part(part: Path, facts: ShardLayout, owned: list[int], sources: list[_Source], disk: Disk, vfs: str) -> None:
    """Write a journal directory with these shards. Its manifest comes last: without it, it does not count."""
    if not part.exists():
        disk.make_directory(part)
    manifests = [source.directory.manifest for source in sources]
    logs = _write_logs(part, facts, owned, sources, vfs)
    number = len(logs) + 1
    checkpoint = f"checkpoint-{number:08}" if any(manifest.checkpoint for manifest in manifests) else None
    if checkpoint is not None:
        with disk.new_file(part / checkpoint) as write:
            write_checkpoint(write, _chunks(owned, sources))
    has_keys = _write_keys(part, facts, owned, sources, vfs)
    position, lowest = [0] * facts.shards, [1] * facts.shards
    for manifest in manifests:
        for shard in set(owned).intersection(manifest.own):
            lowest[shard] = manifest.lowest[shard]
            position[shard] = manifest.position[shard] if manifest.position else 0
    manifest = Manifest(
        id=facts.id,
        shards=facts.shards,
        epoch=max((manifest.epoch for manifest in manifests), default=0),
        clean=all(manifest.clean for manifest in manifests),
        number=number,
        checkpoint=checkpoint,
        position=position if checkpoint is not None else [],
        logs=logs,
        lowest=lowest,
        keys=has_keys,
        owned=owned if len(owned) < facts.shards else msgspec.UNSET,
    )
    disk.write_atomically(part / "manifest.json", manifest_text(manifest))


def _write_logs(part: Path, facts: ShardLayout, owned: list[int], sources: list[_Source], vfs: str) -> list[LogEntry]:
    """The log files of all sources, ordered by time for retention. Files with nothing for these shards are left out."""
    files = [
        (ended_at, place, number)
        for place, source in enumerate(sources)
        for number, ended_at in enumerate(source.ended_at)
    ]
    logs: list[LogEntry] = []
    last = [0] * facts.shards
    for ended_at, place, number in sorted(files):
        source = sources[place]
        moved = [shard for shard in owned if shard in source.directory.manifest.own]
        last = [source.ends[number][shard] if shard in moved else end for shard, end in enumerate(last)]
        segment = source.segments[number]
        path = part / log_name(len(logs) + 1)
        if _copy_rows(segment, moved, path, vfs):
            state = "sparse" if segment.log.state == "sparse" else "sealed"
            size = path.stat().st_size
            logs.append(LogEntry(name=path.name, state=state, last=last, ended_at=ended_at, bytes=size))  # type: ignore[arg-type]
    return logs


def _copy_rows(segment: Segment, shards: list[int], path: Path, vfs: str) -> bool:
    """Write the rows of these shards to a finished file. False if there are none."""
    rows = (row for shard in shards for row in segment.file.plain_rows(shard))
    first = next(rows, None)
    if first is None:
        return False
    connection = apsw.Connection(str(path), vfs=vfs or None)
    try:
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("synchronous", 2)
        with connection:
            connection.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data BLOB NOT NULL)")
            connection.execute(INSERT, first)
            connection.executemany(INSERT, rows)
    finally:
        connection.close()
    return True


def _chunks(owned: list[int], sources: list[_Source]) -> Iterator[tuple[int, bytes]]:
    """The saved states, unchanged."""
    for source in sources:
        manifest = source.directory.manifest
        if manifest.checkpoint is not None:
            for shard, chunks in read_checkpoint(source.directory.path / manifest.checkpoint):
                if shard in owned:
                    for chunk in chunks:
                        yield shard, chunk


def _write_keys(part: Path, facts: ShardLayout, owned: list[int], sources: list[_Source], vfs: str) -> bool:
    """Copy old keys. They live with the queue that they belong to."""
    kept = [source for source in sources if source.directory.manifest.keys]
    if not kept:
        return False
    to = open_file(part / "keys.db", vfs)
    try:
        for source in kept:
            keys = open_file(source.directory.path / "keys.db", vfs)
            try:
                for some in _in_portions(keys.execute("SELECT * FROM keys")):
                    with to:
                        to.executemany(PUT, [row for row in some if shard_for(row[0], row[1], facts.shards) in owned])
            finally:
                keys.close()
    finally:
        to.close()
    return True


def _in_portions(rows: Iterator[Any]) -> Iterator[list[Any]]:
    portion: list[Any] = []
    for row in rows:
        portion.append(row)
        if len(portion) == KEYS_AT_ONCE:
            yield portion
            portion = []
    yield portion


# --- left-overs --------------------------------------------------------------------------------------


def _remove_leftovers(path: Path, layout: ShardLayout | None, disk: Disk) -> None:
    """Remove everything of a deal that is not in force: an unfinished one, or the old one."""
    for file in sorted(path.iterdir()):
        if LAYOUT.fullmatch(file.name) and file.is_dir():
            if layout is None or file.name != f"deal-{layout.number:08}":
                _remove_layout(file, disk)
        elif layout is not None and is_ours(file.name) and file.name not in ("lock", FACT):
            disk.remove(file)


def _remove_layout(place: Path, disk: Disk) -> None:
    for part in sorted(place.iterdir()):
        if PART.fullmatch(part.name) and part.is_dir():
            for file in sorted(part.iterdir()):
                if is_ours(file.name):
                    disk.remove(file)
            disk.remove_directory(part)
    disk.remove_directory(place)
