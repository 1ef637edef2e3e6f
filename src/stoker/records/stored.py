"""Payloads that lie in the journal and not in memory: who holds one knows its place and its size.

The engine never looks into a payload, so it does not care. What leaves the engine with one in it (a delivery, a view)
is completed on its way out, by whoever has the journal.
"""

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One payload: number `place` of those in the record `sequence` of its shard."""

    sequence: int
    place: int
    size: int

    def __len__(self) -> int:
        return self.size


class StoredRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The payloads from `place` on of one record, in the order of positions: backwards with a step of -1."""

    sequence: int
    place: int
    count: int
    sizes: int | list[int]
    """Of each, or one number for all; in the order of this run."""
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
        """Where they stand among the payloads of their record."""
        if self.step > 0:
            return slice(self.place, self.place + self.count)
        stop = self.place - self.count
        return slice(self.place, stop if stop >= 0 else None, -1)


SMALL_BYTES = 256
"""A payload or result up to this size is not worth the place where it could be found again."""


def total_size(sizes: int | list[int], count: int) -> int:
    """How long so many payloads are together."""
    return sizes * count if type(sizes) is int else sum(sizes)  # type: ignore[arg-type]


def sizes_of(payloads: Sequence[bytes]) -> int | list[int]:
    """How long each of them is, or one number when all are equally long."""
    sizes = list(map(len, payloads))
    return sizes[0] if sizes and sizes.count(sizes[0]) == len(sizes) else sizes


def counted(sizes: int | list[int] | None, payloads: Sequence[bytes]) -> int | list[int]:
    """What a record says of its payloads; one of an older release may say nothing."""
    return sizes if sizes is not None else sizes_of(payloads)
