"""Making a checkpoint, in a short-lived process of low priority: `python -m stoker.journal.checkpointing`.

It does what a restart does, shard by shard: the last checkpoint, the finished log files behind it, the same `apply`;
and saves what comes out. So the process that serves never stops to write its state down, and recovery is exercised all
day.
Knowing what the state still refers to, it also tells which files of the log past retention may go, and rewrites those
that are mostly dead. It only ever writes new files; the owner of the directory puts them in force.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from stoker.engine.saving import load, references, save
from stoker.engine.shard import Shard
from stoker.journal.checkpoints import read_checkpoint, write_checkpoint
from stoker.journal.directory import Log, Manifest, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.logfile import INSERT, PAGE_BYTES, LogFile
from stoker.journal.recovery import replay_tail
from stoker.journal.sqlite import Segment

EVERY_PAYLOAD = 1
"""Nothing is held in memory that can stay in the journal."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner asks for, on standard input."""

    path: str
    checkpoint: str
    """The name of the file to be made."""
    rewritten: str
    """The name of the log file to be made, if something is to be rewritten."""
    expired: int
    """So many files of the log, from the first, are past retention: no reader of events needs them."""
    rewrite_below: float
    vfs: str = ""
    owner: int = 0
    """The process that asks; nobody would use what is made when it is gone."""


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """A new file of the log, and those whose place it takes."""

    log: Log
    instead_of: list[str]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, on standard output."""

    position: list[int]
    dropped: list[str]
    """Files that nothing needs any more."""
    rewritten: Rewritten | None = None


class Needs:
    """What of each file is still referred to."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.rows: dict[str, set[int]] = {segment.log.name: set() for segment in segments}
        """Positions, by file."""
        self.bytes: dict[str, int] = dict.fromkeys(self.rows, 0)

    def add(self, shard: int, sequences: Iterator[int]) -> None:
        for sequence in sequences:
            for segment in self._segments:
                if segment.log.last[shard] >= sequence:
                    self._add(segment, shard, sequence)
                    break

    def _add(self, segment: Segment, shard: int, sequence: int) -> None:
        position, size = segment.file.place_of(shard, sequence)
        rows = self.rows[segment.log.name]
        if position not in rows:
            rows.add(position)
            self.bytes[segment.log.name] += size


def make(request: Request, disk: Disk) -> Made:
    directory = Path(request.path)
    manifest = read_manifest(directory / "manifest.json")
    logs = [log for log in manifest.logs if log.state != "open"]
    segments = [Segment(log, LogFile.sealed(directory / log.name, request.vfs)) for log in logs]
    expired = segments[: request.expired]
    needs = Needs(expired)
    position = [0] * manifest.shards
    with disk.new_file(directory / request.checkpoint) as write:
        write_checkpoint(write, _saved(directory, manifest, segments, needs, position))
    dropped = [segment.log.name for segment in expired if not needs.rows[segment.log.name]]
    rewritten = _rewrite(directory, request, expired, needs)
    return Made(position=position, dropped=dropped, rewritten=rewritten)


def _saved(
    directory: Path, manifest: Manifest, segments: list[Segment], needs: Needs, position: list[int]
) -> Iterator[tuple[int, bytes]]:
    """The chunks of all shards, one shard in memory at a time."""
    for shard, start in _earlier(directory, manifest):
        stop_if_orphaned()
        reached, _ = replay_tail(shard, start, segments, EVERY_PAYLOAD)
        position[shard.number] = reached
        for chunk in save(shard, reached):
            yield shard.number, chunk
        needs.add(shard.number, references(shard))
        shard.close()


def _earlier(directory: Path, manifest: Manifest) -> Iterator[tuple[Shard, int]]:
    missing = dict.fromkeys(manifest.own)
    if manifest.checkpoint is not None:
        for number, chunks in read_checkpoint(directory / manifest.checkpoint):
            del missing[number]
            yield load(chunks)
    for number in missing:
        yield Shard(number), 0


def _rewrite(directory: Path, request: Request, expired: list[Segment], needs: Needs) -> Rewritten | None:
    """Neighbouring files that are mostly dead become one with only what is needed."""
    run: list[Segment] = []
    for segment in expired:
        needed, size = needs.bytes[segment.log.name], max(1, segment.log.bytes)
        if needed and needed / size < request.rewrite_below and (segment.log.state == "sealed" or run):
            run.append(segment)
        elif needed and run:
            break
    if not run:
        return None
    path = directory / request.rewritten
    connection = apsw.Connection(str(path), vfs=request.vfs or None)
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("synchronous", 2)
    with connection:
        connection.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        for segment in run:
            for place in sorted(needs.rows[segment.log.name]):
                connection.execute(INSERT, (place, segment.file.data_at(place)))
    connection.close()
    last = run[-1].log
    names = [segment.log.name for segment in run]
    size = path.stat().st_size
    log = Log(name=path.name, state="sparse", last=last.last, ended_at=last.ended_at, bytes=size)
    return Rewritten(log=log, instead_of=names)


PARENT: list[int] = []
"""The process that asked, when this is one of its own."""


def stop_if_orphaned() -> None:
    """Nobody would use what an orphan makes."""
    if PARENT and os.getppid() != PARENT[0]:
        sys.exit(1)


def main() -> None:
    os.nice(19)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    PARENT.append(request.owner or os.getppid())
    made = make(request, Disk())
    sys.stdout.buffer.write(msgspec.json.encode(made))


if __name__ == "__main__":
    main()
