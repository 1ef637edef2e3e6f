"""The key-value entries of one tenant: a table, and the keys in order.

The order is kept in blocks, so the cost of a new key or of a page of keys does not grow with the number of keys. This
module knows nothing of time or records.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import msgspec

from stoker.model.options import Codec

BLOCK_KEYS_MAX = 2_048
"""A larger block is split in two. Shifting this many pointers takes less than a microsecond."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """A value and its expiry time; 0 = never."""

    value: bytes
    codec: Codec = "bytes"
    expires_at: int = 0


class Entries:
    """Entries by key, and in the order of the keys."""

    __slots__ = ("_blocks", "_firsts", "_table")

    def __init__(self) -> None:
        self._table: dict[str, Entry] = {}
        self._blocks: list[list[str]] = []
        self._firsts: list[str] = []
        """The first key of each block."""

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __getitem__(self, key: str) -> Entry:
        return self._table[key]

    def get(self, key: str) -> Entry | None:
        return self._table.get(key)

    def put(self, key: str, entry: Entry) -> Entry | None:
        """Store an entry and return the one that it replaces."""
        before = self._table.get(key)
        self._table[key] = entry
        if before is None:
            self._insert(key)
        return before

    def pop(self, key: str) -> Entry | None:
        entry = self._table.pop(key, None)
        if entry is not None:
            self._take_out(key)
        return entry

    def keys_from(self, start: str) -> Iterator[str]:
        """The keys from `start` on, in order."""
        place = max(0, bisect_right(self._firsts, start) - 1)
        for number in range(place, len(self._blocks)):
            block = self._blocks[number]
            yield from block[bisect_left(block, start) :] if number == place else block

    def _insert(self, key: str) -> None:
        place = max(0, bisect_right(self._firsts, key) - 1)
        if not self._blocks:
            self._blocks.append([])
            self._firsts.append(key)
        block = self._blocks[place]
        insort(block, key)
        if len(block) > BLOCK_KEYS_MAX:
            middle = len(block) // 2
            self._blocks.insert(place + 1, block[middle:])
            self._firsts.insert(place + 1, block[middle])
            del block[middle:]
        self._firsts[place] = block[0]

    def _take_out(self, key: str) -> None:
        place = bisect_right(self._firsts, key) - 1
        block = self._blocks[place]
        del block[bisect_left(block, key)]
        if block:
            self._firsts[place] = block[0]
        else:
            del self._blocks[place], self._firsts[place]
