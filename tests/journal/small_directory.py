"""A small data directory with everything in it, made without a queue; and a snapshot of files that stand still."""

from collections.abc import Iterable
from pathlib import Path

import apsw
import msgspec

from stoker.journal.checkpoint_files import write_checkpoint
from stoker.journal.directory import LogEntry, Manifest, manifest_text
from stoker.journal.disk import Disk
from stoker.journal.logfile import LogFile, position_of
from stoker.records.codec import encode_row
from stoker.records.records import CancelRequested, JobsPushed

NOW = 1_800_000_000_000
ID = "0123456789abcdef0123456789abcdef"


class Frozen:
    """A snapshot of files that nobody writes to."""

    def __init__(self, files: list[Path], manifest: bytes) -> None:
        self.files, self.manifest = files, manifest


def write_log(path: Path, rows: Iterable[tuple[int, int, bytes]]) -> LogEntry:
    file = LogFile.create(path, Disk())
    for shard, first, data in rows:
        file.append([(position_of(shard, first), data)])
    file.seal()
    file.close()
    return LogEntry(name=path.name, state="sealed", bytes=path.stat().st_size)


def row(shard: int, first: int, records: int = 2, payload: bytes = b"x") -> tuple[int, int, bytes]:
    pushed = JobsPushed(NOW, "acme", "q", 64, (payload,))
    content = [pushed, *(CancelRequested(NOW, "acme", "q", 64) for _ in range(records - 1))]
    return shard, first, encode_row(content, position_of(shard, first))


def make_directory(path: Path, directory_id: str = ID, payload: bytes = b"x" * 2_000) -> Frozen:
    """Two shards, two log files, a checkpoint and old keys."""
    path.mkdir()
    first = write_log(path / "log-00000001.db", [row(0, 1), row(1, 1, 3), row(0, 3, 1, payload)])
    second = write_log(path / "log-00000002.db", [row(0, 4), row(1, 4), row(0, 6)])
    logs = [msgspec.structs.replace(first, last=[3, 3]), msgspec.structs.replace(second, last=[7, 5])]
    with (path / "checkpoint-00000003").open("wb") as file:
        write_checkpoint(file.write, [(0, b"state of 0"), (1, b"state of 1")])
    keys = apsw.Connection(str(path / "keys.db"))
    keys.execute("CREATE TABLE keys (key TEXT); INSERT INTO keys VALUES ('a'), ('b')")
    keys.close()
    manifest = Manifest(
        id=directory_id,
        shards=2,
        epoch=3,
        number=3,
        checkpoint="checkpoint-00000003",
        position=[3, 3],
        logs=logs,
        lowest=[1, 1],
    )
    return Frozen(sorted(path.iterdir()), manifest_text(manifest))
