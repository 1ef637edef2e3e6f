"""Checkpoints: the saved state of all shards, chunk by chunk.

`made_anew` makes the chunks from the last checkpoint and the log behind it, wherever either lies. The rest is the file
that a data directory keeps them in, each with a checksum:

"STOKERCP" | for each chunk: length, 4 bytes | checksum, 4 | shard, 1 | data      the last chunk is empty
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from struct import Struct
from zlib import crc32

from stoker.engine.checkpoint_saving import load, references, save
from stoker.engine.shard import Shard
from stoker.journal.recovery import LogPart, Saved, replay_tail
from stoker.model.errors import Damaged

MAGIC = b"STOKERCP"
HEAD = Struct("<IIB")
END = 255
"""The shard number of the chunk that ends a file: one without it was not finished."""


EVERY_PAYLOAD = 1
"""Nothing is held in memory that can stay in the journal."""

Chunk = tuple[int, bytes]
"""A piece of a checkpoint, and the shard that it belongs to."""
Refer = Callable[[int, Iterable[int]], object]
"""Told of each shard which records of the log it still refers to."""


def made_anew(
    own: Iterable[int], saved: Saved, parts: Sequence[LogPart], position: list[int], refer: Refer
) -> Iterator[Chunk]:
    """The chunks of the shards with these numbers, one shard in memory at a time.

    It does what a restart does: what was saved before, the finished parts of the log behind it, the same `apply`.
    `position` is filled in with how far each shard has come.
    """
    for shard, start in _saved_before(own, saved):
        reached, _ = replay_tail(shard, start, parts, EVERY_PAYLOAD)
        position[shard.number] = reached
        for chunk in save(shard, reached):
            yield shard.number, chunk
        refer(shard.number, references(shard))
        shard.close()


def _saved_before(own: Iterable[int], saved: Saved) -> Iterator[tuple[Shard, int]]:
    missing = dict.fromkeys(own)
    for number, chunks in saved:
        del missing[number]
        yield load(chunks)
    for number in missing:
        yield Shard(number), 0


def write_checkpoint(write: Callable[[bytes], object], chunks: Iterable[Chunk], bytes_max: int | None = None) -> None:
    """Chunks with the shard that they belong to, shard after shard."""
    write(MAGIC)
    size = 0
    for shard, data in chunks:
        size += HEAD.size + len(data)
        if bytes_max is not None and size > bytes_max:
            raise OSError(errno.ENOSPC, f"the disk is full, and a checkpoint takes more than {bytes_max} bytes")
        write(HEAD.pack(len(data), crc32(data, shard), shard) + data)
    write(HEAD.pack(0, crc32(b"", END), END))


def read_checkpoint(path: Path) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The chunks of each shard; they must be read before the next shard is asked for."""
    if not path.exists():
        raise Damaged(f"{path} is missing: restore the directory from a backup")
    with path.open("rb") as file:
        yield from read_chunks(file.read, lambda what: Damaged(f"{path} {what}: restore the directory from a backup"))


def read_chunks(
    read: Callable[[int], bytes], damaged: Callable[[str], Damaged]
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The same from anywhere: `read` returns so many of the bytes that come next, and fewer only at the end."""
    for shard, chunks in groupby(_chunks(read, damaged), key=lambda chunk: chunk[0]):
        yield shard, (data for _, data in chunks)


def _chunks(read: Callable[[int], bytes], damaged: Callable[[str], Damaged]) -> Iterator[Chunk]:
    if read(len(MAGIC)) != MAGIC:
        raise damaged("is not a checkpoint")
    at = len(MAGIC)
    while True:
        head = read(HEAD.size)
        if len(head) < HEAD.size:
            raise damaged(f"ends at byte {at} without its end")
        size, checksum, shard = HEAD.unpack(head)
        data = read(size)
        if len(data) != size or crc32(data, shard) != checksum:
            raise damaged(f"is damaged at byte {at}")
        if shard == END:
            return
        yield shard, data
        at += HEAD.size + size
