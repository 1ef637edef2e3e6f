"""Making a checkpoint, in a short-lived process of low priority: `python -m stoker.journal.checkpointing`.

It does what a restart does, shard by shard (`checkpoints.made_anew`), over the finished files of a data directory, and
saves what comes out. So the process that serves never stops to write its state down, and recovery is exercised all day.
Knowing what the state still refers to, it also tells which files of the log past retention may go, and rewrites those
that are mostly dead. It only ever writes new files; the owner of the directory puts them in force.
"""

from pathlib import Path

import apsw
import msgspec

from stoker.journal.checkpoint_files import made_anew, read_checkpoint, write_checkpoint
from stoker.journal.checkpoint_process import run, unless_orphaned
from stoker.journal.directory import LogEntry, read_manifest
from stoker.journal.disk import Disk
from stoker.journal.logfile import INSERT, PAGE_BYTES, LogFile
from stoker.journal.needed import Needs
from stoker.journal.sqlite import Segment


class CheckpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner asks for, on standard input."""

    path: str
    checkpoint: str
    """The name of the file to be made."""
    rewritten: str
    """The name of the log file to be made, if something is to be rewritten."""
    expired: int
    """So many files of the log, from the first, are past retention: no reader of events needs them."""
    rewrite_below: float
    bytes_max: int | None = None
    """The checkpoint may take no more than this."""
    vfs: str = ""
    owner: int = 0
    """The process that asks. Without it, no process would use what is made."""


class Rewritten(msgspec.Struct, frozen=True, kw_only=True):
    """A new file of the log, and those whose place it takes."""

    log: LogEntry
    instead_of: list[str]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, on standard output."""

    position: list[int]
    dropped: list[str]
    """Files that nothing needs any more."""
    rewritten: Rewritten | None = None


def make(request: CheckpointRequest, disk: Disk) -> Made:
    directory = Path(request.path)
    manifest = read_manifest(directory / "manifest.json")
    logs = [log for log in manifest.logs if log.state != "open"]
    segments = [Segment(log, LogFile.sealed(directory / log.name, request.vfs)) for log in logs]
    expired = segments[: request.expired]
    needs = Needs(expired)
    position = [0] * manifest.shards
    before = read_checkpoint(directory / manifest.checkpoint) if manifest.checkpoint is not None else ()
    chunks = made_anew(manifest.own, before, segments, position, needs.add)
    with disk.new_file(directory / request.checkpoint) as write:
        write_checkpoint(write, unless_orphaned(chunks), request.bytes_max)
    rewritten = _rewrite(directory, request, needs)
    return Made(position=position, dropped=needs.unneeded(), rewritten=rewritten)


def _rewrite(directory: Path, request: CheckpointRequest, needs: Needs[Segment]) -> Rewritten | None:
    """Neighbouring files that are mostly dead become one with only what is needed."""
    run = needs.mostly_dead(request.rewrite_below)
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
    log = LogEntry(name=path.name, state="sparse", last=last.last, ended_at=last.ended_at, bytes=size)
    return Rewritten(log=log, instead_of=names)


def main() -> None:
    run(CheckpointRequest, lambda request: make(request, Disk()))


if __name__ == "__main__":
    main()
