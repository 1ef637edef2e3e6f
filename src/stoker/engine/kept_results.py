"""Results of forgotten jobs, kept for later steps of their workflow.

The retention of its queue decides when a job is forgotten. Its result stays here until every step right after its own
has completed, so a join finds all of its inputs however long the other jobs take. This state changes only while records
are applied, so it is the same after a restart. This module knows step numbers and job ids, but no queues.
"""

import msgspec

from stoker.model.options import Codec
from stoker.records.stored import Stored

ENTRY_BYTES = 200
"""The memory of one entry beside its result."""


class KeptResult(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a forgotten job ended. A job that completed without a result needs no entry."""

    state: int
    result: bytes | Stored | None = None
    codec: Codec = "bytes"
    error: str = ""

    @property
    def size(self) -> int:
        """What counts against the tenant's limit, in memory or in the journal: a replay must decide the same."""
        return ENTRY_BYTES + len(self.result or b"") + len(self.error)

    @property
    def in_memory(self) -> int:
        return self.size - (len(self.result) if type(self.result) is Stored else 0)


class KeptResults:
    """The kept results of one workflow, for the jobs in one shard."""

    __slots__ = ("in_memory", "readers", "results", "size")

    def __init__(self, readers: dict[int, int]) -> None:
        self.readers = readers
        """How many later steps may still read from each step. A step that is missing here keeps nothing: it has no
        readers (any more), or had too much to keep.
        """
        self.results: dict[int, dict[int, KeptResult]] = {}
        """By step number and job id."""
        self.size = 0
        """The bytes of all of it."""
        self.in_memory = 0
        """The bytes that are not in the journal."""

    def add(self, step: int, job: int, kept: KeptResult) -> None:
        self.results.setdefault(step, {})[job] = kept
        self.size += kept.size
        self.in_memory += kept.in_memory

    def replace(self, step: int, job: int, kept: KeptResult) -> None:
        """The result of a job moves to the journal."""
        before = self.results[step][job]
        self.results[step][job] = kept
        self.in_memory += kept.in_memory - before.in_memory

    def read(self, step: int, readers: int = 1) -> None:
        """`readers` steps after this one will not read any more; a negative number: they may read again."""
        left = self.readers.get(step)
        if left is None:
            return
        self.readers[step] = left - readers
        if left <= readers:
            self.let_go(step)

    def let_go(self, step: int) -> None:
        """Drop the results of a step. From now on they are forgotten together with their jobs."""
        self.readers.pop(step, None)
        gone = self.results.pop(step, {}).values()
        self.size -= sum(kept.size for kept in gone)
        self.in_memory -= sum(kept.in_memory for kept in gone)

    def let_go_all(self) -> None:
        self.readers.clear()
        self.results.clear()
        self.size = self.in_memory = 0
