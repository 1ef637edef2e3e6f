"""Payloads that are in the journal and not in memory: their place and size are known.

The engine never reads a payload, so it can hold these instead of bytes. When a reply with one leaves the engine (a
delivery, a view), the runtime reads the bytes from the journal.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec


class NotAtHand(Exception):
    """A payload, or a part of the log, is not in memory and has to be read first, which may take long.

    It never reaches a client: the runtime has the part read on another thread, and goes on with the command afterwards.
    """


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One payload: number `place` in the record `sequence` of its shard."""

    sequence: int
    place: int
    size: int

    def __len__(self) -> int:
        return self.size


class StoredRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Payloads of one record, starting at `place`; backwards with a step of -1."""

    sequence: int
    place: int
    count: int
    sizes: int | list[int]
    """Of each payload in the order of this run, or one number for all."""
    step: int = 1

    def __len__(self) -> int:
        return self.count

    def size_at(self, position: int) -> int:
        return self.sizes if type(self.sizes) is int else self.sizes[position]  # type: ignore[index]

    @overload
    def __getitem__(self, position: int) -> Stored: ...
    @overload
    def __getitem__(self, position: slice) -> "StoredRun": ...
    def __getitem__(self, position: int | slice) -> "Stored | StoredRun":
        if isinstance(position, int):
            return Stored(self.sequence, self.place + position * self.step, self.size_at(position))
        start, stop, _ = position.indices(self.count)
        sizes = self.sizes if type(self.sizes) is int else self.sizes[start:stop]  # type: ignore[index]
        return StoredRun(self.sequence, self.place + start * self.step, max(0, stop - start), sizes, self.step)

    def __iter__(self) -> Iterator[Stored]:
        return (self[position] for position in range(self.count))

    def backwards(self) -> "StoredRun":
        """The same payloads, last one first."""
        sizes = self.sizes if type(self.sizes) is int else self.sizes[::-1]  # type: ignore[index]
        return StoredRun(self.sequence, self.place + (self.count - 1) * self.step, self.count, sizes, -self.step)

    def places(self) -> slice:
        """The slice of these payloads in their record."""
        if self.step > 0:
            return slice(self.place, self.place + self.count)
        stop = self.place - self.count
        return slice(self.place, stop if stop >= 0 else None, -1)


SMALL_BYTES = 256
"""Payloads and results up to this size stay in memory: a reference to the log would save nothing."""


def total_size(sizes: int | list[int], count: int) -> int:
    """The size of this many payloads together."""
    return sizes * count if type(sizes) is int else sum(sizes)  # type: ignore[arg-type]


def sizes_of(payloads: Sequence[bytes]) -> int | list[int]:
    """The size of each payload, or one number if all are equal."""
    sizes = list(map(len, payloads))
    return sizes[0] if sizes and sizes.count(sizes[0]) == len(sizes) else sizes


def counted(sizes: int | list[int] | None, payloads: Sequence[bytes]) -> int | list[int]:
    """The sizes that a record states; records of older releases may state none."""
    return sizes if sizes is not None else sizes_of(payloads)
